"""Runs the jobs of a reproduction on a backend."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import closing
from pathlib import Path

from svsl.backends.base import Backend, Ending, SlurmJobs, open_backend
from svsl.experiments.reproduction import Job, Reproduction

RESTARTS = 2  # of a worker that the system killed

Display = Callable[[Sequence[Job]], None]


def run_jobs(
    reproduction: Reproduction,
    backend: str,
    where: str | SlurmJobs | None,
    workers: int | None,
    display: Display,
    stop: Callable[[], bool],
) -> None:
    """Runs all unfinished jobs of an open reproduction on a backend; see `open_backend` and `schedule`."""
    if not reproduction.unfinished:
        display(reproduction.jobs)
        return
    with closing(open_backend(backend, reproduction.folder, where)) as opened:
        schedule(reproduction, opened, workers, display, stop)


def schedule(
    reproduction: Reproduction, backend: Backend, workers: int | None, display: Display, stop: Callable[[], bool]
) -> None:
    """Runs all unfinished jobs on an open backend; a job that fails does not stop the others.

    `workers` jobs run at the same time (default: one per core; 0 counts as 1). `display` is called with all jobs from
    time to time; once `stop()` is true, the running jobs save their state and end.
    """
    waiting, running, stop_sent = deque(reproduction.unfinished), dict[Hashable, Job](), False
    cores = backend.cores()
    at_once = max(1, min(sum(cores) if workers is None else workers, len(waiting)))
    cores_each = max(1, min(max(cores), sum(cores) // at_once))
    while (waiting and not stop_sent) or running:
        if stop() and not stop_sent:
            stop_sent = True
            backend.request_stop()
        while waiting and len(running) < at_once and not stop_sent:
            job = waiting.popleft()
            try:
                handle = backend.start(reproduction.program(job, cores_each))
            except OSError as error:  # a full disk: the running jobs may still reach their end
                job.settle("failed", f"cannot write to {job.run.folder} ({error.strerror or error})")
                continue
            running[handle] = job
            job.start()
        for handle, ending in backend.wait():
            job = running.pop(handle)
            _settle(job, ending, stop_sent)
            if job.state == "waiting":
                waiting.appendleft(job)
        for job in running.values():
            job.refresh()
        display(reproduction.jobs)
    for job in waiting:
        job.settle("stopped")


def _settle(job: Job, ending: Ending, stopping: bool) -> None:
    """Records how a job's worker ended; the job waits again if it is to be restarted."""
    if ending.state == "finished":
        job.settle("finished")
    elif ending.state == "detached":
        job.settle("detached", ending.reason)
    elif ending.state == "stopped" or (ending.state == "killed" and stopping):
        job.settle("stopped")
    elif ending.state == "failed":
        job.settle("failed", ending.reason.removeprefix("svsl: ") or last_line(job.log))
    elif job.restarts < RESTARTS:
        job.restarts += 1
        job.settle("waiting")
    else:
        times = job.restarts + 1
        job.settle("failed", f"killed by {ending.reason} {times} times (out of memory?); its checkpoint is intact")


def last_line(log: Path) -> str:
    """Returns the last line of a log that is not empty."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return lines[-1].removeprefix("svsl: ") if lines else "nothing in its log (a full disk?)"
