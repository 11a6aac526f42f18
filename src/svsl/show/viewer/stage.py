"""The animated scene of the page: one stage for each kind of scene, and the camera that shows it."""

import copy
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import mujoco
import numpy as np
import viser
import viser.transforms
from mjviser import ViserMujocoScene

from svsl.model.gaussians import Array
from svsl.show.playback import in_space
from svsl.show.plots.style import Color, rgb
from svsl.show.rendering import set_pose
from svsl.tasks.base import Task
from svsl.tasks.presentation import Motion, MujocoScene, PictureScene, PlanarScene, Showable

_ROOM = 1.65  # distance relative to the camera of pictures, so that the maps fit beside the scene
_MAP_DEPTH = 0.55
_RED, _BLACK = (187, 85, 102), (40, 40, 40)
_UP = np.array([0.0, 0.0, 1.0])
_STEEP = 0.99
_PLANAR_HEIGHT = 1.53  # of the eye above a planar scene, relative to its height


@dataclass(frozen=True)
class View:
    """A camera: where it is, what it looks at, and its vertical opening in radians."""

    eye: Array
    target: Array
    up: Array
    fov: float

    @property
    def axes(self) -> Array:
        """Its right, up and backward directions, as columns."""
        back = (self.eye - self.target) / np.linalg.norm(self.eye - self.target)
        right = np.cross(self.up, back)
        right /= np.linalg.norm(right)
        return np.column_stack([right, np.cross(back, right), back])

    @property
    def half_height(self) -> float:
        """Half the visible height at the target."""
        return float(np.linalg.norm(self.eye - self.target) * np.tan(self.fov / 2))

    def moved(self, sideways: float, farther: float) -> "View":
        """Returns the view moved to its right, and back by a factor."""
        shift = sideways * self.axes[:, 0]
        return View(self.target + farther * (self.eye - self.target) + shift, self.target + shift, self.up, self.fov)


class Stage(Protocol):
    """The scene of one client."""

    def show(self, motion: Motion, step: int, color: Color) -> None:
        """Shows one step of a motion, with the trail up to it."""


def view_of(task: Task) -> View:
    """Returns the initial camera for a task's scene."""
    scene = task.scene if isinstance(task, Showable) else None
    if isinstance(scene, MujocoScene):
        return _model_view(scene.model)
    if isinstance(scene, PlanarScene):
        centre = np.array([np.mean(scene.motion_x_range), np.mean(scene.y_range), 0.0])
        height = _PLANAR_HEIGHT * (scene.y_range[1] - scene.y_range[0])
        return View(centre + height * _UP, centre, np.array([0.0, 1.0, 0.0]), np.radians(40))
    return View(np.array([0.0, -3.0, 0.0]), np.zeros(3), _UP, np.radians(45))


def _model_view(model: mujoco.MjModel) -> View:
    """Returns the model's camera `scene`; if it has none, MuJoCo's own view of the whole model, as in pictures."""
    camera = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "scene")
    if camera >= 0:
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        eye, (_, top, back) = data.cam_xpos[camera].copy(), data.cam_xmat[camera].reshape(3, 3).T
        target = eye - np.linalg.norm(eye - model.stat.center) * back
        fov = model.cam_fovy[camera]
    else:
        free, fov = mujoco.MjvCamera(), model.vis.global_.fovy
        mujoco.mjv_defaultFreeCamera(model, free)
        (cos_a, cos_e), (sin_a, sin_e) = (f(np.radians([free.azimuth, free.elevation])) for f in (np.cos, np.sin))
        back, top = -np.array([cos_e * cos_a, cos_e * sin_a, sin_e]), np.array([-sin_e * cos_a, -sin_e * sin_a, cos_e])
        target = free.lookat.copy()
        eye = target + free.distance * back
    # a camera that looks straight down cannot use the world's up direction
    return View(eye, target, top.copy() if abs(back[2]) > _STEEP else _UP, float(np.radians(fov)))


class Layout(NamedTuple):
    """The camera that shows the scene and the maps beside it, the centres of the maps `(maps, 3)` and their size."""

    view: View
    map_places: Array
    map_size: float


def framed(view: View, maps: int, scene: bool) -> Layout:
    """Makes room for square maps on the left."""
    half = view.half_height
    size = min(1.5, 2.7 / maps) * half
    right, up, _ = view.axes.T
    height = (maps - 1) / 2 - np.arange(maps)
    aside = -(1.2 * half + 0.5 * size) if scene else 0.0
    centres = view.target + aside * right + 1.04 * size * height[:, None] * up
    seen = view.moved(-0.5 * size if scene else 0.0, _ROOM)
    # closer to the eye the maps look the same, but are in front of the scene and above its floor
    return Layout(seen, seen.eye + _MAP_DEPTH * (centres - seen.eye), _MAP_DEPTH * size)


def make_stage(client: viser.ClientHandle, task: Task) -> Stage | None:
    """Creates the stage of a task's scene; None if the task cannot be shown."""
    if not isinstance(task, Showable):
        return None
    scene = task.scene
    if isinstance(scene, PictureScene):
        return _PictureStage(client, view_of(task))
    return _PlanarStage(client, scene) if isinstance(scene, PlanarScene) else _MujocoStage(client, scene)


def draw_lines(client: viser.ClientHandle, name: str, points: Array, color: Color, thickness: float) -> None:
    """Draws a line through `points (n, 3)`, replacing the object of the same name."""
    segments = np.stack([points[:-1], points[1:]], axis=1) if len(points) > 1 else np.zeros((1, 2, 3))
    client.scene.add_line_segments(name, segments, np.array(rgb(color)), thickness=thickness)


class _MujocoStage:
    def __init__(self, client: viser.ClientHandle, scene: MujocoScene) -> None:
        self.client, self.model = client, copy.copy(scene.model)  # mjviser changes the visuals of its model
        self.data = mujoco.MjData(self.model)
        # mjviser only uses what servers and clients have in common
        self.scene = ViserMujocoScene(cast("viser.ViserServer", client), self.model, num_envs=1)
        self.scene.camera_tracking_enabled = False

    def show(self, motion: Motion, step: int, color: Color) -> None:
        set_pose(self.model, self.data, motion, step)
        self.scene.update_from_mjdata(self.data)
        stride = max(1, round(0.01 / motion.dt_s))
        trail = motion.trail[motion.trail_start : step + 1][::stride]
        draw_lines(self.client, "/trail", trail, color, 0.012)


class _PlanarStage:
    """A chain in the plane among its obstacles, seen from above."""

    def __init__(self, client: viser.ClientHandle, scene: PlanarScene) -> None:
        self.client = client
        for number, (x_from, x_to, y_from, y_to) in enumerate(scene.obstacles):
            client.scene.add_box(
                f"/obstacle_{number}",
                color=_RED,
                dimensions=(x_to - x_from, y_to - y_from, 0.6),
                position=((x_from + x_to) / 2, (y_from + y_to) / 2, 0.0),
            )
        client.scene.add_box("/base", color=_BLACK, dimensions=(0.5, 0.5, 0.5))
        low, high = scene.low, scene.high
        corners = np.array([low, [high[0], low[1]], high, [low[0], high[1]], low])
        draw_lines(client, "/box", in_space(corners), (0.6, 0.6, 0.6), 0.03)
        self.goal = client.scene.add_icosphere("/goal", radius=0.25, color=(238, 0, 0))

    def show(self, motion: Motion, step: int, color: Color) -> None:
        joints = in_space(motion.poses[step])
        with self.client.atomic():
            self.goal.position = motion.markers[0]
            draw_lines(self.client, "/arm", joints, color, 0.22)
            draw_lines(self.client, "/trail", motion.trail[: step + 1], color, 0.04)
            self.client.scene.add_point_cloud(
                "/joints", joints, np.array(_BLACK, dtype=np.uint8), point_size=0.14, point_shape="circle"
            )


class _PictureStage:
    """The task's own pictures, on a screen that faces the camera."""

    def __init__(self, client: viser.ClientHandle, view: View) -> None:
        self.client, self.view = client, view
        self.image: viser.ImageHandle | None = None

    def show(self, motion: Motion, step: int, color: Color) -> None:
        picture = motion.poses[step]
        if self.image is not None:
            self.image.image = picture
            return
        size = np.array(picture.shape[1::-1]) * min(2.4 / picture.shape[1], 2.0 / picture.shape[0])
        width, height = size * self.view.half_height
        self.image = self.client.scene.add_image(
            "/picture",
            picture,
            width,
            height,
            format="jpeg",
            position=self.view.target,
            wxyz=facing(self.view.axes),
            cast_shadow=False,
            receive_shadow=False,
        )


def facing(axes: Array) -> Array:
    """Returns the orientation of an image that faces a camera with these `View.axes`, as a quaternion."""
    # images face along their z axis and are upside down in their own frame
    return np.asarray(viser.transforms.SO3.from_matrix(axes * [1, -1, -1]).wxyz, dtype=np.float64)
