"""Figures. Every `draw_` function draws into given axes; the `plot_` functions make files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from svsl.errors import SvslError
from svsl.model.library import SkillLibrary
from svsl.model.random import stream
from svsl.runs.config import PLOT_STREAM
from svsl.runs.folder import Run
from svsl.runs.sources import seed_of, task_of
from svsl.show.plots.contexts import contexts_figure, draw_contexts, success_figure
from svsl.show.plots.learning import learning_figure
from svsl.show.plots.skills import (
    BALL_TASKS,
    ball_figure,
    draw_postures,
    draw_reacher_scene,
    posture_contexts,
    postures_figure,
    reaches_figure,
    snapshots_figure,
)
from svsl.show.plots.style import save_figure
from svsl.tasks.base import Task, place_of
from svsl.tasks.planar_reacher import PlanarReacher
from svsl.tasks.reacher5 import Reacher5
from svsl.tasks.simulated import SimulatedTask


def plot_run(run: Run, folder: Path | None = None, task: Task | None = None) -> list[Path]:
    """Draws every figure that fits the run's task, into its own folder unless told, and returns their paths.

    Raises:
        SvslError: If there is nothing to draw.
    """
    metrics, folder = run.read_metrics(), folder or run.figures
    drawn = _save({"learning": partial(learning_figure, metrics, run.config.step_based)}, folder) if metrics else []
    if not run.config.step_based:
        try:
            drawn += plot_library(run.load_library(), folder, task)
        except SvslError as error:
            if not drawn:
                raise
            print(f"no figures of the library: {error}", file=sys.stderr)
    if not drawn:
        raise SvslError(f"{run.folder} has nothing to draw yet; svsl resume {run.folder} continues it")
    return drawn


def plot_library(library: SkillLibrary, folder: Path, task: Task | None = None) -> list[Path]:
    """Draws every figure that fits a library's task and returns their paths.

    Raises:
        SvslError: If the library does not say which task that is.
    """
    task, seed = task_of(library) if task is None else task, seed_of(library)
    figures: dict[str, Callable[..., Figure]] = {"contexts": contexts_figure, "success": success_figure}
    if isinstance(task, PlanarReacher):
        figures["postures"] = postures_figure
    elif isinstance(task, Reacher5):
        figures["reaches"] = reaches_figure
    elif isinstance(task, SimulatedTask):
        figures |= {"ball": ball_figure} if isinstance(task, BALL_TASKS) else {}
        figures["snapshots"] = snapshots_figure
    return _save({name: partial(make, library, task, seed) for name, make in figures.items()}, folder)


def _save(figures: Mapping[str, Callable[[], Figure]], folder: Path) -> list[Path]:
    """Draws and saves one figure after the other; one that cannot be drawn is told of and costs no other."""
    paths = []
    for name, make in figures.items():
        try:
            paths.append(save_figure(make(), folder / f"{name}.png"))
        except OSError:
            raise
        except Exception as error:  # no OpenGL here, a task that raises, numbers that matplotlib does not take
            told = str(error) if isinstance(error, SvslError) else place_of(error)
            print(f"no {name}.png: {told}", file=sys.stderr)
    return paths


def plot_side_by_side(libraries: Sequence[tuple[str, SkillLibrary]], path: Path) -> Path:
    """Draws named libraries into one file: context distributions, and postures above if all tasks have them."""
    drawn = [(name, library, task_of(library)) for name, library in libraries]
    rows = 2 if all(isinstance(task, PlanarReacher) for _, _, task in drawn) else 1
    figure = Figure(figsize=(4.6 * len(drawn), 5.0 * rows), layout="constrained")
    grid = figure.subplots(rows, len(drawn), squeeze=False)
    for (top, bottom), (name, library, task) in zip(grid.T[:, [0, -1]], drawn, strict=True):
        draw_contexts(bottom, library, task, seed_of(library))
        if rows == 2 and isinstance(task, PlanarReacher):
            rng = stream(seed_of(library), PLOT_STREAM, 1)
            top.set_title(name, fontsize=11)
            draw_reacher_scene(top, task)
            for context in posture_contexts(task):
                draw_postures(top, library, task, context, rng)
        else:
            bottom.set_title(f"{name}\n{bottom.get_title()}", fontsize=10)
    return save_figure(figure, path)
