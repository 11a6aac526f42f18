"""The 5-link reacher step by step: many arms, each in an episode of its own, stepped together by torques."""

from __future__ import annotations

from typing import get_args

import mujoco
import numpy as np
from gymnasium import spaces

from svsl.errors import SvslError
from svsl.model.gaussians import Array, BoolArray
from svsl.simulation.reacher import LINKS, reacher5_model, tip_position
from svsl.simulation.rollout import Simulator, diverged
from svsl.tasks.base import Task
from svsl.tasks.reacher5 import (
    STEPS,
    SUCCESS_DISTANCE,
    Reacher5,
    Reward,
    goal_distance,
    start_states,
    step_rewards,
)


class ReacherArms:
    """Several arms that are stepped together by torques, each in an episode of its own.

    An observation holds cosines and sines of the joint angles, the goal, the joint velocities, the vector from the goal
    to the tip, and for the two sparse rewards the number of steps done.

    Args:
        reward: As of `Reacher5`.
        count: How many.
        workers: Threads of the simulation.
    """

    def __init__(self, reward: Reward, count: int, workers: int | None = None) -> None:
        if reward not in get_args(Reward):
            raise SvslError(f"option reward: expected one of {', '.join(get_args(Reward))}, got {reward!r}")
        self.reward: Reward = reward
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
        """What each arm's controller sees: `(n, 19)`, or `(n, 20)` with the time step."""
        joints, velocities = self.states[:, 1 : 1 + LINKS], self.states[:, 1 + LINKS :]
        parts = [np.cos(joints), np.sin(joints), self.goals, velocities, tip_position(joints) - self.goals]
        if self.sees_time:
            parts.append(self.time[:, None])
        return np.concatenate(parts, axis=1)

    def step(self, actions: Array) -> tuple[Array, BoolArray]:
        """Makes one step of every arm.

        Args:
            actions: `(n, 5)`; limited to -1 to 1, a NaN counts as 0.

        Returns:
            The rewards `(n,)`, and which episodes are over `(n,)`: after 200 steps, or when a simulation blew up.
        """
        applied = np.clip(np.nan_to_num(np.asarray(actions, dtype=np.float64)), -1.0, 1.0)
        before = self.states[:, 0]
        states, _ = self.simulator.run(self.states, applied[:, None])
        failed = diverged(states[:, 0], before + self.dt_s, self.dt_s)
        self.states = states[:, 0]
        velocities = self.states[:, 1 + LINKS :]
        rewards = step_rewards(self.reward, self.time, self.distance(), applied, velocities)
        self.time += 1
        return np.where(failed, -1.0, rewards), failed | (self.time >= STEPS)

    def distance(self) -> Array:
        """Distance of each tip to its goal: `(n,)`."""
        return goal_distance(tip_position(self.states[:, 1 : 1 + LINKS]), self.goals)

    def success(self) -> BoolArray:
        """Which tips are close enough to their goals: `(n,)`."""
        return np.asarray(self.distance() <= SUCCESS_DISTANCE)


def step_form(task: Task, count: int, workers: int | None = None) -> ReacherArms:
    """The step-based form of a task, `count` at once.

    Raises:
        SvslError: If the task has none.
    """
    if not isinstance(task, Reacher5):
        raise SvslError(f"a {type(task).__name__} has no step-based form, which this learner needs; reacher5 has one")
    return ReacherArms(task.reward, count, workers)
