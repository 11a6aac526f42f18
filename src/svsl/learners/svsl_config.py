"""Settings of the SVSL learner, and the schedule that follows from them."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from svsl.learners.base import LearnerConfig, SearchSpace, require, shrunk
from svsl.learners.surrogates import feature_count
from svsl.model.mixture import input_count

_MOST_COMPONENTS = 10_000


@dataclass(frozen=True)
class SVSLConfig(LearnerConfig):
    """Settings of the SVSL learner.

    Examples:
        >>> from svsl.learners.svsl_config import SVSLConfig
        >>> SVSLConfig(components=10, gamma=0.2).gamma  # svsl.train takes the same names
        0.2
        >>> SVSLConfig(gamma=2.0)
        Traceback (most recent call last):
        svsl.errors.SvslError: setting gamma: expected at most beta (1), got 2.0
    """

    old_names: ClassVar = {"fresh": "from_scratch", "seeded_iterations": "warm_start_iterations"}

    components: int = 20
    """Components at the end, if none is removed (the paper's N): added one after the other, or split from fewer."""
    iterations: int = 350
    """Training iterations of each new component (K)."""
    curriculum: bool = True
    """Components choose their contexts and are added one after the other, as in the paper. Off: all start together,
    spread evenly over the box, and learn in the closing stage only, on uniform contexts from the first episode on."""
    splits: int = 0
    """How often, in equal parts of the closing stage, every component is split into two, which continue from its expert
    and its episodes, each in one half of its contexts. Training starts with `components / 2**splits`."""
    finetune_every: int = 50
    """Iterations between two updates of all components instead of only the newest (H)."""
    alpha: float = 1e-3
    """Entropy bonus of the experts: higher gives more varied, less precise skills."""
    beta: float = 1.0
    """Entropy bonus of the context distributions: higher spreads each component over more contexts."""
    gamma: float | None = None
    """Price of being distinct, from 0 to beta: higher keeps different skills in the same context, where a lower one
    makes components avoid each other's contexts. Default alpha, as in the paper."""
    distinguish_by: Literal["parameters", "behaviour"] = "parameters"
    """What makes skills distinct: their parameters, as in the paper, or what they do, if the task describes behaviours
    (`info["path"]`)."""
    beta_weight: float | None = None
    """Entropy bonus of the component weights: higher keeps more components at the end (beta_w). Default beta; a lower
    one throws away what was learned."""
    auxiliary: bool = True
    """Add the log responsibilities and the log gating to the rewards; off is the paper's ablation."""
    kl_expert: float = 0.01
    """KL bound of an expert's step."""
    kl_context: float = 0.01
    """KL bound of a context distribution's step."""
    kl_weight: float = 0.01
    """KL bound of a weight step."""
    weight_iterations: int = 100
    """Weight updates at the end; 0 leaves the weights as they are: equal, but for those of an extended library."""
    min_weight: float = 1e-6
    """Components whose final weight is below this are removed."""
    closing_iterations: int = 0
    """Iterations of a closing stage at the end: experts are trained on uniform contexts, each on those that the gating
    gives it, so that they fit where they are used. Weights are learned after it, if at all."""
    closing_batch: int = 40
    """New episodes per component and iteration of the closing stage, on average."""
    kl_closing: float = 0.02
    """KL bound of an expert's step in the closing stage."""
    kl_closing_end: float | None = None
    """KL bound of the last step of the closing stage. After the last split (without splits, from the beginning) the
    bound falls to it by the same factor in each iteration: large steps learn fast, small ones are less noisy. Default
    `kl_closing`, which does not fall."""
    closing_degree: Literal[1, 2] | None = None
    """Degree of the experts' means from the closing stage on; default `expert_degree`. Quadratic experts are easier to
    learn from linear ones that have found a skill than from scratch."""
    closing_shrinkage: float | None = None
    """Shrinkage in the closing stage; default `shrinkage`."""
    closing_entropy_loss: float | None = None
    """Most entropy that an expert may lose in a step of the closing stage; default `entropy_loss`."""
    kl_gating: float | None = None
    """Bound on the expected KL divergence of a gating step after each iteration of the closing stage. These steps send
    each context to the components that are better there and take no episodes of their own. They replace the weight
    updates: `weight_iterations`, `beta_weight` and `min_weight` have no effect. Default: none."""
    context_batch: int | None = None
    """New episodes per context step; default 0.6 times 1.5 times the features of a quadratic in the context."""
    expert_batch: int | None = None
    """New episodes per expert step; default 0.6 times the buffer."""
    buffer: int | None = None
    """Newest episodes per component used by its updates; default 1.5 times the features of the expert's model."""
    shrinkage: float = 0.0
    """How strongly the expert's model is drawn to equal curvatures in all directions: less noise and fewer episodes, if
    `entropy_loss` keeps the search wide. Try 10; 0 is the paper's plain fit."""
    entropy_loss: float | None = None
    """Most entropy that an expert may lose in a step, in nats per parameter; default no bound of its own."""
    expert_degree: Literal[1, 2] = 1
    """Degree of the experts' means as polynomials of the context: linear, as in the paper, or quadratic."""
    draw_together: bool = False
    """Run the episodes of an iteration's context step and expert step as one batch, which uses more cores."""
    reject_outside: bool = False
    """Run only contexts inside the box; the learner scores the others itself, clearly worse than those inside. Always
    so if the task does not score them."""
    delete_factor: float | None = None
    """Delete a trained component whose mean return falls short of the others' mean m by more than (factor - 1) |m|:
    with m = -2 and a factor of 5 below -10, with m = 2 and a factor of 1.5 below 1. Default: delete none."""
    from_scratch: int | None = None
    """Components that start at random with the task's initial search; default all. The others start from a good stored
    episode near sparsely covered contexts: they learn much faster, but resemble their neighbours."""
    warm_start_iterations: int | None = None
    """Training iterations of a component that starts from a stored episode; default the same as of the others."""
    warm_start_std: tuple[float, ...] | None = None
    """Standard deviation of the context distribution of a component that starts from a stored episode; default that of
    the component that the episode belongs to."""
    start_tests: int = 0
    """Contexts in which the library is tested before a component is added, which starts near one of those with the
    lowest returns; 0: near random ones."""
    context_start_std: tuple[float, ...] | None = None
    """Standard deviation of new components' context means around the middle of the box; default 0.6 of its width."""
    context_std: tuple[float, ...] | None = None
    """Standard deviation of a new component's context distribution; default half the box's width."""
    context_scale: tuple[float, ...] | None = None
    """Unit of length of each context dimension: the value baseline smooths over 0.5 units, and the standard deviations
    of context distributions stay within 5e-5 to 3 units. Default a quarter of the box's width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.components <= _MOST_COMPONENTS, "components", f"at most {_MOST_COMPONENTS}", self.components)
        self.require_at_least(1, "components", "iterations", "finetune_every", "warm_start_iterations", "delete_factor")
        self.require_at_least(1, "context_batch", "expert_batch", "buffer", "closing_batch")
        self.require_at_least(0, "alpha", "beta", "beta_weight", "weight_iterations", "from_scratch")
        self.require_at_least(0, "gamma", "closing_iterations", "start_tests", "shrinkage", "entropy_loss", "splits")
        self.require_at_least(0, "closing_shrinkage", "closing_entropy_loss")
        require(self.gamma is None or self.gamma <= self.beta, "gamma", f"at most beta ({self.beta:g})", self.gamma)
        for name in ("kl_expert", "kl_context", "kl_weight", "kl_closing"):
            require(getattr(self, name) > 0, name, "above 0", getattr(self, name))
        require(self.kl_gating is None or self.kl_gating > 0, "kl_gating", "above 0", self.kl_gating)
        end = self.kl_closing if self.kl_closing_end is None else self.kl_closing_end
        require(0 < end <= self.kl_closing, "kl_closing_end", f"above 0, at most kl_closing ({self.kl_closing:g})", end)
        require(self.expert_degree in (1, 2), "expert_degree", "1 or 2", self.expert_degree)
        possible = "1 or 2" if self.expert_degree == 1 else "2, like expert_degree"
        good = self.closing_degree in (None, self.expert_degree, 2)
        require(good, "closing_degree", possible, self.closing_degree)
        closing = self.curriculum or self.closing_iterations > 0
        require(closing, "closing_iterations", "at least 1 without a curriculum", self.closing_iterations)
        require(self.closing_iterations > 0 or not self.splits, "splits", "0 without a closing stage", self.splits)
        most = max(0, self.closing_iterations - 1)
        require(self.splits <= most, "splits", f"below closing_iterations ({self.closing_iterations})", self.splits)
        parts = 2 ** min(self.splits, 30)
        require(self.components % parts == 0, "components", f"a multiple of {parts}, or splits 0", self.components)
        require(0 <= self.min_weight < 1, "min_weight", "at least 0 and below 1", self.min_weight)

    @property
    def distinction_price(self) -> float:
        """The price of being distinct: `gamma`, by default `alpha`."""
        return self.alpha if self.gamma is None else self.gamma

    @property
    def closing(self) -> Self:
        """The settings in the closing stage, at its beginning."""
        return replace(
            self,
            kl_expert=self.kl_closing,
            expert_degree=self.closing_degree or self.expert_degree,
            shrinkage=self.shrinkage if self.closing_shrinkage is None else self.closing_shrinkage,
            entropy_loss=self.entropy_loss if self.closing_entropy_loss is None else self.closing_entropy_loss,
        )

    @property
    def warning(self) -> str | None:
        """What is likely a mistake: settings without effect, or weights that throw away what was trained."""
        stage = ("kl_closing_end", "kl_gating", "closing_degree", "closing_shrinkage", "closing_entropy_loss")
        unused = [name for name in stage if getattr(self, name) is not None]
        if unused and not self.closing_iterations:
            have = "has" if len(unused) == 1 else "have"
            return f"{', '.join(unused)} {have} no effect without a closing stage: set closing_iterations"
        if self.beta_weight is None or self.beta_weight >= self.beta or not self.learns_weights:
            return None
        return (
            f"beta_weight {self.beta_weight:g} is below beta {self.beta:g}: learning the weights will throw away "
            "components; leave it out to use beta"
        )

    @property
    def learns_weights(self) -> bool:
        """Whether the weights are learned at the end; not if the closing stage has learned the whole gating."""
        return self.weight_iterations > 0 and not self.learns_gating

    @property
    def learns_gating(self) -> bool:
        """Whether the closing stage learns the gating."""
        return self.kl_gating is not None and self.closing_iterations > 0

    def planned_episodes(self, space: SearchSpace) -> int:
        """Returns the episodes a run asks for; fewer if it deletes components, more if it rejects contexts."""
        return Schedule(self.resolved(space)).total

    def scaled(self, scale: float, power: float) -> Self:
        """Returns the settings of a smaller run."""
        components = shrunk(self.components, scale, 2)
        splits = min(self.splits, components.bit_length() - 1)
        components -= components % 2**splits
        iterations = shrunk(self.iterations, scale, 5, power)
        filled = 0 if self.curriculum or self.buffer is None else -(-self.buffer // self.closing_batch)
        closing = shrunk(self.closing_iterations, scale, min(filled + 5 + splits, self.closing_iterations), power)
        return replace(self, components=components, splits=splits, iterations=iterations, closing_iterations=closing)

    def with_budget(self, episodes: float) -> Self:
        """Returns the settings unchanged: the number of components sets the budget, which other learners match."""
        return self

    def resolved(self, space: SearchSpace) -> Self:
        """Returns the settings with every default that depends on the task filled in."""
        width = space.context_high - space.context_low
        dim_context, dim = len(width), len(space.initial_mean)
        stages = [self, self.closing] if self.closing_iterations else [self]
        inputs = [input_count(dim_context, stage.expert_degree) for stage in stages]
        features = [
            feature_count(dim + n) if stage.expert_degree == 1 else feature_count(dim) + n * (1 + dim)
            for stage, n in zip(stages, inputs, strict=True)
        ]
        buffer = self.buffer if self.buffer is not None else int(1.5 * max(features))
        for stage, n, size in zip(stages, inputs, features, strict=True):
            least, what = (1 + dim + n, "linear terms") if stage.shrinkage else (size, "features")
            require(buffer >= least, "buffer", f"at least the {least} {what} of the expert's model", buffer)
        if not self.curriculum:  # a component makes its first step when its buffer is full
            least = -(-buffer // self.closing_batch)
            what = f"at least {least} without a curriculum, to fill the buffer ({buffer}) by {self.closing_batch}"
            require(self.closing_iterations >= least, "closing_iterations", what, self.closing_iterations)
        least = feature_count(dim_context) if self.learns_gating else 0
        require(buffer >= least, "buffer", f"at least the {least} features of a gating step's model", buffer)

        def vector(name: str, share: float = 0.0) -> tuple[float, ...]:
            value = getattr(self, name)
            # a task may leave out its last context dimensions: a preset's values for them are then ignored
            value = tuple(float(v) for v in (share * width if value is None else value[:dim_context]))
            good = len(value) == dim_context and min(value) > 0
            require(good, name, f"{dim_context} numbers above 0, one per context dimension", value)
            return value

        return replace(
            self,
            beta_weight=self.beta if self.beta_weight is None else self.beta_weight,
            buffer=buffer,
            context_batch=self.context_batch or int(0.6 * int(1.5 * feature_count(dim_context))),
            expert_batch=self.expert_batch or int(0.6 * buffer),
            warm_start_std=None if self.warm_start_std is None else vector("warm_start_std"),
            context_start_std=vector("context_start_std", 0.6),
            context_std=vector("context_std", 0.5),
            context_scale=vector("context_scale", 0.25),
        )


@dataclass(frozen=True)
class Schedule:
    """How each component starts, how long it is trained, and how many episodes that takes."""

    config: SVSLConfig  # resolved
    base: int = 0  # components the learner starts with
    frozen: int = 0  # components of the base that are never updated

    @property
    def added(self) -> int:
        """Components that are added one by one, or start together; the others come from splits."""
        return self.config.components >> self.config.splits

    @property
    def batch_sizes(self) -> dict[str, int]:
        """New episodes per component in each stage of training."""
        config = self.config
        assert config.buffer is not None
        assert config.context_batch is not None
        assert config.expert_batch is not None
        return {
            "fill": config.buffer,
            "context": config.context_batch,
            "expert": config.expert_batch,
            "weights": config.buffer if config.learns_weights else 0,
            "closing": config.closing_batch,
        }

    def splits_after(self, iteration: int) -> bool:
        """Returns whether all components are split after this iteration of the closing stage."""
        return self._splits_until(iteration) > self._splits_until(iteration - 1)

    def _splits_until(self, iteration: int) -> int:
        """Returns the splits made when this iteration of the closing stage is done; the last part ends without one."""
        parts = self.config.splits + 1
        return min(iteration * parts // self.config.closing_iterations, parts - 1) if parts > 1 else 0

    def closing_settings(self, iteration: int) -> SVSLConfig:
        """Returns the settings of the step that ends this iteration of the closing stage, numbered from 1."""
        config, end = self.config.closing, self.config.kl_closing_end
        if end is None:
            return config
        last_split = -(-config.closing_iterations * config.splits // (config.splits + 1))
        share = max(0, iteration - last_split) / (config.closing_iterations - last_split)
        return replace(config, kl_expert=config.kl_closing * (end / config.kl_closing) ** share)

    def closing_components(self, iteration: int, deleted: int = 0) -> int:
        """Returns how many components draw episodes after an iteration, if `deleted` were deleted before the stage."""
        return (self.base + self.added - deleted) << self._splits_until(iteration)

    def warm_starts(self, component: int) -> bool:
        """Returns whether a component, numbered from 1, starts from a stored episode."""
        from_scratch = self.config.from_scratch
        return from_scratch is not None and component > max(from_scratch, 0 if self.base else 1)

    def iterations(self, component: int) -> int:
        """Returns the training iterations of a component, numbered from 1."""
        warm_start_iterations = self.config.warm_start_iterations if self.warm_starts(component) else None
        return warm_start_iterations or self.config.iterations

    def episodes_until(self, component: int, iteration: int) -> int:
        """Returns the episodes asked for (without rejections) until this iteration of this component is done."""
        config, sizes, updated = self.config, self.batch_sizes, self.base - self.frozen
        if not config.curriculum:
            return 0
        total = self.base * sizes["fill"]
        for number in range(1, component + 1):
            iterations = self.iterations(number) if number < component else iteration
            others = iterations // config.finetune_every * (number - 1 + updated)
            total += config.start_tests * (number > 1 or self.base > 0)
            total += sizes["fill"] + (iterations + others) * (sizes["context"] + sizes["expert"])
        return total

    def episodes_until_closing(self, iteration: int) -> int:
        """Returns the episodes asked for until this iteration of the closing stage is done."""
        last = self.added
        drawn = sum(self.closing_components(done) for done in range(iteration))
        return self.episodes_until(last, self.iterations(last)) + drawn * self.batch_sizes["closing"]

    def episodes_so_far(self, stage: str, component: int, iteration: int) -> int:
        """Returns the episodes asked for up to the last finished iteration, once the first ones have been run."""
        if stage == "done":
            return self.total
        if stage in ("closing", "weights"):
            return self.episodes_until_closing(iteration if stage == "closing" else self.config.closing_iterations)
        if stage in ("fill", "start"):
            return self.episodes_until(component, 0) - self.batch_sizes["fill"]
        return self.episodes_until(component, iteration - 1)

    @property
    def total(self) -> int:
        """Episodes of the whole run, including those for the weights."""
        count = self.base + self.config.components
        weights = count * self.batch_sizes["weights"] if count > 1 else 0  # one component needs none
        return self.episodes_until_closing(self.config.closing_iterations) + weights
