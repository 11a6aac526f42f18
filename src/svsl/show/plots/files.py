"""All figures of a run or a library, as files."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from svsl.errors import SvslError
from svsl.evaluation.metrics import Report, no_report
from svsl.model.library import SkillLibrary
from svsl.model.random import PLOT_STREAM, stream
from svsl.runs.folder import Run
from svsl.runs.sources import Source, seed_of, task_of
from svsl.show.plots import contexts, skills
from svsl.show.plots.learning import learning_figure
from svsl.show.plots.style import save_figure
from svsl.show.rendering import draw_planar_scene
from svsl.tasks.base import Task, place_of
from svsl.tasks.presentation import planar_scene

# figures of a library by name, each called with the library, its task and a seed
FIGURES: dict[str, Callable[[SkillLibrary, Task, int], Figure]] = {
    "contexts": contexts.contexts_figure,
    "success": contexts.success_figure,
    "postures": skills.postures_figure,
    "reaches": skills.reaches_figure,
    "ball": skills.ball_figure,
    "snapshots": skills.snapshots_figure,
}
_EVERY_TASK = ("contexts", "success")  # besides those that the task names


def plot_run(run: Run, folder: Path | None = None, task: Task | None = None, report: Report = no_report) -> list[Path]:
    """Draws all figures of a run, by default into its own folder, and returns their paths.

    The task is created unless it is given.
    """
    metrics, folder = run.read_metrics(), folder or run.figures
    paths = _save({"learning": partial(learning_figure, metrics, run.config.step_based)}, folder) if metrics else []
    if not run.config.step_based:
        try:
            source = Source.of(run)
            paths += plot_library(source.library, folder, task or source.make_task(), report)
        except SvslError as error:
            if not paths:
                raise
            print(f"no figures of the library: {error}", file=sys.stderr)
    if not paths:
        raise SvslError(f"{run.folder} has nothing to draw yet; svsl resume {run.folder} continues it")
    return paths


def plot_library(
    library: SkillLibrary, folder: Path, task: Task | None = None, report: Report = no_report
) -> list[Path]:
    """Draws the figures that every task gets and those its task names; the task is created unless it is given."""
    task, seed = task_of(library) if task is None else task, seed_of(library)
    names = [*_EVERY_TASK, *getattr(task, "figures", ())]
    return _save({name: partial(_figure, name, library, task, seed) for name in names}, folder, report)


def _figure(name: str, library: SkillLibrary, task: Task, seed: int) -> Figure:
    if name not in FIGURES:
        raise SvslError(f"the task names an unknown figure; known figures: {', '.join(FIGURES)}")
    return FIGURES[name](library, task, seed)


def _save(figures: Mapping[str, Callable[[], Figure]], folder: Path, report: Report = no_report) -> list[Path]:
    """Draws and saves figures; one that cannot be drawn is reported and the others are still drawn."""
    paths = []
    for number, (name, draw) in enumerate(figures.items()):
        report(number / len(figures), f"{name}.png")
        try:
            paths.append(save_figure(draw(), folder / f"{name}.png"))
        except OSError:
            raise
        except Exception as error:  # no OpenGL here, a task that raises, numbers that matplotlib does not take
            reason = str(error) if isinstance(error, SvslError) else place_of(error)
            print(f"no {name}.png: {reason}", file=sys.stderr)
    return paths


def plot_side_by_side(columns: Sequence[tuple[str, SkillLibrary, Task]], path: Path) -> Path:
    """Draws libraries with their names and tasks into one file: contexts, and postures above if all tasks have them."""
    scenes = [planar_scene(task) for _, _, task in columns]
    rows = 2 if all(scenes) else 1
    figure = Figure(figsize=(4.6 * len(columns), 5.0 * rows), layout="constrained")
    grid = figure.subplots(rows, len(columns), squeeze=False)
    for (top, bottom), scene, (name, library, task) in zip(grid.T[:, [0, -1]], scenes, columns, strict=True):
        contexts.draw_contexts(bottom, library, task, seed_of(library))
        if rows == 2 and scene is not None:
            rng = stream(seed_of(library), PLOT_STREAM, 1)
            top.set_title(name, fontsize=11)
            draw_planar_scene(top, scene)
            for context in scene.goals:
                skills.draw_postures(top, library, task, context, rng)
        else:
            bottom.set_title(f"{name}\n{bottom.get_title()}", fontsize=10)
    return save_figure(figure, path)
