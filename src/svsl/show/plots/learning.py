"""Learning curves: of one run, and of groups of seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.runs.comparison import Group, labelled, learning_curve
from svsl.runs.folder import MetricsRow, Run
from svsl.show.plots.style import HUES, component_color, save_figure

_EPISODES = "episodes_simulated"
_WORST = 0.15  # share of a curve's tests that may be outside the picture
_DRAWN = {"return_mean": "return_sampled"}  # drawn beside a metric: the same with drawn parameters
_RANGES = {"success_rate": (0.0, 1.0), "two_kinds": (0.0, 1.0)}  # an interval around a mean may leave them
_FAR_APART = 5  # budgets that differ by more are drawn on a logarithmic axis


def learning_figure(metrics: Sequence[MetricsRow], step_based: bool = False) -> Figure:
    """Draws return and success of a run over its episodes."""
    means, drawn = ("mean actions", "drawn actions") if step_based else ("component means", "sampled parameters")
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_curves(left, metrics, {"return_mean": (means, HUES[0]), "return_sampled": (drawn, HUES[6])})
    limit_to_most(left)
    left.set_ylabel("return on fresh contexts")
    draw_curves(right, metrics, {"success_rate": (means, HUES[0])})
    right.set_ylim(-0.02, 1.02)
    right.set_ylabel("success rate")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def draw_curves(axes: Axes, metrics: Sequence[MetricsRow], curves: Mapping[str, tuple[str, str]]) -> None:
    """Draws columns of the metrics over episodes, each with its label and colour; non-finite values are left out."""
    columns = {name: np.array([row.get(name) for row in metrics], dtype=np.float64) for name in (_EPISODES, *curves)}
    unit, label = episodes_axis(float(columns[_EPISODES][-1]))
    for name, (legend, color) in curves.items():
        axes.plot(columns[_EPISODES] / unit, columns[name], ".-", ms=4, lw=1.2, color=color, label=legend)
    axes.set_xlabel(label)
    axes.grid(alpha=0.3)


def episodes_axis(most: float) -> tuple[float, str]:
    """Returns the unit of an axis of up to `most` episodes, and its label."""
    unit, suffix = (1e6, " [million]") if most >= 1e6 else (1e3, " [thousand]") if most >= 1e4 else (1.0, "")
    return unit, f"simulated episodes{suffix}"  # episodes that are rejected before they run do not count


def limit_to_most(axes: Axes) -> None:
    """Excludes the worst tests of each curve from the axis limits if they would take more than half of the height.

    The first components know little of the box: their tests would flatten everything that follows. Excluded points are
    marked by triangles at the lower edge.
    """
    curves = [np.asarray(line.get_data(), dtype=np.float64) for line in axes.lines]
    finite = [y[np.isfinite(y)] for _, y in curves if np.isfinite(y).any()]
    if not finite:
        axes.text(0.5, 0.5, "no finite return", transform=axes.transAxes, ha="center", va="center")
        return
    top, lowest = max(y.max() for y in finite), min(y.min() for y in finite)
    floor = min(np.quantile(y, _WORST, method="higher") for y in finite)
    if top - lowest <= 2 * (top - floor) or top == floor:
        return
    axes.set_ylim(floor - 0.08 * (top - floor), top + 0.08 * (top - floor))
    edge = axes.get_xaxis_transform()
    for line, (x, y) in zip(list(axes.lines), curves, strict=True):
        below = x[y < axes.get_ylim()[0]]
        if len(below):
            axes.plot(below, np.full(len(below), 0.02), "v", ms=5, color=line.get_color(), transform=edge)


def plot_learning(
    groups: Sequence[Group], path: Path, metrics: Sequence[str] = ("return_mean", "success_rate"), panels: str = ""
) -> Path:
    """Draws the curves of groups of seeds: one column per metric, the paper's statistic above the robust one.

    With `panels`, a task option: one column per value of it and one row per metric, the paper's statistic only.
    """
    if panels:
        parts = _parts(groups, panels)
        figure = Figure(figsize=(4.6 * len(parts), 3.7 * len(metrics)), layout="constrained")
        grid = figure.subplots(len(metrics), len(parts), squeeze=False)
        for column, (value, part) in zip(grid.T, parts.items(), strict=True):
            for axes, metric in zip(column, metrics, strict=True):
                draw_learning(axes, part, metric, robust=False)
                axes.set_title(f"{panels} {value}: {axes.get_title()}", fontsize=10)
        draw_legend(figure)
        return save_figure(figure, path)
    figure = Figure(figsize=(5.2 * len(metrics), 7.4), layout="constrained")
    for metric, (top, bottom) in zip(metrics, figure.subplots(2, len(metrics), squeeze=False).T, strict=True):
        draw_learning(top, groups, metric, robust=False)
        draw_learning(bottom, groups, metric, robust=True)
    draw_legend(figure)
    return save_figure(figure, path)


def _parts(groups: Sequence[Group], option: str) -> dict[str, list[Group]]:
    """Returns the groups by the value of a task option, labelled by their other differences."""
    parts: dict[str, list[tuple[Run, ...]]] = {}
    for group in groups:
        options = group.runs[0].config.task_options
        if option not in options:
            known = ", ".join(options) or "none"
            raise SvslError(f"panels: {group.runs[0].config.task} has no option {option!r}; its options: {known}")
        parts.setdefault(str(options[option]), []).append(group.runs)
    return {value: labelled(members) for value, members in parts.items()}


def _limits(lines: Sequence[Array], bands: Sequence[Array]) -> tuple[float, float]:
    """Returns limits for curves and their bands that leave a third of the height to most of the curves.

    The worst tests of a curve, usually the first, and bands of few seeds would flatten everything else.
    """
    top = float(max(np.nanmax(line) for line in lines))
    floor = float(min(min(np.nanquantile(line, _WORST), line[np.isfinite(line)][-1]) for line in lines))
    reach = (top - floor) or 0.1
    ends = np.concatenate([*lines, *bands, [floor - 0.1 * reach, top + 0.1 * reach]])
    return max(floor - reach, float(np.nanmin(ends))), min(top + reach, float(np.nanmax(ends)))


def draw_learning(axes: Axes, groups: Sequence[Group], metric: str, robust: bool) -> None:
    """Draws one curve per group: mean and its 95 % interval; if robust, interquartile mean and bootstrap interval.

    Beside the return of component means, a thin dashed line shows that of drawn parameters.
    """
    lines, bands, ends = [], [], []
    curves = [learning_curve(group, metric) for group in groups]
    unit, label = episodes_axis(max((curve.episodes[-1] for curve in curves if curve), default=0.0))
    for index, (group, curve) in enumerate(zip(groups, curves, strict=True)):
        if curve is None:
            continue
        middle, low, high = curve.mean, curve.mean - curve.half_width, curve.mean + curve.half_width
        if robust:
            middle, low, high = curve.iqm, curve.iqm_low, curve.iqm_high
        least, most = _RANGES.get(metric, (-np.inf, np.inf))
        low, high = np.maximum(low, least), np.minimum(high, most)
        x, color, name = curve.episodes / unit, component_color(2 * index), f"{group.label} ({len(group.runs)})"
        axes.plot(x, middle, color=color, lw=1.6, marker=".", markevery=[-1], label=name)
        axes.fill_between(x, low, high, color=color, alpha=0.22, lw=0)
        ends.append(curve.episodes[-1])
        lines.append(middle)
        bands += [low, high]
        drawn = learning_curve(group, _DRAWN[metric]) if metric in _DRAWN else None
        if drawn is not None:
            lines.append(drawn.iqm if robust else drawn.mean)
            axes.plot(drawn.episodes / unit, lines[-1], color=color, lw=0.9, ls="--", marker=".", ms=3, markevery=[-1])
    if lines:
        least, most = _RANGES.get(metric) or _limits(lines, bands)
        margin = 0.02 * (most - least)
        axes.set_ylim(least - margin, most + margin)
        if max(ends) > _FAR_APART * min(ends):
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title("interquartile mean, 95 % bootstrap" if robust else "mean, 95 % interval (Student's t)", fontsize=10)
    axes.set_xlabel(label)
    axes.set_ylabel(metric.replace("_", " "))
    axes.grid(alpha=0.3)


def draw_legend(figure: Figure) -> None:
    """Adds a legend of the groups of all axes below them, where it covers no curve."""
    lines = [line for axes in figure.axes for line in axes.lines]
    groups = {(str(line.get_label()), to_hex(line.get_color())): line for line in lines}
    found = {key: line for key, line in groups.items() if not key[0].startswith("_")}  # as Matplotlib calls the others
    if not found:
        return
    columns = max(1, int(figure.get_figwidth() / (0.6 + 0.075 * max(len(label) for label, _ in found))))
    dashed = any(line.get_linestyle() == "--" for line in lines)
    title = "seeds in brackets" + ("; dashed: drawn parameters" if dashed else "")
    figure.set_figheight(figure.get_figheight() + 0.4 + 0.18 * -(-len(found) // columns))
    names = [label for label, _ in found]
    style: Any = {"fontsize": 8, "title": title, "title_fontsize": 7, "loc": "outside lower center"}
    figure.legend([*found.values()], names, ncols=min(columns, len(found)), **style)
