"""How a task is shown: a motion over time and the scene it plays in. All of it is optional, and none of it draws."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.tasks.base import Task

if TYPE_CHECKING:
    import mujoco

_AFTERWARDS_S = 0.5  # shown after the trail has come to rest or the episode is decided
_REST_DISTANCE = 0.01


@dataclass(frozen=True)
class MujocoScene:
    """A MuJoCo model with all that is visible; poses are its states `(steps, size)`: time, qpos and qvel.

    Pictures are taken from its camera `scene`, if it has one.
    """

    model: "mujoco.MjModel"


@dataclass(frozen=True)
class PlanarScene:
    """A chain of points among boxes in the plane; poses are its points `(steps, points, 2)`."""

    obstacles: Array  # (b, 4), the x range and the y range of each box
    low: Array  # (2,), lower corner of the goals' box
    high: Array  # (2,), its upper corner
    x_range: tuple[float, float]  # of a figure of postures
    y_range: tuple[float, float]  # of all pictures
    motion_x_range: tuple[float, float]  # of pictures of a motion

    @property
    def goals(self) -> Array:
        """Six goals spread over their box, to look at: `(6, 2)`."""
        across, along = np.meshgrid([0.3, 0.8], [0.9, 0.5, 0.1])
        return self.low + (self.high - self.low) * np.stack([across.ravel(), along.ravel()], axis=1)


@dataclass(frozen=True)
class PictureScene:
    """Pictures that the task takes itself; poses are these pictures `(steps, height, width, 3)`, bytes."""


Scene = MujocoScene | PlanarScene | PictureScene


def planar_scene(task: Task) -> PlanarScene | None:
    """Returns the task's scene if it is planar."""
    scene = getattr(task, "scene", None)
    return scene if isinstance(scene, PlanarScene) else None


@dataclass(frozen=True)
class Motion:
    """An episode over time."""

    dt_s: float  # time between poses
    poses: NDArray[Any]  # (steps, ...), what the scene shows at each step
    trail: Array  # (steps, 3), path of what the task is about: a ball, the tip of an arm
    markers: Array  # (m, 3), what the context places: the mocap bodies of a MuJoCo scene, the goals of a planar one
    trail_start: int = 0  # step from which the trail is drawn
    # steps at which something happens, such as `release` or `hit`; snapshots are taken around the first
    moments: Mapping[str, int] = field(default_factory=dict)
    decided_step: int | None = None  # step from which on the outcome cannot change; players stop soon after it
    marker_quats: Array | None = None  # (m, 4), orientations of the mocap bodies of a MuJoCo scene

    @property
    def duration_s(self) -> float:
        """Time from the first pose to the last."""
        return self.dt_s * (len(self.poses) - 1)

    def step_at(self, time_s: float) -> int:
        """Returns the step at a time, limited to the first and the last one."""
        return int(np.clip(round(time_s / self.dt_s), 0, len(self.poses) - 1))

    def trimmed(self) -> Self:
        """Returns the motion until shortly after its trail has come to rest or the episode is decided."""
        if self.decided_step is None:
            return self
        away = np.flatnonzero(np.linalg.norm(self.trail - self.trail[-1], axis=1) > _REST_DISTANCE)
        rest = int(away[-1]) if len(away) else 0
        end = min(rest, self.decided_step) + round(_AFTERWARDS_S / self.dt_s)
        return replace(self, poses=self.poses[:end], trail=self.trail[:end])


@runtime_checkable
class Showable(Protocol):
    """What a task offers beyond `Task` to be played in videos, the viewer and Gymnasium windows.

    A task may also have `figures`: names of figures from `svsl.show.plots.files.FIGURES` that `svsl plot` draws of its
    libraries, besides the maps that every task gets. A task that cannot always be shown sets `scene` only if it can,
    and says why not in a string `not_shown`.
    """

    @property
    def scene(self) -> Scene:
        """Where its motions play."""
        ...

    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """One whole episode; the start alone without parameters, or with parameters that cannot be run."""
        ...


def showable(task: Task) -> Showable:
    """Returns the task as one that can be shown, or raises an `SvslError`."""
    if not isinstance(task, Showable):
        reason = getattr(task, "not_shown", None)
        raise SvslError(
            reason
            or f"a {type(task).__name__} has no motion to show; give it a `scene` and a method `motion`, "
            "as described in svsl.tasks.presentation.Showable"
        )
    return task
