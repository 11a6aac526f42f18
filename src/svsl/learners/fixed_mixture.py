"""The base of HiREPS and LaDiPS: a fixed number of components (their papers call them options), all updated at once."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

import numpy as np

from svsl.learners.base import (
    Arrays,
    Episodes,
    LearnerConfig,
    Progress,
    SearchSpace,
    add_prefix,
    require,
    shrunk,
    strip_prefix,
)
from svsl.model.gaussians import Array, IntArray, LinearGaussian
from svsl.model.mixture import Mixture
from svsl.model.random import rng_from_array, rng_to_array
from svsl.tasks.base import uniform_contexts

_MILESTONE_EVERY = 10  # iterations between tests
STD_FLOOR = 1e-5  # smallest std of an option, relative to the initial search and the context box


@dataclass(frozen=True)
class FixedMixtureConfig(LearnerConfig):
    """Settings of a learner with a fixed number of options."""

    components: int = 20
    """Number of options; all exist from the start (the paper's N)."""
    iterations: int = 300
    """Number of updates."""
    batch: int = 3000
    """New episodes per iteration."""
    history: int = 1
    """Newest batches used by an update."""
    min_weight: float = 1e-6
    """Options with a smaller weight are dropped."""
    context_std: tuple[float, ...] | None = None
    """Standard deviation of the initial context distributions; default a quarter of the box's width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "components", "iterations", "batch", "history")
        require(0 <= self.min_weight < 1, "min_weight", "at least 0 and below 1", self.min_weight)

    def planned_episodes(self, space: SearchSpace) -> int:
        """Returns the episodes a run asks for."""
        return self.iterations * self.batch

    def scaled(self, scale: float, power: float) -> Self:
        """Returns the settings of a smaller run; an iteration trains all components, so both factors apply to it."""
        components, iterations = shrunk(self.components, scale, 2), shrunk(self.iterations, scale, 5, 1 + power)
        return replace(self, components=components, iterations=iterations)

    def with_budget(self, episodes: float) -> Self:
        """Returns the settings of a run of about this many episodes."""
        return replace(self, iterations=max(1, round(episodes / self.batch)))


Config = TypeVar("Config", bound=FixedMixtureConfig)


class FixedMixtureLearner(ABC, Generic[Config]):
    """A learner whose `update` returns the next mixture; see `svsl.learners.base.Learner` for the contract.

    Attributes:
        options: The current mixture.
        episodes: The newest episodes, at most `history` batches, oldest first.
        returns: Their returns `(n,)`.
    """

    def __init__(self, config: Config, space: SearchSpace, rng: np.random.Generator) -> None:
        self.config, self.space, self.rng = config, space, rng
        self.iteration, self.dropped = 0, 0
        self.options = self._initial_mixture()
        self.episodes = Episodes(np.zeros((0, len(space.context_low))), np.zeros((0, len(space.initial_mean))))
        self.returns: Array = np.zeros(0)
        self._asked: Episodes | None = None

    @abstractmethod
    def update(self) -> Mixture:
        """Returns the mixture learned from `episodes` and `returns`; the newest batch was drawn by `options`."""

    def _initial_mixture(self) -> Mixture:
        """Spreads options over the context box and over the initial search distribution."""
        config, space, count = self.config, self.space, self.config.components
        width = space.context_high - space.context_low
        std = 0.25 * width if config.context_std is None else np.array(config.context_std)
        good = std.shape == width.shape and bool((std > 0).all())
        require(good, "context_std", f"{len(width)} numbers above 0, one per context dimension", config.context_std)
        means = space.context_low + width * self.rng.random((count, len(width)))
        contexts = LinearGaussian.unconditional(means, np.broadcast_to(np.diag(std), (count, len(std), len(std))))
        chol = np.linalg.cholesky(space.initial_cov)
        bias = space.initial_mean + self.rng.standard_normal((count, len(chol))) @ chol.T
        gain = np.zeros((count, len(chol), len(width)))
        experts = LinearGaussian.build(gain, bias, np.broadcast_to(chol, (count, *chol.shape)))
        return Mixture(np.full(count, -np.log(count)), contexts, experts)

    def ask(self) -> Episodes:
        """Draws uniform contexts, options by the gating, and parameters by their experts."""
        contexts = uniform_contexts(self.space, self.config.batch, self.rng)
        components = self.options.sample_components(contexts, self.rng)
        self._asked = Episodes(contexts, self.options.sample_parameters(contexts, components, self.rng))
        return self._asked

    def tell(self, returns: Array, behaviours: Array | None = None) -> None:
        """Updates the mixture from the newest batches; lost episodes are worth as much as the median one."""
        assert self._asked is not None, "tell without ask"
        returns = np.where(np.isnan(returns), np.nanmedian(returns), returns)
        contexts = self.newest(self.episodes.contexts, self._asked.contexts)
        self.episodes = Episodes(contexts, self.newest(self.episodes.parameters, self._asked.parameters))
        self.returns = self.newest(self.returns, returns)
        self._asked = None
        self.options = self.update()
        self.iteration += 1

    def newest(self, old: Array, new: Array) -> Array:
        """Returns the rows of the newest batches: the end of `old`, then all of `new`."""
        return np.concatenate([old[max(0, len(old) - (self.config.history - 1) * self.config.batch) :], new])

    def drop_unused(self, mixture: Mixture, usage: Array) -> tuple[Mixture, IntArray]:
        """Drops the options whose share `usage (K,)` is below `min_weight`, but never the most used one.

        Returns the remaining mixture, and the indices of its options in `mixture`.
        """
        kept = np.flatnonzero(usage >= min(self.config.min_weight, usage.max()))
        self.dropped += len(usage) - len(kept)
        return mixture if len(kept) == len(usage) else mixture.select(kept), kept

    def floored(self, cov: Array) -> Array:
        """Returns Cholesky factors of expert covariances `(K, dt, dt)`, with a floor far below any useful precision."""
        return np.asarray(np.linalg.cholesky(cov + STD_FLOOR**2 * self.space.initial_cov), dtype=np.float64)

    @property
    def done(self) -> bool:
        """Whether all iterations are done."""
        return self.iteration >= self.config.iterations

    @property
    def milestone(self) -> int:
        """Number of tens of iterations done; the last ten count even if incomplete."""
        return -(-self.iteration // _MILESTONE_EVERY) if self.done else self.iteration // _MILESTONE_EVERY

    @property
    def progress(self) -> Progress:
        """Progress of training; `component` is the number of options left."""
        recent = float(self.returns[-self.config.batch :].mean()) if len(self.returns) else float("nan")
        return Progress(
            component=len(self.options),
            components=self.config.components,
            iteration=self.iteration,
            iterations=self.config.iterations,
            work=self.iteration / self.config.iterations,
            recent_return=recent,
            counts={"dropped": self.dropped},
        )

    def mixture(self) -> Mixture | None:
        """Returns the current mixture; None before the first update."""
        return self.options if self.iteration else None

    def state(self) -> Arrays:
        """Returns everything `restore` needs."""
        assert self._asked is None, "no state between ask and tell"
        state: Arrays = {
            "rng": rng_to_array(self.rng),
            "counters": np.array([self.iteration, self.dropped], dtype=np.int64),
            "contexts": self.episodes.contexts,
            "parameters": self.episodes.parameters,
            "returns": self.returns,
        }
        return state | add_prefix("mixture.", self.options.to_arrays())

    def restore(self, state: Arrays) -> None:
        """Continues from a `state`."""
        self.iteration, self.dropped = (int(value) for value in state["counters"])
        self.rng = rng_from_array(state["rng"].astype(np.uint64))
        contexts, parameters = np.asarray(state["contexts"], float), np.asarray(state["parameters"], float)
        if contexts.shape[1:] != self.space.context_low.shape:
            raise ValueError(f"contexts: expected {len(self.space.context_low)} dimensions, got {contexts.shape[1]}")
        self.episodes, self.returns = Episodes(contexts, parameters), np.asarray(state["returns"], float)
        self.options = Mixture.from_arrays(strip_prefix("mixture.", state))
        self._asked = None
