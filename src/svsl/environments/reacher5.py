"""The 5-link reacher step by step, with the physics of the task: an action is five torques, an episode 200 steps."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svsl.environments.skills import ShownEnv
from svsl.model.gaussians import Array
from svsl.tasks.reacher5 import Reacher5, Reward


class Reacher5Env(ShownEnv):
    """One arm; see `svsl.tasks.reacher5.ReacherArms` for the observation.

    `reset(options={"context": goal})` chooses the goal. After 200 steps the episode is terminated for the two sparse
    rewards, whose observation holds the time, and truncated for the dense one, whose observation does not.

    Args:
        reward: See `Reacher5`.
        render_mode: None or `rgb_array`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 (Gymnasium's contract)

    def __init__(self, reward: Reward = "dense", render_mode: str | None = None) -> None:
        self.task: Reacher5 = Reacher5(reward)
        self.arms = self.task.step_form(1, workers=1)
        self.observation_space, self.action_space = self.arms.observation_space, self.arms.action_space
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Draws a goal uniformly from the half disc, or takes `options["context"]`."""
        super().reset(seed=seed)
        self.arms.begin(slice(None), self.choose_context(options)[None])
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
        return self.draw(replace(self.task.motion(self.arms.goals[0]), poses=self.arms.states), 0)
