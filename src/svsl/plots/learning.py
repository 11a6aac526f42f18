"""Learning curves: of one run, and of groups of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from svsl.comparison import Group, labelled, learning_curve
from svsl.errors import SvslError
from svsl.gaussians import Array
from svsl.plots.style import HUES, component_color, save_figure
from svsl.runs import MetricsRow, Run

_EPISODES = "simulated episodes [million]"  # not those that are refused before they run
_FAR_APART = 5  # budgets that differ by more are drawn on a logarithmic axis


def learning_figure(metrics: Sequence[MetricsRow], step_based: bool = False) -> Figure:
    """Return and success over episodes."""
    means, drawn = ("mean actions", "drawn actions") if step_based else ("component means", "sampled parameters")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    episodes = np.array([row["episodes_simulated"] for row in metrics]) / 1e6
    draw_curve(left, episodes, metrics, "return_mean", means, HUES[0])
    draw_curve(left, episodes, metrics, "return_sampled", drawn, HUES[6])
    # the first components know little of the box: their returns would flatten everything that follows
    values = np.array([[row["return_mean"], row["return_sampled"]] for row in metrics], dtype=np.float64)
    floor, top = np.nanquantile(values, 0.2), np.nanmax(values)
    left.set_ylim(floor - 0.1 * (top - floor) - 1e-9, top + 0.15 * (top - floor) + 1e-9)
    left.set_ylabel("return on fresh contexts")
    left.legend(loc="lower right")
    draw_curve(right, episodes, metrics, "success_rate", means, HUES[0])
    right.set_ylim(0, 1.02)
    right.set_ylabel("success rate")
    return figure


def draw_curve(axes: Axes, episodes: Array, metrics: Sequence[MetricsRow], name: str, label: str, color: str) -> None:
    """One column of the metrics over episodes (in millions)."""
    axes.plot(episodes, [row[name] for row in metrics], "-", marker=".", ms=4, lw=1.2, color=color, label=label)
    axes.set_xlabel(_EPISODES)
    axes.grid(alpha=0.3)


def plot_learning(
    groups: Sequence[Group], path: Path, metrics: Sequence[str] = ("return_mean", "success_rate"), panels: str = ""
) -> Path:
    """Draws the curves of groups of seeds: a column a metric, the paper's statistic above and the field's below.

    With `panels`, an option of the task: a column for each of its values, a row a metric, the paper's statistic.
    """
    if panels:
        parts = _parts(groups, panels)
        figure = Figure(figsize=(4.6 * len(parts), 3.7 * len(metrics)), layout="constrained")
        grid = figure.subplots(len(metrics), len(parts), squeeze=False)
        for column, (value, part) in enumerate(parts.items()):
            for axes, metric in zip(grid[:, column], metrics, strict=True):
                draw_learning(axes, part, metric, robust=False)
                axes.set_title(f"{panels} {value}: {axes.get_title()}", fontsize=10)
        return save_figure(figure, path)
    figure = Figure(figsize=(5.2 * len(metrics), 7.4), layout="constrained")
    for column, metric in enumerate(metrics):
        for row, robust in enumerate((False, True)):
            axes = figure.add_subplot(2, len(metrics), row * len(metrics) + column + 1)
            draw_learning(axes, groups, metric, robust)
    return save_figure(figure, path)


def _parts(groups: Sequence[Group], option: str) -> dict[str, list[Group]]:
    """The groups by the value of an option of their task, named by what else tells them apart."""
    parts: dict[str, list[tuple[Run, ...]]] = {}
    for group in groups:
        options = group.runs[0].config.task_options
        if option not in options:
            known = ", ".join(options) or "none"
            raise SvslError(f"panels: {group.runs[0].config.task} has no option {option!r}; its options: {known}")
        parts.setdefault(str(options[option]), []).append(group.runs)
    return {value: labelled(members) for value, members in parts.items()}


def draw_learning(axes: Axes, groups: Sequence[Group], metric: str, robust: bool) -> None:
    """One curve a group: mean and two standard errors, or (robust) interquartile mean and its bootstrap interval."""
    tops, floors, ends = [], [], []
    for index, group in enumerate(groups):
        curve = learning_curve(group, metric)
        if curve is None:
            continue
        middle, low, high = (
            (curve.iqm, curve.iqm_low, curve.iqm_high)
            if robust
            else (curve.mean, curve.mean - curve.two_se, curve.mean + curve.two_se)
        )
        color = component_color(2 * index)
        axes.plot(
            curve.episodes / 1e6,
            middle,
            color=color,
            lw=1.6,
            marker=".",
            markevery=[-1],
            label=f"{group.label} ({len(group.runs)})",
        )
        axes.fill_between(curve.episodes / 1e6, low, high, color=color, alpha=0.22, lw=0)
        ends.append(curve.episodes[-1])
        tops.append(np.nanmax(middle))
        floors.append(min(np.nanquantile(middle, 0.15), middle[np.isfinite(middle)][-1]))
    if tops:  # the first components know little of the box: their returns would flatten everything that follows
        span = max(tops) - min(floors)
        axes.set_ylim(min(floors) - 0.1 * span - 1e-9, max(tops) + 0.15 * span + 1e-9)
        if max(ends) > _FAR_APART * min(ends):
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.legend(fontsize=8, title="seeds in brackets", title_fontsize=7)
    axes.set_title("interquartile mean, 95 % bootstrap" if robust else "mean, two standard errors", fontsize=10)
    axes.set_xlabel(_EPISODES)
    axes.set_ylabel(metric.replace("_", " "))
    axes.grid(alpha=0.3)
