"""Pictures of MuJoCo scenes, without a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import mujoco
import numpy as np
from numpy.typing import NDArray

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.tasks.simulated import SimulatedTask, Trajectory

Trail = tuple[Array, tuple[float, float, float]]  # points (n, 3) and a colour
_TRAIL_RADIUS = 0.013


class SceneRenderer:
    """Draws the states of a simulated task.

    Args:
        task: A task with a MuJoCo model.
        width: Of a picture, in pixels.
        height: Of a picture, in pixels.

    Raises:
        SvslError: If the task has no model, or no OpenGL library is installed.
    """

    def __init__(self, task: object, width: int = 640, height: int = 480) -> None:
        if not isinstance(task, SimulatedTask):
            raise SvslError(f"a {type(task).__name__} has no MuJoCo model to render")
        self.task, self._data = task, mujoco.MjData(task.model)
        cameras = [task.model.camera(number).name for number in range(task.model.ncam)]
        self._camera = "scene" if "scene" in cameras else -1  # -1 looks at the whole model
        try:
            self._renderer = mujoco.Renderer(task.model, height, width)
        except Exception as error:  # MuJoCo raises whatever the missing library makes it raise
            raise SvslError(
                "pictures need OpenGL: install libegl1 and libgl1-mesa-dri, or libosmesa6 (Debian, Ubuntu), and import "
                f"svsl before MuJoCo ({error})"
            ) from None

    def frame(self, trajectory: Trajectory, step: int, trails: Sequence[Trail] = ()) -> NDArray[np.uint8]:
        """The picture `(height, width, 3)` of one state, with lines through the points of each trail."""
        full = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
        mujoco.mj_setState(self.task.model, self._data, trajectory.states[step], full)
        self._data.mocap_pos[:] = trajectory.mocap
        mujoco.mj_forward(self.task.model, self._data)
        self._renderer.update_scene(self._data, camera=self._camera)
        for points, color in trails:
            self._draw_trail(points, color)
        return np.array(self._renderer.render())

    def last_frame(self, context: Array, parameters: Array | None) -> NDArray[np.uint8]:
        """The scene before an episode (no parameters, or ones that cannot be run) or at its end."""
        return self.frame(self.task.trajectory(context, parameters), -1)

    def frames(self, context: Array, parameters: Array | None, fps: int) -> Iterator[NDArray[np.uint8]]:
        """The episode as a film; the scene before it without parameters."""
        trajectory = self.task.trajectory(context, parameters)
        stride = max(1, round(1 / (fps * trajectory.dt_s)))
        for step in range((len(trajectory.states) - 1) % stride, len(trajectory.states), stride):
            yield self.frame(trajectory, step)

    def _draw_trail(self, points: Array, color: tuple[float, float, float]) -> None:
        scene = self._renderer.scene
        kind, rgba = mujoco.mjtGeom.mjGEOM_CAPSULE, np.array([*color, 1.0], dtype=np.float32)
        for start, end in pairwise(points[: scene.maxgeom - scene.ngeom]):
            geom = scene.geoms[scene.ngeom]
            mujoco.mjv_initGeom(geom, kind, np.zeros(3), np.zeros(3), np.eye(3).ravel(), rgba)
            mujoco.mjv_connector(geom, kind, _TRAIL_RADIUS, start, end)
            geom.emission, geom.specular = 0.1, 0.0
            scene.ngeom += 1

    def close(self) -> None:
        """Frees the drawing context."""
        self._renderer.close()
