"""A task with a step-based form as a Gymnasium environment, with the physics of the task."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svsl.environments.skills import ShownEnv
from svsl.model.gaussians import Array
from svsl.tasks.base import Task
from svsl.tasks.presentation import showable
from svsl.tasks.registry import make_task
from svsl.tasks.steps import step_form


class StepEnv(ShownEnv):
    """One episode at a time, action by action; `reset(options={"context": c})` chooses the context.

    At the end, an episode whose observation holds the time is terminated; one whose observation does not is truncated.

    Args:
        task: Name of a task with a step-based form.
        render_mode: None or `rgb_array`.
        **options: Options of the task.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 (Gymnasium's contract)

    def __init__(self, task: str, render_mode: str | None = None, **options: object) -> None:
        self.task: Task = make_task(task, **options)
        self.arms = step_form(self.task, 1, workers=1)
        self.observation_space, self.action_space = self.arms.observation_space, self.arms.action_space
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Draws a context uniformly, or takes `options["context"]`."""
        super().reset(seed=seed)
        self.arms.begin(slice(None), self.choose_context(options)[None])
        return self.arms.observe()[0], {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Applies one action until the next is due."""
        rewards, over = self.arms.step(np.asarray(action)[None])
        info = {"distance": float(self.arms.distance()[0]), "success": bool(self.arms.success()[0])}
        over_now, terminates = bool(over[0]), self.arms.sees_time
        return self.arms.observe()[0], float(rewards[0]), over_now and terminates, over_now and not terminates, info

    def render(self) -> NDArray[np.uint8] | None:
        """The scene as it is now."""
        if self.render_mode != "rgb_array":
            return None
        motion = showable(self.task).motion(self.arms.goals[0])
        return self.draw(replace(motion, poses=self.arms.states[:, : motion.poses.shape[1]]), 0)
