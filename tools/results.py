"""For maintainers: results are data, and the pages that show them remake themselves.

python tools/results.py collect runs/ablation      # copies the numbers of a reproduction into the data
python tools/results.py missing                    # lists what the data lack
python tools/results.py missing --start ablation   # trains that in runs/ablation (or resumes there) and collects it
python tools/results.py make                       # `make results`: remakes the tables and figures of the pages

docs/results/data/EXPERIMENT/ARM-seedN is a run folder of `svsl reproduce EXPERIMENT` without what was learned:
`config.json`, `metrics.jsonl`, `evaluation.json`, and `record.json` (how it was made). Pages have blocks between
comments:

<!-- results: table ablation success_rate ways return_mean episodes -->
<!-- end of results -->

<!-- results: seeds presets-beer-pong efficient success_rate episodes -->
<!-- end of results -->

<!-- results: modes beer-pong -->
<!-- end of results -->

<!-- results: published presets-box-pushing -->
<!-- end of results -->

<!-- results: figure ablation learning -->
<!-- end of results -->

They are one row per arm, one per seed of an arm, the kinds of success in chosen contexts, other methods' published
results (`published.json`) beside ours, and a figure. `<!-- number: ablation hireps components --><!-- / -->` is a
single number in a text. What has no data yet says so.

tests/project/test_results.py fails if a block or a figure is not what the data say.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from results_data import UNKNOWN, collect, describe_missing, missing
from results_pages import make
from svsl.cli.parsing import Folder, parse, require_range
from svsl.errors import SvslError, complain
from svsl.experiments.catalogue import EXPERIMENTS, find_experiment, plan
from svsl.experiments.progress import ReproductionDisplay
from svsl.experiments.reproduction import Reproduction
from svsl.experiments.runner import run_jobs
from svsl.runs.training import stop_on_signals

ROOT = Path(__file__).parents[1]


def start(
    name: str,
    workers: int | None,
    out: Path,
    docs: Path,
    seeds: int | None = None,
    arms: Sequence[str] = (),
    seed: int | None = None,
) -> int:
    """Trains what the data of an experiment lack, resuming in `out`, and collects it; returns the exit code."""
    labels = [arm.label for arm in find_experiment(name).arms]
    for label in arms:
        if label not in labels:
            raise SvslError(f"{name} has no arm {label!r}; its arms: {', '.join(labels)}")
    planned = plan(find_experiment(name), seeds or find_experiment(name).seeds, 1.0)
    most = max(len(runs) for arm, runs in planned.items() if not arms or arm.label in arms)
    if seed is not None and not 0 <= seed < most:
        raise SvslError(f"{name} has seeds 0 to {most - 1} of these arms, got --seed {seed}")
    absent = {
        (m.arm.label, m.seed): m
        for m in missing(name, docs, seeds)
        if (not arms or m.arm.label in arms) and seed in (None, m.seed)
    }
    experiment, commit = find_experiment(name), current_commit()
    reproduction = Reproduction(name, experiment, out, seeds or experiment.seeds, 1.0)
    with reproduction.open():
        reproduction.jobs[:] = [job for job in reproduction.jobs if (job.arm.label, job.run.config.seed) in absent]
        # what was partly trained before has an unknown commit, unless the data say that it was this one
        known = {
            job.run.folder.name
            for job in reproduction.jobs
            if absent[job.arm.label, job.run.config.seed].commit == commit
            or not (job.run.finished or job.run.checkpoint_path.exists())
        }
        if reproduction.jobs:
            with stop_on_signals() as stop, ReproductionDisplay(name) as display:
                run_jobs(reproduction, "local", None, workers, display, stop)
        print("\n".join(collect(out, name, lambda run: commit if run.folder.name in known else None, docs)))
    if any(job.state == "stopped" for job in reproduction.jobs):
        return complain("stopped and saved; the same command continues", code=130)
    for job in reproduction.unfinished:
        complain(f"{job.run.folder.name} failed: {job.message} (details in {job.log}); the same command retries it")
    return 1 if reproduction.unfinished else 0


def current_commit() -> str:
    """Returns the commit of the sources, with `-dirty` if they were changed since; other files do not count."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src")
        return git("rev-parse", "--short=12", "HEAD") + "-dirty" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN


@dataclass(frozen=True)
class Collect:
    """Copy the numbers of a reproduction into the data: finished runs, and the longest unfinished ones."""

    folder: Folder
    """Folder of svsl reproduce, or any folder of run folders."""
    experiment: str | None = None
    """The experiment (default: that of the reproduction)."""
    commit: str | None = None
    """Commit the runs were trained with (default: as in the data, or unknown)."""
    docs: Path = ROOT / "docs"
    """Folder of the pages."""

    def run(self) -> int:
        """Collects."""
        if not self.folder.is_dir():
            raise SvslError(f"{self.folder} is not a folder; expected one of svsl reproduce")
        mark = self.folder / "experiment.json"
        known = json.loads(mark.read_text()) if mark.exists() else {}
        name = self.experiment or known.get("experiment")
        if name is None:
            raise SvslError(f"{self.folder} is no reproduction; say what its runs belong to with --experiment NAME")
        lines = collect(self.folder, name, lambda run: self.commit, self.docs)
        print("\n".join(lines) or f"no runs in {self.folder}")
        return 0


@dataclass(frozen=True)
class ListMissing:
    """List the runs that the data lack or have unfinished, or train those of one experiment."""

    start: str | None = None
    """Train what this experiment lacks, and collect it."""
    workers: int | None = None
    """Runs trained at the same time (default: one per core)."""
    out: Path | None = None
    """Folder in which they are trained or resumed (default: runs/NAME)."""
    seeds: int | None = None
    """Only the first seeds of each arm (default: all of the full experiment)."""
    seed: int | None = None
    """With --start: only this seed."""
    arms: tuple[str, ...] = ()
    """Only these arms (default: all)."""
    docs: Path = ROOT / "docs"
    """Folder of the pages."""

    def __post_init__(self) -> None:
        require_range(1, workers=self.workers, seeds=self.seeds)

    def run(self) -> int:
        """Lists or starts."""
        if self.start is not None:
            out = self.out or Path("runs") / self.start
            return start(self.start, self.workers, out, self.docs, self.seeds, self.arms, self.seed)
        if self.seed is not None or self.arms or self.workers or self.out:
            raise SvslError("--workers, --out, --seed and --arms belong to --start EXPERIMENT")
        for name, experiment in EXPERIMENTS.items():
            absent = missing(name, self.docs, self.seeds)
            total = sum(map(len, plan(experiment, self.seeds or experiment.seeds, 1.0).values()))
            print("\n".join([f"{name}: {len(absent)} of {total} runs missing", *describe_missing(absent)]))
        return 0


@dataclass(frozen=True)
class Make:
    """Remake the tables and figures of the pages from the data."""

    docs: Path = ROOT / "docs"
    """Folder of the pages."""

    def run(self) -> int:
        """Makes."""
        for path in make(self.docs):
            print(f"remade   {path}")
        return 0


COMMANDS = {"collect": Collect, "missing": ListMissing, "make": Make}


def main(args: Sequence[str]) -> int:
    """Runs a command."""
    if not args or args[0] not in COMMANDS:
        raise SvslError(f"expected one of {', '.join(COMMANDS)}; tools/results.py COMMAND --help lists its flags")
    command: Collect | ListMissing | Make = parse(COMMANDS[args[0]], args[1:], f"results.py {args[0]}")
    return command.run()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SvslError as error:
        sys.exit(complain(str(error)))
