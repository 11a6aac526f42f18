"""Figures of skills: paths, snapshots, reaches and postures."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from svsl.errors import SvslError
from svsl.evaluation.metrics import run_finite
from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.model.mixture import is_active
from svsl.model.random import PLOT_STREAM, stream
from svsl.show.playback import PlayableSkill, trimmed_motion, versatile_context
from svsl.show.plots.style import GOAL_COLOR, component_color, counted, line_style
from svsl.show.rendering import Renderer, draw_planar_scene, make_renderer
from svsl.simulation.reacher import LINKS, arm_points
from svsl.tasks.base import Task, uniform_contexts
from svsl.tasks.presentation import Motion, planar_scene, showable

_DRAWS = 100
MOMENTS_S = (-0.3, -0.12, 0.0, 0.3, 0.75)  # around the release or the hit


def _active_motions(library: SkillLibrary, task: Task, context: Array) -> dict[int, Motion]:
    """Returns the whole motion of each component that is active in a context."""
    active = map(int, np.flatnonzero(is_active(library.gating(context, outside="extrapolate"))))
    return {k: showable(task).motion(context, library.mean(context, k, outside="extrapolate")) for k in active}


def ball_figure(library: SkillLibrary, task: Task, seed: int = 0) -> Figure:
    """Draws the ball's height over time for the active components in each of four contexts (the paper's Figure 2g)."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    rng = stream(seed, PLOT_STREAM, 3)
    low, high = library.context_low, library.context_high
    contexts = low + (high - low) * (0.15 + 0.7 * rng.random((4, len(low))))
    for axes, context in zip(figure.subplots(2, 2).ravel(), contexts, strict=True):
        draw_ball_heights(axes, library, task, context)
    return figure


def draw_ball_heights(axes: Axes, library: SkillLibrary, task: Task, context: Array) -> None:
    """Draws the height of the ball over time, one curve per active component, in one context."""
    for k, motion in _active_motions(library, task, context).items():
        time = motion.dt_s * np.arange(len(motion.trail))
        free = slice(motion.trail_start, None)
        height, color = motion.trail[free, 2], component_color(k)
        axes.plot(time[free], height, color=color, ls=line_style(k), lw=1.4, label=f"component {k}")
    axes.set_xlabel("time [s]")
    axes.set_ylabel("height of the ball [m]")
    axes.set_title("context " + ", ".join(f"{value:.2f}" for value in context), fontsize=10)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)


def snapshots_figure(library: SkillLibrary, task: Task, seed: int = 0, rows: int = 3) -> Figure:
    """Draws moments of several skills for one context, one row per skill (the paper's Figure 4)."""
    context, skills = versatile_context(library, task, stream(seed, PLOT_STREAM, 5))
    skills = skills[:rows]
    figure = Figure(figsize=(13, 2.4 * len(skills) + 0.3), layout="constrained")
    renderer = make_renderer(task, 400, 300)
    try:
        for row, skill in zip(figure.subplots(len(skills), len(MOMENTS_S), squeeze=False), skills, strict=True):
            draw_snapshots(row, renderer, task, context, skill)
    finally:
        renderer.close()
    figure.suptitle("context " + ", ".join(f"{value:.2f}" for value in context), fontsize=10)
    return figure


def draw_snapshots(row: Sequence[Axes], renderer: Renderer, task: Task, context: Array, skill: PlayableSkill) -> None:
    """Draws one skill around the first moment of its motion (release, hit), with the trail in the component's colour.

    If the motion has no such moment, the snapshots are spread evenly over it.
    """
    motion = trimmed_motion(task, context, skill.parameters)
    moments_s = np.linspace(0, motion.duration_s, len(MOMENTS_S))
    if motion.moments:
        moments_s = motion.dt_s * next(iter(motion.moments.values())) + np.array(MOMENTS_S)
    for axes, moment_s in zip(row, moments_s, strict=True):
        step = motion.step_at(moment_s)
        axes.imshow(renderer.frame(motion, step, component_color(skill.component)))
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(f"{motion.dt_s * step:.2f} s", fontsize=8)
    row[0].set_title(skill.caption, fontsize=9, loc="left")


def reaches_figure(library: SkillLibrary, task: Task, seed: int = 0) -> Figure:
    """Draws the movements of the active components in each of four contexts."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    contexts = uniform_contexts(task, 4, stream(seed, PLOT_STREAM, 4))
    for axes, context in zip(figure.subplots(2, 2).ravel(), contexts, strict=True):
        draw_reaches(axes, library, task, context)
    figure.suptitle("Last postures of the active components (red: goal; dotted: path of the tip; dashed: fails)")
    return figure


def draw_reaches(axes: Axes, library: SkillLibrary, task: Task, context: Array) -> None:
    """Draws the path of the tip and the last posture of every active component, dashed if it fails."""
    motions = _active_motions(library, task, context)
    contexts = np.repeat(context[None], len(motions), axis=0)
    means = library.mixture.component_means(contexts, np.array([*motions]))
    success = run_finite(task, contexts, means, stream(0, PLOT_STREAM, 4)).success
    for (k, motion), good in zip(motions.items(), success, strict=True):
        axes.plot(*motion.trail[:, :2].T, ":", color=component_color(k), lw=1.0)
        points, style = arm_points(motion.poses[-1, 1 : 1 + LINKS]), "-o" if good else "--o"
        axes.plot(*points.T, style, color=component_color(k), ms=2.5, lw=1.6)
    axes.plot(*context, "o", color=GOAL_COLOR, ms=9, zorder=3)
    axes.plot(0, 0, "s", color="black", ms=7, zorder=4)
    axes.set_xlim(-0.55, 0.55)
    axes.set_ylim(-0.55, 0.55)
    axes.set_aspect("equal")
    axes.set_title(f"goal ({context[0]:.2f}, {context[1]:.2f}): {counted(len(motions), 'component')}", fontsize=10)


def postures_figure(library: SkillLibrary, task: Task, seed: int = 0) -> Figure:
    """Draws the postures of the components sampled in each of six contexts (the paper's Figure 1)."""
    figure = Figure(figsize=(12, 9.2), layout="constrained")
    scene, rng = planar_scene(task), stream(seed, PLOT_STREAM, 1)
    if scene is None:
        raise SvslError(f"postures need a planar scene, and a {type(task).__name__} has none")
    for axes, context in zip(figure.subplots(2, 3).T.ravel(), scene.goals, strict=True):
        draw_planar_scene(axes, scene)
        components = draw_postures(axes, library, task, context, rng)
        axes.set_title(f"goal ({context[0]:.1f}, {context[1]:.1f}): {counted(components, 'component')}", fontsize=10)
    figure.suptitle(
        f"Mean postures of the components among {_DRAWS} draws, by context "
        "(red: goal and obstacles; green: tips; dashed: fails)"
    )
    return figure


def draw_postures(axes: Axes, library: SkillLibrary, task: Task, context: Array, rng: np.random.Generator) -> int:
    """Draws the mean postures of the components sampled in one context, with goal and tips; returns their number.

    Postures that fail are dashed.
    """
    components = np.unique(library.mixture.sample_components(np.broadcast_to(context, (_DRAWS, 2)), rng))
    contexts = np.repeat(context[None], len(components), axis=0)
    means = library.mixture.component_means(contexts, components)
    success = run_finite(task, contexts, means, rng).success
    postures = [showable(task).motion(context, mean).poses[-1] for mean in means]
    for k, points, good in zip(components, postures, success, strict=True):
        axes.plot(*points.T, "-o" if good else "--o", color=component_color(k), ms=2.5, lw=1.6)
    axes.plot(*context, "o", color=GOAL_COLOR, ms=10, zorder=3)
    axes.plot(*np.array(postures)[:, -1].T, "o", color="#117733", ms=4, zorder=4)
    return len(components)
