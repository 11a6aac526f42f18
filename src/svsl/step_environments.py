"""The 5-link reacher step by step: an action is five torques, an episode 200 steps, the physics that of the task.

import gymnasium, svsl.step_environments
env = gymnasium.make("svsl/Reacher5-v0", reward="last10")
"""

from __future__ import annotations

from typing import Any, get_args

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from svsl.errors import SvslError
from svsl.evaluation import uniform_contexts
from svsl.gaussians import Array, BoolArray
from svsl.simulation.reacher import LINKS, reacher5_model, tip_position
from svsl.simulation.rollout import Simulator, diverged
from svsl.tasks import Task
from svsl.tasks.reacher5 import (
    STEPS,
    SUCCESS_DISTANCE,
    Reacher5,
    Reward,
    goal_distance,
    start_states,
    step_rewards,
)
from svsl.tasks.simulated import Trajectory

ID = "svsl/Reacher5-v0"


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
        self.simulator = Simulator(reacher5_model("motor", looks=False), mujoco.mjtState.mjSTATE_CTRL.value, workers)
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


class Reacher5Env(gymnasium.Env[Array, Array]):
    """One arm; see `ReacherArms` for the observation. `reset(options={"context": goal})` chooses the goal.

    After 200 steps the episode is terminated for the two sparse rewards, whose observation holds the time, and
    truncated for the dense one, whose observation does not.

    Args:
        reward: As of `Reacher5`.
        render_mode: None or `rgb_array`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 (Gymnasium's contract)

    def __init__(self, reward: Reward = "dense", render_mode: str | None = None) -> None:
        self.arms = ReacherArms(reward, 1, workers=1)
        self.task = Reacher5(reward)
        self.observation_space, self.action_space = self.arms.observation_space, self.arms.action_space
        self.render_mode = render_mode
        self._renderer: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Draws a goal uniformly from the half disc, or takes `options["context"]`."""
        super().reset(seed=seed)
        wanted = (options or {}).get("context")
        goal = uniform_contexts(self.task, 1, self.np_random)[0] if wanted is None else np.asarray(wanted, np.float64)
        if goal.shape != (2,):
            raise ValueError(f"context: expected shape (2,), got {goal.shape}")
        self.arms.begin(slice(None), goal[None])
        return self.arms.observe()[0], {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Applies five torques for 0.02 s."""
        rewards, over = self.arms.step(np.asarray(action)[None])
        info = {"distance": float(self.arms.distance()[0]), "success": bool(self.arms.success()[0])}
        over_now, terminates = bool(over[0]), self.arms.sees_time
        return self.arms.observe()[0], float(rewards[0]), over_now and terminates, over_now and not terminates, info

    def render(self) -> NDArray[np.uint8] | None:
        """The arm as it is now, from above."""
        if self.render_mode != "rgb_array":
            return None
        from svsl.simulation.rendering import SceneRenderer

        if self._renderer is None:
            self._renderer = SceneRenderer(self.task)
        mocap = self.task.trajectory(self.arms.goals[0]).mocap
        return self._renderer.frame(Trajectory(self.arms.states, self.arms.dt_s, np.zeros((1, 3)), mocap, 0), 0)

    def close(self) -> None:
        """Frees the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point="svsl.step_environments:Reacher5Env")
