"""What skills look like: postures, paths and snapshots, task by task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from svsl.evaluation.metrics import ACTIVE_PROBABILITY
from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.model.random import stream
from svsl.runs.config import PLOT_STREAM
from svsl.show.playback import PlayableSkill, motion, versatile_context
from svsl.show.plots.style import component_color, counted, draw_box
from svsl.show.rendering import SceneRenderer
from svsl.simulation.reacher import LINKS, arm_points
from svsl.tasks.base import uniform_contexts
from svsl.tasks.beer_pong import BeerPong
from svsl.tasks.planar_reacher import PlanarReacher
from svsl.tasks.reacher5 import Reacher5
from svsl.tasks.simulated import SimulatedTask
from svsl.tasks.table_tennis import TableTennis

_DRAWS = 100
BALL_TASKS = (BeerPong, TableTennis)
MOMENTS_S = (-0.3, -0.12, 0.0, 0.3, 0.75)  # around the release or the hit

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
    figure = Figure(figsize=(13, 2.4 * len(skills) + 0.3), layout="constrained")
    renderer = SceneRenderer(task, 400, 300)
    try:
        for row, skill in zip(figure.subplots(len(skills), len(MOMENTS_S), squeeze=False), skills, strict=True):
            draw_snapshots(row, renderer, context, skill)
    finally:
        renderer.close()
    figure.suptitle("context " + ", ".join(f"{value:.2f}" for value in context), fontsize=10)
    return figure


def draw_snapshots(row: Sequence[Axes], renderer: SceneRenderer, context: Array, skill: PlayableSkill) -> None:
    """One skill before, at and after the release or the hit, with the ball's trail in the component's colour.

    Without a release or a hit, the moments are spread evenly over the motion.
    """
    shown = motion(renderer.task, context, skill.parameters)
    assert shown.trajectory is not None
    moments_s = shown.dt_s * shown.turning_step + np.array(MOMENTS_S)
    if not shown.trail_start and not isinstance(renderer.task, BALL_TASKS):
        moments_s = np.linspace(0, shown.duration_s, len(MOMENTS_S))
    stride = max(1, round(0.02 / shown.dt_s))
    for axes, moment_s in zip(row, moments_s, strict=True):
        step = shown.step_at(moment_s)
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
    axes.set_title(f"goal ({context[0]:.2f}, {context[1]:.2f}): {counted(len(shown), 'component')}", fontsize=10)


# ---- planar reacher -------------------------------------------------------------------------------------------------


def postures_figure(library: SkillLibrary, task: PlanarReacher, seed: int = 0) -> Figure:
    """The paper's Figure 1: for six contexts, the postures of the components drawn there."""
    figure = Figure(figsize=(12, 9.2), layout="constrained")
    rng = stream(seed, PLOT_STREAM, 1)
    for axes, context in zip(figure.subplots(2, 3).T.ravel(), posture_contexts(task), strict=True):
        draw_reacher_scene(axes, task)
        shown = draw_postures(axes, library, task, context, rng)
        axes.set_title(f"goal ({context[0]:.1f}, {context[1]:.1f}): {counted(shown, 'component')}", fontsize=10)
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
    draw_box(axes, task.context_low, task.context_high, edgecolor="0.6", ls=":", lw=1)
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
