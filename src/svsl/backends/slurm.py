"""Programs as jobs of a Slurm cluster, through submitit; imported only on request.

All programs that are waiting are submitted as one array; a job runs one program or several. Jobs do not depend on the
process that submitted them: it may end and be started again, and then follows the jobs that are still there. What it
learns of them are small JSON files, never pickles.
"""

import contextlib
import getpass
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from svsl.backends.base import Ending, Program, SlurmJobs
from svsl.backends.local import LocalBackend
from svsl.errors import SvslError
from svsl.model.files import write_bytes

try:
    import submitit
except ImportError:
    raise SvslError("--backend slurm needs submitit: pip install 'svsl[slurm]'") from None

TIME_LIMIT_MIN = 240  # of a job, by default; a job that reaches its limit continues in the queue
_REQUEUES = 1000
_POLL_S = 1.0
_QUEUE_S = 10.0  # from one look at Slurm's queue to the next
_OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
    "forgotten",
}  # fmt: skip
_GRACE_S = 120.0  # in which Slurm ends a job after it has asked its programs to stop
_JOIN_S = 60.0  # for programs to save their state; submitit's signal comes 90 s before the job is ended
_MANY = 10_000  # programs that may be in the queue at once


@dataclass
class Pack:
    """The programs of one job, on its node. Slurm may end the job at any time, and start it again."""

    programs: Sequence[Program]
    endings: Sequence[Path]  # files in which the ending of each program is recorded

    def __call__(self) -> None:
        """Runs the programs that have not ended yet; one that Slurm stopped continues, unless the job is ended."""
        self._backend = LocalBackend(Path())
        running = {self._start(index): index for index, path in enumerate(self.endings) if not path.exists()}
        stopped: dict[int, float] = {}  # indices of programs, and when they are started again
        while running or stopped:
            for handle, ending in self._backend.wait():
                index = running.pop(handle)
                if ending.state == "stopped":
                    stopped[index] = time.monotonic() + _GRACE_S
                else:
                    write_bytes(self.endings[index], json.dumps(asdict(ending)).encode())
            for index in [index for index, due in stopped.items() if time.monotonic() > due]:
                del stopped[index]
                running[self._start(index)] = index

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Called by submitit before the job is ended and put back into the queue: stops all programs."""
        self._backend.request_stop()
        self._backend.join(_JOIN_S)
        return submitit.helpers.DelayedSubmission(Pack(self.programs, self.endings))

    def _start(self, index: int) -> int:
        signals = {signal.SIGUSR2}  # submitit's; Slurm sends it to all processes of the job
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # inherited by the program
        try:
            return self._backend.start(self.programs[index])
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


class SlurmBackend:
    """Runs programs as jobs of Slurm; see `Backend`. They go on when this process ends."""

    def __init__(self, folder: Path, jobs: SlurmJobs | None = None) -> None:
        self._jobs, self._folder = jobs or SlurmJobs(), folder.absolute() / "slurm"
        options = dict(self._jobs.options)
        self._cluster = str(options.pop("cluster", "slurm"))
        if self._cluster == "slurm" and shutil.which("sbatch") is None:
            raise SvslError("sbatch not found: run this where jobs are submitted, such as a login node of the cluster")
        logging.getLogger("submitit").setLevel(logging.ERROR)
        self._executor = self._make_executor(options)
        self._record_path = self._folder / "jobs.json"
        self._record = _read(self._record_path)  # by the log of a program: its job, and the file of its ending
        self._new: list[Program] = []
        self._running: dict[str, tuple[str, Path]] = {}  # by the log of a program: its job, and the file of its ending
        self._here: dict[str, Any] = {}  # jobs of submitit's local executor
        self._states, self._states_due = self._read_states(), 0.0  # by job
        self._leaving = False

    def cores(self) -> Sequence[int]:
        """Cores of a program, as often as there may be programs: those that do not fit wait in Slurm's queue."""
        return [max(1, self._cpus_per_job // self._jobs.per_job)] * _MANY

    def start(self, program: Program) -> str:
        """Queues a program for submission, or follows the job in which it already is."""
        key = str(program.log)
        known = self._record.get(key)
        if known is not None and not self._over(known["job"]) and not Path(known["ending"]).exists():
            self._running[key] = known["job"], Path(known["ending"])
        else:
            self._new.append(program)
        return key

    def wait(self) -> list[tuple[str, Ending]]:
        """Submits the new programs, and looks for programs that have ended."""
        if self._new:
            self._submit()
        ended = [(key, Ending("detached", "Slurm")) for key in self._running] if self._leaving else self._ended()
        for key, _ in ended:
            del self._running[key]
        if not ended:
            time.sleep(_POLL_S)
        return ended

    def request_stop(self) -> None:
        """Stops following the jobs, which go on."""
        self._leaving = True

    def close(self) -> None:
        """Leaves the jobs alone; `scancel` ends them."""

    @property
    def _cpus_per_job(self) -> int:
        return int(self._jobs.options.get("cpus_per_task", self._jobs.per_job))  # type: ignore[call-overload]

    def _make_executor(self, options: Mapping[str, object]) -> submitit.AutoExecutor:
        time_limit = options.get("time", TIME_LIMIT_MIN)
        if not isinstance(time_limit, int):
            raise SvslError(f"slurm_option time: expected a whole number of minutes, got {time_limit!r}")
        requeues = {"slurm_max_num_timeout": _REQUEUES, "local_max_num_timeout": _REQUEUES}
        try:
            executor = submitit.AutoExecutor(self._folder, self._cluster, **requeues)
            executor.update_parameters(
                name="svsl",
                cpus_per_task=self._cpus_per_job,
                timeout_min=time_limit,
                **{f"slurm_{name}": value for name, value in options.items()},
            )
        except (AssertionError, NameError, ValueError, TypeError, RuntimeError) as error:
            raise SvslError(f"slurm_option: {str(error).splitlines()[0]}") from None
        return executor

    def _submit(self) -> None:
        """Submits the new programs as one array of jobs and records where they are."""
        size = self._jobs.per_job
        programs = [self._new[first : first + size] for first in range(0, len(self._new), size)]
        packs = [Pack(own, [self._folder / f"{uuid.uuid4().hex}.json" for _ in own]) for own in programs]
        try:
            with contextlib.redirect_stderr(io.StringIO()), self._executor.batch():
                jobs = [self._executor.submit(pack) for pack in packs]
        except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedSubmissionError) as error:
            reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
            raise SvslError(f"Slurm rejects the jobs ({reason}); see --slurm-option") from None
        self._new.clear()
        if self._cluster != "slurm":
            self._here.update((job.job_id, job) for job in jobs)
        for pack, job in zip(packs, jobs, strict=True):
            for program, ending in zip(pack.programs, pack.endings, strict=True):
                key = str(program.log)
                self._running[key] = job.job_id, ending
                self._states[job.job_id] = "SUBMITTED"
                self._record[key] = {"job": job.job_id, "ending": str(ending)}
        write_bytes(self._record_path, json.dumps(self._record, indent=2).encode())

    def _ended(self) -> list[tuple[str, Ending]]:
        if time.monotonic() > self._states_due:
            with contextlib.suppress(SvslError):  # Slurm is busy: what was known still holds
                self._states = self._read_states()
            self._states_due = time.monotonic() + _QUEUE_S
        ended = []
        for key, (job, path) in self._running.items():
            over = self._over(job)  # before the look at the file, which is written before the job is over
            ending = _read(path)
            if ending:
                ended.append((key, Ending(ending["state"], ending["reason"])))
            elif over:
                ended.append((key, Ending("stopped") if over == "CANCELLED" else Ending("killed", f"Slurm ({over})")))
        return ended

    def _over(self, job: str) -> str | None:
        """Returns the last state of a job that is over; Slurm forgets it some minutes later."""
        if job in self._here:
            return str(self._here[job].state) if self._here[job].done() else None
        state = self._states.get(job, "forgotten")
        return state if state in _OVER else None

    def _read_states(self) -> dict[str, str]:
        """Returns the states of this user's jobs; not by `sacct`, which needs a cluster with accounting."""
        if self._cluster != "slurm":
            return {}
        command = ["squeue", "--noheader", "--array", "--states=all", f"--user={getpass.getuser()}", "--format=%i %T"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SvslError(f"Slurm does not answer: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        return dict(line.split() for line in done.stdout.splitlines())


def _read(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file; empty if there is none."""
    try:
        os.stat(path.parent)  # lets a network file system look for new files
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return {}
