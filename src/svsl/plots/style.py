"""What all figures share: the colour of a component, and how a figure becomes a file or a picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from svsl.files import write_bytes
from svsl.gaussians import Array

# Paul Tol's "muted" scheme: distinct for every kind of colour vision
HUES = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499")
_SHADES = (0.0, 0.35, -0.3)


def component_color(component: int) -> tuple[float, float, float]:
    """The colour of a component in every figure: nine hues in three shades, then from the start."""
    red, green, blue = to_rgb(HUES[component % len(HUES)])
    shade = _SHADES[component // len(HUES) % len(_SHADES)]
    towards, share = (1.0, shade) if shade > 0 else (0.0, -shade)
    return tuple(share * towards + (1 - share) * value for value in (red, green, blue))  # type: ignore[return-value]


def save_figure(figure: Figure, path: Path) -> Path:
    """Writes a figure, whole or not at all, and returns its path."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix(".") or "png", dpi=130)
    write_bytes(path, buffer.getvalue())
    return path


def pixels(figure: Figure) -> NDArray[np.uint8]:
    """The figure as a picture `(rows, columns, 3)`."""
    canvas: Any = FigureCanvasAgg(figure)  # its methods are not typed
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def draw_box(axes: Axes, low: Array, high: Array, **style: Any) -> None:
    """The outline of a box `(2,)`, `(2,)`."""
    axes.add_patch(Rectangle((float(low[0]), float(low[1])), *(high - low), fill=False, **style))
