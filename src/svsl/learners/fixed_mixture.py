"""What the baselines share: a fixed number of options, there from the start, that learn from the newest batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from svsl.learners.base import Arrays, Episodes, Progress, SearchSpace, above, below, require
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.mixture import Mixture
from svsl.model.random import rng_from_array, rng_to_array

_MILESTONE_EVERY = 10  # iterations between evaluations
STD_FLOOR = 1e-5  # of an option, relative to the initial search and the context box


@dataclass(frozen=True)
class FixedMixtureConfig:
    """Settings of every learner with a fixed number of options."""

    components: int = 20
    """Options; all exist from the start (the paper's N)."""
    iterations: int = 300
    """Updates."""
    batch: int = 3000
    """New episodes per iteration."""
    history: int = 1
    """Newest batches an update uses."""
    min_weight: float = 1e-6
    """Options that weigh less are dropped."""
    context_std: tuple[float, ...] | None = None
    """Standard deviation of the initial context distributions; default a quarter of the box's width."""

    def __post_init__(self) -> None:
        for name in ("components", "iterations", "batch", "history"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(0 <= self.min_weight < 1, "min_weight", "at least 0 and below 1", self.min_weight)


Config = TypeVar("Config", bound=FixedMixtureConfig)


class FixedMixtureLearner(ABC, Generic[Config]):
    """A learner whose `update` makes the next mixture; see `svsl.learners.base.Learner` for the contract.

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
        """The mixture learned from `episodes` and `returns`, whose last batch `options` has drawn."""

    def _initial_mixture(self) -> Mixture:
        """Options spread over the context box and over the initial search distribution."""
        config, space, count = self.config, self.space, self.config.components
        width = space.context_high - space.context_low
        std = 0.25 * width if config.context_std is None else np.array(config.context_std)
        good = std.shape == width.shape and bool((std > 0).all())
        require(good, "context_std", f"{len(width)} numbers above 0, one a context dimension", config.context_std)
        means = space.context_low + width * self.rng.random((count, len(width)))
        contexts = LinearGaussian.unconditional(means, np.broadcast_to(np.diag(std), (count, len(std), len(std))))
        chol = np.linalg.cholesky(space.initial_cov)
        bias = space.initial_mean + self.rng.standard_normal((count, len(chol))) @ chol.T
        gain = np.zeros((count, len(chol), len(width)))
        experts = LinearGaussian.build(gain, bias, np.broadcast_to(chol, (count, *chol.shape)))
        return Mixture(np.full(count, -np.log(count)), contexts, experts)

    def ask(self) -> Episodes:
        """Uniform contexts, options by the gating, parameters by their experts."""
        low, high = self.space.context_low, self.space.context_high
        contexts = self.rng.uniform(low, high, (self.config.batch, len(low)))
        components = self.options.sample_components(contexts, self.rng)
        self._asked = Episodes(contexts, self.options.sample_parameters(contexts, components, self.rng))
        return self._asked

    def tell(self, returns: Array) -> None:
        """Updates the mixture from the newest batches."""
        assert self._asked is not None, "tell without ask"
        contexts = self.newest(self.episodes.contexts, self._asked.contexts)
        self.episodes = Episodes(contexts, self.newest(self.episodes.parameters, self._asked.parameters))
        self.returns = self.newest(self.returns, returns)
        self._asked = None
        self.options = self.update()
        self.iteration += 1

    def newest(self, old: Array, new: Array) -> Array:
        """Rows of the newest batches: the end of `old`, then all of `new`."""
        return np.concatenate([old[max(0, len(old) - (self.config.history - 1) * self.config.batch) :], new])

    def without_unused(self, mixture: Mixture, usage: Array) -> Mixture:
        """The mixture without the options whose share `usage (K,)` is below the least weight, but never without any."""
        kept = np.flatnonzero(usage >= min(self.config.min_weight, usage.max()))
        self.dropped += len(usage) - len(kept)
        return mixture if len(kept) == len(usage) else mixture.select(kept)

    def floored(self, cov: Array) -> Array:
        """Cholesky factors of expert covariances `(K, dt, dt)`, kept from shrinking to points."""
        # far below any precision that matters
        return np.asarray(np.linalg.cholesky(cov + STD_FLOOR**2 * self.space.initial_cov), dtype=np.float64)

    @property
    def done(self) -> bool:
        """Whether all iterations are made."""
        return self.iteration >= self.config.iterations

    @property
    def milestone(self) -> int:
        """Counts every tenth iteration, and the last."""
        return -(-self.iteration // _MILESTONE_EVERY) if self.done else self.iteration // _MILESTONE_EVERY

    @property
    def progress(self) -> Progress:
        """Where training stands."""
        recent = float(self.returns[-self.config.batch :].mean()) if len(self.returns) else float("nan")
        total, kept = self.config.iterations, len(self.options)
        work = self.iteration / total
        return Progress(kept, self.config.components, self.iteration, total, work, recent, {"dropped": self.dropped})

    def mixture(self) -> Mixture | None:
        """The current mixture; None before the first update."""
        return self.options if self.iteration else None

    def state(self) -> Arrays:
        """Everything `restore` needs."""
        assert self._asked is None, "no state between ask and tell"
        state: Arrays = {
            "rng": rng_to_array(self.rng),
            "counters": np.array([self.iteration, self.dropped], dtype=np.int64),
            "contexts": self.episodes.contexts,
            "parameters": self.episodes.parameters,
            "returns": self.returns,
        }
        return state | above("mixture.", self.options.to_arrays())

    def restore(self, state: Arrays) -> None:
        """Goes on from `state`."""
        self.iteration, self.dropped = (int(value) for value in state["counters"])
        self.rng = rng_from_array(state["rng"].astype(np.uint64))
        contexts, parameters = np.asarray(state["contexts"], float), np.asarray(state["parameters"], float)
        if contexts.shape[1:] != self.space.context_low.shape:
            raise ValueError(f"contexts of {contexts.shape[1]} dimensions")
        self.episodes, self.returns = Episodes(contexts, parameters), np.asarray(state["returns"], float)
        self.options = Mixture.from_arrays(below(state, "mixture."))
        self._asked = None
