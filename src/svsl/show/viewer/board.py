"""Maps of the context space in the scene: a click or a drag on one chooses a context."""

from collections.abc import Callable

import numpy as np
import viser
from matplotlib.figure import Figure
from numpy.typing import NDArray

from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.runs.sources import with_regions
from svsl.show.plots.contexts import draw_context_densities, draw_context_ellipses, draw_success_map, name_axes
from svsl.show.plots.style import pixels
from svsl.show.viewer.stage import facing
from svsl.tasks.base import Task

Dims = tuple[int, ...]
_PIXELS, _NUMBER_SIZE = 640, 13  # readable although the page shows it at half its size


def map_picture(
    library: SkillLibrary, task: Task, dims: Dims, success: Array | None
) -> tuple[NDArray[np.uint8], Array, Array]:
    """Draws a map: the picture `(rows, columns, 3)`, and the contexts `(2,)` of its lower left and upper right corners.

    Components are ellipses (or densities, if the map has one dimension), on top of the success rates if there are any.
    """
    figure = Figure(figsize=(6.4, 6.4), dpi=_PIXELS / 6.4)
    axes = figure.add_axes((0.14, 0.11, 0.83, 0.83))
    if len(dims) == 1:
        draw_context_densities(axes, with_regions(library, task), dims[0], _NUMBER_SIZE)
    else:
        if success is not None:
            low, high = library.context_low[list(dims)], library.context_high[list(dims)]
            draw_success_map(axes, success, low, high, colors="gray")
        draw_context_ellipses(axes, with_regions(library, task), (dims[0], dims[1]), _NUMBER_SIZE)
    name_axes(axes, task, dims)
    axes.xaxis.label.set_fontsize(16)
    axes.yaxis.label.set_fontsize(16)
    axes.tick_params(labelsize=13)
    picture = pixels(figure)
    place = axes.get_position()
    start, size = np.array(place.p0), np.array([place.width, place.height])
    limits = np.array([axes.get_xlim(), axes.get_ylim()])
    span = (limits[:, 1] - limits[:, 0]) / size
    low_corner = limits[:, 0] - start * span
    return picture, low_corner, low_corner + span


class Board:
    """One map in one client's scene: a square around `centre (3,)`, with edges of length `size`.

    The columns of `axes` are its right, up and front directions. The success map is drawn underneath, if there is one.
    `on_choose` is called with `dims` and the chosen values.
    """

    def __init__(
        self,
        client: viser.ClientHandle,
        library: SkillLibrary,
        task: Task,
        dims: Dims,
        centre: Array,
        axes: Array,
        size: float,
        success: Array | None,
        on_choose: Callable[[Dims, Array], None],
    ) -> None:
        self.library, self.task, self.dims = library, task, dims
        self.centre, self.axes, self.size = centre, axes, size
        picture, self.low, self.high = map_picture(library, task, dims, success)
        name = f"/map_{dims[0]}"
        self._image = client.scene.add_image(
            name, picture, size, size, position=centre, wxyz=facing(axes), cast_shadow=False, receive_shadow=False
        )
        self._marked = 0.5 * (library.context_low + library.context_high)
        self._marker = client.scene.add_icosphere(
            f"/marker_{dims[0]}", 0.02 * size, color=(238, 0, 0), cast_shadow=False
        )

        # asynchronous, so that events are handled in order, which viser's thread pool does not guarantee
        async def clicked(event: viser.SceneNodePointerEvent[viser.ImageHandle]) -> None:
            on_choose(self.dims, self.context_on_ray(np.array(event.ray_origin), np.array(event.ray_direction)))

        async def dragged(event: viser.SceneNodeDragEvent[viser.ImageHandle]) -> None:
            eye = np.asarray(event.client.camera.position)
            on_choose(self.dims, self.context_on_ray(eye, np.array(event.end_position) - eye))

        self._image.on_click(clicked)
        self._image.on_drag("left")(dragged)

    def draw(self, success: Array | None) -> None:
        """Redraws the map."""
        self._image.image, self.low, self.high = map_picture(self.library, self.task, self.dims, success)
        self.mark(self._marked)

    def context_on_ray(self, origin: Array, direction: Array) -> Array:
        """Returns the values of the map's dimensions where a ray hits it."""
        right, up, front = self.axes.T
        along = ((self.centre - origin) @ front) / (direction @ front)
        point = origin + along * direction - self.centre
        share = 0.5 + np.array([point @ right, point @ up]) / self.size
        return np.asarray(self.low + share * (self.high - self.low))[: len(self.dims)]

    def mark(self, context: Array) -> None:
        """Moves the marker to a context."""
        self._marked = context
        values = np.array([*context[list(self.dims)], 0.0])[:2]
        across, along = (values - self.low) / (self.high - self.low) - 0.5
        right, up, front = self.axes.T
        self._marker.position = self.centre + self.size * (across * right + along * up + 0.01 * front)
