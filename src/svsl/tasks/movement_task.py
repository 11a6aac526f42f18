"""Gymnasium environments of many steps as tasks: the parameters are a movement, tracked step by step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.simulation.primitives import throw
from svsl.tasks.gymnasium_task import (
    ContextSetter,
    Environment,
    EnvironmentSpec,
    EnvironmentTask,
    EnvOptions,
    Job,
    Played,
    Player,
    filled,
    played,
)

Reading = Sequence[int] | str | Callable[[Any], ArrayLike]


@dataclass(frozen=True)
class _Tracking:
    """How parameters become actions; goes to other processes."""

    control: str
    positions: Reading
    velocities: Reading | None
    p_gain: Array
    d_gain: Array
    bases: int
    moving_steps: int
    steps: int
    dt_s: float


class _MovementPlayer(Player):
    """Plays movements in one process."""

    def __init__(self, spec: EnvironmentSpec, tracking: _Tracking) -> None:
        super().__init__(spec)
        self.tracking = tracking

    def __call__(self, job: Job) -> Played:
        """One episode: the movement, then holding its end, until the environment or the steps are at their end."""
        context, parameters, seed = job
        plan, space, total = self.tracking, self.env.action_space, 0.0
        observation = self.start(context, seed)
        start = self._read(plan.positions, observation)
        weights = parameters.reshape(1, len(start), plan.bases)
        offset, velocity = throw(weights, np.array([plan.moving_steps]), plan.steps + 1, plan.dt_s)
        desired, speed = start + offset[0], velocity[0]
        info: dict[str, Any] = {}
        for step in range(1, plan.steps + 1):  # an action aims at where to be after it
            action = desired[step]
            if plan.control == "torque":
                action = plan.p_gain * (action - self._read(plan.positions, observation))
                action += plan.d_gain * (speed[step] - self._read(plan.velocities, observation))
            action = np.clip(action, space.low.ravel(), space.high.ravel())  # type: ignore[attr-defined]
            result = self.env.step(action.reshape(space.shape).astype(space.dtype))
            observation, info = np.asarray(result[0], dtype=np.float64).ravel(), result[4]
            total += float(result[1])
            if result[2] or result[3]:
                break
        return played(total, info)

    def _read(self, where: Reading | None, observation: Array) -> Array:
        """Joint positions or velocities."""
        count = len(self.tracking.p_gain)
        if isinstance(where, str):
            values: ArrayLike = attrgetter(where)(self.env.unwrapped)
        elif callable(where):
            values = where(self.env.unwrapped)
        else:
            values = observation[list(where or ())]
        vector = np.array(values, dtype=np.float64).ravel()
        if len(vector) < count or (len(vector) > count and not isinstance(where, str)):
            raise SvslError(f"{self.spec.name}: expected {count} joints (one for each action), got {len(vector)}")
        return vector[:count]


class MovementPrimitiveTask(EnvironmentTask):
    """A step-based Gymnasium environment with a position- or torque-controlled body.

    The parameters are the weights of a movement that starts at rest in the posture after the reset: `bases` for each
    joint, joint by joint, in the unit of the joints (`primitives.throw`). The movement takes `duration_s`; its end
    is then held until the environment terminates, truncates, or `steps` are over. The return is the sum of the
    rewards; success is `info["success"]` or `info["is_success"]` of the last step unless `success_return` is given.
    Contexts are told and penalised, and episodes run in processes, as in `GymnasiumTask`.

    Where joints are read: indices into the observation; the name of an attribute of the unwrapped environment, such as
    `data.qpos`, of which the first entries count; or a function that is called with the unwrapped environment.

    Args:
        env: An id of Gymnasium's (`module:ID` imports the module first), or a function that makes the environment.
        context_indices: Which entries of the first observation are the context.
        joint_positions: Where the positions of the joints are read, one for each action.
        joint_velocities: Where their velocities are read; needed for torque control.
        control: `torque`: actions are `p_gain (q_des - q) + d_gain (v_des - v)`; `position`: actions are `q_des`. Both
            are clipped to the action space.
        p_gain: In units of action per unit of position, one for each joint or one for all.
        d_gain: In units of action per unit of velocity, likewise.
        duration_s: Of the movement.
        steps: At most so many actions; default all of the movement, and half of that to hold its end.
        dt_s: Time between actions; default the environment's attribute `dt`.
        bases: Weights for each joint.
        initial_std: How far the search starts around no movement at all, one for each joint or one for all.
        env_options: Keyword arguments of the environment.
        context_setter: See `GymnasiumTask`.
        context_low: Lower corner of the context box; default the observation space's.
        context_high: Upper corner of the context box; default the observation space's.
        success_return: An episode with at least this return is a success.
        outside_penalty: What leaving the context box costs, see `GymnasiumTask`.

    Raises:
        SvslError: If the environment cannot be made, or something that is needed is missing.
    """

    def __init__(
        self,
        env: Environment,
        context_indices: Sequence[int],
        joint_positions: Reading,
        joint_velocities: Reading | None = None,
        *,
        control: Literal["torque", "position"] = "torque",
        p_gain: float | Sequence[float] = 1.0,
        d_gain: float | Sequence[float] = 0.1,
        duration_s: float = 1.0,
        steps: int | None = None,
        dt_s: float | None = None,
        bases: int = 3,
        initial_std: float | Sequence[float] = 0.5,
        env_options: EnvOptions | None = None,
        context_setter: ContextSetter | None = None,
        context_low: Sequence[float] | None = None,
        context_high: Sequence[float] | None = None,
        success_return: float | None = None,
        outside_penalty: float = 10.0,
    ) -> None:
        spec = EnvironmentSpec(env, env_options or {}, context_setter, tuple(context_indices))
        super().__init__(spec, context_low, context_high, outside_penalty, success_return)
        if control not in ("torque", "position") or (control == "torque" and joint_velocities is None):
            raise SvslError(
                f"{spec.name}: expected control='position', or control='torque' and joint_velocities, got {control!r}"
            )
        dt_s = dt_s if dt_s is not None else self._wishes["dt"]
        if dt_s is None or not dt_s > 0 or bases < 1:
            raise SvslError(
                f"{spec.name}: expected dt_s > 0 (it has no attribute dt) and bases >= 1, got {dt_s}, {bases}"
            )
        moving_steps = max(2, round(duration_s / dt_s))
        joints = len(self.action_low)
        tracking = _Tracking(
            control=control,
            positions=joint_positions,
            velocities=joint_velocities,
            p_gain=filled(spec, "p_gain", p_gain, joints),
            d_gain=filled(spec, "d_gain", d_gain, joints),
            bases=bases,
            moving_steps=moving_steps,
            steps=moving_steps + moving_steps // 2 if steps is None else steps,
            dt_s=dt_s,
        )
        self._play_with(functools.partial(_MovementPlayer, spec, tracking))
        self.parameter_dim = joints * bases
        self.initial_mean = np.zeros(self.parameter_dim)
        std = filled(spec, "initial_std", initial_std, joints, positive=True)
        self.initial_cov = np.diag(np.repeat(std, bases) ** 2)
