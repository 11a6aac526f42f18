"""Gymnasium environments as tasks, in the black-box convention: one action is a skill, one step is an episode."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from svsl.backends.process_pool import ProcessPool, available_cores
from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.tasks.base import Outcome, vector_of

Environment = str | Callable[[], gymnasium.Env[Any, Any]]
EnvOptions = dict[str, bool | int | float | str]
ContextSetter = str | Callable[[Any, Array], ArrayLike | None]
Episode = tuple[Array, Array, int]  # context, parameters, seed
Corner = Sequence[float] | None  # of the context box; None: that of the observation space
Info = dict[str, Any]
EpisodeResult = tuple[float, bool | None, Info]  # return, success if the environment reports it, diagnostics


@dataclass(frozen=True)
class EnvironmentSpec:
    """How to create an environment and set its context (see `GymnasiumTask`); sent to worker processes."""

    env: Environment
    options: Mapping[str, object] = field(default_factory=dict)
    context_setter: ContextSetter | None = None
    context_indices: tuple[int, ...] | None = None  # None: the context is the whole observation

    @property
    def name(self) -> str:
        """A name of the environment for error messages."""
        return f"environment {self.env if isinstance(self.env, str) else getattr(self.env, '__name__', self.env)!r}"

    def make(self) -> gymnasium.Env[Any, Any]:
        """Creates the environment."""
        if not isinstance(self.env, str):
            return self.env(**self.options)
        try:
            return gymnasium.make(self.env, disable_env_checker=True, **self.options)  # type: ignore[arg-type]
        except ModuleNotFoundError as error:
            hint = "in gym:module:ENV_ID, module must be in the current directory or on the Python path"
            raise SvslError(f"{self.name}: {error}; {hint}") from None
        except (gymnasium.error.Error, TypeError) as error:
            raise SvslError(f"{self.name}: {error}") from None

    def context_of(self, vector: ArrayLike) -> Array:
        """Returns the context part of an observation, or of a bound of the observation space."""
        flat = np.asarray(vector, dtype=np.float64).ravel()
        return flat if self.context_indices is None else flat[list(self.context_indices)]


class EpisodeRunner:
    """Runs episodes in one process."""

    def __init__(self, spec: EnvironmentSpec, outside_penalty: float = 0.0) -> None:
        self.spec, self.outside_penalty, self.env = spec, outside_penalty, spec.make()

    def start(self, context: Array, seed: int) -> Array:
        """Resets the environment to a context and returns the first observation."""
        setter = self.spec.context_setter
        options = {"context": context.copy()} if setter is None else None
        observation = np.asarray(self.env.reset(seed=seed, options=options)[0], dtype=np.float64).ravel()
        if setter is not None:
            method = self._method(setter) if isinstance(setter, str) else functools.partial(setter, self.env.unwrapped)
            new_observation = method(context.copy())
            if new_observation is None:  # cannot be checked
                return observation
            observation = np.asarray(new_observation, dtype=np.float64).ravel()
        observed = self.spec.context_of(observation)
        # observations are often single precision
        if observed.shape != context.shape or not np.allclose(observed, context, rtol=1e-5, atol=1e-6):
            source = "reset(options={'context': c})" if setter is None else f"its setter {setter!r}"
            raise SvslError(
                f"{self.spec.name} ignores the context given by {source}: expected {np.round(context, 4).tolist()} in "
                f"its observation, got {np.round(observed, 4).tolist()}. svsl chooses the contexts: make reset use "
                "options['context'], or give a context_setter"
            )
        return observation

    def _method(self, name: str) -> Callable[[Array], ArrayLike | None]:
        method = getattr(self.env.unwrapped, name, None)
        if not callable(method):
            raise SvslError(f"{self.spec.name}: {type(self.env.unwrapped).__name__} has no method {name!r}")
        return method

    def __call__(self, episode: Episode) -> EpisodeResult:
        """Runs one episode, which is one step."""
        context, parameters, seed = episode
        self.start(context, seed)
        space = self.env.action_space
        low, high = action_box(self.spec, space)
        nearest = np.clip(parameters, low, high)
        _, reward, terminated, truncated, info = self.env.step(nearest.reshape(space.shape).astype(space.dtype))
        if not (terminated or truncated):
            raise SvslError(
                f"{self.spec.name} did not end after one step, so one action is not a whole episode; "
                "for step-based environments use svsl.tasks.movement_task.MovementPrimitiveTask"
            )
        # the scale of the return is unknown, so the cost is relative to the return of the nearest action inside
        cost = self.outside_penalty * (((parameters - nearest) / (high - low)) ** 2).sum()
        return episode_result(float(reward - cost), info)


def episode_result(total: float, info: Info) -> EpisodeResult:
    """Returns the result of an episode with the usable part of its info: numbers, `mode` and `path`."""
    success = info.get("success", info.get("is_success"))
    diagnostics: Info = {}
    for name, value in info.items():
        if name in ("success", "is_success"):
            continue
        array = np.asarray(value) if np.isscalar(value) or isinstance(value, np.ndarray) else None
        if array is not None and ((array.ndim == 0 and array.dtype.kind in "biuf") or name in ("mode", "path")):
            diagnostics[name] = array if array.ndim else array.item()
    return total, None if success is None else bool(success), diagnostics


class EnvironmentTask:
    """Base class of tasks on Gymnasium environments: the context box, success and the process pool.

    `workers` is the number of processes (default: all cores; 0 runs episodes in this one). It does not affect returns.
    """

    def __init__(self, spec: EnvironmentSpec, corners: Sequence[Corner], success_return: float | None) -> None:
        runner = EpisodeRunner(spec)
        env = runner.env
        self.spec, self.success_return = spec, success_return
        self.action_low, self.action_high = action_box(spec, env.action_space)
        self.context_low, self.context_high = context_box(spec, env.observation_space, *corners)
        self._env_defaults = {n: getattr(env.unwrapped, n, None) for n in ("initial_mean", "initial_cov", "dt")}
        try:
            runner.start(0.5 * (self.context_low + self.context_high), 0)  # fail here rather than in the first batch
        except SvslError:
            raise
        except Exception as error:  # user code may raise anything
            raise SvslError(f"{spec.name}: reset failed: {type(error).__name__}: {error}") from error
        finally:
            env.close()

    def _create_pool(self, make_runner: Callable[[], Callable[[Episode], EpisodeResult]]) -> None:
        self._pool: ProcessPool[Episode, EpisodeResult] = ProcessPool(
            self.spec.name, make_runner, describe_episode, available_cores()
        )

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
        """Ends the processes; the next `evaluate` starts new ones."""
        self._pool.close()

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Runs one episode per row, each with its own seed drawn from `rng`."""
        seeds = rng.integers(2**31, size=len(contexts)).tolist()
        results = self._pool.map(list(zip(contexts, parameters, seeds, strict=True)))
        returns = np.array([result[0] for result in results])
        if self.success_return is not None:
            success = returns >= self.success_return
        else:
            success = np.array([bool(result[1]) for result in results], dtype=bool)
        return Outcome(returns, success, stack_diagnostics([result[2] for result in results]))


class GymnasiumTask(EnvironmentTask):
    """A Gymnasium environment whose first observation is the context, whose action is a skill and step an episode.

    The environment must take the context from `reset(options={"context": c})` or have a setter. Episodes run in
    parallel processes (`workers`), each with its own seed. The return is the reward; success is `info["success"]` or
    `info["is_success"]` unless `success_return` is given. An action outside a bounded action space is clipped and costs
    `outside_penalty` times its squared distance in widths of the space. The environment may have the attributes
    `initial_mean` and `initial_cov`, which define the initial search distribution.

    Args:
        env: A Gymnasium environment ID (`module:ID` imports the module first), or a function that creates the
            environment.
        env_options: Keyword arguments of the environment.
        context_setter: Name of a method of the environment that is called with the context after each reset, or a
            function that is called with the environment and the context; returns the observation, or None.
        context_low: Lower corner of the context box (default: that of the observation space).
        context_high: Upper corner of the context box (default: that of the observation space).
        initial_mean: Mean of the initial search, one number per entry of the action or one for all (default: the
            middle of the action space).
        initial_std: Standard deviation of the initial search, in the same form (default: a quarter of the width of the
            action space).
        success_return: An episode with at least this return is a success.
        outside_penalty: Scale of the cost of an action outside the action space.

    Raises:
        SvslError: If the environment cannot be created, or its spaces do not fit the convention.
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
        super().__init__(spec, (context_low, context_high), success_return)
        self._create_pool(functools.partial(EpisodeRunner, spec, outside_penalty))
        self.parameter_dim = len(self.action_low)
        self.initial_mean, self.initial_cov = self._initial_distribution(initial_mean, initial_std)

    def _initial_distribution(self, mean: ArrayLike | None, std: ArrayLike | None) -> tuple[Array, Array]:
        """Returns the given mean and covariance, or those of the environment, or those of the action space."""
        bounded = bool(np.isfinite([self.action_low, self.action_high]).all())
        env_mean, env_cov = self._env_defaults["initial_mean"], self._env_defaults["initial_cov"]
        if not bounded and ((mean is None and env_mean is None) or (std is None and env_cov is None)):
            raise SvslError(
                f"{self.spec.name}: its action space is unbounded; give initial_mean and initial_std, one number for "
                f"each of the {self.parameter_dim} entries or one for all"
            )
        if mean is None:
            mean = 0.5 * (self.action_low + self.action_high) if env_mean is None else env_mean
        centre = vector_of(f"{self.spec.name}: initial_mean", mean, self.parameter_dim)
        if std is None and env_cov is not None:
            return centre, np.asarray(env_cov, dtype=np.float64)
        width = 0.25 * (self.action_high - self.action_low) if std is None else std
        width = vector_of(f"{self.spec.name}: initial_std", width, self.parameter_dim, positive=True)
        return centre, np.diag(width**2)


def context_box(spec: EnvironmentSpec, space: gymnasium.Space[Any], low: Corner, high: Corner) -> tuple[Array, Array]:
    """Returns the lower and upper corners of the context box: the given ones, or those of the observation space."""
    if not isinstance(space, gymnasium.spaces.Box):
        raise SvslError(f"{spec.name}: expected a Box as observation space, got {space}")
    size = int(np.prod(space.shape))
    if not all(0 <= index < size for index in spec.context_indices or ()):
        raise SvslError(f"{spec.name}: context_indices {spec.context_indices} are out of range for {size} observations")
    dim = len(spec.context_of(space.low))
    corners = [
        vector_of(f"{spec.name}: {name}", spec.context_of(bound) if given is None else given, dim)
        for name, bound, given in (("context_low", space.low, low), ("context_high", space.high, high))
    ]
    # some spaces use the largest single-precision number for "no bound"
    if not (np.abs(corners) < 1e30).all() or not (corners[0] < corners[1]).all():
        raise SvslError(
            f"{spec.name}: expected a finite context box with low < high, got {corners[0].tolist()} to "
            f"{corners[1].tolist()}; give context_low and context_high, {dim} numbers each"
        )
    return corners[0], corners[1]


def action_box(spec: EnvironmentSpec, space: gymnasium.Space[Any]) -> tuple[Array, Array]:
    """Returns the lower and upper corners of the action space, possibly infinite."""
    if not isinstance(space, gymnasium.spaces.Box) or np.dtype(space.dtype).kind != "f":
        raise SvslError(
            f"{spec.name}: expected an action space Box(low, high, dtype=float), because parameters are real "
            f"numbers, got {space}; convert it, for instance with a gymnasium.ActionWrapper"
        )
    return space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()


def stack_diagnostics(infos: Sequence[Info]) -> dict[str, NDArray[np.generic]]:
    """Returns diagnostics by name, one entry per episode; NaN, False or "" where an episode has none."""
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


def describe_episode(episode: Episode) -> str:
    """Describes an episode for error messages."""
    context, parameters = (", ".join(f"{value:.6g}" for value in vector) for vector in episode[:2])
    return f"context [{context}], parameters [{parameters}], seed {episode[2]}"
