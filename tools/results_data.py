"""The numbers of documented runs, in docs/results/data: what is there, what is added, what is missing."""

import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from results_published import Published
from svsl.errors import SvslError
from svsl.experiments.behaviour import stored_behaviour
from svsl.experiments.catalogue import Arm, find_experiment, plan
from svsl.experiments.reproduction import Reproduction
from svsl.model.files import write_bytes
from svsl.runs.comparison import Group
from svsl.runs.config import RunConfig
from svsl.runs.evaluation import stored_evaluation
from svsl.runs.folder import Record, Run

UNKNOWN = "unknown"


class Data(Reproduction):
    """The data of an experiment: a reproduction at full size of which only the numbers are left."""

    def runs(self, arm: Arm) -> list[Run]:
        """Returns the runs of an arm by seed."""
        runs = [Run.open(path.parent) for path in self.folder.glob(f"{arm.label}-seed*/config.json")]
        for run in runs:
            if run.record is None:
                raise SvslError(f"{run.folder}: {run.record_path.name} is missing; tools/results.py collect writes it")
        return sorted(runs, key=lambda run: run.config.seed)

    @property
    def published_path(self) -> Path:
        """The file of published results."""
        return self.folder / "published.json"

    @functools.cached_property
    def published(self) -> Published | None:
        """Published results of the same task, if the data have any."""
        return Published.read(self.published_path) if self.published_path.exists() else None

    @functools.cached_property
    def groups(self) -> list[Group]:
        """The finished runs of each arm; of an arm without one, the unfinished."""
        members = {arm.label: self.runs(arm) for arm in self.experiment.arms}
        finished = {label: tuple(run for run in runs if run.finished) for label, runs in members.items()}
        return [Group(label, finished[label] or tuple(runs)) for label, runs in members.items() if runs]


def data_of(name: str, docs: Path) -> Data:
    """Returns the data of an experiment."""
    experiment = find_experiment(name)
    return Data(name, experiment, docs / "results" / "data" / name, experiment.seeds, 1.0)


# ---- collect --------------------------------------------------------------------------------------------------------


def collect(folder: Path, name: str, commit: Callable[[Run], str | None], docs: Path) -> list[str]:
    """Copies the numbers of the runs in a folder that belong to an experiment; returns a line about each one begun.

    A run belongs to the arm that has its task, learner and settings, whatever its name. The data keep a finished run,
    or the longest unfinished one, of each arm and seed. `commit` tells with which commit a run was trained; if it does
    not know, it is that of the same run in the data, or else unknown.
    """
    data, lines = data_of(name, docs), []
    planned = plan(data.experiment, 1, 1.0)
    for path in sorted(folder.glob("*/config.json")):
        run = Run.open(path.parent)
        if not (run.checkpoint_path.exists() or run.metrics_path.exists() or run.finished):
            continue  # a reproduction writes all configurations at once
        arm, differences = _nearest_arm(run.config, planned)
        if differences:
            lines.append(f"{run.folder.name}: left out, it is no {arm.label} of {name} ({'; '.join(differences)})")
            continue
        target = data.folder / f"{arm.label}-seed{run.config.seed}"
        lines.append(f"{run.folder.name}: {_copy(run, target, commit(run))}")
    return lines


def _nearest_arm(config: RunConfig, planned: Mapping[Arm, Sequence[RunConfig]]) -> tuple[Arm, list[str]]:
    """Returns the arm with the fewest changes in a configuration, and these."""
    found = {arm: changes(config, own) for arm, (own, *_) in planned.items()}
    arm = min(found, key=lambda arm: (arm.learner != config.learner, len(found[arm])))
    return arm, found[arm]


def changes(config: RunConfig, expected: RunConfig) -> list[str]:
    """Returns what a run's configuration has changed of that of an arm; the seed and the size of tests do not count."""
    return config.differences(replace(expected, seed=config.seed, test_contexts=config.test_contexts))


def _copy(run: Run, target: Path, commit: str | None) -> str:
    """Copies the numbers of a run unless the data have more of it; returns what was done."""
    rows = run.read_metrics()
    if not rows:
        return "left out, no test yet"
    evaluation, behaviour = stored_evaluation(run), stored_behaviour(run)
    episodes = evaluation.episodes if evaluation else int(rows[-1]["episodes"])
    old = Run.open(target) if Run.config_path(target).exists() else None
    if old is not None and old.record is not None and not changes(old.config, run.config):
        if (old.record.finished, old.record.episodes) > (run.finished, episodes):
            return f"left out, the data have more of it ({old.record.episodes:,} episodes)"
        if commit is None and old.read_metrics() == rows:
            commit = old.record.commit
    version = json.loads(Run.config_path(run.folder).read_text())["svsl"]
    own = run.record.commit if run.record else UNKNOWN  # it may come from other data
    record = Record(version, commit or own, episodes, run.finished)
    copy = Run(target, run.config, record=record)
    write_bytes(Run.config_path(target), Run.config_path(run.folder).read_bytes())
    write_bytes(copy.metrics_path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    for known, source, path in (
        (evaluation, run.evaluation_path, copy.evaluation_path),
        (behaviour, run.behaviour_path, copy.behaviour_path),
    ):
        path.unlink(missing_ok=True)
        if known is not None and not source.exists():
            raise SvslError(f"{run.folder} cannot be written, and its evaluation belongs there; collect a copy of it")
        if known is not None:
            write_bytes(path, source.read_bytes())
    write_bytes(copy.record_path, record.to_json().encode())
    return f"collected as {target.name}, {'finished' if run.finished else 'unfinished'}, {episodes:,} episodes"


# ---- missing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Missing:
    """A run of the full experiment that the data lack."""

    arm: Arm
    seed: int
    planned: int  # episodes
    done: int  # episodes of the unfinished run in the data
    commit: str  # of that run
    other_settings: bool  # the data have a run, but the experiment's settings have changed since


def missing(name: str, docs: Path, seeds: int | None = None) -> list[Missing]:
    """Returns the runs that the data of an experiment lack or have unfinished; of the first `seeds` (default: all)."""
    data, absent = data_of(name, docs), []
    for arm, configs in plan(data.experiment, seeds or data.experiment.seeds, 1.0).items():
        runs, planned = {run.config.seed: run for run in data.runs(arm)}, configs[0].planned_episodes()
        for config in configs:
            run = runs.get(config.seed)
            other = run is not None and bool(changes(run.config, config))
            if run is None or other or not run.finished:
                record = None if run is None or other else run.record
                done, commit = (record.episodes, record.commit) if record else (0, UNKNOWN)
                absent.append(Missing(arm, config.seed, planned, done, commit, other))
    return absent


def describe_missing(absent: Sequence[Missing]) -> list[str]:
    """Returns a line for each run of consecutive seeds of an arm in the same state."""
    lines = []
    for (label, planned, done, other), group in itertools.groupby(
        absent, lambda m: (m.arm.label, m.planned, m.done, m.other_settings)
    ):
        seeds = [m.seed for m in group]
        # groupby joins neighbours in the list, which may have finished seeds between them
        named = f"seeds {', '.join(_ranges(seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}"
        remark = " (the data have other settings)" if other else ""
        lines.append(f"    {label}: {named}: {done:,} of {planned:,} episodes{remark}")
    return lines


def _ranges(numbers: Sequence[int]) -> list[str]:
    """Returns ascending numbers as ranges: 0-2, 4."""
    groups = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = [(members[0][1], members[-1][1]) for members in (list(group) for _, group in groups)]
    return [str(first) if first == last else f"{first}-{last}" for first, last in ends]
