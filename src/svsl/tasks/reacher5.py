"""The 5-link reacher of the paper's comparison with step-based learning, as skills and step by step."""

from typing import Literal, get_args

import mujoco
import numpy as np
from gymnasium import spaces

from svsl.errors import SvslError
from svsl.model.gaussians import Array, BoolArray, IntArray
from svsl.simulation.primitives import reach
from svsl.simulation.reacher import KD, KP, LINKS, REACH, START, arm_points, reacher5_model, tip_position
from svsl.simulation.rollout import Simulator, diverged
from svsl.tasks.base import Outcome
from svsl.tasks.presentation import Motion
from svsl.tasks.simulated import Plan, SimulatedTask, running_sum

Reward = Literal["dense", "last10", "last2"]
STEPS = 200
BASES = 3
SUCCESS_DISTANCE = 0.05
PATH_UNIT = 0.1  # metres: joints this far apart are clearly different
_JOINTS, _VELOCITIES = slice(1, 1 + LINKS), slice(1 + LINKS, 1 + 2 * LINKS)  # of a state: time, qpos, qvel


class Reacher5(SimulatedTask):
    """Bring the tip of a five-link arm to a goal; the context is the goal, the parameters a movement of 4 s.

    The arm starts at rest, stretched out to the left; goals are in the right half disc of its reach, 0.5 m. The
    movement is three bases for each of five joints, joint by joint (`primitives.reach`); servos follow it with
    actions `a` from -1 to 1 (200 N m). An episode has 200 steps; the return is the sum of their rewards. With the
    distance d [m] of the tip to the goal and the joint velocities v [rad/s] after a step t = 0 .. 199:

    - `dense`: `-d - |a|^2`
    - `last10`: `-|a|^2`, and `-d` from t = 190 on
    - `last2`: `-|a|^2 - |v|^2`, and from t = 198 on `-500 d - |a|^2 - 1000 |v|^2`

    A goal outside the half disc additionally costs 1000 times the squared distance to it, 50000 times for `last2`.
    Success: the tip ends within 0.05 m of the goal.

    Args:
        reward: Which of the three rewards.
    """

    context_low = np.array([0.0, -REACH])
    context_high = np.array([REACH, REACH])
    scores_outside = True
    context_names = ("goal x [m]", "goal y [m]")
    parameter_dim = LINKS * BASES
    initial_mean = np.zeros(parameter_dim)
    initial_cov = 0.25 * np.eye(parameter_dim)
    figures = ("reaches",)

    def __init__(self, reward: Reward = "dense") -> None:
        self.reward = check_reward(reward)
        super().__init__(
            reacher5_model("servo"), reacher5_model("servo", visuals=False), mujoco.mjtState.mjSTATE_CTRL.value
        )
        self.context_factor = 50000.0 if reward == "last2" else 1000.0
        self.penalty = -1000.0 * (100.0 if reward == "last2" else 1.0)

    def valid_contexts(self, contexts: Array) -> BoolArray:
        """Which goals `(n, 2)` are in the half disc."""
        return np.asarray(distance_to_half_disc(contexts) <= 0)

    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """One episode with the path of the tip; see `svsl.tasks.presentation.Showable`."""
        states = start_states(1)[:, None]
        if parameters is not None and np.isfinite(parameters).all():
            states, _ = self._simulate(parameters[None])
        tip = np.zeros((states.shape[1], 3))
        tip[:, :2] = tip_position(states[0, :, _JOINTS])
        goal = np.array([*context, self.model.body("goal").pos[2]])
        return Motion(self.dt_s, states[0], tip, goal[None], decided_step=STEPS)

    def step_form(self, count: int, workers: int | None = None) -> "ReacherArms":
        """The same arm controlled step by step, `count` of them together."""
        return ReacherArms(self.reward, count, workers)

    def evaluate_batch(self, contexts: Array, parameters: Array) -> Outcome:
        """Simulates every episode, also those with a goal outside the half disc."""
        outside = distance_to_half_disc(contexts)
        rows = np.flatnonzero(np.isfinite(outside) & np.isfinite(parameters).all(axis=1))
        plan = Plan(np.full(len(contexts), np.nan), rows, {"invalid_context": ~(outside <= 0)})
        return plan.completed(self._score(contexts[rows], outside[rows], *self._simulate(parameters[rows])))

    def _simulate(self, parameters: Array) -> tuple[Array, Array]:
        """States after each step and the actions of each step."""
        position, velocity = reach(parameters.reshape(-1, LINKS, BASES), STEPS, self.dt_s)
        return self.simulator.run(start_states(len(parameters)), position + START + (KD / KP) * velocity)

    def _score(self, contexts: Array, outside: Array, states: Array, actions: Array) -> Outcome:
        joints, velocities = states[..., _JOINTS], states[..., _VELOCITIES]
        distance = goal_distance(tip_position(joints), contexts[:, None])
        rewards = step_rewards(self.reward, np.arange(STEPS), distance, actions, velocities)
        failed = diverged(states[:, -1], np.full(len(states), STEPS * self.dt_s), self.dt_s)
        path = arm_points(joints[:, STEPS // 10 - 1 :: STEPS // 10])[:, :, 1:]
        returns = np.where(failed, self.penalty, running_sum(rewards)) - self.context_factor * outside**2
        success = (distance[:, -1] <= SUCCESS_DISTANCE) & (outside <= 0) & ~failed
        info = {
            "distance": distance[:, -1],
            "effort": running_sum(sum_squares(actions)),
            "final_speed": np.sqrt(sum_squares(velocities[:, -1])),
            "diverged": failed,
            "steps": np.full(len(states), STEPS),
            "mode": np.where(joints[:, -1, 0] < START[0], "clockwise", "counterclockwise"),
            "path": path.reshape(len(path), path[0].size if len(path) else 100) / PATH_UNIT,
        }
        return Outcome(returns, success, info)


class ReacherArms:
    """The step-based form (`svsl.tasks.steps.StepForm`): `count` arms that are stepped together by torques.

    An observation holds cosines and sines of the joint angles, the goal, the joint velocities, the vector from the goal
    to the tip, and for the two sparse rewards the number of steps so far. Actions are clipped to -1 to 1; NaN counts
    as 0. An episode is over after 200 steps, or when the simulation diverges.
    """

    steps = STEPS

    def __init__(self, reward: Reward, count: int, workers: int | None = None) -> None:
        self.reward = check_reward(reward)
        self.sees_time = reward != "dense"
        self.simulator = Simulator(reacher5_model("motor", visuals=False), mujoco.mjtState.mjSTATE_CTRL.value, workers)
        self.dt_s = float(self.simulator.model.opt.timestep)
        self.states, self.goals = start_states(count), np.zeros((count, 2))
        self.time = np.zeros(count, dtype=np.int64)
        self.observation_space = spaces.Box(-np.inf, np.inf, (3 * LINKS + 4 + self.sees_time,), dtype=np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (LINKS,), dtype=np.float64)

    def begin(self, rows: BoolArray | slice, goals: Array) -> None:
        """Starts new episodes in some rows."""
        self.goals[rows], self.time[rows] = goals, 0
        self.states[rows] = start_states(len(goals))

    def observe(self) -> Array:
        """Returns the observations `(n, 19)`, or `(n, 20)` with the time step."""
        joints, velocities = self.states[:, _JOINTS], self.states[:, _VELOCITIES]
        parts = [np.cos(joints), np.sin(joints), self.goals, velocities, tip_position(joints) - self.goals]
        if self.sees_time:
            parts.append(self.time[:, None])
        return np.concatenate(parts, axis=1)

    def step(self, actions: Array) -> tuple[Array, BoolArray]:
        """Steps every arm by one of `actions (n, 5)`; returns the rewards and which episodes are over."""
        applied = np.clip(np.nan_to_num(np.asarray(actions, dtype=np.float64)), -1.0, 1.0)
        before = self.states[:, 0]
        states, _ = self.simulator.run(self.states, applied[:, None])
        failed = diverged(states[:, 0], before + self.dt_s, self.dt_s)
        self.states = states[:, 0]
        velocities = self.states[:, _VELOCITIES]
        rewards = step_rewards(self.reward, self.time, self.distance(), applied, velocities)
        self.time += 1
        return np.where(failed, -1.0, rewards), failed | (self.time >= STEPS)

    def distance(self) -> Array:
        """Returns the distance of each tip to its goal: `(n,)`."""
        return goal_distance(tip_position(self.states[:, _JOINTS]), self.goals)

    def success(self) -> BoolArray:
        """Which tips are close enough to their goals: `(n,)`."""
        return np.asarray(self.distance() <= SUCCESS_DISTANCE)


def check_reward(reward: Reward) -> Reward:
    """Returns the name of a reward if it exists."""
    if reward not in get_args(Reward):
        raise SvslError(f"option reward: expected one of {', '.join(get_args(Reward))}, got {reward!r}")
    return reward


def start_states(count: int) -> Array:
    """The start of each episode: `(count, 11)`, time, joint angles and velocities."""
    states = np.zeros((count, 1 + 2 * LINKS))
    states[:, _JOINTS] = START
    return states


def goal_distance(tip: Array, goals: Array) -> Array:
    """Distance of tips to goals, `(..., 2)` each."""
    gap = tip - goals
    return np.sqrt(gap[..., 0] ** 2 + gap[..., 1] ** 2)


def sum_squares(values: Array) -> Array:
    """Sum of squares over the joints, the last axis, rounded alike in every batch."""
    return sum(values[..., joint] ** 2 for joint in range(LINKS))  # type: ignore[return-value]


def step_rewards(kind: Reward, time: IntArray, distance: Array, actions: Array, velocities: Array) -> Array:
    """Rewards of single steps at `time (...)` from 0, the paper's three equations.

    `distance (...)` of the tip to the goal and `velocities (..., 5)` are those after the step.
    """
    effort = sum_squares(actions)
    if kind == "dense":
        return -distance - effort
    if kind == "last10":
        return np.where(time < STEPS - 10, -effort, -distance - effort)
    motion = sum_squares(velocities)
    return np.where(time < STEPS - 2, -effort - motion, -500 * distance - effort - 1000 * motion)


def distance_to_half_disc(points: Array) -> Array:
    """Distance of each point `(n, 2)` to the right half disc of the arm's reach; 0 inside."""
    x, y = points.T
    right = np.maximum(np.hypot(x, y) - REACH, 0.0)
    left = np.hypot(x, y - np.clip(y, -REACH, REACH))
    return np.where(x < 0, left, right)
