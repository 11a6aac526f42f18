"""Our tasks as Gymnasium environments: the observation is the context, one action is a skill, one step an episode.

import gymnasium, svsl.environments
env = gymnasium.make("svsl/BeerPong-v0")
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from svsl.gaussians import Array
from svsl.tasks import Task, make_task

NAMES = {
    "svsl/PlanarReacher-v0": "planar-reacher",
    "svsl/BeerPong-v0": "beer-pong",
    "svsl/TableTennis-v0": "table-tennis",
}


class TaskEnv(gymnasium.Env[Array, Array]):
    """One task, one episode per step. `reset(options={"context": c})` chooses the context instead of drawing it.

    Args:
        task: Name of the task.
        render_mode: None or `rgb_array`, for tasks with a MuJoCo model.
        **options: Options of the task.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012 (Gymnasium's contract)

    def __init__(self, task: str, render_mode: str | None = None, **options: object) -> None:
        self.task: Task = make_task(task, **options)
        self.render_mode = render_mode
        self.observation_space = spaces.Box(self.task.context_low, self.task.context_high, dtype=np.float64)
        self.action_space = spaces.Box(-np.inf, np.inf, (self.task.parameter_dim,), dtype=np.float64)
        self._context = np.asarray(self.task.context_low)
        self._action: Array | None = None
        self._renderer: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Draws a context uniformly, or takes `options["context"]`."""
        super().reset(seed=seed)
        wanted = (options or {}).get("context")
        if wanted is None:
            self._context = self.np_random.uniform(self.task.context_low, self.task.context_high)
        else:
            self._context = np.asarray(wanted, dtype=np.float64)
            if self._context.shape != self.observation_space.shape:
                raise ValueError(f"context: expected shape {self.observation_space.shape}, got {self._context.shape}")
        self._action = None
        return self._context.copy(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Runs one whole episode."""
        self._action = np.asarray(action, dtype=np.float64)
        outcome = self.task.evaluate(self._context[None], self._action[None], self.np_random)
        defined = {n: v[0] for n, v in outcome.info.items() if v.dtype.kind != "f" or not np.isnan(v[0]).any()}
        info: dict[str, Any] = dict(defined)
        info["success"] = bool(outcome.success[0])
        return self._context.copy(), float(outcome.returns[0]), True, False, info

    def render(self) -> NDArray[np.uint8] | None:
        """The scene before the episode, or at its end."""
        if self.render_mode != "rgb_array":
            return None
        from svsl.simulation.rendering import SceneRenderer

        if self._renderer is None:
            self._renderer = SceneRenderer(self.task)
        return self._renderer.last_frame(self._context, self._action)

    def close(self) -> None:
        """Frees the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


for _id, _task in NAMES.items():
    if _id not in gymnasium.registry:
        gymnasium.register(_id, entry_point="svsl.environments:TaskEnv", kwargs={"task": _task})
