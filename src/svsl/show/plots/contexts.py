"""Maps of the context space: the components' distributions, and where the library succeeds."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator

from svsl.evaluation.metrics import repertoire, run_finite, success_map
from svsl.model.gaussians import Array, BoolArray
from svsl.model.library import SkillLibrary
from svsl.model.mixture import is_active
from svsl.model.random import PLOT_STREAM, stream
from svsl.runs.sources import with_regions
from svsl.show.plots.style import HUES, NUMBER_SIZE, component_color, counted, draw_box, draw_numbers, line_style
from svsl.tasks.base import Task, context_maps, context_names, uniform_contexts, valid_contexts

_FAILURE_CONTEXTS = 2000
_LINE_CELLS = 120


def contexts_figure(library: SkillLibrary, task: Task, seed: int = 0) -> Figure:
    """Draws the context distributions over the box, one panel per pair of context dimensions."""
    maps = context_maps(task)
    figure = Figure(figsize=(6 * len(maps), 5.6), layout="constrained")
    for axes, dims in zip(figure.subplots(1, len(maps), squeeze=False)[0], maps, strict=True):
        draw_contexts(axes, library, task, seed, dims)
    return figure


def draw_contexts(
    axes: Axes, library: SkillLibrary, task: Task, seed: int = 0, dims: tuple[int, ...] | None = None
) -> None:
    """Draws context distributions in two dimensions (default: the first map), and where the most probable one fails.

    In one dimension, it draws curves instead of ellipses, with the failures on the axis.
    """
    dims = context_maps(task)[0] if dims is None else dims
    rng = stream(seed, PLOT_STREAM, 0)
    contexts = uniform_contexts(task, _FAILURE_CONTEXTS, rng)
    best = library.mixture.component_means(contexts, library.gating(contexts, outside="extrapolate").argmax(axis=1))
    success = run_finite(task, contexts, best, rng).success
    failed = contexts[~success][:, list(dims)]
    if len(dims) == 2:
        draw_context_ellipses(axes, with_regions(library, task), (dims[0], dims[1]))
        draw_failures(axes, failed)
    else:
        draw_context_densities(axes, with_regions(library, task), dims[0])
        draw_failures(axes, np.pad(failed, ((0, 0), (0, 1))))
    name_axes(axes, task, dims)
    components = counted(len(library), "component")
    axes.set_title(f"{components}; the most probable solves {success.mean():.1%}", fontsize=10)


def name_axes(axes: Axes, task: Task, dims: tuple[int, ...] = (0, 1)) -> None:
    """Labels a map of one or two dimensions."""
    axes.set_xlabel(context_names(task)[dims[0]])
    if len(dims) == 2:
        axes.set_ylabel(context_names(task)[dims[1]])


def draw_context_ellipses(
    axes: Axes, library: SkillLibrary, dims: tuple[int, int] = (0, 1), number_size: float = NUMBER_SIZE
) -> None:
    """Draws the contexts of each component as an ellipse of one standard deviation, more opaque if it is heavier."""
    low, high = library.context_low[list(dims)], library.context_high[list(dims)]
    mixture = library.mixture
    contexts, weights = mixture.contexts, np.exp(mixture.log_weights)
    variance, axis = np.linalg.eigh(contexts.cov[:, list(dims)][:, :, list(dims)])
    for k, color in enumerate(map(component_color, range(len(library)))):
        angle = np.degrees(np.arctan2(axis[k, 1, 1], axis[k, 0, 1]))
        mean = float(contexts.bias[k, dims[0]]), float(contexts.bias[k, dims[1]])
        height, width = 2 * np.sqrt(variance[k])
        strength = 0.45 + 0.55 * (weights[k] / weights.max())  # at most 1, also when rounded
        fill, edge = (*color, 0.25 * strength), (*color, strength)
        axes.add_patch(Ellipse(mean, width, height, angle=angle, facecolor=fill, edgecolor=edge, lw=1.4))
        axes.plot(*mean, ".", color=color, alpha=strength, ms=4)
    draw_box(axes, low, high, edgecolor="black", lw=1.5)
    margin = 0.12 * (high - low)
    axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
    axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
    draw_numbers(axes, contexts.bias[:, list(dims)], number_size)


def draw_failures(axes: Axes, points: Array, **legend: Any) -> None:
    """Marks failures at points `(n, 2)` of the axes, with a legend at its upper right by default."""
    if len(points):
        axes.plot(*points.T, "x", color="#BB5566", ms=3.5, mew=0.8, label="fails here")
        axes.legend(fontsize=8, **(legend or {"loc": "upper right"}))


def draw_context_densities(axes: Axes, library: SkillLibrary, dim: int, number_size: float = NUMBER_SIZE) -> None:
    """Draws curves of `pi(o) pi(c|o)` over one context dimension."""
    low, high = library.context_low[dim], library.context_high[dim]
    grid = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), 400)
    mixture = library.mixture
    means, stds = mixture.contexts.bias[:, dim], np.sqrt(mixture.contexts.cov[:, dim, dim])
    peaks = np.exp(mixture.log_weights) / (stds * np.sqrt(2 * np.pi))
    for k, (mean, std, peak) in enumerate(zip(means, stds, peaks, strict=True)):
        density = peak * np.exp(-0.5 * ((grid - mean) / std) ** 2)
        axes.plot(grid, density, color=component_color(k), ls=line_style(k))
    axes.axvspan(low, high, color="black", alpha=0.06, lw=0)
    axes.set_xlim(grid[0], grid[-1])
    axes.set_ylim(-0.05 * peaks.max(), 1.15 * peaks.max())  # with room for the legend
    draw_numbers(axes, np.column_stack([means, peaks]), number_size)
    axes.set_ylabel("weighted density")


def success_figure(library: SkillLibrary, task: Task, seed: int = 0) -> Figure:
    """Draws the success of a library over its box: one panel per pair of context dimensions, curves for only one."""
    if library.context_dim == 1:
        return _success_line_figure(library, task, seed)
    # a last one alone is shown with the one before
    maps = [(dims[0], dims[1]) if len(dims) == 2 else (dims[0] - 1, dims[0]) for dims in context_maps(task)]
    figure = Figure(figsize=(6 * len(maps), 5.2), layout="constrained")
    rng = stream(seed, PLOT_STREAM, 2)
    for axes, dims in zip(figure.subplots(1, len(maps), squeeze=False)[0], maps, strict=True):
        low, high = library.context_low[list(dims)], library.context_high[list(dims)]
        draw_success_map(axes, success_rates(library, task, dims, rng), low, high)
        name_axes(axes, task, dims)
        if library.context_dim > 2:
            axes.set_title(f"{axes.get_title()}, over uniform values of the other dimensions", fontsize=10)
    return figure


def success_rates(library: SkillLibrary, task: Task, dims: tuple[int, int], rng: np.random.Generator) -> Array:
    """Computes the map of success rates `(20, 20)` that figures and the page show; see `success_map`."""
    return success_map(library, task, dims, cells=20, rng=rng, repeats=1 if library.context_dim == 2 else 3)


def _success_line_figure(library: SkillLibrary, task: Task, seed: int) -> Figure:
    low, high = float(library.context_low[0]), float(library.context_high[0])
    contexts = low + (high - low) * (np.arange(_LINE_CELLS)[:, None] + 0.5) / _LINE_CELLS
    executed = repertoire(library.mixture, task, contexts, stream(seed, PLOT_STREAM, 2))
    active = is_active(executed.gating) & valid_contexts(task, contexts)[:, None]
    heights = [2.6, 0.8 + min(0.18 * len(library), 9.0)]
    figure = Figure(figsize=(6, sum(heights)), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    draw_success_line(above, contexts[:, 0], np.where(active, executed.gating, 0.0), executed.success)
    draw_component_rows(below, contexts[:, 0], executed.gating, active & executed.success, active & ~executed.success)
    below.set_xlabel(context_names(task)[0])
    below.set_xlim(low, high)
    return figure


def draw_success_line(axes: Axes, contexts: Array, gating: Array, success: BoolArray) -> None:
    """Draws the success rate over contexts `(n,)`, each component weighted by its gating `(n, K)`."""
    total = gating.sum(axis=1)
    rate = np.where(total > 0, (gating * success).sum(axis=1) / np.where(total > 0, total, 1.0), np.nan)
    axes.plot(contexts, rate, color=HUES[0], lw=1.4)
    axes.fill_between(contexts, 0, rate, color=HUES[0], alpha=0.15, lw=0)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("success rate")
    axes.set_title(f"mean success {np.nanmean(rate):.1%}", fontsize=10)
    axes.grid(alpha=0.3)


def draw_component_rows(axes: Axes, contexts: Array, gating: Array, solved: BoolArray, failed: BoolArray) -> None:
    """Draws a row per component: its colour where it succeeds, more opaque if more probable; crosses where it fails."""
    half = 0.5 * (contexts[1] - contexts[0])
    for k in range(gating.shape[1]):
        strength = np.where(solved[:, k], 0.3 + 0.7 * gating[:, k], 0.0)
        row = np.concatenate([np.tile(component_color(k), (len(contexts), 1)), strength[:, None]], axis=1)
        extent = (float(contexts[0] - half), float(contexts[-1] + half), k - 0.4, k + 0.4)
        axes.imshow(row[None], extent=extent, aspect="auto", interpolation="nearest")
    places, rows = np.nonzero(failed)
    points = np.column_stack([contexts[places], rows])
    # the legend is above the axes, because the rows fill them
    draw_failures(axes, points, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    axes.set_ylim(-0.6, gating.shape[1] - 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(30, integer=True, min_n_ticks=1))
    axes.set_ylabel("component")


def draw_success_map(axes: Axes, image: Array, low: Array, high: Array, colors: str = "cividis") -> None:
    """Draws a map of success rates `(rows, columns)` over a box, dark where they are low."""
    extent = (float(low[0]), float(high[0]), float(low[1]), float(high[1]))
    picture = axes.imshow(image, origin="lower", extent=extent, vmin=0, vmax=1, cmap=colors, aspect="auto")
    axes.figure.colorbar(picture, ax=axes, label="success rate")
    axes.locator_params(axis="x", nbins=6)  # long labels do not touch
    axes.set_title(f"mean success {np.nanmean(image):.1%}", fontsize=10)
