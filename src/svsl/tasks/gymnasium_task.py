"""Gymnasium environments as tasks, in the black-box convention: one action is a skill, one step is an episode."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from svsl.backends.process_pool import ProcessPool, available_cores
from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.tasks.base import Outcome, vector_of
from svsl.tasks.episodes import (
    ContextSetter,
    Corner,
    Environment,
    EnvironmentSpec,
    EnvOptions,
    Episode,
    EpisodeResult,
    EpisodeRunner,
    Film,
    Info,
    action_box,
    context_box,
    describe_episode,
    episode_result,
    is_bounded,
)
from svsl.tasks.presentation import Motion, PictureScene

EPISODE_TIMEOUT_S = 600.0
_PICTURE_S = 0.04  # smallest time between pictures


class EnvironmentTask:
    """Base class of tasks on Gymnasium environments: the context box, success, the process pool and pictures.

    `workers` is the number of processes (default: all cores; 0 runs episodes in this one). It does not affect returns.
    """

    scene: PictureScene  # only of environments that give pictures

    def __init__(
        self, spec: EnvironmentSpec, corners: Sequence[Corner], success_return: float | None, one_step: bool = False
    ) -> None:
        runner = EpisodeRunner(spec)
        env = runner.env
        self.spec = runner.spec = spec = spec.for_space(env.observation_space)
        self.success_return = success_return
        try:
            self.action_low, self.action_high = action_box(spec, env.action_space)
            if one_step and corners == (None, None):
                _require_one_step(spec, env)
            self.context_low, self.context_high = context_box(spec, env, *corners)
            self._env_defaults = {n: getattr(env.unwrapped, n, None) for n in ("initial_mean", "initial_cov", "dt")}
            self.not_shown = spec.not_shown(env)
            if self.not_shown is None:
                self.scene = PictureScene()
            runner.start(0.5 * (self.context_low + self.context_high), 0)  # fail here rather than in the first batch
        except SvslError:
            raise
        except Exception as error:  # user code may raise anything
            raise SvslError(f"{spec.name}: reset failed: {type(error).__name__}: {error}") from error
        finally:
            env.close()

    def _create_pools(
        self, make_runner: Callable[[EnvironmentSpec], EpisodeRunner], timeout_s: float | None, step_s: float
    ) -> None:
        """Creates the processes' pools, of episodes and of filmed ones; `step_s` is the time that a step takes."""
        if timeout_s is not None and not timeout_s > 0:
            raise SvslError(f"{self.spec.name}: episode_timeout_s: expected a positive number or None, got {timeout_s}")
        stride, name = max(1, round(_PICTURE_S / step_s)), self.spec.name
        self._picture_dt_s = stride * step_s
        self._pool: ProcessPool[Episode, EpisodeResult] = ProcessPool(
            name, functools.partial(make_runner, self.spec), describe_episode, available_cores(), timeout_s, _timed_out
        )
        self._films: ProcessPool[Episode, NDArray[np.uint8]] = ProcessPool(
            name, functools.partial(Film, make_runner, self.spec, stride), describe_episode, 1, timeout_s
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
            self.close()
            self._pool.workers, self._films.workers = count, min(1, count)

    def close(self) -> None:
        """Ends the processes; the next `evaluate` starts new ones."""
        self._pool.close()
        self._films.close()

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

    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """One episode with seed 0 in pictures; see `svsl.tasks.presentation.Showable`."""
        (pictures,) = self._films.map([(context, parameters, 0)])
        count = len(pictures)
        return Motion(self._picture_dt_s, pictures, np.zeros((count, 3)), np.zeros((0, 3)), trail_start=count)


def _timed_out(_: Episode) -> EpisodeResult:
    """The result of an episode that takes too long."""
    return float("nan"), False, {}


def _require_one_step(spec: EnvironmentSpec, env: gymnasium.Env[Any, Any]) -> None:
    """Points to `MovementPrimitiveTask` if an environment has many steps and no bounded observations."""
    steps = env.spec.max_episode_steps if env.spec is not None else None
    if steps is not None and steps > 1 and not is_bounded(env.observation_space):
        raise SvslError(
            f"{spec.name} has up to {steps} steps per episode, but here one action is a whole episode; use "
            "svsl.tasks.movement_task.MovementPrimitiveTask, whose parameters are a movement (docs/own-task.md). If "
            "its first step does end the episode, give context_low and context_high"
        )


class _OneStepRunner(EpisodeRunner):
    """Runs episodes of one step."""

    def __init__(self, outside_penalty: float, spec: EnvironmentSpec) -> None:
        super().__init__(spec)
        self.outside_penalty = outside_penalty

    def run(self, observation: Array, parameters: Array) -> EpisodeResult:
        space = self.env.action_space
        low, high = action_box(self.spec, space)
        nearest = np.clip(parameters, low, high)
        _, reward, terminated, truncated, info = self.env.step(nearest.reshape(space.shape).astype(space.dtype))
        if not (terminated or truncated):
            hint = "for many steps use svsl.tasks.movement_task.MovementPrimitiveTask (docs/own-task.md)"
            raise SvslError(f"{self.spec.name} did not end after one step, so one action is not an episode; {hint}")
        # the scale of the return is unknown, so the cost is relative to the return of the nearest action inside
        cost = self.outside_penalty * (((parameters - nearest) / (high - low)) ** 2).sum()
        return episode_result(float(reward - cost), info)


class GymnasiumTask(EnvironmentTask):
    """A Gymnasium environment whose first observation is the context, whose action is a skill and step an episode.

    The context of a dictionary with a `desired_goal` is that goal. The environment must take the context from
    `reset(options={"context": c})`, keep its desired goal in an attribute `goal`, or have a setter. Episodes run in
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
        episode_timeout_s: An episode that takes longer, twice, is stopped; its return is NaN. None for no limit.

    Raises:
        SvslError: If the environment cannot be created, or its spaces do not fit the convention.

    Examples:
        >>> import numpy as np
        >>> from svsl.tasks.gymnasium_task import GymnasiumTask
        >>> task = GymnasiumTask("svsl.environments:svsl/PlanarReacher-v0")
        >>> task.workers = 0  # no processes
        >>> task.evaluate(np.array([[6.0, 1.5]]), np.zeros((1, 10)), np.random.default_rng(0)).success
        array([False])
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
        episode_timeout_s: float | None = EPISODE_TIMEOUT_S,
    ) -> None:
        spec = EnvironmentSpec(env, env_options or {}, context_setter)
        super().__init__(spec, (context_low, context_high), success_return, one_step=True)
        self._create_pools(functools.partial(_OneStepRunner, outside_penalty), episode_timeout_s, 1.0)
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
