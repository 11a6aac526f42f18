"""A persistent pool of processes for jobs that run in Python. A process that dies is replaced."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import time
import traceback
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from threadpoolctl import threadpool_limits

from svsl.errors import SvslError

Job = TypeVar("Job")
Result = TypeVar("Result")

_MAX_DEATHS = 3  # of processes that work on one job alone, or are still starting
_MAX_DELAYS = 2  # of a job that takes too long
_MAX_BUNDLE = 16
_EXIT_S = 2.0


def available_cores() -> int:
    """Returns the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Failure:
    """An exception in a worker, as text."""

    index: int  # of the job in its bundle
    text: str
    is_svsl_error: bool


@dataclass(eq=False)
class _Worker:
    """A process, our end of its pipe, and its current jobs (None until it is ready)."""

    process: multiprocessing.process.BaseProcess
    connection: "Connection[Any, Any]"
    done: Any  # number of jobs of its bundle that it has finished, in shared memory
    jobs: list[int] | None = None
    seen: tuple[int, float] = (0, 0.0)  # the value of `done` at the last look, and when it was first seen

    def overdue(self, timeout_s: float) -> bool:
        """Whether it has been working on one job for longer than this."""
        now = time.monotonic()
        if self.done.value != self.seen[0]:
            self.seen = self.done.value, now
        return bool(self.jobs) and now - self.seen[1] >= timeout_s


class ProcessPool(Generic[Job, Result]):
    """Runs jobs in processes that persist between calls. The result of a job must not depend on its process.

    Args:
        name: Name of the pool in messages.
        make: Called once in every process; returns the function that is called with each job. Must be picklable.
        describe: Describes a job in messages.
        workers: Number of processes; 0 runs all jobs in this process.
        timeout_s: If a job takes longer, its process is replaced and the job repeated; None for no limit. Jobs in this
            process have none.
        give_up: Returns the result of a job that takes too long again; without it, such a job is an error.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Callable[[Job], Result]],
        describe: Callable[[Job], str],
        workers: int,
        timeout_s: float | None = None,
        give_up: Callable[[Job], Result] | None = None,
    ) -> None:
        self.name, self.workers, self.timeout_s = name, workers, timeout_s
        self._give_up = give_up
        self.replaced = 0
        self._make, self._describe = make, describe
        self._workers: list[_Worker] = []
        self._run_here: Callable[[Job], Result] | None = None
        self._failed_starts = 0
        weakref.finalize(self, _shut_down, self._workers)  # also at the end of the program

    def map(self, jobs: Sequence[Job]) -> list[Result]:
        """Returns the result of each job, in order; a job that raises an exception or kills its process is an error."""
        if self.workers == 0:
            return self._map_in_process(jobs)
        results: dict[int, Result] = {}
        size = max(1, min(_MAX_BUNDLE, len(jobs) // (4 * self.workers)))
        queue = deque(list(range(start, min(start + size, len(jobs)))) for start in range(0, len(jobs), size))
        deaths, delays = Counter[int](), Counter[int]()
        try:
            while len(results) < len(jobs):
                self._start_workers(len(queue))
                self._assign(jobs, queue)
                awaited = [worker for worker in self._workers if worker.jobs != []]
                ready = wait([worker.connection for worker in awaited], self.timeout_s)
                for worker in awaited:
                    try:
                        if worker.connection in ready:
                            self._receive(worker, jobs, results)
                        elif self.timeout_s is not None and worker.overdue(self.timeout_s):
                            self._remove_overdue(worker, jobs, queue, results, delays)
                    except (EOFError, OSError):
                        self._remove_dead(worker, jobs, queue, deaths)
        except BaseException:  # also a second Ctrl-C: no process may continue with old jobs
            self.close()
            raise
        return [results[index] for index in range(len(jobs))]

    def close(self) -> None:
        """Ends the processes; the next call of `map` starts new ones."""
        _shut_down(self._workers)

    def _map_in_process(self, jobs: Sequence[Job]) -> list[Result]:
        self._run_here = self._run_here or self._make()
        results = _run_jobs(self._run_here, jobs)
        if isinstance(results, _Failure):
            raise self._error(results, jobs[results.index])
        return results

    def _start_workers(self, waiting: int) -> None:
        """Starts processes for the jobs that no idle process can take."""
        free = sum(not worker.jobs for worker in self._workers)
        context = multiprocessing.get_context("spawn")
        for _ in range(min(self.workers - len(self._workers), waiting - free)):
            ours, theirs = context.Pipe()
            done = context.RawValue("i", 0)
            arguments = theirs, self._make, done
            process = context.Process(target=_run_worker, args=arguments, name=f"svsl {self.name}", daemon=True)
            try:
                with _interrupts_blocked():
                    process.start()
            except (AttributeError, TypeError, pickle.PicklingError) as error:
                raise SvslError(
                    f"{self.name}: cannot be sent to other processes ({error}); define its functions at the top level "
                    "of a module, or set workers = 0"
                ) from None
            theirs.close()  # so that ours ends when the process does
            self._workers.append(_Worker(process, ours, done))

    def _assign(self, jobs: Sequence[Job], queue: deque[list[int]]) -> None:
        for worker in [w for w in self._workers if w.jobs == []]:
            if not queue:
                return
            worker.jobs, worker.seen = queue.popleft(), (0, time.monotonic())
            worker.done.value = 0
            with contextlib.suppress(OSError):  # it died while idle: receiving will fail
                worker.connection.send([jobs[index] for index in worker.jobs])

    def _receive(self, worker: _Worker, jobs: Sequence[Job], results: dict[int, Result]) -> None:
        """Receives a message: that the worker is ready (an empty list), its results, or a failure."""
        message: list[Result] | _Failure = worker.connection.recv()
        indices = worker.jobs or []
        if isinstance(message, _Failure):
            raise self._error(message, jobs[indices[message.index]] if indices else None)
        self._failed_starts = 0
        results.update(zip(indices, message, strict=True))
        worker.jobs = []

    def _remove_dead(self, worker: _Worker, jobs: Sequence[Job], queue: deque[list[int]], deaths: Counter[int]) -> None:
        """Removes a dead worker; its jobs are repeated one by one, to find the one that kills."""
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join()
        code = worker.process.exitcode
        self.replaced += 1
        if worker.jobs is None:
            self._failed_starts += 1
            if self._failed_starts == _MAX_DEATHS:
                raise SvslError(
                    f"{self.name}: its processes die while starting (exit code {code}); a script that trains needs "
                    'if __name__ == "__main__": around its code, and workers = 0 shows the error'
                )
            return
        if len(worker.jobs) == 1:
            alone = worker.jobs[0]
            deaths[alone] += 1
            if deaths[alone] == _MAX_DEATHS:
                raise SvslError(
                    f"{self.name}: one episode ended its process {_MAX_DEATHS} times (exit code {code}): "
                    f"{self._describe(jobs[alone])}"
                )
        queue.extendleft([index] for index in reversed(worker.jobs))

    def _remove_overdue(
        self,
        worker: _Worker,
        jobs: Sequence[Job],
        queue: deque[list[int]],
        results: dict[int, Result],
        delays: Counter[int],
    ) -> None:
        """Replaces a worker; its job is repeated once, in case that only the machine was asleep, then given up."""
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self._workers.remove(worker)
        self.replaced += 1
        indices = worker.jobs or []
        late = indices[min(worker.done.value, len(indices) - 1)]
        delays[late] += 1
        if delays[late] == _MAX_DELAYS:
            problem = f"an episode took longer than {self.timeout_s:g} s, {_MAX_DELAYS} times"
            if self._give_up is None:
                raise SvslError(f"{self.name}: {problem}: {self._describe(jobs[late])}")
            warnings.warn(f"{self.name}: {problem}, and was given up: {self._describe(jobs[late])}", stacklevel=2)
            results[late] = self._give_up(jobs[late])
            indices = [index for index in indices if index != late]
        queue.extendleft([index] for index in reversed(indices))

    def _error(self, failure: _Failure, job: Job | None) -> SvslError:
        if failure.is_svsl_error:
            return SvslError(failure.text)
        place = "" if job is None else f"; it happened with {self._describe(job)}"
        return SvslError(f"{self.name} failed: {failure.text}{place}")


def _run_worker(connection: "Connection[Any, Any]", make: Callable[[], Callable[[Any], Any]], done: Any) -> None:
    """Runs in a process until the other end of its pipe is closed."""
    for name in ("SIGINT", "SIGHUP"):  # Ctrl-C and the end of a terminal reach all its processes; the parent decides
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        created = _run_jobs(lambda _: make(), [None])
        connection.send(created if isinstance(created, _Failure) else [])
        if isinstance(created, _Failure):
            return

        def run(job: Any) -> Any:
            result = created[0](job)
            done.value += 1
            return result

        with threadpool_limits(1):  # the other cores have their own processes
            while True:
                connection.send(_run_jobs(run, connection.recv()))


def _run_jobs(run: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result] | _Failure:
    """Returns the results of the jobs, or the first failure."""
    results: list[Result] = []
    for index, job in enumerate(jobs):
        try:
            results.append(run(job))
        except Exception as error:  # user code may raise anything
            if isinstance(error, SvslError):
                return _Failure(index, str(error), True)
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name} line {frame.lineno}"
            return _Failure(index, f"{type(error).__name__}: {error} ({place})", False)
    return results


def _shut_down(workers: list[_Worker]) -> None:
    """Closes the pipes, which ends the processes; terminates those that are busy."""
    for worker in workers:
        worker.connection.close()
        if worker.jobs != []:  # busy, or still starting
            worker.process.terminate()
    for worker in workers:
        worker.process.join(_EXIT_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()
    workers.clear()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks SIGINT for a process started inside, until it ignores the signal by itself."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
