"""Runs all seeds of an experiment, each in a process of its own, and goes on wherever it was stopped."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from svsl.errors import SvslError
from svsl.experiments.catalogue import EVALUATION_CONTEXTS, Arm, Experiment, plan, planned_episodes, shrunk
from svsl.experiments.worker import STOPPED, Work
from svsl.model.files import folder_lock, write_bytes
from svsl.runs.comparison import Group
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run

RESTARTS = 2  # of a worker the system killed
_POLL_S = 0.1
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

State = Literal["waiting", "running", "finished", "stopped", "failed"]


@dataclass
class Job:
    """One run of the experiment.

    Attributes:
        arm: To which side of the comparison it belongs.
        run: Its folder.
        planned: Episodes it will ask for; NaN if not known.
        state: Where it stands.
        work: Share done, 0 to 1.
        episodes: Asked for so far.
        restarts: How often its worker was killed and started again.
        message: Why it failed.
    """

    arm: Arm
    run: Run
    planned: float
    state: State = "waiting"
    work: float = 0.0
    episodes: int = 0
    restarts: int = 0
    message: str = ""

    def refresh(self) -> None:
        """Reads what the worker left word of."""
        try:
            progress = self.run.read_progress()
            self.work, self.episodes = float(progress["work"]), int(progress["episodes"])
        except (ValueError, KeyError, TypeError):
            return

    def settle(self, state: State, message: str = "") -> None:
        """Notes the end of its worker."""
        self.refresh()
        self.state, self.message = state, message
        if state == "finished":
            self.work = 1.0


@dataclass(frozen=True)
class Reproduction:
    """An experiment in a folder: `<label>-seedN` for each run, `experiment.json`, and in the end the report.

    Attributes:
        name: The experiment's name.
        experiment: What is compared.
        folder: Where.
        seeds: Of each arm.
        scale: Share of the full size.
        checkpoint_s: Seconds between checkpoints of a run.
        jobs: All runs.
    """

    name: str
    experiment: Experiment
    folder: Path
    seeds: int
    scale: float
    checkpoint_s: float = 10.0
    jobs: list[Job] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Locks the folder and makes or opens the run folders.

        Raises:
            SvslError: If the folder is in use, holds something else, or was made with other settings.
        """
        wanted = plan(self.experiment, self.seeds, self.scale)
        mark = self.folder / "experiment.json"
        told = {"experiment": self.name, "scale": self.scale}
        if self.folder.exists() and not mark.exists() and any(p.name != ".lock" for p in self.folder.iterdir()):
            raise SvslError(f"{self.folder} exists and holds no reproduction; choose another --out")
        self.folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(self.folder, f"{self.folder}: another svsl reproduce is at work there"):
            if mark.exists() and (found := _read_json(mark)) != told:
                raise SvslError(f"{self.folder} holds {found}, not {told}; choose another --out")
            write_bytes(mark, (json.dumps(told) + "\n").encode())
            for arm, configs in wanted.items():
                planned = planned_episodes(configs[0])
                self.jobs.extend(Job(arm, self._run(arm, config), planned) for config in configs)
            for job in self.jobs:
                job.refresh()
                if job.run.finished and job.run.evaluation_path.exists():
                    job.settle("finished")
            yield

    def _run(self, arm: Arm, config: RunConfig) -> Run:
        folder = self.folder / f"{arm.label}-seed{config.seed}"
        if not Run.config_path(folder).exists():
            return Run.create(folder, config)
        run = Run.open(folder)
        differences = run.config.differences(config)
        if differences:
            raise SvslError(f"{folder} was made with other settings ({'; '.join(differences)}); choose another --out")
        return run

    @property
    def groups(self) -> list[Group]:
        """The finished runs of each arm."""
        runs = {arm: [job.run for job in self.jobs if job.arm is arm and job.run.finished] for arm in self.arms}
        return [Group(arm.label, tuple(members)) for arm, members in runs.items() if members]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The sides of the comparison."""
        return self.experiment.arms

    @property
    def contexts(self) -> int:
        """Of each run's evaluation."""
        return shrunk(EVALUATION_CONTEXTS, self.scale, "evaluation_contexts")

    @property
    def unfinished(self) -> list[Job]:
        """The runs that are still to do."""
        return [job for job in self.jobs if job.state != "finished"]

    def work(self, job: Job, threads: int) -> Work:
        """What the job's worker is told."""
        return Work(str(job.run.folder.absolute()), threads, self.contexts, self.checkpoint_s)


Show = Callable[[Sequence[Job]], None]


def run_local(made: Reproduction, workers: int | None, show: Show, stop: Callable[[], bool]) -> None:
    """Works on all unfinished jobs with so many processes at a time; a failed one never stops the others."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting, running = deque(made.unfinished), dict[int, tuple[Job, subprocess.Popen[bytes]]]()
    at_once = max(1, min(workers or cores, len(waiting)))
    threads, asked = max(1, cores // at_once), False
    try:
        while waiting or running:
            if stop() and not asked:
                asked = True
                for _, process in running.values():
                    process.send_signal(signal.SIGTERM)
            while waiting and len(running) < at_once and not asked:
                job = waiting.popleft()
                try:
                    process = _start(made.work(job, threads), job)
                except OSError as error:  # a full disk: the others may be on their way to their end
                    job.settle("failed", f"cannot write to {job.run.folder} ({error.strerror})")
                    continue
                running[process.pid] = job, process
            for pid, (job, process) in list(running.items()):
                if process.poll() is None:
                    job.refresh()
                    continue
                del running[pid]
                if _ended(job, process.returncode, asked):
                    waiting.appendleft(job)
            show(made.jobs)
            if asked and not running:
                break
            time.sleep(_POLL_S)
    finally:  # an error here or a second Ctrl-C: nothing is left behind but checkpoints
        for _, process in running.values():
            process.kill()
            process.wait()
    for job in waiting:
        job.settle("stopped")


def _start(work: Work, job: Job) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "svsl.experiments.worker", work.folder, *map(str, (work.threads, work.contexts))]
    with open(job.run.log_path, "ab") as log:
        # a session of its own: Ctrl-C reaches the parent only, which asks each worker once
        process = subprocess.Popen(
            [*command, str(work.checkpoint_s)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,
        )
    job.state = "running"
    return process


def _ended(job: Job, code: int, stopping: bool) -> bool:
    """Notes how a worker ended; returns whether to start it again."""
    if code == 0:
        job.settle("finished")
    elif code == STOPPED or (code < 0 and stopping):
        job.settle("stopped")
    elif code < 0 and job.restarts < RESTARTS:
        job.restarts += 1
        job.settle("waiting")
        return True
    elif code < 0:
        name = signal.Signals(-code).name
        job.settle("failed", f"killed by {name} {job.restarts + 1} times (out of memory?); its checkpoint is whole")
    else:
        job.settle("failed", last_line(job.run.log_path))
    return False


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return lines[-1].removeprefix("svsl: ") if lines else "no word in its log (a full disk?)"


def overall(jobs: Sequence[Job]) -> float:
    """Share of all episodes that is done, 0 to 1."""
    known = not any(math.isnan(job.planned) for job in jobs)
    weights = [job.planned if known else 1.0 for job in jobs]
    return sum(w * job.work for w, job in zip(weights, jobs, strict=True)) / sum(weights)


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except ValueError:
        return "something else"
