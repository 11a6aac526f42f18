"""Shared by all figures: colours, labels, and writing a figure to a file or a picture."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from svsl.errors import SvslError
from svsl.model.files import write_bytes
from svsl.model.gaussians import Array

Color = tuple[float, float, float]  # red, green and blue from 0 to 1

# Paul Tol's "muted" scheme: distinct for every kind of colour vision
HUES = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499")
_SHADES = (0.0, 0.35, -0.3)
_DASHES = ("-", "--", "-.")
NUMBER_SIZE, _NUMBER_SHADE = 7.0, 0.5
# where a number may be: above, below, beside or diagonal to its point, then further away
_BESIDE = np.array([(x, y) for far in (1, 2, 3) for x, y in (
    (0, far), (0, -far), (far, 0), (-far, 0), (far, far), (-far, far), (far, -far), (-far, -far)
)])  # fmt: skip
GOAL_COLOR = "#EE0000"
FORMATS = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".eps")


def component_color(component: int) -> Color:
    """Returns the colour of a component in every figure: nine hues in three shades, repeated."""
    red, green, blue = to_rgb(HUES[component % len(HUES)])
    shade = _SHADES[component // len(HUES) % len(_SHADES)]
    towards, share = (1.0, shade) if shade > 0 else (0.0, -shade)
    return tuple(share * towards + (1 - share) * value for value in (red, green, blue))  # type: ignore[return-value]


def rgb(color: Color) -> tuple[int, int, int]:
    """Returns a colour in whole numbers from 0 to 255."""
    red, green, blue = (round(255 * value) for value in color)
    return red, green, blue


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun: `1 component`, `2 components`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def line_style(component: int) -> str:
    """Returns the dashes of a component's line: components whose colours are shades of one hue differ in them."""
    return _DASHES[component // len(HUES) % len(_SHADES)]


def draw_numbers(axes: Axes, points: Array, size: float = NUMBER_SIZE) -> None:
    """Writes the number of each component beside its point `(K, 2)`, where no other number is.

    Numbers are in a dark shade of their component's colour; that of a point outside the picture is at its edge. The
    limits of the axes must be set.
    """
    edge = 2 * size / 72 * axes.figure.dpi
    inside = axes.transData.inverted().transform(axes.bbox.padded(-edge))
    points = np.clip(points, inside.min(axis=0), inside.max(axis=0))
    taken: list[Array] = []  # the middles of the numbers so far and half their sizes, in typographic points
    for k, place in enumerate(72 / axes.figure.dpi * axes.transData.transform(points)):
        half = np.array([0.3 * len(str(k)) + 0.1, 0.5]) * size
        middles = place + _BESIDE * (half + 0.3 * size)
        free = [all((abs(middle - other[0]) >= half + other[1]).any() for other in taken) for middle in middles]
        chosen = middles[free.index(True) if any(free) else 0]
        taken.append(np.array([chosen, half]))
        color = tuple(_NUMBER_SHADE * value for value in component_color(k))
        style: Any = {"textcoords": "offset points", "ha": "center", "va": "center", "annotation_clip": True}
        at, offset = (float(points[k, 0]), float(points[k, 1])), tuple(chosen - place)
        number = axes.annotate(str(k), at, offset, fontsize=size, color=color, **style)
        number.set(path_effects=[withStroke(linewidth=1.8, foreground="white")], zorder=6)  # readable on crosses


def check_format(path: Path) -> None:
    """Checks the file name of a picture before anything is computed."""
    if path.is_dir():
        raise SvslError(f"out: expected the name of a picture, got the folder {str(path)!r}")
    if path.suffix.lower() not in FORMATS:
        raise SvslError(f"out: expected a file name that ends in {', '.join(FORMATS)}, got {str(path)!r}")


def save_figure(figure: Figure, path: Path) -> Path:
    """Writes a figure atomically and returns its path."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=130)
    write_bytes(path, buffer.getvalue())
    return path


def pixels(figure: Figure) -> NDArray[np.uint8]:
    """Returns the figure as a picture `(rows, columns, 3)`."""
    canvas: Any = FigureCanvasAgg(figure)  # its methods are not typed
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def draw_box(axes: Axes, low: Array, high: Array, **style: Any) -> None:
    """Draws the outline of the box from `low (2,)` to `high (2,)`."""
    axes.add_patch(Rectangle((float(low[0]), float(low[1])), *(high - low), fill=False, **style))
