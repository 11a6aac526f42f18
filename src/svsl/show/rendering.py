"""Pictures of motions, without a screen: one renderer for each kind of scene."""

from itertools import pairwise
from typing import Protocol

import mujoco
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image, ImageOps

from svsl.errors import SvslError
from svsl.show.plots.style import GOAL_COLOR, HUES, Color, draw_box, pixels
from svsl.tasks.base import Task
from svsl.tasks.presentation import Motion, MujocoScene, PictureScene, PlanarScene, showable

Picture = NDArray[np.uint8]
_TRAIL_RADIUS, _TRAIL_STEP_S = 0.013, 0.02


class Renderer(Protocol):
    """Draws the motions of one scene."""

    def frame(self, motion: Motion, step: int, trail: Color | None = None) -> Picture:
        """Draws one pose `(height, width, 3)`, with the trail so far if it is given a colour."""
        ...

    def close(self) -> None:
        """Frees the graphics resources."""


def make_renderer(task: Task, width: int = 640, height: int = 480) -> Renderer:
    """Creates the renderer of a task's scene, for pictures of the given size in pixels."""
    scene = showable(task).scene
    if isinstance(scene, PlanarScene):
        return _PlanarRenderer(scene, width, height)
    if isinstance(scene, PictureScene):
        return _PictureRenderer(width, height)
    return _MujocoRenderer(scene, width, height)


class _MujocoRenderer:
    """Draws the states of a MuJoCo model."""

    def __init__(self, scene: MujocoScene, width: int, height: int) -> None:
        self._model, self._data = scene.model, mujoco.MjData(scene.model)
        cameras = [self._model.camera(number).name for number in range(self._model.ncam)]
        self._camera = "scene" if "scene" in cameras else -1  # -1 looks at the whole model
        try:
            self._renderer = mujoco.Renderer(self._model, height, width)
        except Exception as error:  # its type depends on the library that is missing
            raise SvslError(
                "pictures need OpenGL: install libegl1 and libgl1-mesa-dri, or libosmesa6 (Debian, Ubuntu), and import "
                f"svsl before MuJoCo ({error})"
            ) from None

    def frame(self, motion: Motion, step: int, trail: Color | None = None) -> Picture:
        set_pose(self._model, self._data, motion, step)
        self._renderer.update_scene(self._data, camera=self._camera)
        if trail is not None:
            self._draw_trail(motion, step, trail)
        return np.array(self._renderer.render())

    def _draw_trail(self, motion: Motion, step: int, color: Color) -> None:
        scene = self._renderer.scene
        kind, rgba = mujoco.mjtGeom.mjGEOM_CAPSULE, np.array([*color, 1.0], dtype=np.float32)
        past = motion.trail[motion.trail_start : step + 1]
        points = np.concatenate([past[:: max(1, round(_TRAIL_STEP_S / motion.dt_s))], past[-1:]])
        for start, end in pairwise(points[: scene.maxgeom - scene.ngeom]):
            geom = scene.geoms[scene.ngeom]
            mujoco.mjv_initGeom(geom, kind, np.zeros(3), np.zeros(3), np.eye(3).ravel(), rgba)
            mujoco.mjv_connector(geom, kind, _TRAIL_RADIUS, start, end)
            geom.emission, geom.specular = 0.1, 0.0
            scene.ngeom += 1

    def close(self) -> None:
        self._renderer.close()


def set_pose(model: mujoco.MjModel, data: mujoco.MjData, motion: Motion, step: int) -> None:
    """Puts a model into one pose of a motion."""
    mujoco.mj_setState(model, data, motion.poses[step], mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
    data.mocap_pos[:] = motion.markers
    if motion.marker_quats is not None:
        data.mocap_quat[:] = motion.marker_quats
    mujoco.mj_forward(model, data)


class _PlanarRenderer:
    """Draws a chain of points in the plane with matplotlib."""

    def __init__(self, scene: PlanarScene, width: int, height: int) -> None:
        self._figure = figure = Figure(figsize=(width / 100, height / 100), dpi=100)
        axes = figure.add_axes((0, 0, 1, 1))
        draw_planar_scene(axes, scene)
        axes.set_xlim(*scene.motion_x_range)
        axes.axis("off")
        (self._goal,) = axes.plot([], [], "o", color=GOAL_COLOR, ms=9, zorder=3)
        (self._trail,) = axes.plot([], [], "-", lw=1)
        (self._chain,) = axes.plot([], [], "-o", ms=3, lw=2.5)

    def frame(self, motion: Motion, step: int, trail: Color | None = None) -> Picture:
        self._goal.set_data(*motion.markers[:, :2].T)
        self._chain.set_data(*motion.poses[step].T)
        self._trail.set_data(*motion.trail[: step + 1 if trail is not None else 0, :2].T)
        for line in (self._chain, self._trail):
            line.set_color(HUES[0] if trail is None else trail)
        return pixels(self._figure)

    def close(self) -> None:
        pass  # there is nothing to free


class _PictureRenderer:
    """Fits a task's own pictures into the size, on white."""

    def __init__(self, width: int, height: int) -> None:
        self._size = width, height

    def frame(self, motion: Motion, step: int, trail: Color | None = None) -> Picture:
        return np.asarray(ImageOps.pad(Image.fromarray(motion.poses[step]), self._size, color="white"))

    def close(self) -> None:
        pass  # there is nothing to free


def draw_planar_scene(axes: Axes, scene: PlanarScene) -> None:
    """Draws the obstacles, the base and the goals' box."""
    for x_from, x_to, y_from, y_to in scene.obstacles:
        axes.add_patch(Rectangle((x_from, y_from), x_to - x_from, y_to - y_from, color="#BB5566", lw=0))
    draw_box(axes, scene.low, scene.high, edgecolor="0.6", ls=":", lw=1)
    axes.plot(0, 0, "s", color="black", ms=7, zorder=4)
    axes.set_xlim(*scene.x_range)
    axes.set_ylim(*scene.y_range)
    axes.set_aspect("equal")
