"""A persistent pool of processes for episodes that run in Python. A process that dies is replaced."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import traceback
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from threadpoolctl import threadpool_limits

from svsl.errors import SvslError

Job = TypeVar("Job")
Result = TypeVar("Result")

_DEATHS = 3  # so many of one episode alone, or of processes that only start, are no accident
_MOST_TOGETHER = 16
_GOODBYE_S = 2.0


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Failure:
    """An exception in a worker, in words."""

    index: int  # of the job in its bundle
    text: str
    is_svsl_error: bool


@dataclass(eq=False)
class _Worker:
    """A process, our end of its pipe, and the jobs it is at (None until it has reported for work)."""

    process: multiprocessing.process.BaseProcess
    connection: Connection[Any, Any]
    jobs: list[int] | None = field(default=None)


class ProcessPool(Generic[Job, Result]):
    """Does jobs in processes that stay from call to call. Which process does a job must not matter to its result.

    Args:
        name: What the jobs are done on, for messages.
        make: Called once in every process; what it returns is then called with each job. Must be picklable.
        describe: A job in words, for messages.
        workers: Number of processes; 0 does all jobs in this one.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Callable[[Job], Result]],
        describe: Callable[[Job], str],
        workers: int,
    ) -> None:
        self.name, self.workers = name, workers
        self.replaced = 0
        self._make, self._describe = make, describe
        self._workers: list[_Worker] = []
        self._here: Callable[[Job], Result] | None = None
        self._failed_starts = 0
        weakref.finalize(self, _dismiss, self._workers)  # also at the end of the program

    def map(self, jobs: Sequence[Job]) -> list[Result]:
        """The result of each job, in order.

        Raises:
            SvslError: If a job raises an exception, or kills its process again and again.
        """
        if self.workers == 0:
            return self._map_here(jobs)
        results: dict[int, Result] = {}
        size = max(1, min(_MOST_TOGETHER, len(jobs) // (4 * self.workers)))
        queue = deque(list(range(start, min(start + size, len(jobs)))) for start in range(0, len(jobs), size))
        deaths = Counter[int]()
        try:
            while len(results) < len(jobs):
                self._hire(len(queue))
                self._hand_out(jobs, queue)
                awaited = {w.connection: w for w in self._workers if w.jobs != []}
                for connection in wait(list(awaited)):
                    self._listen(awaited[connection], jobs, queue, results, deaths)  # type: ignore[index]
        except BaseException:  # also a second Ctrl-C: no process may go on with old jobs
            self.close()
            raise
        return [results[index] for index in range(len(jobs))]

    def close(self) -> None:
        """Ends the processes; the next call of `map` starts new ones."""
        _dismiss(self._workers)

    def _map_here(self, jobs: Sequence[Job]) -> list[Result]:
        self._here = self._here or self._make()
        results = _do(self._here, jobs)
        if isinstance(results, _Failure):
            raise self._error(results, jobs[results.index])
        return results

    def _hire(self, waiting: int) -> None:
        """Starts processes while there are jobs nobody is free for."""
        free = sum(not worker.jobs for worker in self._workers)
        context = multiprocessing.get_context("spawn")
        for _ in range(min(self.workers - len(self._workers), waiting - free)):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, self._make), name=f"svsl {self.name}", daemon=True)
            try:
                with _interrupts_blocked():
                    process.start()
            except (AttributeError, TypeError, pickle.PicklingError) as error:
                raise SvslError(
                    f"{self.name}: cannot be sent to other processes ({error}); define its functions at the top level "
                    "of a module, or set workers = 0"
                ) from None
            theirs.close()  # so that ours ends when the process does
            self._workers.append(_Worker(process, ours))

    def _hand_out(self, jobs: Sequence[Job], queue: deque[list[int]]) -> None:
        for worker in [w for w in self._workers if w.jobs == []]:
            if not queue:
                return
            worker.jobs = queue.popleft()
            with contextlib.suppress(OSError):  # it died while it had nothing to do: its pipe will tell
                worker.connection.send([jobs[index] for index in worker.jobs])

    def _listen(
        self,
        worker: _Worker,
        jobs: Sequence[Job],
        queue: deque[list[int]],
        results: dict[int, Result],
        deaths: Counter[int],
    ) -> None:
        """Takes what a worker sent: that it is ready, its results, a failure; or that it is dead."""
        try:
            message: list[Result] | _Failure = worker.connection.recv()
        except (EOFError, OSError):
            self._bury(worker, jobs, queue, deaths)
            return
        indices = worker.jobs or []
        if isinstance(message, _Failure):
            raise self._error(message, jobs[indices[message.index]] if indices else None)
        self._failed_starts = 0
        results.update(zip(indices, message, strict=True))
        worker.jobs = []

    def _bury(self, worker: _Worker, jobs: Sequence[Job], queue: deque[list[int]], deaths: Counter[int]) -> None:
        """Takes a dead worker off the list; its jobs are done again, one by one to find out which of them kills."""
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join()
        code = worker.process.exitcode
        self.replaced += 1
        if worker.jobs is None:
            self._failed_starts += 1
            if self._failed_starts == _DEATHS:
                raise SvslError(
                    f"{self.name}: its processes end as they start (exit code {code}); a script that trains needs "
                    'if __name__ == "__main__": around what it does, and workers = 0 shows what happens'
                )
            return
        if len(worker.jobs) == 1:
            lone = worker.jobs[0]
            deaths[lone] += 1
            if deaths[lone] == _DEATHS:
                raise SvslError(
                    f"{self.name}: one episode ended its process {_DEATHS} times (exit code {code}): "
                    f"{self._describe(jobs[lone])}"
                )
        queue.extendleft([index] for index in reversed(worker.jobs))

    def _error(self, failure: _Failure, job: Job | None) -> SvslError:
        if failure.is_svsl_error:
            return SvslError(failure.text)
        place = "" if job is None else f"; it happened with {self._describe(job)}"
        return SvslError(f"{self.name} failed: {failure.text}{place}")


def _work(connection: Connection[Any, Any], make: Callable[[], Callable[[Any], Any]]) -> None:
    """What a process does until the other end of its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; our parent decides
    with contextlib.suppress(EOFError, OSError):
        made = _do(lambda _: make(), [None])
        connection.send(made if isinstance(made, _Failure) else [])
        if isinstance(made, _Failure):
            return
        with threadpool_limits(1):  # the other cores have processes of their own
            while True:
                connection.send(_do(made[0], connection.recv()))


def _do(play: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result] | _Failure:
    """The results of jobs, or the first exception."""
    results: list[Result] = []
    for index, job in enumerate(jobs):
        try:
            results.append(play(job))
        except Exception as error:  # whatever the user's code raises
            if isinstance(error, SvslError):
                return _Failure(index, str(error), True)
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name} line {frame.lineno}"
            return _Failure(index, f"{type(error).__name__}: {error} ({place})", False)
    return results


def _dismiss(workers: list[_Worker]) -> None:
    """Closes the pipes, which ends the processes; one that does not listen is ended."""
    for worker in workers:
        worker.connection.close()
        if worker.jobs != []:  # it is at work, or still starting
            worker.process.terminate()
    for worker in workers:
        worker.process.join(_GOODBYE_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()
    workers.clear()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process started meanwhile cannot be interrupted before it has said that it ignores interrupts."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
