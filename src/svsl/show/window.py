"""A window that shows pictures one after the other."""

import numpy as np
from matplotlib.backends.registry import BackendFilter, backend_registry
from numpy.typing import NDArray

from svsl.errors import SvslError


class Window:
    """A matplotlib window; it needs a screen."""

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
        """Shows a picture for some time."""
        if self._axes.images:
            self._axes.images[0].set_data(picture)
        else:
            self._axes.imshow(picture)
        self._pyplot.pause(seconds)

    def close(self) -> None:
        """Closes the window."""
        self._pyplot.close(self._figure)
