"""What the Hugging Face Hub gets of a library: its file, its configuration, figures, a video and a model card."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from svsl.errors import SvslError
from svsl.evaluation.metrics import Report, no_report
from svsl.evaluation.result import Evaluation
from svsl.model.files import write_bytes
from svsl.model.hub import CARD_FILE, CONFIG_FILE, FIGURES, LIBRARY_FILE, VIDEO_FILE
from svsl.model.library import SkillLibrary
from svsl.model.random import PLOT_STREAM, stream
from svsl.model.version import __version__
from svsl.runs.sources import Source, config_of
from svsl.show.playback import skills_at
from svsl.show.plots.files import plot_library, plot_run
from svsl.show.video import render_video
from svsl.tasks.base import Task, context_names, place_of
from svsl.tasks.registry import REGISTRY

_MOST_SKILLS = 4  # side by side in the video
_HUB_NAMES = {"return_mean": "mean_reward"}  # of metrics that the Hub knows under another name


def write_model(
    folder: Path,
    name: str,
    source: Source,
    task: Task,
    evaluation: Evaluation,
    command: str | None,
    license_name: str | None = None,
    report: Report = no_report,
) -> list[Path]:
    """Writes all files of a library for the Hub into a folder and returns their paths.

    Args:
        folder: The folder.
        name: The repository, `user/name`.
        source: The library, and its run if there is one.
        task: Its task.
        evaluation: Its evaluation.
        command: The command that trains it again; None if there is none.
        license_name: Licence of the library, as the Hub calls it, such as `mit`.
        report: Called with the share of the work done so far, 0 to 1, and what is being done now.
    """
    library = source.library
    source.copy(folder / LIBRARY_FILE)
    write_bytes(folder / CONFIG_FILE, config_of(library, source.run).to_json().encode())
    figures = folder / FIGURES
    if source.run is not None:
        pictures = plot_run(source.run, figures, task, report)
    else:
        pictures = plot_library(library, figures, task, report)
    report(1.0, VIDEO_FILE)
    video = _render(folder / VIDEO_FILE, library, task)
    text = _text(name, source, task, evaluation, command, [path.name for path in pictures], video is not None)
    write_bytes(folder / CARD_FILE, (_metadata(name, evaluation, license_name) + text).encode())
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _render(path: Path, library: SkillLibrary, task: Task) -> Path | None:
    """Renders the most probable skills for the middle of the context box; says why if that is not possible."""
    context = 0.5 * (library.context_low + library.context_high)
    try:
        skills = skills_at(library, task, context, stream(0, PLOT_STREAM, 4))[:_MOST_SKILLS]
        render_video(task, context, skills, path)
    except OSError:
        raise
    except Exception as error:  # a task without a scene, no OpenGL, no encoder
        reason = str(error) if isinstance(error, SvslError) else place_of(error)
        print(f"no {path.name}: {reason}", file=sys.stderr)
        return None
    return path


def _metadata(name: str, evaluation: Evaluation, license_name: str | None) -> str:
    """Returns the card's header: what the Hub indexes, with the evaluation in its `model-index` format."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="reinforcement-learning",
            task_name="reinforcement-learning",
            dataset_type=evaluation.task,
            dataset_name=evaluation.task,
            metric_type=_HUB_NAMES.get(metric, metric),
            metric_name=metric,
            metric_value=value,
        )
        for metric, value in _shown(evaluation).items()
    ]
    data = ModelCardData(
        library_name="svsl",
        license=license_name,
        pipeline_tag="reinforcement-learning",
        tags=["svsl", "robotics", "mixture-of-experts", *({evaluation.task} & REGISTRY.keys())],
        model_name=name.partition("/")[2],
        eval_results=results,
    )
    return f"---\n{data.to_yaml()}\n---\n\n"


def _shown(evaluation: Evaluation) -> dict[str, float]:
    """Returns the metrics that are defined for the task."""
    return {name: value for name, value in evaluation.metrics.items() if value is not None and np.isfinite(value)}


def _text(
    name: str,
    source: Source,
    task: Task,
    evaluation: Evaluation,
    command: str | None,
    figures: Sequence[str],
    video: bool,
) -> str:
    library = source.library
    middle = [round(float(value), 4) for value in 0.5 * (library.context_low + library.context_high)]
    lines = [
        f"# {name.partition('/')[2]}",
        "",
        f"A skill library for the task `{evaluation.task}`, made with svsl: {len(library)} components, each "
        f"specialised in one way to do the task, in a region of contexts. For a context of {library.context_dim} "
        f"numbers it returns skills of {library.parameter_dim} parameters, usually several different ones.",
        "",
        *([f"[Its most probable skills for one context]({VIDEO_FILE}) as a video.", ""] if video else []),
        "## How to use it",
        "",
        *_usage(name, evaluation.task, middle),
        "",
        "## Contexts",
        "",
        *_table(("dimension", "from", "to"), _box(library, task)),
        "",
        "## Evaluation",
        "",
        *_table(("metric", "mean", "95 % interval"), _rows(evaluation)),
        "",
        f"By `svsl eval` of svsl {__version__}: means over fresh contexts (seed {evaluation.evaluation_seed}) and "
        "their bootstrap intervals. They are about this one library, not about other seeds of training.",
        "",
        "## Training",
        "",
        *_training(source, evaluation, command),
        "",
        "## Figures",
        "",
        *(f"![{Path(figure).stem}]({FIGURES}/{figure})\n" for figure in figures),
    ]
    return "\n".join(lines)


def _usage(name: str, task: str, context: Sequence[float]) -> list[str]:
    flag = "" if task in REGISTRY else f" --task {task}"
    lines = [
        "```",
        "pip install 'svsl[hub]'",
        f"svsl eval hf:{name}{flag}",
        f"svsl view hf:{name}{flag}",
        "```",
        "",
        "```python",
        "import svsl",
        "",
        f'library = svsl.SkillLibrary.from_pretrained("{name}")',
        f"for skill in library.skills({list(context)}):  # the most probable first",
        "    print(skill.component, skill.gating, skill.theta)",
        "```",
    ]
    if flag:
        lines += [
            "",
            f"The task `{task}` does not come with svsl: the commands need its code, the Python above does not.",
        ]
    return lines


def _box(library: SkillLibrary, task: Task) -> list[Sequence[str]]:
    corners = zip(context_names(task), library.context_low, library.context_high, strict=True)
    return [(label, f"{low:.4g}", f"{high:.4g}") for label, low, high in corners]


def _rows(evaluation: Evaluation) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for metric, value in _shown(evaluation).items():
        ends = evaluation.intervals.get(metric)
        rows.append((f"`{metric}`", f"{value:.4g}", f"{ends[0]:.4g} to {ends[1]:.4g}" if ends else "unknown"))
    return rows


def _training(source: Source, evaluation: Evaluation, command: str | None) -> list[str]:
    config = config_of(source.library, source.run)
    facts: Mapping[str, object] = {
        "learner": evaluation.learner or config.learner,
        "seed": evaluation.seed,
        "episodes": f"{evaluation.episodes:,} ({evaluation.episodes_simulated:,} simulated)",
    }
    lines = [*_table(("", ""), [(name, str(value)) for name, value in facts.items()]), ""]
    settings = f"All settings are in `{CONFIG_FILE}`."
    if "merged" in source.library.metadata:
        return [*lines, "It was merged from several libraries; its file holds the metadata of each."]
    if command is None:
        return [*lines, f"It extends the library `{config.extends}`. {settings}"]
    if source.run is None:
        what = "This command trained its components, which may have been pruned or merged since:"
    else:
        what = "This command trains it again, byte for byte with the same versions of svsl, NumPy, SciPy and MuJoCo:"
    return [*lines, f"{settings} {what}", "", "```", command, "```"]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
