"""An experiment in a folder: one job for each arm and seed, resumed wherever it was stopped."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from svsl.backends.base import Program
from svsl.errors import SvslError
from svsl.experiments.catalogue import Arm, Experiment, plan
from svsl.learners.base import shrunk
from svsl.model.files import parse_json, write_bytes
from svsl.runs.comparison import Group
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run, folder_lock

State = Literal["waiting", "queued", "running", "finished", "stopped", "detached", "failed"]


@dataclass
class Job:
    """One run of the experiment."""

    arm: Arm
    run: Run
    planned: float  # episodes
    state: State = "waiting"
    work: float = 0.0  # share done, 0 to 1
    episodes: int = 0  # so far
    evaluated: float | None = None  # share of its evaluation done; None during training
    restarts: int = 0  # of a worker that was killed
    started_s: float = 0.0  # when its worker was given to the backend, which may have a queue
    message: str = ""  # why it failed, or where it goes on

    @property
    def log(self) -> Path:
        """File with the output of its worker."""
        return self.run.log_path

    def start(self) -> None:
        """Notes that its worker was given to the backend."""
        self.state, self.started_s = "queued", time.time()

    def refresh(self) -> None:
        """Reads the progress its worker has written."""
        age_s = self.run.progress_age_s
        if self.state == "queued" and age_s is not None and age_s <= time.time() - self.started_s:
            self.state = "running"
        try:
            progress = self.run.read_progress()
            self.work, self.episodes = float(progress["work"]), int(progress["episodes"])
            self.evaluated = progress.get("evaluated")
        except (ValueError, KeyError, TypeError):
            return

    def settle(self, state: State, message: str = "") -> None:
        """Sets the state after its worker has ended."""
        self.refresh()
        self.state, self.message = state, message
        if state == "finished":
            self.work = 1.0


def overall_progress(jobs: Sequence[Job]) -> float:
    """Returns the share of all planned episodes that is done, 0 to 1."""
    return sum(job.planned * job.work for job in jobs) / sum(job.planned for job in jobs)


@dataclass(frozen=True)
class Reproduction:
    """An experiment in a folder: `<label>-seedN` for each run, `experiment.json`, and in the end the report."""

    name: str
    experiment: Experiment
    folder: Path
    seeds: int  # per arm
    scale: float  # share of the full size
    checkpoint_s: float = 10.0
    jobs: list[Job] = field(default_factory=list)  # filled by `open`

    @contextmanager
    def open(self) -> Iterator[None]:
        """Locks the folder, and creates or opens the run folders; their settings must be those of the experiment."""
        planned_runs, mark = plan(self.experiment, self.seeds, self.scale), self._mark
        if self.folder.exists() and not mark.exists() and any(p.name != ".lock" for p in self.folder.iterdir()):
            raise SvslError(f"{self.folder} exists and is not a reproduction; choose another --out")
        self.folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(self.folder, f"{self.folder}: another svsl reproduce is running there"):
            if mark.exists():
                self._check_mark()
            write_bytes(mark, (json.dumps(self._content) + "\n").encode())
            self.jobs.clear()
            for arm, configs in planned_runs.items():
                planned = configs[0].planned_episodes()
                self.jobs.extend(Job(arm, self._open_run(arm, config), planned) for config in configs)
            self._refresh()
            yield

    def look(self) -> None:
        """Reads how far the runs are, also while other processes or machines train them; changes nothing."""
        if not self._mark.exists():
            raise SvslError(f"{self.folder} is not a reproduction; without --status, the same command starts it")
        self._check_mark()
        self.jobs.clear()
        for arm, configs in plan(self.experiment, self.seeds, self.scale).items():
            planned = configs[0].planned_episodes()
            self.jobs.extend(Job(arm, Run(self._run_folder(arm, config), config), planned) for config in configs)
        self._refresh()

    @property
    def _mark(self) -> Path:
        return self.folder / "experiment.json"

    @property
    def _content(self) -> dict[str, object]:
        """What the mark says."""
        return {"experiment": self.name, "scale": self.scale}

    def _check_mark(self) -> None:
        if (existing := _read_json(self._mark)) != self._content:
            held, expected = _words(existing), _words(self._content)
            raise SvslError(f"{self.folder} holds {held}, not {expected}; choose another --out")

    def _refresh(self) -> None:
        for job in self.jobs:
            job.refresh()
            if job.run.finished and job.run.evaluation_path.exists():
                job.settle("finished")

    def _run_folder(self, arm: Arm, config: RunConfig) -> Path:
        return self.folder / f"{arm.label}-seed{config.seed}"

    def _open_run(self, arm: Arm, config: RunConfig) -> Run:
        folder = self._run_folder(arm, config)
        if not Run.config_path(folder).exists():
            return Run.create(folder, config)
        run = Run.open(folder)
        differences = run.config.differences(config)
        if differences:
            raise SvslError(
                f"{folder} was created with other settings ({'; '.join(differences)}); choose another --out"
            )
        return run

    @property
    def groups(self) -> list[Group]:
        """The finished runs of each arm."""
        arms = self.experiment.arms
        runs = {arm: [job.run for job in self.jobs if job.arm is arm and job.run.finished] for arm in arms}
        return [Group(arm.label, tuple(members)) for arm, members in runs.items() if members]

    @property
    def contexts(self) -> int:
        """Number of contexts of each run's evaluation."""
        return shrunk(2000, self.scale, 200, 0.5)

    @property
    def unfinished(self) -> list[Job]:
        """The jobs that are not finished."""
        return [job for job in self.jobs if job.state != "finished"]

    def program(self, job: Job, cores: int) -> Program:
        """Returns the worker of a job as a program for a backend."""
        run = job.run
        args = (str(run.folder.absolute()), run.config.task, str(cores), str(self.contexts), str(self.checkpoint_s))
        return Program("svsl.experiments.worker", args, job.log.absolute(), cores)


def _read_json(path: Path) -> object:
    try:
        return parse_json(path.read_text())
    except ValueError:
        return "something else"


def _words(mark: object) -> str:
    return " ".join(f"{name} {value}" for name, value in mark.items()) if isinstance(mark, dict) else str(mark)
