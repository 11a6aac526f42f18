"""What a learner is: it asks for episodes and is told their returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from svsl.errors import SvslError
from svsl.model.gaussians import Array, BoolArray
from svsl.model.mixture import Mixture

Arrays = dict[str, NDArray[np.generic]]


def require(condition: bool, name: str, expected: str, got: object) -> None:
    """Refuses a setting.

    Raises:
        SvslError: If the condition does not hold.
    """
    if not condition:
        raise SvslError(f"setting {name}: expected {expected}, got {got}")


def above(prefix: str, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """The arrays with `prefix` before their names."""
    return {prefix + name: array for name, array in arrays.items()}


def below(arrays: Mapping[str, NDArray[np.generic]], prefix: str) -> Arrays:
    """The arrays whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class SearchSpace:
    """All a learner knows of a task.

    Attributes:
        context_low: `(dc,)`.
        context_high: `(dc,)`.
        initial_mean: `(dt,)`, mean of a new component's parameters.
        initial_cov: `(dt, dt)`.
    """

    context_low: Array
    context_high: Array
    initial_mean: Array
    initial_cov: Array

    def inside(self, contexts: Array) -> BoolArray:
        """Which rows lie in the context box: `(..., dc)` -> `(...)`."""
        return np.asarray(((contexts >= self.context_low) & (contexts <= self.context_high)).all(axis=-1))


@dataclass(frozen=True)
class Episodes:
    """A batch of episodes to run: `contexts (n, dc)` and `parameters (n, dt)`."""

    contexts: Array
    parameters: Array


@dataclass(frozen=True)
class Progress:
    """Where a learner stands, for people to read.

    Attributes:
        component: Number of the component in training, from 1.
        components: How many will be tried.
        iteration: Iteration of that component.
        iterations: How many it gets.
        work: Share of all episodes already asked for, 0 to 1.
        recent_return: Mean return of the newest component's buffer; NaN before the first.
        counts: Named counters of things that went wrong or were thrown away.
    """

    component: int
    components: int
    iteration: int
    iterations: int
    work: float
    recent_return: float
    counts: dict[str, int]


class Learner(Protocol):
    """Asks for episodes and learns from their returns, until it is done.

    `ask` and `tell` alternate. Between a `tell` and the next `ask`, `state` holds everything the rest of the run
    depends on: a new learner of the same configuration that `restore`s it goes on bit for bit.
    """

    def ask(self) -> Episodes:
        """The next episodes to run."""
        ...

    def tell(self, returns: Array) -> None:
        """The finite returns `(n,)` of the episodes asked for last."""
        ...

    @property
    def done(self) -> bool:
        """Whether training is over; `ask` must not be called any more."""
        ...

    @property
    def milestone(self) -> int:
        """Counts the points worth an evaluation that training has passed (components finished)."""
        ...

    @property
    def progress(self) -> Progress:
        """Where training stands."""
        ...

    def mixture(self) -> Mixture | None:
        """The components trained so far, without the unfinished one; None before the first is finished."""
        ...

    def state(self) -> Arrays:
        """Everything `restore` needs, as arrays."""
        ...

    def restore(self, state: Arrays) -> None:
        """Continues from what `state` gave."""
        ...
