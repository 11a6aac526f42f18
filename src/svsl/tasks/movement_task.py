"""Step-based Gymnasium environments as tasks: the parameters are a movement that is tracked step by step."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.simulation.movements import Movement, Primitive, Throw
from svsl.tasks.base import vector_of
from svsl.tasks.episodes import (
    ContextSetter,
    Environment,
    EnvironmentSpec,
    EnvOptions,
    EpisodeResult,
    EpisodeRunner,
    episode_result,
    flat_observation,
)
from svsl.tasks.gymnasium_task import EPISODE_TIMEOUT_S, EnvironmentTask

JointSource = Sequence[int] | str | Callable[[Any], ArrayLike]


@dataclass(frozen=True)
class _Tracking:
    """How parameters become actions; sent to worker processes."""

    control: str
    positions: JointSource
    velocities: JointSource | None
    p_gain: Array
    d_gain: Array
    movement: Movement
    steps: int
    dt_s: float


class _MovementRunner(EpisodeRunner):
    """Runs movements in one process."""

    def __init__(self, tracking: _Tracking, spec: EnvironmentSpec) -> None:
        super().__init__(spec)
        self.tracking = tracking

    def run(self, observation: Array, parameters: Array) -> EpisodeResult:
        """Tracks the movement, then holds its end until the environment ends or steps run out."""
        tracking, space, total = self.tracking, self.env.action_space, 0.0
        start = self._read(tracking.positions, observation)
        path = tracking.movement.trajectories(parameters[None], start, tracking.steps + 1, tracking.dt_s)
        desired, speed = path[0][0], path[1][0]
        info: dict[str, Any] = {}
        for step in range(1, tracking.steps + 1):  # an action aims at the position after it
            action = desired[step]
            if tracking.control == "torque":
                action = tracking.p_gain * (action - self._read(tracking.positions, observation))
                action += tracking.d_gain * (speed[step] - self._read(tracking.velocities, observation))
            action = np.clip(action, space.low.ravel(), space.high.ravel())  # type: ignore[attr-defined]
            result = self.env.step(action.reshape(space.shape).astype(space.dtype))
            observation, info = flat_observation(result[0]), result[4]
            total += float(result[1])
            if result[2] or result[3]:
                break
        return episode_result(total, info)

    def _read(self, source: JointSource | None, observation: Array) -> Array:
        """Reads joint positions or velocities."""
        count = len(self.tracking.p_gain)
        if isinstance(source, str):
            values: ArrayLike = attrgetter(source)(self.env.unwrapped)
        elif callable(source):
            values = source(self.env.unwrapped)
        else:
            values = observation[list(source or ())]
        vector = np.array(values, dtype=np.float64).ravel()
        if len(vector) < count or (len(vector) > count and not isinstance(source, str)):
            raise SvslError(f"{self.spec.name}: expected {count} joints (one per action), got {len(vector)}")
        return vector[:count]


class MovementPrimitiveTask(EnvironmentTask):
    """A step-based Gymnasium environment with a position- or torque-controlled body.

    The parameters are those of a movement that starts at rest in the posture after the reset, joint by joint, and its
    duration if that is learned. By default, they are `bases` weights per joint in the unit of the joints
    (`primitives.throw`); `svsl.simulation.movements` has other primitives. The movement takes `duration_s`; its end is
    then held until the environment terminates or truncates, or after `steps` steps. The return is the sum of the
    rewards; success is `info["success"]` or `info["is_success"]` of the last step unless `success_return` is given.
    Contexts are set, and episodes run in processes, as in `GymnasiumTask`.

    Joint positions and velocities are read from indices into the observation; from an attribute of the unwrapped
    environment, such as `data.qpos`, of which the first entries are used; or from a function that is called with the
    unwrapped environment.

    Args:
        env: A Gymnasium environment ID (`module:ID` imports the module first), or a function that creates the
            environment.
        context_indices: Indices of the context in the first observation; None for its `desired_goal`. Entries of a
            dictionary are counted through in alphabetical order.
        joint_positions: Where to read the positions of the joints, one per action.
        joint_velocities: Where to read their velocities; required for torque control.
        control: `torque`: actions are `p_gain (q_des - q) + d_gain (v_des - v)`; `position`: actions are `q_des`. Both
            are clipped to the action space.
        p_gain: Action per unit of position, one number per joint or one for all.
        d_gain: Action per unit of velocity, one number per joint or one for all.
        duration_s: Duration of the movement; or the shortest and the longest, if it is learned: it is then the last
            parameter, limited to this range.
        steps: Maximum number of actions (default: those of the longest movement plus half as many).
        dt_s: Time between actions (default: the attribute `dt` of the environment).
        bases: Number of weights per joint of the default primitive.
        primitive: Another primitive, such as `ProMP()` or `ProDMP()` (default: `Throw(bases)`).
        initial_std: Standard deviation of the initial search, one number per joint or one for all. That of a learned
            duration is a quarter of its range, around its middle.
        initial_mean: The primitive's parameters around which the search starts, or one number for all (default: 0).
        env_options: Keyword arguments of the environment.
        context_setter: See `GymnasiumTask`.
        context_low: Lower corner of the context box (default: that of the observation space).
        context_high: Upper corner of the context box (default: that of the observation space).
        success_return: An episode with at least this return is a success.
        episode_timeout_s: See `GymnasiumTask`.

    Raises:
        SvslError: If the environment cannot be created, or a required argument is missing.

    Examples:
        >>> import numpy as np
        >>> from svsl.tasks.movement_task import MovementPrimitiveTask
        >>> def set_target(env, target):  # Gymnasium's Reacher ignores the context in its reset options
        ...     env.goal = target
        ...     env.set_state(np.concatenate([env.data.qpos[:2], target]), env.data.qvel)
        ...     return env._get_obs()
        >>> task = MovementPrimitiveTask(
        ...     "Reacher-v5", context_indices=[4, 5], context_setter=set_target, joint_positions="data.qpos",
        ...     joint_velocities=[6, 7], context_low=[0.05, -0.12], context_high=[0.17, 0.12], duration_s=0.3, bases=2,
        ... )
        >>> task.parameter_dim  # two weights for each of two joints
        4
    """

    def __init__(
        self,
        env: Environment,
        context_indices: Sequence[int] | None,
        joint_positions: JointSource,
        joint_velocities: JointSource | None = None,
        *,
        control: Literal["torque", "position"] = "torque",
        p_gain: float | Sequence[float] = 1.0,
        d_gain: float | Sequence[float] = 0.1,
        duration_s: float | tuple[float, float] = 1.0,
        steps: int | None = None,
        dt_s: float | None = None,
        bases: int = 3,
        primitive: Primitive | None = None,
        initial_std: float | Sequence[float] = 0.5,
        initial_mean: float | Sequence[float] = 0.0,
        env_options: EnvOptions | None = None,
        context_setter: ContextSetter | None = None,
        context_low: Sequence[float] | None = None,
        context_high: Sequence[float] | None = None,
        success_return: float | None = None,
        episode_timeout_s: float | None = EPISODE_TIMEOUT_S,
    ) -> None:
        indices = None if context_indices is None else tuple(context_indices)
        spec = EnvironmentSpec(env, env_options or {}, context_setter, indices)
        super().__init__(spec, (context_low, context_high), success_return)
        if control not in ("torque", "position") or (control == "torque" and joint_velocities is None):
            raise SvslError(
                f"{spec.name}: expected control='position', or control='torque' and joint_velocities, got {control!r}"
            )
        dt_s = dt_s if dt_s is not None else self._env_defaults["dt"]
        if dt_s is None or not dt_s > 0:
            raise SvslError(f"{spec.name}: expected dt_s > 0 (or an attribute dt), got {dt_s}")
        joints = len(self.action_low)
        movement = Movement(primitive or Throw(bases), joints, duration_s)
        moving_steps = max(2, round(movement.longest_s / dt_s))
        steps = moving_steps + moving_steps // 2 if steps is None else steps
        p_gains = vector_of(f"{spec.name}: p_gain", p_gain, joints)
        d_gains = vector_of(f"{spec.name}: d_gain", d_gain, joints)
        tracking = _Tracking(control, joint_positions, joint_velocities, p_gains, d_gains, movement, steps, dt_s)
        self._create_pools(functools.partial(_MovementRunner, tracking), episode_timeout_s, dt_s)
        self.parameter_dim = movement.size
        std = vector_of(f"{spec.name}: initial_std", initial_std, joints, positive=True)
        mean = vector_of(f"{spec.name}: initial_mean", initial_mean, joints * movement.primitive.size)
        self.initial_mean, self.initial_cov = movement.search(mean, std)
