"""Pictures of episodes for people: what draws a task, and a window that shows it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.registry import BackendFilter, backend_registry
from matplotlib.figure import Figure
from numpy.typing import NDArray

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.show.rendering import SceneRenderer
from svsl.tasks.planar_reacher import PlanarReacher


class PostureDrawing:
    """Draws postures of the planar reacher, with the interface of `SceneRenderer`."""

    def __init__(self, task: PlanarReacher) -> None:
        self.task = task

    def last_frame(self, context: Array, parameters: Array | None) -> NDArray[np.uint8]:
        """The goal and the obstacles, and the posture if there are parameters."""
        from svsl.show.plots.skills import draw_reacher_scene

        figure = Figure(figsize=(6.4, 4.8), layout="constrained")
        axes = figure.subplots()
        draw_reacher_scene(axes, self.task)
        axes.plot(*context, "x", color="#bb0000", markersize=10)
        if parameters is not None:
            axes.plot(*self.task.joints(parameters[None])[0].T, "o-", color="#332288", markersize=4)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
        return np.array(canvas.buffer_rgba())[..., :3]  # type: ignore[no-untyped-call]

    def frames(self, context: Array, parameters: Array | None, fps: int) -> Iterator[NDArray[np.uint8]]:
        """One picture: nothing moves."""
        yield self.last_frame(context, parameters)

    def close(self) -> None:
        """Nothing to free."""


def pictures_of(task: object) -> SceneRenderer | PostureDrawing:
    """What draws a task's episodes.

    Raises:
        SvslError: If nothing does.
    """
    return PostureDrawing(task) if isinstance(task, PlanarReacher) else SceneRenderer(task)


class Window:
    """A window on the screen.

    Raises:
        SvslError: If there is no screen.
    """

    def __init__(self, title: str) -> None:
        from matplotlib import pyplot

        interactive = backend_registry.list_builtin(BackendFilter.INTERACTIVE)  # type: ignore[no-untyped-call]
        if pyplot.get_backend().lower() not in interactive:
            raise SvslError(
                "render_mode 'human' needs a screen, and matplotlib finds none or has no window toolkit (its backend "
                f"is {pyplot.get_backend()}); render_mode 'rgb_array' gives pictures without one"
            )
        self._pyplot, self._figure = pyplot, pyplot.figure(num=title)
        self._axes = self._figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self._axes.set_axis_off()

    def show(self, picture: NDArray[np.uint8], seconds: float) -> None:
        """Shows a picture for a while."""
        if self._axes.images:
            self._axes.images[0].set_data(picture)
        else:
            self._axes.imshow(picture)
        self._pyplot.pause(seconds)

    def close(self) -> None:
        """Closes the window."""
        self._pyplot.close(self._figure)
