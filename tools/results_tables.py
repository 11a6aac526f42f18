"""The tables of the pages as Markdown, and single numbers in their text."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from results_data import UNKNOWN, Data, changes
from svsl.errors import SvslError
from svsl.experiments.behaviour import DRAWS, all_numbers
from svsl.experiments.catalogue import plan
from svsl.experiments.report import modes_table
from svsl.model.shipped import load_pretrained, pretrained_names
from svsl.runs.comparison import Group, Summary, summarise, summary_table
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run

SENTENCE = "Mean over seeds ± 95 % interval by Student's t; a single seed has no interval."
_PERCENT = (
    "success_rate", "success_sampled", "success_on_grid", "success_without_top", "coverage", "coverage_any",
    "two_kinds", "three_kinds", "collision",
)  # fmt: skip
_HEADINGS = {
    "success_rate": "success",
    "success_sampled": "success, drawn parameters",
    "success_on_grid": "success on a grid",
    "success_without_top": "success without the most probable",
    "coverage_any": "some component succeeds",
    "collision": "collisions",
    "two_kinds": "two kinds",
    "three_kinds": "three kinds",
    "vendi_score": "Vendi score",
    "kinds_seen": "kinds seen",
    "components_drawn": "components drawn",
    "return_mean": "return",
    "return_sampled": "return, drawn parameters",
    "mixture_entropy": "mixture entropy [nats]",
    "entropy_on_grid": "mixture entropy on a grid [nats]",
    "active_components": "active components",
    "height": "height [m]",
    "distance": "distance",
}
_THOUSANDS = ("episodes", "episodes_simulated")


def heading(metric: str) -> str:
    """Returns the heading of a metric's column."""
    name = _HEADINGS.get(metric, metric.replace("_", " "))
    return f"{name} [%]" if metric in _PERCENT else f"{name} [thousand]" if metric in _THOUSANDS else name


def cell(metric: str, summary: Summary) -> str:
    """Returns `mean ± half width` in the unit of the metric, as exact as the half width: one digit, two below 20."""
    unit = 100.0 if metric in _PERCENT else 1e-3 if metric in _THOUSANDS else 1.0
    if not summary.seeds:
        return "n/a"
    mean, width = unit * summary.mean, unit * summary.half_width
    if not width > 0:  # NaN for one seed, 0 if all seeds agree
        shown = f"{mean:.1f}" if metric in _PERCENT else f"{mean:.0f}" if abs(mean) >= 1000 else f"{mean:.3g}"
        return shown + ("" if math.isnan(width) else " ± 0")
    digits = max(0, -math.floor(math.log10(width / 2)))
    return f"{mean:.{digits}f} ± {width:.{digits}f}"


def table(data: Data, metrics: Sequence[str]) -> str:
    """Returns the results of all arms, one row per arm, and what the numbers are."""
    groups, planned = data.groups, plan(data.experiment, data.experiment.seeds, 1.0)
    summaries = summary_table(groups, metrics, numbers_of=all_numbers)
    configs = {arm.label: own for arm, own in planned.items()}
    rows = [["", "seeds", "components", *map(heading, metrics), "svsl"]]
    for group in groups:
        config, *_ = own = configs[group.label]
        components = cell("components", summarise([all_numbers(run).get("components") for run in group.runs]))
        numbers = [cell(metric, summaries[group.label][metric]) for metric in metrics]
        rows.append([group.label, _seeds(group, len(own), config), components, *numbers, origin(group.runs, config)])
    absent = [label for label in configs if label not in {group.label for group in groups}]
    remark = f" Not run yet: {', '.join(absent)}." if absent else ""
    return f"{_markdown(rows)}\n\n{SENTENCE}{remark}"


def seeds_table(data: Data, words: Sequence[str]) -> str:
    """Returns the results of one arm, one row per seed."""
    label, *metrics = words
    arm = next((arm for arm in data.experiment.arms if arm.label == label), None)
    if arm is None:
        raise SvslError(f"seeds: {data.name} has no arm {label}")
    config, rows = plan(data.experiment, 1, 1.0)[arm][0], [["seed", "components", *map(heading, metrics), "svsl"]]
    for run in data.runs(arm):
        numbers = all_numbers(run)
        cells = [cell(metric, summarise([numbers.get(metric)])) for metric in ("components", *metrics)]
        rows.append([str(run.config.seed), *cells, origin([run], config) + _how_far([run], config)])
    return _markdown(rows)


def modes(data: Data, _: Sequence[str]) -> str:
    """Returns the kinds of success of the first seed of each arm in the chosen contexts."""
    words = f"Successes by kind among {DRAWS} draws in each context; the first seed of each method."
    return f"{_markdown(modes_table(data.groups))}\n\n{words}"


def published(data: Data, _: Sequence[str]) -> str:
    """Returns published results beside ours after the same numbers of episodes."""
    assert data.published is not None
    return _markdown(data.published.rows(data.groups, cell)) + f"\n\n{data.published.caption}"


TABLES: dict[str, Callable[[Data, Sequence[str]], str]] = {
    "table": table, "seeds": seeds_table, "modes": modes, "published": published
}  # fmt: skip


def number(data: Data, label: str, metric: str) -> str:
    """Returns one number of an arm, with its unit; "not run" if there is none."""
    if label not in {arm.label for arm in data.experiment.arms}:
        raise SvslError(f"number: {data.name} has no arm {label}")
    runs = next((group.runs for group in data.groups if group.label == label), ())
    if metric == "seeds":
        return f"{len(runs)}"
    values = [all_numbers(run).get(metric) for run in runs]
    if not any(value is not None for value in values):
        return "not run"
    return cell(metric, summarise(values)) + _unit(metric)


def shipped(metrics: Sequence[str]) -> str:
    """Returns the evaluations of the shipped libraries, one row each, as they are in their files."""
    rows = [["", "components", "episodes [thousand]", *map(heading, metrics)]]
    for name in pretrained_names():
        found = _shipped(name)
        ends = found.get("intervals", {})  # a library of an older version has none
        cells = [_show(metric, found.get(metric)) + _interval(metric, ends.get(metric)) for metric in metrics]
        rows.append([name, str(found["components"]), f"{found['episodes_simulated'] / 1e3:.0f}", *cells])
    return _markdown(rows) + "\n\nIn brackets: 95 % bootstrap intervals over contexts, for the same library."


def shipped_number(name: str, metric: str) -> str:
    """Returns one number of a shipped library, with its unit."""
    found = _shipped(name)
    if metric not in found:
        raise SvslError(f"number: the library of {name} has no {metric}")
    return _show(metric, found[metric]) + _unit(metric)


def _shipped(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(load_pretrained(name).metadata["results"])
    return results


def _show(metric: str, value: float | None) -> str:
    return cell(metric, summarise([value]))


def _interval(metric: str, ends: Sequence[float] | None) -> str:
    return "" if ends is None else f" [{', '.join(_show(metric, end) for end in ends)}]"


def _unit(metric: str) -> str:
    return " %" if metric in _PERCENT else " thousand" if metric in _THOUSANDS else ""


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def _seeds(group: Group, planned: int, config: RunConfig) -> str:
    return f"{len(group.runs)} of {planned}{_how_far(group.runs, config)}"


def _how_far(runs: Sequence[Run], config: RunConfig) -> str:
    """Returns how far unfinished runs got; nothing for finished ones."""
    done = [run.record.episodes for run in runs if run.record is not None and not run.finished]
    return f", unfinished: {min(done) / config.planned_episodes():.0%} of the episodes" if done else ""


def origin(runs: Sequence[Run], config: RunConfig) -> str:
    """Returns the versions that trained runs of an arm, and whether its settings have changed since."""
    records = [run.record for run in runs if run.record is not None]
    made = [f"{record.svsl} ({'commit ' * (record.commit == UNKNOWN)}{record.commit})" for record in records]
    changed = any(changes(run.config, config) for run in runs)
    return ", ".join([*dict.fromkeys(made), *(["settings changed since"] if changed else [])])
