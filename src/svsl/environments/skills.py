"""A task as a Gymnasium environment: the observation is the context, one action is a skill, one step an episode."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from svsl.model.gaussians import Array
from svsl.show.rendering import Renderer, make_renderer
from svsl.show.window import Window
from svsl.tasks.base import Task, uniform_contexts
from svsl.tasks.presentation import Motion, showable
from svsl.tasks.registry import make_task

# half the width of the action space: far beyond useful skills, but finite, as other libraries require
ACTION_STDS = 10.0
FPS = 20


class ShownEnv(gymnasium.Env[Array, Array]):
    """An environment that draws its `task`."""

    task: Task
    _renderer: Renderer | None = None

    def choose_context(self, options: dict[str, Any] | None) -> Array:
        """Returns `options["context"]`, or draws a context."""
        given = (options or {}).get("context")
        if given is None:
            return uniform_contexts(self.task, 1, self.np_random)[0]
        context, shape = np.asarray(given, dtype=np.float64), np.shape(self.task.context_low)
        if context.shape != shape:
            raise ValueError(f"context: expected shape {shape}, got {context.shape}")
        return context

    def draw(self, motion: Motion, step: int) -> NDArray[np.uint8]:
        """Draws one step of a motion."""
        if self._renderer is None:
            self._renderer = make_renderer(self.task)
        return self._renderer.frame(motion, step)

    def close(self) -> None:
        """Closes the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


class TaskEnv(ShownEnv):
    """One task, one episode per step. `reset(options={"context": c})` chooses the context instead of drawing it.

    Args:
        task: Name of the task.
        render_mode: None, `rgb_array`, or `human`: a window that shows each episode as it is run.
        **options: Options of the task.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": FPS}  # noqa: RUF012 (Gymnasium's contract)

    def __init__(self, task: str, render_mode: str | None = None, **options: object) -> None:
        self.task: Task = make_task(task, **options)
        if hasattr(self.task, "workers"):
            self.task.workers = 1  # episodes are run one at a time
        self.initial_mean, self.initial_cov = np.asarray(self.task.initial_mean), np.asarray(self.task.initial_cov)
        self.render_mode = render_mode
        self.observation_space = spaces.Box(self.task.context_low, self.task.context_high, dtype=np.float64)
        reach = ACTION_STDS * np.sqrt(np.diag(self.initial_cov))
        self.action_space = spaces.Box(self.initial_mean - reach, self.initial_mean + reach, dtype=np.float64)
        self._context = np.asarray(self.task.context_low)
        self._action: Array | None = None
        self._window = Window(task) if render_mode == "human" else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Draws a context uniformly, or takes `options["context"]`."""
        super().reset(seed=seed)
        unknown = sorted(set(options or {}) - {"context"})
        if unknown:
            raise ValueError(f"options: there is no {unknown[0]!r}, only 'context'")
        self._context = self.choose_context(options)
        if not np.isfinite(self._context).all():
            raise ValueError(f"context: expected finite numbers, got {self._context}")
        self._action = None
        self._show()
        return self._context.copy(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Runs one whole episode."""
        self._action = np.asarray(action, dtype=np.float64)
        if self._action.shape != self.action_space.shape:
            raise ValueError(f"action: expected shape {self.action_space.shape}, got {self._action.shape}")
        outcome = self.task.evaluate(self._context[None], self._action[None], self.np_random)
        defined = {n: v[0] for n, v in outcome.info.items() if v.dtype.kind != "f" or not np.isnan(v[0]).any()}
        info: dict[str, Any] = {**defined, "success": bool(outcome.success[0])}
        self._show()
        return self._context.copy(), float(outcome.returns[0]), True, False, info

    def render(self) -> NDArray[np.uint8] | None:
        """The scene before the episode, or at its end; None in the mode `human`, whose window shows it already."""
        if self.render_mode != "rgb_array":
            return None
        motion = showable(self.task).motion(self._context, self._action)
        return self.draw(motion, len(motion.poses) - 1)

    def _show(self) -> None:
        if self._window is not None:
            motion = showable(self.task).motion(self._context, self._action)
            for step in film_steps(motion, FPS):
                self._window.show(self.draw(motion, step), 1 / FPS)

    def close(self) -> None:
        """Closes the renderer and the window."""
        super().close()
        if self._window is not None:
            self._window.close()
            self._window = None


def film_steps(motion: Motion, fps: int) -> range:
    """The steps of a motion that a film shows; it ends with the last one."""
    stride = max(1, round(1 / (fps * motion.dt_s)))
    return range((len(motion.poses) - 1) % stride, len(motion.poses), stride)
