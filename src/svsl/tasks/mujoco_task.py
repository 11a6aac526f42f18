"""A task from your own MuJoCo model: one class to subclass."""

import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.simulation.movements import Movement, Primitive, Throw
from svsl.simulation.rollout import Simulator, diverged
from svsl.simulation.servos import add_servo, compile_model, read_model
from svsl.tasks.base import Outcome, vector_of
from svsl.tasks.presentation import Motion
from svsl.tasks.simulated import Plan, SimulatedTask

_STATE = mujoco.mjtState
_FULL = _STATE.mjSTATE_FULLPHYSICS.value
_CONTROL = _STATE.mjSTATE_CTRL.value | _STATE.mjSTATE_MOCAP_POS.value


@dataclass
class Scene:
    """The start of n episodes; `MujocoTask.place` writes into it.

    Attributes:
        model: The compiled model.
        qpos: `(n, nq)`, joint positions.
        qvel: `(n, nv)`, joint velocities.
        mocap_pos: `(n, m, 3)`, positions of the mocap bodies during the whole episode.

    Examples:
        >>> def place(self, contexts, scene):  # in a subclass of MujocoTask
        ...     scene.mocap("goal")[:, :2] = contexts  # a mark on the table
        ...     scene.joint("puck_x")[:] = 0.1  # a puck beside its usual place
    """

    model: mujoco.MjModel
    qpos: Array
    qvel: Array
    mocap_pos: Array

    def joint(self, name: str) -> Array:
        """Positions of one joint, a view to write into: `(n, 1)`, or `(n, 7)` of a free joint."""
        return self.qpos[:, _entries(self.model, name)]

    def mocap(self, name: str) -> Array:
        """Positions of one mocap body, a view to write into: `(n, 3)`."""
        return self.mocap_pos[:, self.model.body(name).mocapid[0]]


@dataclass(frozen=True)
class Rollout:
    """The simulation of n episodes, at the start (0) and after each step; all arrays share these times.

    Attributes:
        simulator: The simulator, with the model and its sensors.
        time_s: `(steps + 1,)`.
        qpos: `(n, steps + 1, nq)`.
        qvel: `(n, steps + 1, nv)`.
        sensors: `(n, steps + 1, ns)`, all of the model's sensors.
        control: `(n, steps + 1, nu)`, inputs of the actuators.

    Examples:
        >>> import numpy as np
        >>> from svsl import Outcome
        >>> def score(self, contexts, parameters, rollout):  # in a subclass of MujocoTask
        ...     distance = np.linalg.norm(rollout.sensor("puck")[:, -1, :2] - contexts, axis=1)  # after the last step
        ...     return Outcome(-distance, distance < 0.08, {"distance": distance})
    """

    simulator: Simulator
    time_s: Array
    qpos: Array
    qvel: Array
    sensors: Array
    control: Array

    def sensor(self, name: str) -> Array:
        """Values of one sensor: `(n, steps + 1)`, or `(n, steps + 1, d)` if it has d > 1."""
        return self.simulator.sensor(self.sensors, name)

    def joint(self, name: str) -> Array:
        """Positions of one joint: `(n, steps + 1, 1)`, or 7 of a free joint."""
        return self.qpos[..., _entries(self.simulator.model, name)]


class MujocoTask(SimulatedTask):
    """A task on your own MuJoCo model. Episodes run in batches in C, on all cores.

    Subclass it, set `context_low` and `context_high` (class attributes are fine), and write `place` (what a context
    means) and `score` (the returns of a batch of episodes). The parameters are a movement of the named joints from the
    start posture, which is the model's first keyframe or else its zero posture: the parameters of a movement primitive,
    joint by joint, and the duration if it is learned. By default, they are `bases` weights in units of the joint
    (`primitives.throw`); `svsl.simulation.movements` has other primitives, and `desired` may be overridden for another
    kind of movement.

    Position actuators of the named joints track the movement, with the model's gains. A joint with a motor (a plain
    torque actuator) gets a position servo with the gains `kp` and `kv` in its place, within the motor's torque limits,
    and so does a joint without an actuator, without limits. The servo's force is `kp (q_des - q) + kv (v_des - v)`.

    Args:
        model: A model file (its path from the file of the subclass, or from the current directory), XML text, or a
            `mujoco.MjSpec`.
        joints: Names of the joints that move, each with one degree of freedom.
        duration_s: Duration of the movement; or the shortest and the longest, if it is learned: it is then the last
            parameter, limited to this range.
        rest_s: How long the episode continues after the (longest) movement; a throw holds its last position.
        penalty: Return of a simulation that diverges; clearly worse than that of any other episode.
        bases: Number of weights for each joint of the default primitive.
        primitive: Another primitive, such as `ProMP()` or `ProDMP()` (default: `Throw(bases)`).
        initial_std: Initial standard deviation of the primitive's parameters around zeros, one for each joint or one
            for all. That of a learned duration is a quarter of its range, around its middle.
        kp: Stiffness of added servos, one for each joint or one for all.
        kv: Their damping, in the same form (default: critical for the joint's own inertia).
        tracked: The body whose path is shown (default: the model's last body that moves).

    Raises:
        SvslError: If the model cannot be compiled or a joint does not exist.

    Examples:
        >>> import numpy as np
        >>> from svsl import Outcome
        >>> from svsl.tasks.mujoco_task import MujocoTask
        >>> class Swing(MujocoTask):  # bring a pendulum to an angle, the context
        ...     context_low, context_high = np.array([-1.0]), np.array([1.0])
        ...
        ...     def place(self, contexts, scene):
        ...         pass  # the angle is in nobody's way
        ...
        ...     def score(self, contexts, parameters, rollout):
        ...         miss = rollout.joint("hinge")[:, -1, 0] - contexts[:, 0]
        ...         return Outcome(-(miss**2), np.abs(miss) < 0.1)
        >>> body = '<body><joint name="hinge" axis="0 1 0"/><geom size="0.1" pos="0 0 -1"/></body>'
        >>> task = Swing(f"<mujoco><worldbody>{body}</worldbody></mujoco>", ["hinge"], duration_s=0.5, penalty=-10.0)
        >>> task.evaluate(np.array([[0.5]]), np.zeros((1, 3)), np.random.default_rng(0)).success
        array([False])
    """

    def __init__(
        self,
        model: str | Path | mujoco.MjSpec,
        joints: Sequence[str],
        *,
        duration_s: float | tuple[float, float],
        rest_s: float = 0.0,
        penalty: float,
        bases: int = 3,
        primitive: Primitive | None = None,
        initial_std: float | Sequence[float] = 0.5,
        kp: float | Sequence[float] = 100.0,
        kv: float | Sequence[float] | None = None,
        tracked: str | None = None,
    ) -> None:
        self.joints, self.penalty = tuple(joints), penalty
        count = len(self.joints)
        self.movement = Movement(primitive or Throw(bases), count, duration_s)
        stiffness = vector_of("kp of the joints", kp, count, positive=True)
        damping = [None] * count if kv is None else vector_of("kv of the joints", kv, count, positive=True)
        module = sys.modules[type(self).__module__]
        spec = read_model(model, Path(getattr(module, "__file__", None) or "").parent)
        servos = [add_servo(spec, *each) for each in zip(self.joints, stiffness, damping, strict=True)]
        compiled = compile_model(spec)
        super().__init__(compiled, compiled, _CONTROL)
        self._data = _first_data(compiled)
        self._joint_ids = np.array([_entries(compiled, name).start for name in self.joints], dtype=np.intp)
        self._servo_ids = np.array([compiled.actuator(name).id for name in servos], dtype=np.intp)
        gain, bias = compiled.actuator_gainprm[self._servo_ids, 0], compiled.actuator_biasprm[self._servo_ids, 2]
        self._velocity_share, self._gear = -bias / gain, compiled.actuator_gear[self._servo_ids, 0]
        self.start = self._data.qpos[self._joint_ids].copy()
        self.moving_steps = max(2, round(self.movement.longest_s / self.dt_s))
        self.steps = self.moving_steps + round(rest_s / self.dt_s)
        moving = np.flatnonzero(compiled.body_dofnum[compiled.body_weldid])  # neither mocap nor fixed bodies
        self.tracked = int(moving[-1]) if tracked is None else _named(compiled.body, tracked).id
        self.parameter_dim = self.movement.size
        std = vector_of("initial_std of the joints", initial_std, count, positive=True)
        self.initial_mean, self.initial_cov = self.movement.search(0.0, std)

    @abstractmethod
    def place(self, contexts: Array, scene: Scene) -> None:
        """Writes what `contexts (n, dc)` mean into the start of n episodes: positions of joints and mocap bodies."""

    @abstractmethod
    def score(self, contexts: Array, parameters: Array, rollout: Rollout) -> Outcome:
        """The outcome of episodes; those that diverged get the penalty afterwards."""

    def desired(self, parameters: Array) -> tuple[Array, Array]:
        """Positions and velocities of the joints, each `(n, steps + 1, j)`, that the servos track."""
        return self.movement.trajectories(parameters, self.start, self.steps + 1, self.dt_s)

    def evaluate_batch(self, contexts: Array, parameters: Array) -> Outcome:
        """Simulates the episodes with finite parameters; the others get the penalty."""
        rows = np.flatnonzero(np.isfinite(parameters).all(axis=1))
        plan = Plan(np.full(len(contexts), self.penalty), rows, {})
        if not len(rows):  # `score` is never called with an empty batch
            return plan.completed(Outcome(np.empty(0), np.empty(0, bool), {"diverged": np.empty(0, bool)}))
        states, rollout = self.simulate(contexts[rows], parameters[rows])
        end_s = np.full(len(rows), self._data.time + (self.steps + 1) * self.dt_s)
        failed = diverged(states[:, -1], end_s, self.dt_s)
        outcome = self.score(contexts[rows], parameters[rows], rollout)
        returns, success = np.where(failed, self.penalty, outcome.returns), outcome.success & ~failed
        return plan.completed(Outcome(returns, success, {"diverged": failed, **outcome.info}))

    def simulate(self, contexts: Array, parameters: Array) -> tuple[Array, Rollout]:
        """Runs episodes; returns MuJoCo's states after each step `(n, steps + 1, size)`, one beyond the rollout's."""
        model, scene = self.model, self._scene(contexts)
        start = np.empty((len(contexts), self.simulator.state_size))
        for row, (qpos, qvel) in enumerate(zip(scene.qpos, scene.qvel, strict=True)):
            self._data.qpos[:], self._data.qvel[:] = qpos, qvel
            mujoco.mj_getState(model, self._data, start[row], _FULL)
        control = np.empty((len(contexts), self.steps + 1, self.simulator.control_size))
        control[..., : model.nu] = self._data.ctrl
        position, velocity = self.desired(parameters)
        control[..., self._servo_ids] = self._gear * (position + self._velocity_share * velocity)
        control[..., model.nu :] = scene.mocap_pos.reshape(len(contexts), 1, 3 * model.nmocap)
        # one step more than the episode: the sensors of a state come with the step after it
        states, sensors = self.simulator.run(start, control)
        seen = np.concatenate([start[:, None], states[:, :-1]], axis=1)
        qpos, qvel = seen[..., 1 : 1 + model.nq], seen[..., 1 + model.nq : 1 + model.nq + model.nv]
        time_s = self.dt_s * np.arange(self.steps + 1, dtype=np.float64)
        return states, Rollout(self.simulator, time_s, qpos, qvel, sensors, control[..., : model.nu])

    def _scene(self, contexts: Array) -> Scene:
        self._data = _first_data(self.model)
        fields = (self._data.qpos, self._data.qvel, self._data.mocap_pos)
        scene = Scene(self.model, *(np.repeat(values[None], len(contexts), axis=0) for values in fields))
        self.place(contexts, scene)
        return scene

    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """One episode with the path of the tracked body; see `svsl.tasks.presentation.Showable`.

        If `score` puts `steps` into `info`, the number of steps after which an episode is decided, players stop there.
        """
        contexts, decided = context[None], None
        runs = parameters is not None and bool(np.isfinite(parameters).all())
        chosen = (parameters if runs and parameters is not None else self.initial_mean)[None]
        states, rollout = self.simulate(contexts, chosen)
        if runs and "steps" in (info := self.score(contexts, chosen, rollout).info):
            decided = int(info["steps"][0])
        states, markers = states[0, : self.steps if runs else 1], self._scene(contexts).mocap_pos[0]
        data, path = mujoco.MjData(self.model), np.empty((len(states), 3))
        data.mocap_pos[:] = markers
        for step, state in enumerate(states):
            mujoco.mj_setState(self.model, data, state, _FULL)
            mujoco.mj_kinematics(self.model, data)
            path[step] = data.xpos[self.tracked]
        return Motion(self.dt_s, states, path, markers, decided_step=decided)


def _first_data(model: mujoco.MjModel) -> mujoco.MjData:
    """Returns the first keyframe, or the zero posture."""
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    return data


def _named(find: Callable[[str], Any], name: str) -> Any:
    """Returns an element of a model by name."""
    try:
        return find(name)
    except KeyError as error:
        raise SvslError(f"the model: {error.args[0]}") from None


def _entries(model: mujoco.MjModel, joint: str) -> slice:
    """Returns the entries of qpos that hold a joint's positions."""
    element = _named(model.joint, joint)
    first = int(element.qposadr[0])
    return slice(first, first + len(element.qpos0))
