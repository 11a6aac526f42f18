"""Box pushing: a Panda pushes an open box with a rod to a pose on a table; the benchmark of episodic learning."""

import functools
from typing import Literal, get_args

import mujoco
import numpy as np

from svsl.errors import SvslError
from svsl.model.gaussians import Array, BoolArray
from svsl.simulation.arm import JOINTS
from svsl.simulation.box_pushing import BOX_START, BOX_Z, KD, KP, LARGEST_COMMAND, START, WALLS, box_pushing_model
from svsl.simulation.movements import Movement, ProDMP, ProMP
from svsl.simulation.panda_kinematics import StartPostures
from svsl.simulation.rollout import diverged
from svsl.tasks.base import Outcome
from svsl.tasks.box_pushing_steps import (
    ARM,
    ARM_VELOCITY,
    BOX,
    PENALTY,
    STEPS,
    SUBSTEPS,
    BoxPushes,
    HeldTorques,
    Reward,
    Seen,
    bias_simulator,
    solved,
    step_rewards,
)
from svsl.tasks.presentation import Motion
from svsl.tasks.simulated import Plan, SimulatedTask, running_sum

Start = Literal["fixed", "random"]
PrimitiveName = Literal["promp", "prodmp"]
Controller = Literal["simulator", "published"]
LEAST_DISTANCE = 0.3  # metres from the box to its target at the start
_BOX_LOW, _BOX_HIGH = np.array([0.3, -0.45]), np.array([0.6, 0.45])  # of the positions of box and target
_START_YAW = np.pi  # of the fixed start
_EIGHTH_TURN = np.pi / 4
_TCP_HEIGHT = BOX_Z + 0.15
_DURATION_S = 2.0
_STRAIGHT = 0.25  # rad: a box that turned less did not turn
_MOMENTS = 10  # of a path
_PATH_UNITS = np.array([0.05, 0.05, 0.5, 0.035, 0.035])  # box x, y, yaw; rod's x, y in the box: clear differences


class BoxPushing(SimulatedTask):
    """Push a box to a pose; the context is the target's x, y and yaw, and with a random start the box's before them.

    The Panda holds a rod inside an open box, 10 cm wide, and moves for 2 s. Parameters, joint by joint: 35 weights of a
    ProMP (five bases for each of seven joints), or of a ProDMP with four bases and a goal relative to the start, which
    soft servos track (12 N m/rad at the first joints, and at most 10 N m).

    An episode has 100 steps of 0.02 s; the return is the sum of their rewards. After each step, with the distance g [m]
    and the angle psi [rad] of the box to its target, the distance d of the rod's tip to the box, the commands a [N m],
    the rod's turn phi from pointing down in its first orientation, and J the joint angles and velocities beyond their
    limits, summed:

    - `dense`: `-J - 2 max(d, 0.05) - phi/pi [phi > pi/4] - 3.5 g - psi/pi - 0.0005 |a|^2`
    - `temporal-sparse`: `-J - 2 max(d, 0.05) - phi/pi [phi > pi/4] - 0.02 |a|^2`, and at the end
      `-350 g - 100 psi/pi - 50 |joint velocities|`
    - `temporal-spatial-sparse`: the same, and at the end, only if g < 0.1,
      `300 - min(1050 g, 100) - min(150 psi/pi, 100)`

    Success: g < 0.05 and psi < 0.5 at the end. Targets are at least 0.3 m away from the box. A yaw counts from the
    world's x axis; the target's is given within half a turn of the box's, so that contexts with similar solutions are
    neighbours (the published context is the same angle modulo 2 pi). The box is square: a quarter turn of box and
    target together is the same problem, so a random yaw of the box is given within an eighth of a turn.

    Rewards, rules and physics follow the published task, oddities included: the reward sees poses 2 ms late; g contains
    a height difference of 1 mm; `rod_tip` is 2.5 cm above the end of the rod; turning the hand by more than 45 degrees
    about the vertical is penalised. Its controller, however, is unstable where the second joint is near 0, because it
    holds torques for 20 ms: joints 1 and 3 then swing against each other. By default the same gains act at every time
    step of 2 ms, and gravity is compensated, but no Coriolis forces; |a|^2 is its mean over the step.

    Args:
        start: `fixed`: the box starts at (0.4, 0.3) with a yaw of pi. `random`: anywhere in the same area as the
            targets, and the arm above it.
        reward: Which of the published rewards.
        primitive: Which movement primitive the parameters belong to.
        controller: `simulator`: at every time step, inside the simulator. `published`: torques held for 20 ms.
    """

    penalty = PENALTY

    def __init__(
        self,
        start: Start = "fixed",
        reward: Reward = "dense",
        primitive: PrimitiveName = "promp",
        controller: Controller = "simulator",
    ) -> None:
        for name, value, kind in (
            ("start", start, Start),
            ("reward", reward, Reward),
            ("primitive", primitive, PrimitiveName),
            ("controller", controller, Controller),
        ):
            if value not in get_args(kind):
                raise SvslError(f"option {name}: expected one of {', '.join(get_args(kind))}, got {value!r}")
        self.start, self.reward, self.controller = start, reward, controller
        drive: Literal["servo", "motor"] = "servo" if controller == "simulator" else "motor"
        super().__init__(
            box_pushing_model(drive), box_pushing_model(drive, visuals=False), mujoco.mjtState.mjSTATE_CTRL.value
        )
        self._bias = bias_simulator() if controller == "published" else None
        yaws = [(_START_YAW - np.pi, _START_YAW + np.pi)]  # of the target
        names: tuple[str, ...] = ("target x [m]", "target y [m]", "target yaw [rad]")
        if start == "random":
            # of the box and of the target
            yaws = [(-_EIGHTH_TURN, _EIGHTH_TURN), (-_EIGHTH_TURN - np.pi, _EIGHTH_TURN + np.pi)]
            names = ("box x [m]", "box y [m]", "box yaw [rad]", *names)
            self.context_maps = ((3, 4), (0, 1), (2, 5))
        self.context_low = np.concatenate([[*_BOX_LOW, lowest] for lowest, _ in yaws])
        self.context_high = np.concatenate([[*_BOX_HIGH, highest] for _, highest in yaws])
        self.context_names = names
        promp = primitive == "promp"
        bases = ProMP() if promp else ProDMP(bases=4, weight_scale=0.3, goal_scale=0.3)
        self.movement = Movement(bases, JOINTS, _DURATION_S)
        self.parameter_dim = self.movement.size
        self.initial_mean, self.initial_cov = self.movement.search(0.0, np.full(JOINTS, 0.4 if promp else 1.0))

    @property
    def workers(self) -> int:
        """Threads of the simulation; None sets all cores, 0 the calling thread only."""
        return self.simulator.workers

    @workers.setter
    def workers(self, count: int | None) -> None:
        self.simulator.workers = count
        if self._bias is not None:
            self._bias.workers = count

    def targets(self, contexts: Array) -> Array:
        """Targets `(n, 3)` of contexts: x, y, yaw."""
        return contexts[:, -3:]

    def valid_contexts(self, contexts: Array) -> BoolArray:
        """Which contexts `(n, dc)` have a target far enough from the box, and within half a turn of it."""
        box, target = self._boxes(contexts), self.targets(contexts)
        x, y, turn = (target - box).T
        return np.asarray((x**2 + y**2 >= LEAST_DISTANCE**2) & (np.abs(turn) <= np.pi))

    def _boxes(self, contexts: Array) -> Array:
        """Where the boxes start `(n, 3)`: x, y, yaw."""
        if self.start == "random":
            return contexts[:, :3]
        return np.broadcast_to([*BOX_START, _START_YAW], (len(contexts), 3))

    def start_states(self, contexts: Array) -> Array:
        """States `(n, size)` at the start."""
        box, states = self._boxes(contexts), np.zeros((len(contexts), self.simulator.state_size))
        states[:, ARM] = START if self.start == "fixed" else _start_postures()(box[:, :2])
        half = box[:, 2] / 2
        height, zero = np.full(len(box), BOX_Z), np.zeros(len(box))
        states[:, BOX] = np.stack([box[:, 0], box[:, 1], height, np.cos(half), zero, zero, np.sin(half)], axis=1)
        return states

    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """One push with the path of the box; see `svsl.tasks.presentation.Showable`."""
        states = self.start_states(context[None])[:, None]
        if parameters is not None and np.isfinite(parameters).all():
            moved, _, _ = self._simulate(context[None], parameters[None])
            states = np.concatenate([states, moved], axis=1)
        x, y, yaw = self.targets(context[None])[0]
        quat = np.array([np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])
        box = states[0, :, BOX][:, :3]
        return Motion(self.dt_s, states[0], box, np.array([[x, y, BOX_Z]]), marker_quats=quat[None])

    def step_form(self, count: int, workers: int | None = None) -> BoxPushes:
        """The same task controlled torque by torque, `count` arms together."""
        return BoxPushes(self, len(self.context_low), count, workers)

    def evaluate_batch(self, contexts: Array, parameters: Array) -> Outcome:
        """Simulates every episode with finite numbers."""
        rows = np.flatnonzero(np.isfinite(contexts).all(axis=1) & np.isfinite(parameters).all(axis=1))
        plan = Plan(np.full(len(contexts), np.nan), rows, {})
        return plan.completed(self._score(contexts[rows], *self._simulate(contexts[rows], parameters[rows])))

    def _simulate(self, contexts: Array, parameters: Array) -> tuple[Array, Array, Array]:
        """States after and sensors before each time step `(n, 1000, ...)`, and squared commands of each step."""
        states = self.start_states(contexts)
        dt_s = SUBSTEPS * self.dt_s
        position, velocity = self.movement.trajectories(parameters, states[:, ARM], STEPS + 1, dt_s)
        position, velocity = position[:, 1:], velocity[:, 1:]  # a step aims at its end
        if self._bias is None:
            control = np.repeat(position + np.array(KD) / KP * velocity, SUBSTEPS, axis=1)
            moved, sensors = self.simulator.run(states, control)
            first = self.simulator.model.sensor("command_1").adr[0]
            squared = (sensors[..., first : first + JOINTS] ** 2).sum(axis=2)
            return moved, sensors, squared.reshape(len(states), STEPS, SUBSTEPS).mean(axis=2)
        arms, effort = HeldTorques(self.simulator, self._bias, states), np.empty((len(states), STEPS))
        parts = []
        for step in range(STEPS):
            error = position[:, step] - arms.states[:, ARM], velocity[:, step] - arms.states[:, ARM_VELOCITY]
            command = np.clip(np.array(KP) * error[0] + np.array(KD) * error[1], -LARGEST_COMMAND, LARGEST_COMMAND)
            effort[:, step] = (command**2).sum(axis=1)
            parts.append(arms.advance(command))
        moved, sensors = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        return moved, sensors, effort

    def _score(self, contexts: Array, states: Array, sensors: Array, effort: Array) -> Outcome:
        seen, targets = Seen.of(self.simulator, states, sensors), self.targets(contexts)
        last = np.broadcast_to(np.arange(STEPS) == STEPS - 1, effort.shape)
        returns = running_sum(step_rewards(self.reward, seen, effort, last, targets))
        distance, angle = (error[:, -1] for error in seen.errors(targets))
        failed = diverged(states[:, -1], np.full(len(states), STEPS * SUBSTEPS * self.dt_s), self.dt_s)
        success = solved(distance, angle) & ~failed
        yaw = box_yaws(seen.box, self._boxes(contexts)[:, 2])
        pressed = np.stack([(self.simulator.sensor(sensors, f"rod_{wall}") > 0).sum(axis=1) for wall in WALLS], axis=1)
        turn = yaw[:, -1] - self._boxes(contexts)[:, 2]
        info = {
            "distance": distance,
            "angle": angle,
            "effort": running_sum(effort),
            "turn": turn,
            "diverged": failed,
            "steps": np.full(len(states), STEPS * SUBSTEPS),
            "mode": push_modes(pressed, turn),
            "path": push_paths(seen, yaw),
        }
        return Outcome(np.where(failed, self.penalty, returns), success, info)


@functools.lru_cache(maxsize=1)
def _start_postures() -> StartPostures:
    return StartPostures(_BOX_LOW, _BOX_HIGH, _TCP_HEIGHT)


def box_yaws(box: Array, start: Array) -> Array:
    """Yaw of each box over time `(n, k)`, continuous from its `start (n,)`, given its pose `(n, k, 7)`."""
    w, x, y, z = np.moveaxis(box[..., 3:], -1, 0)
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y**2 + z**2))
    return np.unwrap(np.concatenate([start[:, None], yaw], axis=1), axis=1)[:, 1:]


def push_modes(pressed: Array, turn: Array) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Kinds of pushes, such as "+y, turns left": the wall that the rod pressed longest, and how the box turned.

    Args:
        pressed: `(n, 4)`, how long the rod touched each of the `WALLS`.
        turn: `(n,)`, how far the box turned [rad], counterclockwise.
    """
    turns = np.select([turn > _STRAIGHT, turn < -_STRAIGHT], ["turns left", "turns right"], "straight")
    modes = np.char.add(np.array(WALLS)[pressed.argmax(axis=1)], np.char.add(", ", turns))
    return np.where(pressed.any(axis=1), modes, "untouched")


def push_paths(seen: Seen, yaw: Array) -> Array:
    """What pushes look like at ten moments: the box's position and yaw, and where in the box the rod is."""
    offset = seen.tip[..., :2] - seen.box[..., :2]
    cosine, sine = np.cos(yaw), np.sin(yaw)
    rod = cosine * offset[..., 0] + sine * offset[..., 1], cosine * offset[..., 1] - sine * offset[..., 0]
    path = np.stack([seen.box[..., 0], seen.box[..., 1], yaw, *rod], axis=2) / _PATH_UNITS
    stride = STEPS // _MOMENTS
    return path[:, stride - 1 :: stride].reshape(len(path), _MOMENTS * len(_PATH_UNITS))
