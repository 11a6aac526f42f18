"""Box pushing step by step: the published rewards, the torques held for a control step, and the step-based form."""

from dataclasses import dataclass
from typing import Literal, Protocol

import mujoco
import numpy as np
from gymnasium import spaces

from svsl.model.gaussians import Array, BoolArray
from svsl.simulation.arm import JOINTS
from svsl.simulation.box_pushing import BOX_Z, LARGEST_COMMAND, TORQUE_LIMIT, bias_model, box_pushing_model
from svsl.simulation.panda_kinematics import JOINT_HIGH, JOINT_LOW
from svsl.simulation.rollout import Simulator, diverged

Reward = Literal["dense", "temporal-sparse", "temporal-spatial-sparse"]
STEPS, SUBSTEPS = 100, 10  # of an episode, of a control step
SUCCESS_DISTANCE, SUCCESS_ANGLE = 0.05, 0.5
PENALTY = -2000.0
# entries of a state: time, qpos (arm, box), qvel (arm, box)
ARM, BOX = slice(1, 1 + JOINTS), slice(1 + JOINTS, 8 + JOINTS)
ARM_VELOCITY = slice(8 + JOINTS, 8 + 2 * JOINTS)
_LARGEST_VELOCITY = np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61])
_CONTROL = mujoco.mjtState.mjSTATE_CTRL.value


@dataclass(frozen=True)
class Seen:
    """What the rewards of k control steps of n episodes depend on.

    As published, poses are those one time step (2 ms) before the end of a control step, joints those at its end.
    """

    joints: Array  # (n, k, 7)
    velocities: Array  # (n, k, 7)
    box: Array  # (n, k, 7), position and quaternion
    tip: Array  # (n, k, 3), position of the rod's tip
    rod_quat: Array  # (n, k, 4)

    @classmethod
    def of(cls, simulator: Simulator, states: Array, sensors: Array) -> "Seen":
        """Picks it from the states after and the sensors before each time step, `(n, 10 k, ...)`."""
        end, before = states[:, SUBSTEPS - 1 :: SUBSTEPS], states[:, SUBSTEPS - 2 :: SUBSTEPS]
        read = sensors[:, SUBSTEPS - 1 :: SUBSTEPS]
        tip, quat = simulator.sensor(read, "rod_tip_pos"), simulator.sensor(read, "rod_quat")
        return cls(end[..., ARM], end[..., ARM_VELOCITY], before[..., BOX], tip, quat)

    def errors(self, targets: Array) -> tuple[Array, Array]:
        """Distance [m] and angle [rad] of each box to its target `(n, 3)`: x, y, yaw."""
        half = targets[:, None, 2] / 2
        gap = self.box[..., :3] - np.stack([*targets.T[:2], np.full(len(targets), BOX_Z)], axis=1)[:, None]
        cosine = np.abs(self.box[..., 3] * np.cos(half) + self.box[..., 6] * np.sin(half))
        return norm(gap), 2 * np.arccos(np.minimum(cosine, 1.0))


def step_rewards(kind: Reward, seen: Seen, effort: Array, last: BoolArray, targets: Array) -> Array:
    """Rewards of control steps `(n, k)`.

    Args:
        kind: Which of the published rewards.
        seen: What they depend on.
        effort: `(n, k)`, sum of the squared commands [N^2 m^2].
        last: `(n, k)`, which steps end their episode.
        targets: `(n, 3)`: x, y, yaw.
    """
    distance, angle = seen.errors(targets)
    beyond = np.abs(seen.joints - np.clip(seen.joints, JOINT_LOW, JOINT_HIGH))
    too_fast = np.maximum(np.abs(seen.velocities) - _LARGEST_VELOCITY, 0.0)
    turned = 2 * np.arccos(np.minimum(np.abs(seen.rod_quat[..., 1]), 1.0))
    reward = -(beyond.sum(axis=-1) + too_fast.sum(axis=-1))
    reward -= 2 * np.clip(norm(seen.box[..., :3] - seen.tip), 0.05, 100.0)
    reward -= np.where(turned > np.pi / 4, turned / np.pi, 0.0)
    if kind == "dense":
        return reward - 3.5 * distance - angle / np.pi - 0.0005 * effort
    reward -= 0.02 * effort
    if kind == "temporal-sparse":
        final = -350 * distance - 100 * angle / np.pi - 50 * norm(seen.velocities)
    else:
        near = 300 + np.clip(-1050 * distance, -100, 0) + np.clip(-150 * angle / np.pi, -100, 0)
        final = np.where(distance < 0.1, near, 0.0)
    return np.where(last, reward + final, reward)


def norm(vectors: Array) -> Array:
    """Lengths of vectors `(..., d)`, rounded alike in every batch."""
    return np.sqrt((vectors**2).sum(axis=-1))


def solved(distance: Array, angle: Array) -> BoolArray:
    """Whether a box is close enough to its target."""
    return np.asarray((distance < SUCCESS_DISTANCE) & (angle < SUCCESS_ANGLE))


class HeldTorques:
    """The published controller of n episodes: torques held for a control step, with compensation of the dynamics.

    The compensation is that of the last time step before (at the start: of the start), so 2 ms old. The published code
    also clips the sum to 90 N m, which its motors, limited to 87 N m, do anyway.

    Args:
        simulator: Of the model with motors.
        bias: Of the `bias_model`.
        states: `(n, size)` at the start.

    Attributes:
        states: `(n, size + 7)`, of the physics and the compensation.
    """

    def __init__(self, simulator: Simulator, bias: Simulator, states: Array) -> None:
        self.simulator, self.bias = simulator, bias
        self.states = np.empty((len(states), states.shape[1] + JOINTS))
        self.begin(slice(None), states)

    def begin(self, rows: BoolArray | slice, states: Array) -> None:
        """Starts new episodes in some rows."""
        self.states[rows] = np.concatenate([states, self._torques(states)], axis=1)

    def advance(self, commands: Array) -> tuple[Array, Array]:
        """Applies `commands (n, 7)` [N m] for a control step; returns `(n, 10, ...)` states and sensors."""
        before, compensation = self.states[:, :-JOINTS], self.states[:, -JOINTS:]
        torque = np.clip(commands + compensation, -np.array(TORQUE_LIMIT), TORQUE_LIMIT)
        states, sensors = self.simulator.run(before, np.repeat(torque[:, None], SUBSTEPS, axis=1))
        self.states = np.concatenate([states[:, -1], self._torques(states[:, -2])], axis=1)
        return states, sensors

    def _torques(self, states: Array) -> Array:
        """The torques `(n, 7)` that hold the arm on its path."""
        arm = np.concatenate([states[:, :1], states[:, ARM], states[:, ARM_VELOCITY]], axis=1)
        sensors = self.bias.run(arm, np.zeros((len(arm), 1, 0)))[1]
        return sensors[:, 0, 2::3]


def bias_simulator(workers: int | None = None) -> Simulator:
    """Returns the simulator that measures the compensation."""
    return Simulator(bias_model(), _CONTROL, workers)


class Starts(Protocol):
    """Part of the task: how its episodes start."""

    reward: Reward

    def start_states(self, contexts: Array) -> Array:
        """States `(n, size)` at the start."""
        ...

    def targets(self, contexts: Array) -> Array:
        """Targets `(n, 3)`: x, y, yaw."""
        ...


class BoxPushes:
    """The step-based form (`svsl.tasks.steps.StepForm`): `count` arms, each pushing its box, that are stepped together.

    An action is seven torques from -1 to 1, in units of 10 N m beyond the compensation, held for 0.02 s. An observation
    holds the joint angles and velocities, the box's position and quaternion, the target's position and quaternion, and
    for the two sparse rewards the number of steps so far. An episode is over after 100 steps, or when the simulation
    diverges.
    """

    steps = STEPS

    def __init__(self, task: Starts, context_dim: int, count: int, workers: int | None = None) -> None:
        self.task, self.sees_time = task, task.reward != "dense"
        simulator = Simulator(box_pushing_model("motor", visuals=False), _CONTROL, workers)
        self.dt_s = float(simulator.model.opt.timestep)
        self.goals, self.time = np.zeros((count, context_dim)), np.zeros(count, dtype=np.int64)
        self.arms = HeldTorques(simulator, bias_simulator(workers), task.start_states(self.goals))
        self._errors = np.full(count, np.inf), np.full(count, np.inf)
        size = 2 * JOINTS + 14 + self.sees_time
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), dtype=np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (JOINTS,), dtype=np.float64)

    @property
    def states(self) -> Array:
        """States of the physics and the controller `(n, size + 7)`."""
        return self.arms.states

    def begin(self, rows: BoolArray | slice, goals: Array) -> None:
        """Starts new episodes in some rows."""
        self.goals[rows], self.time[rows] = goals, 0
        self.arms.begin(rows, self.task.start_states(goals))
        for error in self._errors:
            error[rows] = np.inf

    def observe(self) -> Array:
        """Returns the observations `(n, 28)`, or `(n, 29)` with the time step."""
        x, y, yaw = self.task.targets(self.goals).T
        zero, z = np.zeros_like(x), np.full_like(x, BOX_Z)
        target = np.stack([x, y, z, np.cos(yaw / 2), zero, zero, np.sin(yaw / 2)], axis=1)
        parts = [self.states[:, ARM], self.states[:, ARM_VELOCITY], self.states[:, BOX], target]
        if self.sees_time:
            parts.append(self.time[:, None])
        return np.concatenate(parts, axis=1)

    def step(self, actions: Array) -> tuple[Array, BoolArray]:
        """Steps every arm by one of `actions (n, 7)`; returns the rewards and which episodes are over."""
        commands = LARGEST_COMMAND * np.clip(np.nan_to_num(np.asarray(actions, dtype=np.float64)), -1.0, 1.0)
        expected = self.states[:, 0] + SUBSTEPS * self.dt_s
        states, sensors = self.arms.advance(commands)
        failed = diverged(self.states, expected, self.dt_s)
        seen, targets = Seen.of(self.arms.simulator, states, sensors), self.task.targets(self.goals)
        distance, angle = seen.errors(targets)
        self._errors = distance[:, 0], angle[:, 0]
        self.time += 1
        last, effort = self.time >= STEPS, (commands**2).sum(axis=1)
        rewards = step_rewards(self.task.reward, seen, effort[:, None], last[:, None], targets)[:, 0]
        return np.where(failed, PENALTY, rewards), failed | last

    def distance(self) -> Array:
        """Returns the distance of each box to its target [m]: `(n,)`."""
        return self._errors[0]

    def success(self) -> BoolArray:
        """Which boxes are close enough to their targets: `(n,)`."""
        return solved(*self._errors)
