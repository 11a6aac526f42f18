"""The task protocol: a context box, a parameter size, an initial search distribution and a batch evaluation."""

import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from svsl.errors import SvslError
from svsl.model.gaussians import Array, BoolArray

# folders with code that is not the user's: Python, its packages, and this package
_INSTALLED = {Path(path) for path in sysconfig.get_paths().values()} | {Path(__file__).parents[1]}
_REDRAWS = 1000
LARGEST_RETURN = 1e100  # in magnitude: sums of squares of larger ones overflow


@dataclass(frozen=True)
class Outcome:
    """The outcome of a batch of n episodes; lists become arrays.

    Attributes:
        returns: `(n,)`, the return of each episode. Those that are NaN, infinite or beyond 1e100 in magnitude are
            counted, and lost or replaced in training.
        success: `(n,)` bool, whether the episode solved the task.
        info: Named diagnostics, each an array with one entry per episode.

    Examples:
        >>> import svsl
        >>> outcome = svsl.Outcome(returns=[-0.1, -4.0], success=[True, False], info={"mode": ["lob", "flat"]})
        >>> float(outcome.success.mean())
        0.5
    """

    returns: Array
    success: BoolArray
    info: dict[str, NDArray[np.generic]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "returns", np.asarray(self.returns))
        object.__setattr__(self, "success", np.asarray(self.success))
        object.__setattr__(self, "info", {name: np.asarray(values) for name, values in self.info.items()})


@runtime_checkable
class Task(Protocol):
    """The contract between a task and the rest of the library.

    Attributes:
        context_low: `(dc,)`, lower corner of the context box.
        context_high: `(dc,)`, upper corner.
        parameter_dim: Number dt of parameters of a skill.
        initial_mean: `(dt,)`, mean of the initial search distribution of a new component.
        initial_cov: `(dt, dt)`, its covariance.

    A task may also have a float `penalty`: the return given to an episode whose own return is NaN or infinite
    (otherwise the episode is lost). For the measures of versatility it may put into `info` a `mode`,
    its name for the kind of behaviour, and a `path (n, d)`, what the behaviour looks like, scaled so that a root mean
    square distance of 1 is a clear difference; or do so in `describe`, called like `evaluate`, if that takes time. If
    only a part of the box is valid, `valid_contexts(contexts)` says which rows are, `(n,)` bool. Contexts outside the
    box or its valid part never reach `evaluate`, unless the task declares `scores_outside = True`: it then scores them
    itself, clearly worse than those inside, as the paper's tasks do. `context_names`, one per dimension, are the labels
    of figures and sliders; `context_maps` are the pairs of dimensions that maps show. How a task is shown is described
    in `svsl.tasks.presentation`, its step-based form in `svsl.tasks.steps`.

    Examples:
        >>> import numpy as np
        >>> import svsl
        >>> class Throw:  # at a bucket 2 to 6 m away, with a speed [m/s] and an angle [rad]
        ...     context_low, context_high = np.array([2.0]), np.array([6.0])
        ...     parameter_dim = 2
        ...     initial_mean, initial_cov = np.array([8.5, 0.8]), np.diag([1.0, 0.2])
        ...
        ...     def evaluate(self, contexts, parameters, rng):
        ...         speed, angle = parameters.T
        ...         miss = speed**2 * np.sin(2 * angle) / 9.81 - contexts[:, 0]
        ...         return svsl.Outcome(-(miss**2), np.abs(miss) < 0.1)
        >>> isinstance(Throw(), svsl.Task)
        True
        >>> library = svsl.train(Throw(), components=2, iterations=5)
    """

    context_low: Array
    context_high: Array
    parameter_dim: int
    initial_mean: Array
    initial_cov: Array

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Runs one episode per row of `contexts (n, dc)` and `parameters (n, dt)`.

        All randomness must come from `rng`. The arguments must not be changed.
        """
        ...


def run_episodes(
    task: Task, contexts: Array, parameters: Array, rng: np.random.Generator, described: bool = False
) -> Outcome:
    """Runs a task, with its `describe` instead of `evaluate` if it has one and `described` is set.

    The task gets read-only arrays. Anything it raises, also by `sys.exit`, becomes an `SvslError` that says what and
    where. Returns beyond `LARGEST_RETURN` become NaN.
    """
    run = getattr(task, "describe", task.evaluate) if described else task.evaluate
    try:
        outcome = run(_read_only(contexts), _read_only(parameters), rng)
    except SvslError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        hint = "; a task must not change its arguments: copy them first" if "read-only" in str(error) else ""
        raise SvslError(f"task {type(task).__name__} failed: {place_of(error)}{hint}") from error
    problem = outcome_problem(outcome, len(contexts))
    if problem is not None:
        raise SvslError(f"task {type(task).__name__}: {problem}; run svsl check-task for details")
    return replace(outcome, returns=usable_returns(outcome.returns))


def usable_returns(returns: NDArray[np.generic]) -> Array:
    """Returns the returns as floats, NaN where they are too large to compute with."""
    floats = returns.astype(np.float64)
    return np.where(np.abs(floats) > LARGEST_RETURN, np.nan, floats)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def place_of(error: BaseException) -> str:
    """Describes an exception and where in the user's code it was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    user_frames = [frame for frame in frames if not _INSTALLED.intersection(Path(frame.filename).parents)]
    place = "".join(f" ({Path(frame.filename).name} line {frame.lineno})" for frame in (user_frames or frames)[-1:])
    return f"{type(error).__name__}: {error}" + ("" if isinstance(error, SyntaxError) else place)


def outcome_problem(outcome: object, count: int) -> str | None:
    """Describes what is wrong with the outcome of `count` episodes; None if nothing is."""
    if not isinstance(outcome, Outcome):
        return f"evaluate returned a {type(outcome).__name__}; return svsl.Outcome"
    returns, success = outcome.returns, outcome.success
    if returns.shape != (count,) or returns.dtype.kind not in "fiu":
        return f"returns: expected {count} numbers, got {returns.dtype} {returns.shape}"
    if success.shape != (count,) or success.dtype != np.bool_:
        return f"success: expected {count} booleans, got {success.dtype} {success.shape}"
    for name, values in outcome.info.items():
        if values.shape[:1] != (count,):
            return f"info[{name!r}]: expected {count} entries, got shape {values.shape}"
    return None


def joined(parts: Sequence[Outcome]) -> Outcome:
    """Joins outcomes; where a part lacks a diagnostic, its entries are NaN, False or ""."""
    known = {name: values for part in reversed(parts) for name, values in part.info.items()}

    def column(part: Outcome, name: str) -> NDArray[np.generic]:
        if name in part.info:
            return part.info[name]
        shape, dtype = (len(part.returns), *known[name].shape[1:]), known[name].dtype
        return np.zeros(shape, dtype) if dtype.kind in "bU" else np.full(shape, np.nan)

    return Outcome(
        np.concatenate([part.returns for part in parts]),
        np.concatenate([part.success for part in parts]),
        {name: np.concatenate([column(part, name) for part in parts]) for name in known},
    )


def context_names(task: Task) -> tuple[str, ...]:
    """Returns the names of the context's dimensions: the task's own, or their numbers."""
    names = getattr(task, "context_names", None)
    return tuple(names) if names else tuple(f"context {dim}" for dim in range(len(task.context_low)))


def context_maps(task: Task) -> list[tuple[int, ...]]:
    """Returns the dimensions of each map of the contexts: the task's own pairs, or neighbours and a last one alone."""
    dims = range(len(task.context_low))
    return list(getattr(task, "context_maps", None) or (tuple(dims[first : first + 2]) for first in dims[::2]))


class ContextBox(Protocol):
    """Part of a task: the corners of its context box."""

    @property
    def context_low(self) -> Array: ...  # noqa: D102
    @property
    def context_high(self) -> Array: ...  # noqa: D102


def is_stored_number(value: object) -> bool:
    """Whether a value from a file is a number that svsl writes: None for one that is not finite."""
    return value is None or (isinstance(value, int | float) and abs(value) <= LARGEST_RETURN)


def uniform_contexts(box: ContextBox, count: int, rng: np.random.Generator) -> Array:
    """Draws contexts uniformly from the valid part of a box."""
    low, high = np.asarray(box.context_low, dtype=np.float64), np.asarray(box.context_high, dtype=np.float64)
    contexts = rng.uniform(low, high, (count, len(low)))
    for _ in range(_REDRAWS):
        if (valid := valid_contexts(box, contexts)).all():
            return contexts
        contexts[~valid] = rng.uniform(low, high, (int((~valid).sum()), len(low)))
    raise SvslError("valid_contexts: hardly any context of the box is valid; give the task a smaller box")


def valid_contexts(box: ContextBox, contexts: Array) -> BoolArray:
    """Returns which contexts `(n, dc)` of the box are valid, `(n,)`: all by default, see `Task`."""
    valid = getattr(box, "valid_contexts", None)
    return np.ones(len(contexts), dtype=bool) if valid is None else np.asarray(valid(contexts), dtype=bool)


def vector_of(name: str, values: ArrayLike, dim: int, positive: bool = False) -> Array:
    """Returns a vector of `dim` numbers, given all of them or one for all; errors start with `name`."""
    vector = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if vector.shape == (1,):
        vector = np.repeat(vector, dim)
    if vector.shape != (dim,) or (positive and not (vector > 0).all()):
        kind = "positive numbers" if positive else "numbers"
        raise SvslError(f"{name}: expected {dim} {kind} or one for all, got {vector.tolist()}")
    return vector


def finite_outcome(outcome: Outcome, penalty: float | None) -> Outcome:
    """Replaces NaN and infinite returns by the penalty or the worst finite return, and counts them as failures."""
    finite = np.isfinite(outcome.returns)
    if finite.all():
        return outcome
    if penalty is None:
        penalty = float(outcome.returns[finite].min()) if finite.any() else float("nan")
    return Outcome(np.where(finite, outcome.returns, penalty), outcome.success & finite, outcome.info)
