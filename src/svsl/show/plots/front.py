"""The front of precision and variety: one metric against others, over sweeps of a setting."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from svsl.model.gaussians import Array
from svsl.runs.comparison import summarise
from svsl.show.plots.style import HUES, save_figure

_COLORS = (HUES[0], HUES[6], HUES[3], HUES[4], HUES[8])
_MARKERS = "osD^v"
_RATES = (0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 1)
_BEYOND = 1.005  # where the logarithmic axis of failures would end


@dataclass(frozen=True)
class FrontPoint:
    """One setting: the numbers of its runs, `(seeds,)` each, by metric."""

    series: str  # points of the same series are joined
    label: str  # written beside the point
    numbers: dict[str, Array]


def plot_front(points: Sequence[FrontPoint], x: Sequence[tuple[str, str]], y: tuple[str, str], path: Path) -> None:
    """Draws a metric over each of several others, `(name, label)`: small dots are runs, large ones their means."""
    figure = Figure(figsize=(5.2 * len(x), 4.4), layout="constrained")
    panels = figure.subplots(1, len(x), squeeze=False, sharey=True)[0]
    for axes, (name, label) in zip(panels, x, strict=True):
        draw_front(axes, points, name, y[0])
        axes.set_xlabel(label)
    panels[0].set_ylabel(y[1])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    save_figure(figure, path)


def draw_front(axes: Axes, points: Sequence[FrontPoint], x: str, y: str) -> None:
    """Draws the points of each series, joined in their order; a setting of which no run has a metric is left out.

    Bars are 95 % intervals of the means. `x` is a count. The axis of `y`, a rate, is logarithmic in its complement.
    """
    known = [point for point in points if all(np.isfinite(point.numbers[name]).any() for name in (x, y))]
    for number, series in enumerate(dict.fromkeys(point.series for point in points)):
        members = [point for point in known if point.series == series]
        color, marker = _COLORS[number % len(_COLORS)], _MARKERS[number % len(_MARKERS)]
        for point in members:
            axes.plot(point.numbers[x], point.numbers[y], ".", ms=4, color=color, alpha=0.4)
        summaries = [[summarise(point.numbers[name]) for name in (x, y)] for point in members]
        means = np.array([[s.mean for s in pair] for pair in summaries]).reshape(-1, 2)
        widths = np.nan_to_num([[s.half_width for s in pair] for pair in summaries]).reshape(-1, 2)
        below = np.minimum(widths, means)  # counts and rates are not negative
        rates = np.array([below[:, 1], np.minimum(widths[:, 1], 1 - means[:, 1])])
        axes.errorbar(
            means[:, 0],
            means[:, 1],
            xerr=np.array([below[:, 0], widths[:, 0]]),
            yerr=rates,
            fmt=f"{marker}-",
            ms=6,
            lw=1.2,
            elinewidth=0.8,
            color=color,
            label=series,
        )
        side = 1 if number % 2 == 0 else -1  # labels of neighbouring series stand on different sides
        for point, mean in zip(members, means, strict=True):
            axes.annotate(
                point.label, (mean[0], mean[1]), xytext=(7 * side, 6), textcoords="offset points",
                ha="left" if side > 0 else "right", fontsize=9, color=color,
            )  # fmt: skip
    axes.set_yscale(
        "function", functions=(lambda rate: -np.log(_BEYOND - rate), lambda value: _BEYOND - np.exp(-value))
    )
    axes.set_ylim(0, 1)
    axes.set_yticks(_RATES, [f"{rate:.0%}" for rate in _RATES])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.3)
