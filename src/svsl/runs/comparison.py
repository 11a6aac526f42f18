"""Comparison of runs: groups of seeds, final results and learning curves with their uncertainty."""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy import special, stats

from svsl.errors import SvslError
from svsl.evaluation.intervals import bootstrap_interval
from svsl.evaluation.metrics import Report, no_report
from svsl.learners.registry import PRESETS, find_preset
from svsl.model.gaussians import Array
from svsl.runs.config import RunConfig
from svsl.runs.evaluation import stored_evaluation
from svsl.runs.folder import Run
from svsl.tasks.registry import default_options

TABLE_METRICS = (
    "return_mean", "success_rate", "ways", "two_kinds", "vendi_score", "mixture_entropy", "active_components",
    "episodes",
)  # fmt: skip
GRID_POINTS = 120


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    label: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Summary:
    """A metric over the seeds of a group; NaN where there are too few seeds."""

    seeds: int  # number of seeds that have the metric
    mean: float  # over seeds
    half_width: float  # of its 95 % interval by Student's t: right for any number of seeds, if they are about normal
    iqm: float  # interquartile mean: the mean of the middle half
    iqm_low: float  # lower end of its 95 % bootstrap interval
    iqm_high: float  # upper end


@dataclass(frozen=True)
class Curve:
    """A metric of a group over simulated episodes: the numbers of `Summary` at each point of a grid, `(points,)` each.

    They are NaN where less than half of the seeds have a value.
    """

    episodes: Array
    seeds: Array
    mean: Array
    half_width: Array
    iqm: Array
    iqm_low: Array
    iqm_high: Array


# ---- groups ---------------------------------------------------------------------------------------------------------


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups runs of one task by everything in their configuration except the seed, in the given order."""
    tasks = sorted({run.config.task for run in runs})
    if len(tasks) > 1:
        raise SvslError(
            f"runs of different tasks ({', '.join(tasks)}), whose returns cannot be compared; "
            "compare one task at a time"
        )
    groups: dict[str, dict[int, Run]] = {}
    for run in runs:
        same = groups.setdefault(json.dumps(_traits(run), sort_keys=True), {})
        if run.config.seed in same:
            first = same[run.config.seed]
            raise SvslError(f"{first.folder} and {run.folder} are the same run twice: same settings, same seed")
        same[run.config.seed] = run
    return labelled([tuple(group.values()) for group in groups.values()])


def labelled(members: Sequence[tuple[Run, ...]]) -> list[Group]:
    """Groups of runs, each labelled by what distinguishes it from the others."""
    labels = _labels([runs[0] for runs in members])
    return [Group(label, runs) for label, runs in zip(labels, members, strict=True)]


def _traits(run: Run) -> dict[str, object]:
    config, options = run.config, dict[str, object]()
    with contextlib.suppress(SvslError):  # runs of a task that is not trusted or cannot be imported can be compared
        options = default_options(run.named_task.chosen(run.choice)[0])  # includes options that are newer than the run
    return {
        "learner": config.learner,
        "settings.extended": config.extends is not None,
        "settings.freeze": config.freeze,
        **{f"task_options.{name}": value for name, value in (options | dict(config.task_options)).items()},
        **{f"settings.{name}": value for name, value in asdict(config.settings).items()},
    }


def _labels(runs: Sequence[Run]) -> list[str]:
    """The learner of each, and what distinguishes it from the others; settings are compared within one learner.

    Runs of different presets are named by their preset, and by the settings that were changed from it.
    """
    traits, presets = [_traits(run) for run in runs], [_nearest_preset(run.config) for run in runs]
    labels, long_labels = [], []
    for own, (preset, changed) in zip(traits, presets, strict=True):
        peers = [index for index, other in enumerate(traits) if other["learner"] == own["learner"]]
        differing = [name for name in own if any(traits[index].get(name) != own[name] for index in peers)]
        words = {name: f"{name.partition('.')[2]}={_short(own[name])}" for name in differing}
        long_labels.append(" ".join([str(own["learner"]), *words.values()]))
        if len({presets[index][0] for index in peers}) > 1:
            kept = [word for name, word in words.items() if name in changed or name not in _settings_of(own)]
            labels.append(" ".join([str(own["learner"]), preset, *kept]))
        else:
            labels.append(long_labels[-1])
    return labels if len(set(labels)) == len(labels) else long_labels


def _settings_of(traits: Mapping[str, object]) -> set[str]:
    return {name for name in traits if name.startswith("settings.")} - {"settings.extended", "settings.freeze"}


def _nearest_preset(config: RunConfig) -> tuple[str, set[str]]:
    """The preset of the task from which the fewest settings were changed, and the traits of those."""
    presets = PRESETS.get((config.task, config.learner)) or {"": find_preset(config.task, config.learner)}
    own = asdict(config.settings)
    changes = {
        name: {f"settings.{setting}" for setting, value in asdict(preset.settings).items() if own[setting] != value}
        for name, preset in presets.items()
    }
    nearest = min(changes, key=lambda name: len(changes[name]))
    return nearest, changes[nearest]


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- statistics -----------------------------------------------------------------------------------------------------


def interquartile_mean(values: Array, axis: int = -1) -> Array:
    """Mean without the lowest and the highest quarter (rounded down) along an axis."""
    return np.asarray(stats.trim_mean(values, 0.25, axis=axis))


def iqm_interval(values: Array, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the interquartile mean of `values (n,)`; equal values give equal intervals.

    Seeds are resampled within their group, which is what a stratified bootstrap does with one task per group.
    """
    return bootstrap_interval(values, interquartile_mean, level)


def summarise(values: Sequence[float | None] | Array) -> Summary:
    """Summary of one number per seed; seeds without it (None or not finite) are left out."""
    array = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    array = array[np.isfinite(array)]
    nan = float("nan")
    if not len(array):
        return Summary(0, nan, nan, nan, nan, nan)
    mean, iqm = float(array.mean()), float(interquartile_mean(array))
    if len(array) == 1:
        return Summary(1, mean, nan, iqm, nan, nan)
    half_width = special.stdtrit(len(array) - 1, 0.975) * array.std(ddof=1) / np.sqrt(len(array))
    return Summary(len(array), mean, float(half_width), iqm, *iqm_interval(array))


def learning_curve(group: Group, metric: str) -> Curve | None:
    """A metric of the runs' `metrics.jsonl` on a common grid of simulated episodes; None if too few runs have it.

    Episodes that are rejected before they run (a context outside the box, an impossible movement) do not count, as in
    the paper. A run is interpolated linearly between its rows. After its last row a finished run keeps its last value
    (its library is final), an unfinished one has none. There is no curve where less than half of the runs have a value.
    """
    tracks = []
    for run in group.runs:
        needed = ("episodes_simulated", metric)
        rows = [row for row in run.read_metrics() if all(row.get(name) is not None for name in needed)]
        if rows:
            points = np.array([[row[name] for name in needed] for row in rows], dtype=np.float64)
            tracks.append((points.T, run.finished))
    if not tracks:
        return None
    grid = np.linspace(min(t[0, 0] for t, _ in tracks), max(t[0, -1] for t, _ in tracks), GRID_POINTS)
    values = np.stack(
        [np.interp(grid, t[0], t[1], left=np.nan, right=t[1, -1] if finished else np.nan) for t, finished in tracks]
    )
    seeds = np.isfinite(values).sum(axis=0)
    if 2 * seeds.max() < len(group.runs):
        return None
    columns = [
        summarise(column if 2 * count >= len(group.runs) else []) for column, count in zip(values.T, seeds, strict=True)
    ]
    names = ("mean", "half_width", "iqm", "iqm_low", "iqm_high")
    return Curve(grid, seeds.astype(np.float64), *(np.array([getattr(s, name) for s in columns]) for name in names))


# ---- tables ---------------------------------------------------------------------------------------------------------

Table = dict[str, dict[str, Summary]]


def run_numbers(run: Run, contexts: int = 2000, report: Report = no_report) -> dict[str, float | None]:
    """Every number of a run: the newest row of its metrics, updated by its stored evaluation."""
    rows, evaluation = run.read_metrics(), stored_evaluation(run, contexts, report=report)
    return (rows[-1] if rows else {}) | (evaluation.numbers if evaluation else {})


def summary_table(
    groups: Sequence[Group],
    metrics: Sequence[str],
    contexts: int = 2000,
    report: Report = no_report,
    numbers_of: Callable[[Run, int, Report], Mapping[str, float | None]] = run_numbers,
) -> Table:
    """Summaries by group label and metric; runs without a stored evaluation are evaluated."""
    runs = [run for group in groups for run in group.runs]

    def evaluated(run: Run) -> Mapping[str, float | None]:
        done = runs.index(run)
        return numbers_of(run, contexts, lambda share, what: report((done + share) / len(runs), run.folder.name))

    numbers = {group.label: [evaluated(run) for run in group.runs] for group in groups}
    known = sorted({name for runs in numbers.values() for run in runs for name in run})
    for metric in metrics:
        if known and metric not in known:
            raise SvslError(f"unknown metric {metric!r}; these runs have {', '.join(known)}")
    return {
        label: {metric: summarise([run.get(metric) for run in runs]) for metric in metrics}
        for label, runs in numbers.items()
    }


def format_summary(summary: Summary) -> tuple[str, str]:
    """`mean ± half width of its 95 % interval` and `IQM [interval]`; n/a for what takes more than one seed."""
    if not summary.seeds:
        return "n/a", "n/a"
    mean, iqm = _number(summary.mean), _number(summary.iqm)
    if summary.seeds == 1:
        return f"{mean} ± n/a", f"{iqm} [n/a]"
    interval = f"[{_number(summary.iqm_low)}, {_number(summary.iqm_high)}]"
    return f"{mean} ± {_number(summary.half_width, 2)}", f"{iqm} {interval}"


def _number(value: float, digits: int = 4) -> str:
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def describe_seeds(group: Group) -> str:
    """The number of seeds, and of unfinished ones if there are any."""
    unfinished = sum(not run.finished for run in group.runs)
    plural = "" if len(group.runs) == 1 else "s"
    return f"{len(group.runs)} seed{plural}" + (f", {unfinished} unfinished" if unfinished else "")


def to_markdown(groups: Sequence[Group], table: Table, metrics: Sequence[str]) -> str:
    """The table as Markdown, one row per group: mean ± half width, then IQM and interval."""
    lines = ["| | seeds | " + " | ".join(metrics) + " |", "|---" * (len(metrics) + 2) + "|"]
    for group in groups:
        cells = ["<br>".join(format_summary(table[group.label][metric])) for metric in metrics]
        lines.append(f"| {group.label} | {describe_seeds(group)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """The table as CSV, one row per group and metric; unknown values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "metric", "seeds", "mean", "ci95_half_width", "iqm", "iqm_low", "iqm_high"])
    for label, row in table.items():
        for metric, summary in row.items():
            numbers = [float(value) for value in list(asdict(summary).values())[1:]]
            writer.writerow([label, metric, summary.seeds, *("" if np.isnan(value) else value for value in numbers)])
    return text.getvalue()
