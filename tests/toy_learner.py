"""The smallest learner: random search for one set of parameters that is good in every context."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from svsl.learners.base import Arrays, Episodes, LearnerConfig, Progress, SearchSpace
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.mixture import Mixture
from svsl.model.random import rng_from_array, rng_to_array


@dataclass(frozen=True)
class RandomSearchConfig(LearnerConfig):
    """Settings of the random search."""

    batch: int = 20
    """Candidates per iteration."""
    iterations: int = 30
    """Number of iterations."""

    def planned_episodes(self, space: SearchSpace) -> int:
        """Returns the episodes a run asks for."""
        return self.batch * self.iterations

    def scaled(self, scale: float, power: float) -> Self:
        """Returns the settings of a smaller run."""
        return self.with_budget(scale * self.batch * self.iterations)

    def with_budget(self, episodes: float) -> Self:
        """Returns the settings of a run of about this many episodes."""
        return replace(self, iterations=max(1, round(episodes / self.batch)))


class RandomSearch:
    """Keeps the candidate with the highest return."""

    def __init__(self, config: RandomSearchConfig, space: SearchSpace, rng: np.random.Generator) -> None:
        self.config, self.space, self.rng = config, space, rng
        self.iteration, self.best_return, self.best = 0, -np.inf, space.initial_mean
        self._asked: Array = np.zeros((0, len(self.best)))

    def ask(self) -> Episodes:
        """Draws candidates from the initial search distribution, and a uniform context for each."""
        low, high, batch = self.space.context_low, self.space.context_high, self.config.batch
        self._asked = self.rng.multivariate_normal(self.space.initial_mean, self.space.initial_cov, batch)
        return Episodes(self.rng.uniform(low, high, (batch, len(low))), self._asked)

    def tell(self, returns: Array, behaviours: Array | None = None) -> None:
        """Keeps the best candidate."""
        if returns.max() > self.best_return:
            self.best_return, self.best = float(returns.max()), self._asked[returns.argmax()]
        self.iteration += 1

    @property
    def done(self) -> bool:
        """Whether all iterations are done."""
        return self.iteration >= self.config.iterations

    @property
    def milestone(self) -> int:
        """Every iteration is worth a test."""
        return self.iteration

    @property
    def progress(self) -> Progress:
        """Progress of training."""
        total = self.config.iterations
        return Progress(1, 1, self.iteration, total, self.iteration / total, self.best_return, {})

    def mixture(self) -> Mixture | None:
        """Returns one component that covers the whole box; None before the first iteration."""
        if not self.iteration:
            return None
        low, high = self.space.context_low, self.space.context_high
        contexts = LinearGaussian.unconditional([0.5 * (low + high)], [np.diag(0.5 * (high - low))])
        gain, chol = np.zeros((1, len(self.best), len(low))), 0.01 * np.eye(len(self.best))[None]
        return Mixture(np.zeros(1), contexts, LinearGaussian.build(gain, self.best[None], chol))

    def state(self) -> Arrays:
        """Returns everything `restore` needs."""
        numbers = np.array([self.iteration, self.best_return])
        return {"rng": rng_to_array(self.rng), "best": self.best, "numbers": numbers}

    def restore(self, state: Arrays) -> None:
        """Continues from a `state`."""
        self.rng = rng_from_array(state["rng"].astype(np.uint64))
        self.best = np.asarray(state["best"], dtype=np.float64)
        self.iteration, self.best_return = int(state["numbers"][0]), float(state["numbers"][1])
