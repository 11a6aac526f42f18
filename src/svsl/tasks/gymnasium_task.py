"""Gymnasium environments as tasks, in the black-box convention: one action is a skill, one step is an episode."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from svsl.backends.process_pool import ProcessPool, available_cores
from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.tasks.base import Outcome

Environment = str | Callable[[], gymnasium.Env[Any, Any]]
EnvOptions = dict[str, bool | int | float | str]
ContextSetter = str | Callable[[Any, Array], ArrayLike | None]
Job = tuple[Array, Array, int]  # context, parameters, seed
Info = dict[str, Any]
Played = tuple[float, bool | None, Info]  # return, success if the environment says, diagnostics

_LIKE_NUMBERS = "biuf"


@dataclass(frozen=True)
class EnvironmentSpec:
    """How to make an environment and how to tell it a context; goes to other processes.

    Attributes:
        env: An id of Gymnasium's (`module:ID` imports the module first), or a function that makes the environment.
        options: Keyword arguments for it.
        context_setter: See `GymnasiumTask`.
        context_indices: Where the context is in the first observation; None: it is all of it.
    """

    env: Environment
    options: Mapping[str, object] = field(default_factory=dict)
    context_setter: ContextSetter | None = None
    context_indices: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """The environment in words."""
        return f"environment {self.env if isinstance(self.env, str) else getattr(self.env, '__name__', self.env)!r}"

    def make(self) -> gymnasium.Env[Any, Any]:
        """A new environment.

        Raises:
            SvslError: If there is no such environment or it cannot be made.
        """
        if not isinstance(self.env, str):
            return self.env(**self.options)
        try:
            return gymnasium.make(self.env, disable_env_checker=True, **self.options)  # type: ignore[arg-type]
        except ModuleNotFoundError as error:
            hint = "gym:module:ENV_ID takes a module of the current directory or the Python path"
            raise SvslError(f"{self.name}: {error}; {hint}") from None
        except (gymnasium.error.Error, TypeError) as error:
            raise SvslError(f"{self.name}: {error}") from None

    def context_of(self, vector: ArrayLike) -> Array:
        """The part of an observation, or of a bound of observations, that is the context."""
        flat = np.asarray(vector, dtype=np.float64).ravel()
        return flat if self.context_indices is None else flat[list(self.context_indices)]


class Player:
    """Plays episodes in one process."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec, self.env = spec, spec.make()

    def start(self, context: Array, seed: int) -> Array:
        """Resets the environment to a context; returns the first observation.

        Raises:
            SvslError: If the environment is in another context then.
        """
        setter = self.spec.context_setter
        options = {"context": context.copy()} if setter is None else None
        observation = np.asarray(self.env.reset(seed=seed, options=options)[0], dtype=np.float64).ravel()
        if setter is not None:
            method = self._method(setter) if isinstance(setter, str) else functools.partial(setter, self.env.unwrapped)
            told = method(context.copy())
            if told is None:  # it has nothing to say, so it is believed
                return observation
            observation = np.asarray(told, dtype=np.float64).ravel()
        found = self.spec.context_of(observation)
        # observations are often single precision
        if found.shape != context.shape or not np.allclose(found, context, rtol=1e-5, atol=1e-6):
            way = "reset(options={'context': c})" if setter is None else f"its setter {setter!r}"
            fix = "make its reset take the context from there, or name what sets it: context_setter"
            raise SvslError(
                f"{self.spec.name} does not obey {way}: told the context {np.round(context, 4).tolist()}, its "
                f"observation says {np.round(found, 4).tolist()}. svsl chooses the contexts: {fix}"
            )
        return observation

    def _method(self, name: str) -> Callable[[Array], ArrayLike | None]:
        method = getattr(self.env.unwrapped, name, None)
        if not callable(method):
            raise SvslError(f"{self.spec.name}: a {type(self.env.unwrapped).__name__} has no method {name!r}")
        return method

    def __call__(self, job: Job) -> Played:
        """One episode: one step."""
        context, parameters, seed = job
        self.start(context, seed)
        space = self.env.action_space
        _, reward, terminated, truncated, info = self.env.step(parameters.reshape(space.shape).astype(space.dtype))
        if not (terminated or truncated):
            raise SvslError(
                f"{self.spec.name} did not end after one step, so an action is no whole episode; "
                "svsl.tasks.movement_task.MovementPrimitiveTask trains on environments of many steps"
            )
        return played(float(reward), info)


def played(total: float, info: Info) -> Played:
    """The result of an episode with what is of use in its info: numbers, `mode` and `path`."""
    success = info.get("success", info.get("is_success"))
    told: Info = {}
    for name, value in info.items():
        if name in ("success", "is_success"):
            continue
        array = np.asarray(value) if np.isscalar(value) or isinstance(value, np.ndarray) else None
        if array is not None and ((array.ndim == 0 and array.dtype.kind in _LIKE_NUMBERS) or name in ("mode", "path")):
            told[name] = array if array.ndim else array.item()
    return total, None if success is None else bool(success), told


class EnvironmentTask:
    """What tasks on environments share: the box, the search distribution and the pool of processes.

    `workers` is the number of processes: all cores unless told, 0 to play in this one. Returns do not depend on it.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        context_low: Sequence[float] | None,
        context_high: Sequence[float] | None,
        outside_penalty: float,
        success_return: float | None,
    ) -> None:
        player = Player(spec)
        env = player.env
        self.spec, self.outside_penalty, self.success_return = spec, outside_penalty, success_return
        self.action_low, self.action_high = action_box(spec, env.action_space)
        self.context_low, self.context_high = context_box(spec, env.observation_space, context_low, context_high)
        self.parameter_low: Array = np.array(-np.inf)
        self.parameter_high: Array = np.array(np.inf)
        self._wishes = {n: getattr(env.unwrapped, n, None) for n in ("initial_mean", "initial_cov", "dt")}
        try:
            player.start(0.5 * (self.context_low + self.context_high), 0)  # better refused now than in the first batch
        except SvslError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise SvslError(f"{spec.name}: its reset failed: {type(error).__name__}: {error}") from error
        finally:
            env.close()

    def _play_with(self, player: Callable[[], Callable[[Job], Played]]) -> None:
        self._pool: ProcessPool[Job, Played] = ProcessPool(self.spec.name, player, describe, available_cores())

    @property
    def workers(self) -> int:
        """Number of processes."""
        return self._pool.workers

    @workers.setter
    def workers(self, count: int) -> None:
        if count < 0:
            raise SvslError(f"workers: expected at least 0, got {count}")
        if count != self._pool.workers:
            self._pool.close()
            self._pool.workers = count

    def close(self) -> None:
        """Ends the processes; another `evaluate` starts new ones."""
        self._pool.close()

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Plays one episode per row, each with a seed of its own from `rng`."""
        seeds = rng.integers(2**31, size=len(contexts)).tolist()
        nearest, outside = _clipped(contexts, self.context_low, self.context_high)
        allowed, excess = _clipped(parameters, self.parameter_low, self.parameter_high)
        results = self._pool.map(list(zip(nearest, allowed, seeds, strict=True)))
        # the scale of the return is unknown, so what lies outside is compared with its neighbour inside
        cost = self.outside_penalty * ((outside > 0) + outside + excess)
        returns = np.array([result[0] for result in results]) - cost
        if self.success_return is not None:
            success = returns >= self.success_return
        else:
            success = np.array([bool(result[1]) for result in results], dtype=bool) & (outside == 0)
        return Outcome(returns, success, stacked([result[2] for result in results]))


class GymnasiumTask(EnvironmentTask):
    """A Gymnasium environment: its first observation is the context, one action is a skill, one step an episode.

    The environment must take the context from `reset(options={"context": c})` or have a setter. Episodes run in
    parallel processes (`workers`), each with a seed of its own. The return is the reward; success is
    `info["success"]` or `info["is_success"]` unless `success_return` is given. A context outside the box is played at
    the nearest one inside and costs `outside_penalty` times (1 + squared distance in widths of the box) more; an
    action outside a bounded action space is clipped and costs `outside_penalty` times its squared distance in widths.
    An environment may have the attributes `initial_mean` and `initial_cov`, where the search starts.

    Args:
        env: An id of Gymnasium's (`module:ID` imports the module first), or a function that makes the environment.
        env_options: Keyword arguments of the environment.
        context_setter: Method of the environment that is called with the context after each reset, or a function that
            is called with the environment and the context; returns the observation, or None.
        context_low: Lower corner of the context box; default the observation space's.
        context_high: Upper corner of the context box; default the observation space's.
        initial_mean: Where the search starts, one number for each entry of an action or one for all; default the
            middle of the action space.
        initial_std: How wide it starts, likewise; default a quarter of the action space.
        success_return: An episode with at least this return is a success.
        outside_penalty: What leaving the context box or the action space costs.

    Raises:
        SvslError: If the environment cannot be made, or its spaces do not fit the convention.
    """

    def __init__(
        self,
        env: Environment,
        env_options: EnvOptions | None = None,
        context_setter: ContextSetter | None = None,
        context_low: tuple[float, ...] | None = None,
        context_high: tuple[float, ...] | None = None,
        initial_mean: tuple[float, ...] | None = None,
        initial_std: tuple[float, ...] | None = None,
        success_return: float | None = None,
        outside_penalty: float = 10.0,
    ) -> None:
        spec = EnvironmentSpec(env, env_options or {}, context_setter)
        super().__init__(spec, context_low, context_high, outside_penalty, success_return)
        self._play_with(functools.partial(Player, spec))
        self.parameter_dim = len(self.action_low)
        self.parameter_low, self.parameter_high = self.action_low, self.action_high
        self.initial_mean, self.initial_cov = self._search(initial_mean, initial_std)

    def _search(self, mean: ArrayLike | None, std: ArrayLike | None) -> tuple[Array, Array]:
        """The initial distribution: as told, as the environment wishes, or from the action space."""
        bounded = bool(np.isfinite([self.action_low, self.action_high]).all())
        wish, wish_cov = self._wishes["initial_mean"], self._wishes["initial_cov"]
        if not bounded and ((mean is None and wish is None) or (std is None and wish_cov is None)):
            raise SvslError(
                f"{self.spec.name}: its actions are unbounded, so say where to search: initial_mean and initial_std, "
                f"one number for each of the {self.parameter_dim} entries or one for all"
            )
        if mean is None:
            mean = 0.5 * (self.action_low + self.action_high) if wish is None else wish
        centre = filled(self.spec, "initial_mean", np.asarray(mean), self.parameter_dim)
        if std is None and wish_cov is not None:
            return centre, np.asarray(wish_cov, dtype=np.float64)
        width = 0.25 * (self.action_high - self.action_low) if std is None else std
        return centre, np.diag(filled(self.spec, "initial_std", width, self.parameter_dim, positive=True) ** 2)


def context_box(
    spec: EnvironmentSpec,
    space: gymnasium.Space[Any],
    low: Sequence[float] | None,
    high: Sequence[float] | None,
) -> tuple[Array, Array]:
    """The corners of the contexts.

    Raises:
        SvslError: If the observation space does not tell them and the user does not either.
    """
    if not isinstance(space, gymnasium.spaces.Box):
        raise SvslError(f"{spec.name}: expected a Box of observations, whose first is the context, got {space}")
    size = int(np.prod(space.shape))
    if not all(0 <= index < size for index in spec.context_indices or ()):
        raise SvslError(f"{spec.name}: context indices {spec.context_indices} do not fit {size} observations")
    dim = len(spec.context_of(space.low))
    corners = [
        filled(spec, name, spec.context_of(bound) if told is None else told, dim)
        for name, bound, told in (("context_low", space.low, low), ("context_high", space.high, high))
    ]
    # bounds of single precision that stand for "none" are as good as infinite
    if not (np.abs(corners) < 1e30).all() or not (corners[0] < corners[1]).all():
        raise SvslError(
            f"{spec.name}: the context box from {corners[0].tolist()} to {corners[1].tolist()} is no finite box; "
            f"give context_low and context_high, {dim} numbers each"
        )
    return corners[0], corners[1]


def action_box(spec: EnvironmentSpec, space: gymnasium.Space[Any]) -> tuple[Array, Array]:
    """The corners of the actions, perhaps infinite.

    Raises:
        SvslError: If actions are no vectors of numbers.
    """
    if not isinstance(space, gymnasium.spaces.Box) or np.dtype(space.dtype).kind != "f":
        raise SvslError(
            f"{spec.name}: its action space is {space}, but skills are vectors of real numbers; give it an action "
            "space Box(low, high, dtype=float), for instance by a wrapper (gymnasium.ActionWrapper)"
        )
    return space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()


def filled(spec: EnvironmentSpec, name: str, values: ArrayLike, dim: int, positive: bool = False) -> Array:
    """A vector of `dim` numbers from that many or from one.

    Raises:
        SvslError: If there are fewer or more, or one is not positive that must be.
    """
    vector = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if vector.shape == (1,):
        vector = np.repeat(vector, dim)
    if vector.shape != (dim,) or (positive and not (vector > 0).all()):
        kind = "positive numbers" if positive else "numbers"
        raise SvslError(f"{spec.name}: {name}: expected {dim} {kind} or one for all, got {vector.tolist()}")
    return vector


def _clipped(points: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The nearest points in a box, and the squared distances to them in widths of the box: `(n,)`."""
    nearest = np.clip(np.asarray(points, dtype=np.float64), low, high)
    return nearest, np.asarray((((points - nearest) / (high - low)) ** 2).sum(axis=1))


def stacked(infos: Sequence[Info]) -> dict[str, NDArray[np.generic]]:
    """Diagnostics by name, one entry an episode; NaN, False or "" where an episode has none."""
    result: dict[str, NDArray[np.generic]] = {}
    for name in sorted({name for info in infos for name in info}):
        known = [np.asarray(info[name]) for info in infos if name in info]
        missing: Any = np.full(known[0].shape, np.nan)
        if known[0].dtype.kind in "bU":
            missing = known[0].dtype.type()
        elif known[0].dtype.kind not in "fiu" or len({value.shape for value in known}) > 1:
            continue
        result[name] = np.stack([np.asarray(info.get(name, missing)) for info in infos])
    return result


def describe(job: Job) -> str:
    """An episode in words."""
    context, parameters, seed = job
    return f"context {_numbers(context)}, parameters {_numbers(parameters)}, seed {seed}"


def _numbers(values: Iterable[float]) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in values) + "]"
