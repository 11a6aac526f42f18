"""Figures. Every `draw_` function draws into given axes; `plot_run` makes the files of a run folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from svsl.errors import SvslError
from svsl.plots.contexts import contexts_figure, draw_contexts, success_figure
from svsl.plots.learning import learning_figure
from svsl.plots.skills import (
    ball_figure,
    draw_postures,
    draw_reacher_scene,
    posture_contexts,
    postures_figure,
    reaches_figure,
    snapshots_figure,
)
from svsl.plots.style import save_figure
from svsl.random import stream
from svsl.runs import PLOT_STREAM, Run
from svsl.tasks.planar_reacher import PlanarReacher
from svsl.tasks.reacher5 import Reacher5
from svsl.tasks.simulated import SimulatedTask


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
