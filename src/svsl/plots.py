"""Figures. Every function draws into given axes; `plot_run` makes the files of a run folder."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, Rectangle
from numpy.typing import NDArray

from svsl.comparison import Group, learning_curve
from svsl.errors import SvslError
from svsl.evaluation import ACTIVE_PROBABILITY, success_map, uniform_contexts
from svsl.files import write_bytes
from svsl.gaussians import Array
from svsl.library import SkillLibrary
from svsl.playback import PlayableSkill, motion, versatile_context
from svsl.random import stream
from svsl.runs import PLOT_STREAM, MetricsRow, Run
from svsl.simulation.reacher import LINKS, arm_points
from svsl.simulation.rendering import SceneRenderer
from svsl.tasks import Task
from svsl.tasks.planar_reacher import PlanarReacher
from svsl.tasks.reacher5 import Reacher5
from svsl.tasks.simulated import SimulatedTask

# Paul Tol's "muted" scheme: distinct for every kind of colour vision
_HUES = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499")
_SHADES = (0.0, 0.35, -0.3)
_DRAWS = 100
_FAILURE_CONTEXTS = 2000
_MOMENTS_S = (-0.3, -0.12, 0.0, 0.3, 0.75)  # around the release or the hit


def component_color(component: int) -> tuple[float, float, float]:
    """The colour of a component in every figure: nine hues in three shades, then from the start."""
    red, green, blue = to_rgb(_HUES[component % len(_HUES)])
    shade = _SHADES[component // len(_HUES) % len(_SHADES)]
    towards, share = (1.0, shade) if shade > 0 else (0.0, -shade)
    return tuple(share * towards + (1 - share) * value for value in (red, green, blue))  # type: ignore[return-value]


def plot_run(run: Run) -> list[Path]:
    """Draws every figure that fits the run's task and returns their paths."""
    metrics = run.read_metrics()
    figures = {"learning": learning_figure(metrics, run.config.step_based)} if metrics else {}
    if not run.config.step_based:
        figures |= library_figures(run)
    if not figures:
        raise SvslError(f"{run.folder} has nothing to draw yet; svsl resume {run.folder} continues it")
    return [save_figure(figure, run.figures / f"{name}.png") for name, figure in figures.items()]


def library_figures(run: Run) -> dict[str, Figure]:
    """The figures of a run's library, by name."""
    library, task = run.load_library(), run.config.make_task()
    figures = {"contexts": contexts_figure(library, task, run.config.seed)}
    if library.context_dim > 1:
        figures["success"] = success_figure(library, task, run.config.seed)
    if isinstance(task, Reacher5):
        figures["reaches"] = reaches_figure(library, task, run.config.seed)
    elif isinstance(task, SimulatedTask):
        figures["ball"] = ball_figure(library, task, run.config.seed)
    if isinstance(task, PlanarReacher):
        figures["postures"] = postures_figure(library, task, run.config.seed)
    if isinstance(task, SimulatedTask) and not isinstance(task, Reacher5):
        try:
            figures["snapshots"] = snapshots_figure(library, task, run.config.seed)
        except SvslError as error:  # no OpenGL here: the other figures do without
            print(f"no snapshots: {error}", file=sys.stderr)
    return figures


def plot_comparison(runs: Sequence[Run], path: Path) -> Path:
    """Draws runs side by side into one file: context distributions, and postures where the task has them."""
    drawn = [(run, run.load_library(), run.config.make_task()) for run in runs]
    rows = 2 if all(isinstance(task, PlanarReacher) for _, _, task in drawn) else 1
    figure = Figure(figsize=(4.6 * len(runs), 5.0 * rows), layout="constrained")
    grid = figure.subplots(rows, len(runs), squeeze=False)
    for column, (run, library, task) in enumerate(drawn):
        draw_contexts(grid[-1, column], library, task, run.config.seed)
        grid[0, column].set_title(run.folder.name, fontsize=11)
        if isinstance(task, PlanarReacher):
            rng = stream(run.config.seed, PLOT_STREAM, 1)
            draw_reacher_scene(grid[0, column], task)
            for context in posture_contexts(task):
                draw_postures(grid[0, column], library, task, context, rng)
    return save_figure(figure, path)


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


# ---- context distributions ------------------------------------------------------------------------------------------


def contexts_figure(library: SkillLibrary, task: Task, seed: int = 0) -> Figure:
    """The context distributions over the box, one panel for each two context dimensions."""
    first_dims = range(0, library.context_dim, 2)
    figure = Figure(figsize=(6 * len(first_dims), 5.6), layout="constrained")
    for axes, dim in zip(figure.subplots(1, len(first_dims), squeeze=False)[0], first_dims, strict=True):
        draw_contexts(axes, library, task, seed, dim)
    return figure


def draw_contexts(axes: Axes, library: SkillLibrary, task: Task, seed: int = 0, dim: int = 0) -> None:
    """Context distributions in the dimensions `dim` and `dim + 1`, and where the most probable component fails."""
    if dim + 1 == library.context_dim:
        draw_context_densities(axes, library, dim)
        return
    rng = stream(seed, PLOT_STREAM, 0)
    contexts = uniform_contexts(task, _FAILURE_CONTEXTS, rng)
    best = library.mixture.component_means(contexts, library.gating(contexts).argmax(axis=1))
    success = np.asarray(task.evaluate(contexts, best, rng).success)
    draw_context_ellipses(axes, library, (dim, dim + 1))
    draw_failures(axes, contexts[~success][:, dim : dim + 2])
    axes.set_title(f"{len(library)} components; the most probable solves {success.mean():.1%}", fontsize=10)


def draw_context_ellipses(axes: Axes, library: SkillLibrary, dims: tuple[int, int] = (0, 1)) -> None:
    """Ellipses of one standard deviation of each `pi(c|o)` in two dimensions, heavier components stronger."""
    low, high = library.context_low[list(dims)], library.context_high[list(dims)]
    contexts = library.mixture.contexts
    cov = contexts.cov[:, list(dims)][:, :, list(dims)]
    variance, axis = np.linalg.eigh(cov)
    weights = np.exp(library.mixture.log_weights)
    for k in range(len(library)):
        angle = np.degrees(np.arctan2(axis[k, 1, 1], axis[k, 0, 1]))
        mean = float(contexts.bias[k, dims[0]]), float(contexts.bias[k, dims[1]])
        size = 2 * np.sqrt(variance[k])
        strength = 0.45 + 0.55 * weights[k] / weights.max()
        color = component_color(k)
        axes.add_patch(Ellipse(mean, size[1], size[0], angle=angle, facecolor=(*color, 0.25 * strength), lw=0))
        axes.add_patch(Ellipse(mean, size[1], size[0], angle=angle, fill=False, edgecolor=(*color, strength), lw=1.4))
        axes.plot(*mean, ".", color=color, alpha=strength, ms=4)
    _draw_box(axes, low, high, edgecolor="black", lw=1.5)
    margin = 0.12 * (high - low)
    axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
    axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
    axes.set_xlabel(f"context {dims[0]}")
    axes.set_ylabel(f"context {dims[1]}")


def draw_failures(axes: Axes, contexts: Array) -> None:
    """Marks contexts `(n, 2)` where the most probable component fails."""
    if len(contexts):
        axes.plot(*contexts.T, "x", color="#BB5566", ms=3.5, mew=0.8, label="fails here")
        axes.legend(loc="upper right", fontsize=8)


def draw_context_densities(axes: Axes, library: SkillLibrary, dim: int) -> None:
    """Curves of `pi(o) pi(c|o)` over one context dimension."""
    low, high = library.context_low[dim], library.context_high[dim]
    grid = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), 400)
    contexts = library.mixture.contexts
    for k, weight in enumerate(np.exp(library.mixture.log_weights)):
        mean, std = contexts.bias[k, dim], np.sqrt(contexts.cov[k, dim, dim])
        density = weight * np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
        axes.plot(grid, density, color=component_color(k))
    axes.axvspan(low, high, color="black", alpha=0.06, lw=0)
    axes.set_xlabel(f"context {dim}")
    axes.set_ylabel("weighted density")


def _draw_box(axes: Axes, low: Array, high: Array, **style: Any) -> None:
    axes.add_patch(Rectangle((float(low[0]), float(low[1])), *(high - low), fill=False, **style))


# ---- success --------------------------------------------------------------------------------------------------------


def success_figure(library: SkillLibrary, task: Task, seed: int = 0, cells: int = 20) -> Figure:
    """Success of the library over the context box, one panel for each two context dimensions."""
    first_dims = range(0, library.context_dim - 1, 2)
    figure = Figure(figsize=(6 * len(first_dims), 5.2), layout="constrained")
    rng = stream(seed, PLOT_STREAM, 2)
    for axes, dim in zip(figure.subplots(1, len(first_dims), squeeze=False)[0], first_dims, strict=True):
        dims = (dim, dim + 1)
        image = success_map(library, task, dims, cells, rng, repeats=1 if library.context_dim == 2 else 3)
        draw_success_map(axes, image, library.context_low[list(dims)], library.context_high[list(dims)])
        axes.set_xlabel(f"context {dims[0]}")
        axes.set_ylabel(f"context {dims[1]}")
    return figure


def draw_success_map(axes: Axes, image: Array, low: Array, high: Array, colors: str = "cividis") -> None:
    """A map of success rates `(rows, columns)` over a box, dark where it fails."""
    extent = (float(low[0]), float(high[0]), float(low[1]), float(high[1]))
    picture = axes.imshow(image, origin="lower", extent=extent, vmin=0, vmax=1, cmap=colors, aspect="auto")
    axes.figure.colorbar(picture, ax=axes, label="success rate")
    axes.set_title(f"mean success {np.nanmean(image):.1%}", fontsize=10)


# ---- simulated balls ------------------------------------------------------------------------------------------------


def ball_figure(library: SkillLibrary, task: SimulatedTask, seed: int = 0) -> Figure:
    """Height of the ball over time for the components at home in each of four contexts (the paper's Figure 2g)."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    rng = stream(seed, PLOT_STREAM, 3)
    low, high = library.context_low, library.context_high
    contexts = low + (high - low) * (0.15 + 0.7 * rng.random((4, len(low))))
    for axes, context in zip(figure.subplots(2, 2).ravel(), contexts, strict=True):
        draw_ball_heights(axes, library, task, context)
    return figure


def draw_ball_heights(axes: Axes, library: SkillLibrary, task: SimulatedTask, context: Array) -> None:
    """Height of the ball over time for every component with a gating probability of at least 0.01 in one context."""
    for k in map(int, np.flatnonzero(library.gating(context) >= ACTIVE_PROBABILITY)):
        path = task.trajectory(context, library.mean(context, k))
        time = path.dt_s * np.arange(len(path.ball))
        free = slice(max(path.release - 1, 0), None)
        axes.plot(time[free], path.ball[free, 2], color=component_color(k), lw=1.4, label=f"component {k}")
    axes.set_xlabel("time [s]")
    axes.set_ylabel("height of the ball [m]")
    axes.set_title("context " + ", ".join(f"{value:.2f}" for value in context), fontsize=10)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)


def snapshots_figure(library: SkillLibrary, task: SimulatedTask, seed: int = 0, rows: int = 3) -> Figure:
    """Moments of several skills for one context, a row each (the paper's Figure 4)."""
    context, skills = versatile_context(library, task, stream(seed, PLOT_STREAM, 5))
    skills = skills[:rows]
    figure = Figure(figsize=(13, 2.1 * len(skills) + 0.3), layout="constrained")
    renderer = SceneRenderer(task, 400, 300)
    try:
        for row, skill in zip(figure.subplots(len(skills), len(_MOMENTS_S), squeeze=False), skills, strict=True):
            draw_snapshots(row, renderer, context, skill)
    finally:
        renderer.close()
    figure.suptitle("context " + ", ".join(f"{value:.2f}" for value in context), fontsize=10)
    return figure


def draw_snapshots(row: Sequence[Axes], renderer: SceneRenderer, context: Array, skill: PlayableSkill) -> None:
    """One skill before, at and after the release or the hit, with the ball's trail in the component's colour."""
    shown = motion(renderer.task, context, skill.parameters)
    assert shown.trajectory is not None
    turn_s = shown.dt_s * shown.turning_step
    stride = max(1, round(0.02 / shown.dt_s))
    for axes, moment_s in zip(row, _MOMENTS_S, strict=True):
        step = shown.step_at(turn_s + moment_s)
        trail = shown.trail[shown.trail_start : step + 1][::-stride]
        axes.imshow(renderer.frame(shown.trajectory, step, [(trail, component_color(skill.component))]))
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(f"{shown.dt_s * step:.2f} s", fontsize=8)
    row[0].set_title(skill.caption, fontsize=9, loc="left")


# ---- 5-link reacher --------------------------------------------------------------------------------------------------


def reaches_figure(library: SkillLibrary, task: Reacher5, seed: int = 0) -> Figure:
    """The movements of the components at home in each of four contexts."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    contexts = uniform_contexts(task, 4, stream(seed, PLOT_STREAM, 4))
    for axes, context in zip(figure.subplots(2, 2).ravel(), contexts, strict=True):
        draw_reaches(axes, library, task, context)
    return figure


def draw_reaches(axes: Axes, library: SkillLibrary, task: Reacher5, context: Array) -> None:
    """Path of the tip and last posture of every component with a gating probability of at least 0.01."""
    shown = list(map(int, np.flatnonzero(library.gating(context) >= ACTIVE_PROBABILITY)))
    for k in shown:
        path = task.trajectory(context, library.mean(context, k))
        axes.plot(*path.ball[:, :2].T, ":", color=component_color(k), lw=1.0)
        axes.plot(*arm_points(path.states[-1, 1 : 1 + LINKS]).T, "-o", color=component_color(k), ms=2.5, lw=1.6)
    axes.plot(*context, "o", color="#EE0000", ms=9, zorder=3)
    axes.plot(0, 0, "s", color="black", ms=7, zorder=4)
    axes.set_xlim(-0.55, 0.55)
    axes.set_ylim(-0.55, 0.55)
    axes.set_aspect("equal")
    axes.set_title(f"goal ({context[0]:.2f}, {context[1]:.2f}): {len(shown)} components", fontsize=10)


# ---- learning curves ------------------------------------------------------------------------------------------------


def learning_figure(metrics: Sequence[MetricsRow], step_based: bool = False) -> Figure:
    """Return and success over episodes."""
    means, drawn = ("mean actions", "drawn actions") if step_based else ("component means", "sampled parameters")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    episodes = np.array([row["episodes"] for row in metrics]) / 1e6
    draw_curve(left, episodes, metrics, "return_mean", means, _HUES[0])
    draw_curve(left, episodes, metrics, "return_sampled", drawn, _HUES[6])
    # the first components know little of the box: their returns would flatten everything that follows
    values = np.array([[row["return_mean"], row["return_sampled"]] for row in metrics], dtype=np.float64)
    floor, top = np.nanquantile(values, 0.2), np.nanmax(values)
    left.set_ylim(floor - 0.1 * (top - floor) - 1e-9, top + 0.15 * (top - floor) + 1e-9)
    left.set_ylabel("return on fresh contexts")
    left.legend(loc="lower right")
    draw_curve(right, episodes, metrics, "success_rate", means, _HUES[0])
    right.set_ylim(0, 1.02)
    right.set_ylabel("success rate")
    return figure


def draw_curve(axes: Axes, episodes: Array, metrics: Sequence[MetricsRow], name: str, label: str, color: str) -> None:
    """One column of the metrics over episodes (in millions)."""
    axes.plot(episodes, [row[name] for row in metrics], "-", marker=".", ms=4, lw=1.2, color=color, label=label)
    axes.set_xlabel("episodes [million]")
    axes.grid(alpha=0.3)


def plot_learning(
    groups: Sequence[Group], path: Path, metrics: Sequence[str] = ("return_mean", "success_rate")
) -> Path:
    """Draws the curves of groups of seeds: a column a metric, the paper's statistic above and the field's below."""
    figure = Figure(figsize=(5.2 * len(metrics), 7.4), layout="constrained")
    for column, metric in enumerate(metrics):
        for row, robust in enumerate((False, True)):
            axes = figure.add_subplot(2, len(metrics), row * len(metrics) + column + 1)
            draw_learning(axes, groups, metric, robust)
    return save_figure(figure, path)


def draw_learning(axes: Axes, groups: Sequence[Group], metric: str, robust: bool) -> None:
    """One curve a group: mean and two standard errors, or (robust) interquartile mean and its bootstrap interval."""
    tops, floors = [], []
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
        tops.append(np.nanmax(middle))
        floors.append(min(np.nanquantile(middle, 0.15), middle[np.isfinite(middle)][-1]))
    if tops:  # the first components know little of the box: their returns would flatten everything that follows
        span = max(tops) - min(floors)
        axes.set_ylim(min(floors) - 0.1 * span - 1e-9, max(tops) + 0.15 * span + 1e-9)
        axes.legend(fontsize=8, title="seeds in brackets", title_fontsize=7)
    axes.set_title("interquartile mean, 95 % bootstrap" if robust else "mean, two standard errors", fontsize=10)
    axes.set_xlabel("episodes [million]")
    axes.set_ylabel(metric.replace("_", " "))
    axes.grid(alpha=0.3)


# ---- planar reacher -------------------------------------------------------------------------------------------------


def postures_figure(library: SkillLibrary, task: PlanarReacher, seed: int = 0) -> Figure:
    """The paper's Figure 1: for six contexts, the postures of the components drawn there."""
    figure = Figure(figsize=(12, 9.2), layout="constrained")
    rng = stream(seed, PLOT_STREAM, 1)
    for axes, context in zip(figure.subplots(2, 3).T.ravel(), posture_contexts(task), strict=True):
        draw_reacher_scene(axes, task)
        shown = draw_postures(axes, library, task, context, rng)
        axes.set_title(f"goal ({context[0]:.1f}, {context[1]:.1f}): {shown} components", fontsize=10)
    figure.suptitle(f"Mean postures of the components among {_DRAWS} draws, by context (red: goal and obstacles)")
    return figure


def posture_contexts(task: PlanarReacher) -> Array:
    """Six goals spread over the box: `(6, 2)`."""
    across, along = np.meshgrid([0.3, 0.8], [0.9, 0.5, 0.1])
    return task.context_low + (task.context_high - task.context_low) * np.stack([across.ravel(), along.ravel()], axis=1)


def draw_reacher_scene(axes: Axes, task: PlanarReacher) -> None:
    """The obstacles, the base and the context box."""
    for x_from, x_to, y_from, y_to in task.obstacles:
        axes.add_patch(Rectangle((x_from, y_from), x_to - x_from, y_to - y_from, color="#BB5566", lw=0))
    _draw_box(axes, task.context_low, task.context_high, edgecolor="0.6", ls=":", lw=1)
    axes.plot(0, 0, "s", color="black", ms=7, zorder=4)
    axes.set_xlim(-2.5, 8.5)
    axes.set_ylim(-7.2, 7.2)
    axes.set_aspect("equal")


def draw_postures(
    axes: Axes, library: SkillLibrary, task: PlanarReacher, context: Array, rng: np.random.Generator
) -> int:
    """Mean postures of the components drawn for one context, with the goal and the tips; returns how many."""
    contexts = np.broadcast_to(context, (_DRAWS, 2))
    components = np.unique(library.mixture.sample_components(contexts, rng))
    joints = task.joints(library.mean(contexts[: len(components)], components))
    for k, points in zip(components, joints, strict=True):
        axes.plot(*points.T, "-o", color=component_color(k), ms=2.5, lw=1.6, solid_capstyle="round")
    axes.plot(*context, "o", color="#EE0000", ms=10, zorder=3)
    axes.plot(*joints[:, -1].T, "o", color="#117733", ms=4, zorder=4)
    return len(components)
