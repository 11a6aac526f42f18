"""Settings of the SVSL learner."""

from __future__ import annotations

from dataclasses import dataclass, replace

from svsl.learners.base import SearchSpace, require
from svsl.learners.surrogates import feature_count


@dataclass(frozen=True)
class SVSLConfig:
    """Settings of the SVSL learner."""

    components: int = 20
    """Components to add, one after the other (the paper's N)."""
    iterations: int = 350
    """Iterations each new component is trained for (K)."""
    finetune_every: int = 50
    """Every so many iterations all components are updated, not only the newest (H)."""
    alpha: float = 1e-3
    """Entropy bonus of the experts: higher gives more different, less precise skills."""
    beta: float = 1.0
    """Entropy bonus of the context distributions: higher spreads each component over more contexts."""
    beta_weight: float = 1.0
    """Entropy bonus of the component weights: higher keeps more components at the end (beta_w)."""
    auxiliary: bool = True
    """Augment the rewards by the log responsibilities and the log gating; off is the paper's ablation."""
    kl_expert: float = 0.01
    """KL bound of an expert's step."""
    kl_context: float = 0.01
    """KL bound of a context distribution's step."""
    kl_weight: float = 0.01
    """KL bound of a weight step."""
    weight_iterations: int = 100
    """Weight updates at the end; 0 leaves the weights uniform."""
    min_weight: float = 1e-6
    """Components whose final weight is below this are removed."""
    context_batch: int | None = None
    """New episodes per context step; default 0.6 times 1.5 times the features of a quadratic in the context."""
    expert_batch: int | None = None
    """New episodes per expert step; default 0.6 times the buffer."""
    buffer: int | None = None
    """Newest episodes of a component that its updates use; default 1.5 times the features of the expert's model."""
    draw_together: bool = False
    """Run the episodes of an iteration's context step and expert step as one batch: fills more cores."""
    reject_outside: bool = False
    """Fit experts to contexts inside the box only; the others are still asked for, and shape the context steps."""
    delete_factor: float | None = None
    """Delete a trained component whose mean return is that much worse than the others': of -2 by a factor of 5 is -10,
    of 2 by a factor of 1.5 is 1 (what is missing is 0.5 times the size of the others' mean)."""
    fresh: int | None = None
    """Components that start at random with the task's initial search; default all. The others start at a good stored
    episode beside contexts that are covered little: they learn far faster, but do much the same as their neighbours."""
    seeded_iterations: int | None = None
    """Iterations of a component that starts at a stored episode; default as many as of the others."""
    context_start_std: tuple[float, ...] | None = None
    """Spread of new components' context means around the middle of the box; default 0.6 of its width."""
    context_std: tuple[float, ...] | None = None
    """Standard deviation of a new component's context distribution; default half the box's width."""
    context_scale: tuple[float, ...] | None = None
    """Unit of length of the context: the value baseline smooths over 0.5 units, context deviations stay within 5e-5
    to 3 units. Default a quarter of the box's width."""

    def __post_init__(self) -> None:
        for name in ("components", "iterations", "finetune_every"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("kl_expert", "kl_context", "kl_weight"):
            require(getattr(self, name) > 0, name, "above 0", getattr(self, name))
        for name in ("alpha", "beta", "beta_weight", "weight_iterations"):
            require(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))
        require(0 <= self.min_weight < 1, "min_weight", "at least 0 and below 1", self.min_weight)
        require(self.fresh is None or self.fresh >= 0, "fresh", "at least 0", self.fresh)
        for name in ("context_batch", "expert_batch", "buffer", "seeded_iterations"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, "at least 1", value)
        require(
            self.delete_factor is None or self.delete_factor >= 1, "delete_factor", "at least 1", self.delete_factor
        )

    def resolved(self, space: SearchSpace) -> SVSLConfig:
        """This configuration with every default that depends on the task filled in."""
        width = space.context_high - space.context_low
        dim_context, dim = len(width), len(width) + len(space.initial_mean)
        features = feature_count(dim)
        buffer = self.buffer if self.buffer is not None else int(1.5 * features)
        require(buffer >= features, "buffer", f"at least the {features} features of the expert's model", buffer)

        def vector(name: str, share: float) -> tuple[float, ...]:
            value = getattr(self, name)
            # a task may leave out its last context dimensions: what a preset says of them is then idle
            value = tuple(float(v) for v in (share * width if value is None else value[:dim_context]))
            good = len(value) == dim_context and min(value) > 0
            require(good, name, f"{dim_context} numbers above 0, one a context dimension", value)
            return value

        return replace(
            self,
            buffer=buffer,
            context_batch=self.context_batch or int(0.6 * int(1.5 * feature_count(dim_context))),
            expert_batch=self.expert_batch or int(0.6 * buffer),
            context_start_std=vector("context_start_std", 0.6),
            context_std=vector("context_std", 0.5),
            context_scale=vector("context_scale", 0.25),
        )
