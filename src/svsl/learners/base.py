"""The learner protocols, and the base class of their settings."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from svsl.errors import SvslError
from svsl.model.gaussians import Array, BoolArray
from svsl.model.mixture import Mixture
from svsl.tasks.base import Task, valid_contexts

Arrays = dict[str, NDArray[np.generic]]
Counters = dict[str, object]  # JSON values


LARGEST_SIZE = 10**8  # of any setting that is a whole number
LARGEST_NUMBER = 1e12  # of any other


def require(condition: bool, name: str, expected: str, got: object) -> None:
    """Rejects a setting for which the condition does not hold."""
    if not condition:
        raise SvslError(f"setting {name}: expected {expected}, got {got}")


def add_prefix(prefix: str, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """Returns the arrays with `prefix` before their names."""
    return {prefix + name: array for name, array in arrays.items()}


def strip_prefix(prefix: str, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """Returns the arrays whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def shrunk(full: int, scale: float, least: int, power: float = 1.0) -> int:
    """Returns `full` times a power of the scale, at least `least` and at most `full`."""
    return min(full, max(least, round(full * scale**power)))


@dataclass(frozen=True)
class SearchSpace:
    """The part of a task that a learner sees.

    Attributes:
        context_low: `(dc,)`, lower corner of the context box.
        context_high: `(dc,)`, upper corner.
        initial_mean: `(dt,)`, mean of a new component's parameters.
        initial_cov: `(dt, dt)`, their covariance.
        valid_contexts: Returns which contexts `(n, dc)` of the box count, `(n,)`; default all.
        scores_outside: Whether the task scores other contexts itself.

    Examples:
        >>> import numpy as np
        >>> import svsl
        >>> low, high = np.array([2.0]), np.array([6.0])  # distance of a bucket [m]
        >>> space = svsl.SearchSpace(low, high, initial_mean=np.array([8.5, 0.8]), initial_cov=np.diag([1.0, 0.2]))
        >>> space.parameter_dim
        2
        >>> space.inside(np.array([[4.0], [7.0]]))
        array([ True, False])
    """

    context_low: Array
    context_high: Array
    initial_mean: Array
    initial_cov: Array
    valid_contexts: Callable[[Array], BoolArray] | None = None
    scores_outside: bool = False

    @classmethod
    def of(cls, task: Task | Self) -> Self:
        """Returns the search space of a task; a copy, as floats."""
        names = ("context_low", "context_high", "initial_mean", "initial_cov")
        low, high, mean, cov = (np.array(getattr(task, name), dtype=np.float64) for name in names)
        own = getattr(task, "valid_contexts", None), bool(getattr(task, "scores_outside", False))
        return cls(low, high, mean, cov, *own)

    @property
    def parameter_dim(self) -> int:
        """Number dt of parameters."""
        return np.size(self.initial_mean)

    def inside(self, contexts: Array) -> BoolArray:
        """Returns which rows are in the valid part of the context box: `(..., dc)` -> `(...)`."""
        rows = contexts.reshape(-1, contexts.shape[-1])
        inside: BoolArray = np.all((rows >= self.context_low) & (rows <= self.context_high), axis=1)
        inside[inside] = valid_contexts(self, rows[inside])
        return inside.reshape(contexts.shape[:-1])


@dataclass(frozen=True)
class LearnerConfig(ABC):
    """Settings of a learner, which also decide its budget of episodes."""

    old_names: ClassVar[Mapping[str, str]] = {}  # former name -> name of a renamed setting
    added: ClassVar[Mapping[str, object]] = {}  # newer setting -> its value in configurations written before it

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, float):
                    require(math.isfinite(number), name, "a finite number", number)
                    require(abs(number) <= LARGEST_NUMBER, name, f"at most {LARGEST_NUMBER:g} in magnitude", number)
                elif isinstance(number, int):
                    require(abs(number) <= LARGEST_SIZE, name, f"at most {LARGEST_SIZE:,}", number)

    def require_at_least(self, least: int, *names: str) -> None:
        """Rejects settings below `least`; None is the default of an optional setting."""
        for name in names:
            value = getattr(self, name)
            require(value is None or value >= least, name, f"at least {least}", value)

    @property
    def warning(self) -> str | None:
        """What is probably a mistake in these settings; None if nothing is."""
        return None

    @property
    def learns_weights(self) -> bool:
        """Whether a last stage learns the component weights, after all components are trained."""
        return False

    @property
    def learns_gating(self) -> bool:
        """Whether the gating is learned as a whole, so that context distributions and weights alone mean nothing."""
        return False

    @abstractmethod
    def planned_episodes(self, space: SearchSpace) -> int:
        """Returns the episodes a run asks for."""

    @abstractmethod
    def scaled(self, scale: float, power: float) -> Self:
        """Returns the settings of a smaller run.

        Args:
            scale: Share of the full size, above 0 and at most 1. It shrinks the number of components in proportion.
            power: Power of the scale by which the training of each component shrinks.
        """

    @abstractmethod
    def with_budget(self, episodes: float) -> Self:
        """Returns the settings of a run of about this many episodes."""


@dataclass(frozen=True)
class Episodes:
    """A batch of episodes to run: `contexts (n, dc)` and `parameters (n, dt)`.

    `described`: the learner wants to be told what behaviours they show, if the task describes them.

    Examples:
        >>> import svsl
        >>> episodes = svsl.make_learner("planar-reacher").ask()
        >>> outcome = svsl.make_task("planar-reacher").evaluate(episodes.contexts, episodes.parameters, None)
        >>> outcome.returns.shape
        (136,)
    """

    contexts: Array
    parameters: Array
    described: bool = False


@dataclass(frozen=True)
class Progress:
    """Progress of a learner, for display."""

    component: int  # number of the component in training, from 1
    components: int  # components to train
    iteration: int  # iteration of that component
    iterations: int  # iterations of that component in total
    work: float  # share of all planned episodes already run, 0 to 1
    recent_return: float  # mean return of the newest episodes; NaN before the first
    counts: dict[str, int]  # named counters of failures and discarded components


class Trainable(Protocol):
    """The progress of anything that is trained step by step."""

    @property
    def done(self) -> bool:
        """Whether training is over; no further step must be taken."""
        ...

    @property
    def milestone(self) -> int:
        """Number of points worth a test that training has passed, such as finished components."""
        ...

    @property
    def progress(self) -> Progress:
        """Progress of training."""
        ...


class Learner(Trainable, Protocol):
    """An episodic learner: proposes episodes and learns from their returns, until it is done.

    `ask` and `tell` alternate. Between a `tell` and the next `ask`, `state` holds everything the rest of the run
    depends on: a new learner of the same configuration that `restore`s it continues bit for bit.

    Examples:
        >>> from svsl import SearchSpace, make_task
        >>> from svsl.learners.registry import make_learner
        >>> from svsl.learners.svsl_config import SVSLConfig
        >>> from svsl.model.random import stream
        >>> space = SearchSpace.of(make_task("planar-reacher"))
        >>> learner = make_learner("svsl", SVSLConfig(components=1), space, stream(0))
        >>> learner.ask().parameters.shape
        (136, 10)
    """

    def ask(self) -> Episodes:
        """Returns the next episodes to run."""
        ...

    def tell(self, returns: Array, behaviours: Array | None = None) -> None:
        """Learns from the returns `(n,)` of the episodes proposed last; those that are NaN were lost.

        `behaviours (n, d)` are the task's descriptions of what they do, NaN for episodes without one; None unless asked
        for by `Episodes.described`, or if the task describes none.
        """
        ...

    def mixture(self) -> Mixture | None:
        """Returns the components trained so far, without the unfinished one; None before the first is finished."""
        ...

    def state(self) -> Arrays:
        """Returns everything `restore` needs, as arrays."""
        ...

    def restore(self, state: Arrays) -> None:
        """Continues from a `state`."""
        ...


class Training(Trainable, Protocol):
    """A learner at work on a task, which the training loop advances step by step.

    Attributes:
        episodes: Episodes run so far.
        nonfinite: Episodes with a NaN or infinite return.
        diverged: Episodes whose simulation diverged.
    """

    @property
    def episodes(self) -> int: ...  # noqa: D102
    @property
    def nonfinite(self) -> int: ...  # noqa: D102
    @property
    def diverged(self) -> int: ...  # noqa: D102

    def advance(self) -> None:
        """Runs one batch of episodes, or one rollout, and learns from it."""
        ...

    def measure(self, contexts: int) -> dict[str, float] | None:
        """Tests what was learned so far on this many new contexts; None if nothing was learned yet."""
        ...

    def state(self) -> tuple[Arrays, Counters]:
        """Returns the arrays and counters that `restore` needs."""
        ...

    def restore(self, arrays: Arrays, counters: Mapping[str, object]) -> None:
        """Continues from a `state`."""
        ...

    def save(self, path: Path, origin: Mapping[str, object]) -> None:
        """Writes what was learned, and its `origin`: task, task_options, learner, seed and config of the run."""
        ...


@runtime_checkable
class PolicyTraining(Training, Protocol):
    """A step-based learner at work on a task; it learns a policy instead of a skill library."""

    def load(self, path: Path) -> None:
        """Restores the policy that a finished training saved."""
        ...

    def evaluate(self, contexts: int) -> dict[str, Array]:
        """Evaluates the current policy on this many contexts, the same ones every time: a value each, by metric."""
        ...
