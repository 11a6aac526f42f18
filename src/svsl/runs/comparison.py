"""Several runs side by side: seeds in groups, end results and learning curves with their uncertainty."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from svsl.errors import SvslError
from svsl.model.files import write_bytes
from svsl.model.gaussians import Array
from svsl.model.version import __version__
from svsl.runs.config import RunConfig
from svsl.runs.evaluation import evaluate_run
from svsl.runs.folder import Run
from svsl.tasks.registry import default_options

TABLE_METRICS = (
    "return_mean", "success_rate", "behaviour_entropy", "vendi_score", "mixture_entropy", "active_components",
    "episodes",
)  # fmt: skip
GRID_POINTS = 120
_RESAMPLES = 2000

Numbers = Mapping[str, float | None]


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed."""

    label: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Summary:
    """A metric over the seeds of a group; NaN where it takes more seeds than there are.

    Attributes:
        seeds: How many seeds have the metric.
        mean: Over seeds.
        two_se: Two standard errors of the mean.
        iqm: Interquartile mean: the mean of the middle half.
        iqm_low: Lower end of its 95 % bootstrap interval.
        iqm_high: Upper end.
    """

    seeds: int
    mean: float
    two_se: float
    iqm: float
    iqm_low: float
    iqm_high: float


@dataclass(frozen=True)
class Curve:
    """A metric of a group over episodes, `(points,)` each; NaN where less than half of the seeds are.

    Attributes:
        episodes: The grid; those that were really run.
        seeds: How many seeds there are at each point.
        mean: Over them.
        two_se: Two standard errors.
        iqm: Interquartile mean.
        iqm_low: Lower end of its 95 % bootstrap interval.
        iqm_high: Upper end.
    """

    episodes: Array
    seeds: Array
    mean: Array
    two_se: Array
    iqm: Array
    iqm_low: Array
    iqm_high: Array


# ---- groups ---------------------------------------------------------------------------------------------------------


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups runs by everything in their configuration but the seed, in the order in which they are given.

    Raises:
        SvslError: If the runs are of different tasks, or two are the same experiment with the same seed.
    """
    tasks = sorted({run.config.task for run in runs})
    if len(tasks) > 1:
        raise SvslError(
            f"runs of different tasks ({', '.join(tasks)}), whose returns say nothing of each other; "
            "compare one task at a time"
        )
    groups: dict[str, dict[int, Run]] = {}
    for run in runs:
        same = groups.setdefault(json.dumps(_traits(run.config), sort_keys=True), {})
        if run.config.seed in same:
            first = same[run.config.seed]
            raise SvslError(f"{first.folder} and {run.folder} are the same run twice: same settings, same seed")
        same[run.config.seed] = run
    return labelled([tuple(group.values()) for group in groups.values()])


def labelled(members: Sequence[tuple[Run, ...]]) -> list[Group]:
    """Groups of runs, each named by what tells it from the others."""
    labels = _labels([runs[0].config for runs in members])
    return [Group(label, runs) for label, runs in zip(labels, members, strict=True)]


def _traits(config: RunConfig) -> dict[str, object]:
    options: dict[str, object] = {}
    with contextlib.suppress(SvslError):  # a task that is not here can still be compared
        options = default_options(config.task)  # also those that came later than the run
    return {
        "learner": config.learner,
        "settings.extended": config.extends is not None,
        "settings.freeze": config.freeze,
        **{f"task_options.{name}": value for name, value in (options | dict(config.task_options)).items()},
        **{f"settings.{name}": value for name, value in asdict(config.settings).items()},
    }


def _labels(configs: Sequence[RunConfig]) -> list[str]:
    """The learner of each, and what tells it from the others: of settings, those of the same learner count."""
    traits = [_traits(config) for config in configs]
    labels = []
    for own in traits:
        peers = [t for t in traits if t["learner"] == own["learner"]]
        differing = [name for name in own if any(t.get(name) != own[name] for t in peers)]
        words = [str(own["learner"]), *(f"{name.partition('.')[2]}={_short(own[name])}" for name in differing)]
        labels.append(" ".join(words))
    return labels


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- numbers of one run ---------------------------------------------------------------------------------------------


def run_numbers(run: Run, contexts: int = 2000, workers: int | None = None) -> dict[str, float | None]:
    """Every number of a run: the newest row of its metrics, and what `svsl eval` says of its library.

    The evaluation is kept in the run folder as `evaluation.json`, with the hash of the library it belongs to, so that
    it is made once, if that can be written. A run without a trained component has no evaluation.
    """
    rows = run.read_metrics()
    numbers: dict[str, float | None] = dict(rows[-1]) if rows else {}
    source = run.product_path if run.finished else run.checkpoint_path
    if not source.exists():
        return numbers
    made_for = {
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(), "contexts": contexts, "svsl": __version__
    }  # fmt: skip
    kept = run.evaluation_path
    result = _kept(kept, made_for)
    if result is None:
        try:
            result = evaluate_run(run, contexts, workers)
        except SvslError:
            if run.finished:
                raise
            return numbers  # nothing was trained yet when the checkpoint was made
        with contextlib.suppress(OSError):  # a folder that may only be read: made again next time
            write_bytes(kept, (json.dumps({"made_for": made_for, "evaluation": result}, indent=2) + "\n").encode())
    flat = {**result, **(d if isinstance(d := result.get("diagnostics"), dict) else {})}
    named = {name: value for name, value in flat.items() if name not in ("seed", "finished")}
    return numbers | {n: v for n, v in named.items() if v is None or isinstance(v, int | float)}


def _kept(path: Path, made_for: Mapping[str, object]) -> dict[str, object] | None:
    try:
        kept = json.loads(path.read_text())
        return dict(kept["evaluation"]) if kept["made_for"] == made_for else None
    except (OSError, ValueError, KeyError, TypeError):  # none, or not one of ours: made again
        return None


# ---- statistics -----------------------------------------------------------------------------------------------------


def interquartile_mean(values: Array) -> Array:
    """Mean of what is left of the last axis without its lowest and highest quarter (rounded down)."""
    count = values.shape[-1]
    cut = count // 4
    return np.asarray(np.sort(values, axis=-1)[..., cut : count - cut].mean(axis=-1))


def iqm_interval(values: Array, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the interquartile mean of `values (n,)`; the same values give the same interval.

    Seeds are resampled within their group, which is what a stratified bootstrap does with one task a group.
    """
    draws = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.quantile(interquartile_mean(values[draws]), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def summarise(values: Sequence[float | None] | Array) -> Summary:
    """Summary of one number a seed; seeds without it (None or not finite) are left out."""
    array = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    array = array[np.isfinite(array)]
    nan = float("nan")
    if not len(array):
        return Summary(0, nan, nan, nan, nan, nan)
    mean, iqm = float(array.mean()), float(interquartile_mean(array))
    if len(array) == 1:
        return Summary(1, mean, nan, iqm, nan, nan)
    two_se = 2 * float(array.std(ddof=1)) / np.sqrt(len(array))
    return Summary(len(array), mean, float(two_se), iqm, *iqm_interval(array))


def learning_curve(group: Group, metric: str) -> Curve | None:
    """A metric of the runs' `metrics.jsonl` on a common grid of simulated episodes; None if too few runs have it.

    Episodes that are refused before they run (a context outside the box, an impossible movement) cost nothing and do
    not count, as in the paper. Between its rows a run is interpolated linearly. After its end a finished run keeps its
    last value (its library is final), an unfinished one has none. Where less than half of the runs are, there is no
    curve.
    """
    tracks = []
    for run in group.runs:
        rows = [row for row in run.read_metrics() if row.get(metric) is not None]
        if rows:
            tracks.append(
                (np.array([[row["episodes_simulated"], row[metric]] for row in rows], dtype=np.float64).T, run.finished)
            )
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
    parts = (np.array([getattr(s, name) for s in columns]) for name in ("mean", "two_se", "iqm", "iqm_low", "iqm_high"))
    return Curve(grid, seeds.astype(np.float64), *parts)


# ---- tables ---------------------------------------------------------------------------------------------------------

Table = dict[str, dict[str, Summary]]


def summary_table(groups: Sequence[Group], metrics: Sequence[str], contexts: int = 2000) -> Table:
    """Summaries by group label and metric.

    Raises:
        SvslError: If no run has a metric.
    """
    numbers = {group.label: [run_numbers(run, contexts) for run in group.runs] for group in groups}
    known = sorted({name for runs in numbers.values() for run in runs for name in run})
    for metric in metrics:
        if known and metric not in known:
            raise SvslError(f"unknown metric {metric!r}; these runs have {', '.join(known)}")
    return {
        label: {metric: summarise([run.get(metric) for run in runs]) for metric in metrics}
        for label, runs in numbers.items()
    }


def in_words(summary: Summary) -> tuple[str, str]:
    """`mean ± two standard errors` and `IQM [interval]`; n/a for what one seed cannot tell."""
    if not summary.seeds:
        return "n/a", "n/a"
    mean, iqm = _number(summary.mean), _number(summary.iqm)
    if summary.seeds == 1:
        return f"{mean} ± n/a", f"{iqm} [n/a]"
    interval = f"[{_number(summary.iqm_low)}, {_number(summary.iqm_high)}]"
    return f"{mean} ± {_number(summary.two_se, 2)}", f"{iqm} {interval}"


def _number(value: float, digits: int = 4) -> str:
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def seeds_in_words(group: Group) -> str:
    """How many seeds, and how many of them are not finished."""
    unfinished = sum(not run.finished for run in group.runs)
    plural = "" if len(group.runs) == 1 else "s"
    return f"{len(group.runs)} seed{plural}" + (f", {unfinished} unfinished" if unfinished else "")


def to_markdown(groups: Sequence[Group], table: Table, metrics: Sequence[str]) -> str:
    """The table in Markdown, one row a group: mean and two standard errors, then IQM and interval."""
    lines = ["| | seeds | " + " | ".join(metrics) + " |", "|---" * (len(metrics) + 2) + "|"]
    for group in groups:
        cells = ["<br>".join(in_words(table[group.label][metric])) for metric in metrics]
        lines.append(f"| {group.label} | {seeds_in_words(group)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """The table in CSV, one row a group and metric; empty for what is not known."""
    lines = ["group,metric,seeds,mean,two_standard_errors,iqm,iqm_low,iqm_high"]
    for label, row in table.items():
        quoted = '"' + label.replace('"', '""') + '"'
        for metric, summary in row.items():
            numbers = list(asdict(summary).values())[1:]
            cells = ["" if np.isnan(value) else repr(float(value)) for value in numbers]
            lines.append(",".join([quoted, metric, str(summary.seeds), *cells]))
    return "\n".join(lines) + "\n"
