"""The report of a reproduction: figures, tables and a self-contained page."""

import base64
import html
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from svsl.experiments.behaviour import DRAWS, all_numbers, stored_behaviour
from svsl.experiments.reproduction import Reproduction
from svsl.model.files import write_bytes
from svsl.model.library import SkillLibrary
from svsl.model.version import __version__
from svsl.runs.comparison import (
    Group,
    Table,
    describe_seeds,
    format_summary,
    run_numbers,
    summary_table,
    to_csv,
    to_markdown,
)
from svsl.show.plots.contexts import draw_contexts, draw_success_map
from svsl.show.plots.files import plot_side_by_side
from svsl.show.plots.front import FrontPoint, plot_front
from svsl.show.plots.learning import draw_learning, draw_legend, plot_learning
from svsl.show.plots.skills import draw_ball_heights
from svsl.show.plots.style import save_figure
from svsl.tasks.base import context_maps

_MODES_TITLE = f"<h2>Kinds of success in chosen contexts ({DRAWS} draws per context, first seeds)</h2>"
_PACKAGES = ("numpy", "scipy", "mujoco", "matplotlib", "safetensors")
Figures = list[tuple[Path, str]]  # a file and its caption


def write_report(reproduction: Reproduction, command: str) -> list[tuple[str, Path]]:
    """Writes `figures/`, `table.md`, `table.csv` and `report.html` into the folder; returns their kinds and paths."""
    groups, experiment, folder = reproduction.groups, reproduction.experiment, reproduction.folder
    table = summary_table(groups, experiment.metrics, reproduction.contexts, numbers_of=all_numbers) if groups else {}
    figures: Figures = []
    for name in [name for name in experiment.figures if groups and name != "modes"]:
        draw, caption = FIGURES[name]
        path = folder / "figures" / f"{name}.png"
        draw(reproduction, path)
        figures.append((path, caption))
    files = {
        "table.md": to_markdown(groups, table, experiment.metrics),
        "table.csv": to_csv(table),
        "report.html": _page(reproduction, groups, table, figures, command),
    }
    for name, text in files.items():
        write_bytes(folder / name, text.encode())
    return [*(("figure", path) for path, _ in figures), *((Path(name).stem, folder / name) for name in files)]


# ---- figures --------------------------------------------------------------------------------------------------------


def _learning(reproduction: Reproduction, path: Path) -> None:
    plot_learning(reproduction.groups, path, panels=reproduction.experiment.panels)


def _entropy(reproduction: Reproduction, path: Path) -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    draw_learning(figure.subplots(), reproduction.groups, "mixture_entropy", robust=False)
    draw_legend(figure)
    save_figure(figure, path)


def _postures(reproduction: Reproduction, path: Path) -> None:
    runs = [group.runs[0] for group in reproduction.groups]
    plot_side_by_side([(run.folder.name, run.load_library(), run.make_task()) for run in runs], path)


def _contexts(reproduction: Reproduction, path: Path) -> None:
    """Draws context distributions, one column per method and one row per two dimensions: the paper's Figure 2c, d."""
    groups = reproduction.groups
    maps = context_maps(_first(groups[0])[1])
    figure = Figure(figsize=(5.0 * len(groups), 4.7 * len(maps)), layout="constrained")
    for column, group in enumerate(groups):
        library, task = _first(group)
        for row, dims in enumerate(maps):
            axes = figure.add_subplot(len(maps), len(groups), row * len(groups) + column + 1)
            draw_contexts(axes, library, task, dims=dims)
            axes.set_title(f"{group.label}: {axes.get_title()}", fontsize=10)
    save_figure(figure, path)


def _success(reproduction: Reproduction, path: Path) -> None:
    """Draws success over the context box, averaged over seeds: the paper's Figure 2e, f."""
    groups = reproduction.groups
    figure = Figure(figsize=(4.8 * len(groups), 4.0), layout="constrained")
    for axes, group in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        seen = [behaviour for behaviour in map(stored_behaviour, group.runs) if behaviour is not None]
        maps = [behaviour.map for behaviour in seen if behaviour.map is not None]
        if maps:
            names, low, high = zip(*seen[0].axes, strict=True)
            draw_success_map(axes, np.mean(maps, axis=0), np.array(low), np.array(high))
            axes.set(xlabel=names[0], ylabel=names[1])
        axes.set_title(f"{group.label}: {axes.get_title()}", fontsize=10)
    save_figure(figure, path)


def _balls(reproduction: Reproduction, path: Path) -> None:
    """Draws the heights of the ball in the context with the most modes: the paper's Figure 2g."""
    groups = reproduction.groups
    figure = Figure(figsize=(5.4 * len(groups), 4.0), layout="constrained")
    for axes, group in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        behaviour = stored_behaviour(group.runs[0])
        assert behaviour is not None
        most = int(np.argmax([len(modes) for modes in behaviour.modes]))
        draw_ball_heights(axes, *_first(group), np.array(behaviour.contexts[most]))
        axes.set_title(f"{group.label}, {axes.get_title()}", fontsize=10)
    save_figure(figure, path)


def _front(reproduction: Reproduction, path: Path) -> None:
    """Draws success against the measures of versatility, over the sweeps of the experiment."""
    points, arms = [], {arm.label: arm for arm in reproduction.experiment.arms}
    for group in reproduction.groups:
        arm, runs = arms[group.label], [run_numbers(run, reproduction.contexts) for run in group.runs]
        names = ("success_rate", "ways", "vendi_score")
        numbers = {name: np.array([run.get(name) for run in runs], dtype=np.float64) for name in names}
        value = group.label.rpartition("-")[2] if arm.series else ""
        points.append(FrontPoint(arm.series or group.label, value, numbers))
    versatility = (("ways", "ways to succeed per context"), ("vendi_score", "Vendi score of successful paths"))
    plot_front(points, versatility, ("success_rate", "success rate"), path)


FIGURES: dict[str, tuple[Callable[[Reproduction, Path], None], str]] = {  # by name: how to draw it, and its caption
    "learning": (_learning, "Return and success of component means on fresh contexts; dashed: drawn parameters."),
    "entropy": (_entropy, "Expected entropy of the mixture in nats over episodes (a new component raises it)."),
    "front": (_front, "Success against ways and Vendi score. Small dots: runs; large ones: their means over seeds."),
    "postures": (
        _postures,
        "First seed of each method. Above: mean postures of the components among 100 draws for six goals; below: their "
        "context distributions, with crosses where the most probable component fails.",
    ),
    "contexts": (_contexts, "Context distributions of the first seeds; crosses: the most probable component fails."),
    "success": (_success, "Success over the context box, executing component means by the gating; mean over seeds."),
    "balls": (_balls, "Height of the ball, one curve per component, in the context with the most modes; first seeds."),
}


def modes_table(groups: Sequence[Group]) -> list[list[str]]:
    """Returns the kinds of success in the chosen contexts: the paper's qualitative comparison with LaDiPS."""
    seen = {group.label: stored_behaviour(group.runs[0]) for group in groups}
    known = {label: behaviour for label, behaviour in seen.items() if behaviour is not None}
    rows = [["context", *known]]
    for index, context in enumerate(next(iter(known.values())).contexts if known else []):
        counts = [sorted(own.modes[index].items(), key=lambda pair: -pair[1]) for own in known.values()]
        cells = [", ".join(f"{mode} {count}" for mode, count in own) for own in counts]
        rows.append([" ".join(f"{value:.2f}" for value in context), *(cell or "no success" for cell in cells)])
    return rows


def _first(group: Group) -> tuple[SkillLibrary, Any]:
    """Returns the library and the task of the first seed; `Any`, because some figures need more than `Task` has."""
    return group.runs[0].load_library(), group.runs[0].make_task()


# ---- the page -------------------------------------------------------------------------------------------------------

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 1.8em }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
th, td { border: 1px solid #ccc; padding: 4px 8px; text-align: left; vertical-align: top }
th { background: #f3f3f3 } img { max-width: 100%; border: 1px solid #eee } figure { margin: 1em 0 }
figcaption, .small { font-size: 13px; color: #555 } .failed { color: #a02020 } code { background: #f3f3f3 }
"""


def _page(reproduction: Reproduction, groups: Sequence[Group], table: Table, figures: Figures, command: str) -> str:
    experiment = reproduction.experiment
    size = "at full size" if reproduction.scale == 1 else f"at {reproduction.scale:g} of the full size"
    hint = " A small scale shows that everything works, not how well." if reproduction.scale < 1 else ""
    failed = [job for job in reproduction.jobs if job.state == "failed"]
    body = [
        f"<h1>{html.escape(experiment.title)}</h1>",
        f"<p>{reproduction.seeds} seeds of each method, {size}.{hint}</p>",
        *(f"<p class=failed>{html.escape(f'{j.run.folder.name} failed: {j.message}')}</p>" for j in failed),
        "<h2>The paper's claims and the results here</h2>" if experiment.claims else "",
        _html_table(_claims(reproduction, groups, table), raw=True) if experiment.claims else "",
        "<h2>Figures</h2>" if figures else "",
        *(
            f'<figure><img src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}" '
            f'alt="{html.escape(caption)}"><figcaption>{html.escape(caption)}</figcaption></figure>'
            for path, caption in figures
        ),
        *([_MODES_TITLE + _html_table(modes_table(groups))] if groups and "modes" in experiment.figures else []),
        "<h2>All numbers</h2>",
        "<p class=small>Mean ± 95 % interval (Student's t); interquartile mean [95 % bootstrap interval].</p>",
        _html_table(_numbers(groups, table, experiment.metrics), raw=True),
        "<h2>Settings</h2>" + _html_table(_settings(reproduction)),
        "<h2>How this was made</h2>" + _html_table(_origin(command)),
    ]
    head = f"<meta charset=utf-8><title>{html.escape(reproduction.name)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>\n" + "\n".join(body) + "\n</body></html>\n"


def _html_table(rows: Sequence[Sequence[str]], raw: bool = False) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}>{cell if raw else html.escape(cell)}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows[1:])
    return f"<table><tr>{cells(rows[0], 'th')}</tr>{body}</table>"


def _claims(reproduction: Reproduction, groups: Sequence[Group], table: Table) -> list[list[str]]:
    rows = [["the paper", "here: mean ± 95 % interval"]]
    for claim in reproduction.experiment.claims:
        lines = []
        for metric in claim.metrics:
            own = [f"{html.escape(g.label)} {format_summary(table[g.label][metric])[0]}" for g in groups]
            lines.append(f"<b>{metric}</b>: " + "; ".join(own))
        rows.append([html.escape(claim.paper), "<br>".join(lines)])
    return rows


def _numbers(groups: Sequence[Group], table: Table, metrics: Sequence[str]) -> list[list[str]]:
    """Returns one row per metric, one column per method."""
    head = ["", *(f"{html.escape(g.label)}<br>{describe_seeds(g)}" for g in groups)]
    return [head, *([m, *("<br>".join(format_summary(table[g.label][m])) for g in groups)] for m in metrics)]


def _settings(reproduction: Reproduction) -> list[list[str]]:
    rows = [["method", "task", "learner", "settings"]]
    for arm in reproduction.experiment.arms:
        config = next(job.run.config for job in reproduction.jobs if job.arm is arm)
        settings = {**config.task_options, **asdict(config.settings)}
        text = ", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items())
        rows.append([arm.label, config.task, config.learner, text])
    return rows


def _origin(command: str) -> list[list[str]]:
    versions = [f"svsl {__version__}", f"Python {platform.python_version()}"]
    versions += [f"{package} {version(package)}" for package in _PACKAGES]
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return [["", ""], ["command", command], ["versions", ", ".join(versions)], ["machine", machine]]
