"""The training loop of every run: advance the learner; periodically test it, write metrics and a checkpoint."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

import numpy as np
from threadpoolctl import threadpool_limits

from svsl.errors import SvslError
from svsl.learners.base import Progress
from svsl.learners.episodic import EpisodicTraining, TaskError
from svsl.model.library import SkillLibrary
from svsl.runs.callbacks import Callback, Callbacks
from svsl.runs.folder import MetricsRow, Run, finite_numbers
from svsl.runs.tensorboard import TensorBoardWriter
from svsl.tasks.base import Task

_REPORT_EVERY_S = 0.2
_FINISHING = "svsl: finishing the current batch; press Ctrl-C again to stop now"


@dataclass(frozen=True)
class Status:
    """The current state of a run, for a progress display."""

    progress: Progress  # of the learner
    episodes: int  # run so far
    nonfinite: int  # episodes with a NaN or infinite return
    diverged: int  # episodes whose simulation diverged
    elapsed_s: float  # training time so far, over all interruptions
    episodes_per_s: float  # since the start or the resume; NaN if not yet known
    remaining_s: float  # estimated time to the end; NaN if not yet known
    test: MetricsRow | None  # the newest row of metrics; None before the first


class Trainer:
    """Trains one run in this process.

    Args:
        run: The run; if it has a checkpoint, training continues from there.
        checkpoint_s: Seconds between checkpoints; infinite if nobody will resume the run.
        workers: Threads or processes of a simulated task (default: all cores, 0: none besides this process).
        task: Runs the episodes instead of the configuration's task, with the same outcomes (on other machines, say).
        callbacks: Called during training.
    """

    def __init__(
        self,
        run: Run,
        checkpoint_s: float = 10.0,
        workers: int | None = None,
        task: Task | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        if task is not None and run.config.step_based:
            raise SvslError(f"{run.config.learner} runs its own simulation on this machine; leave out --backend")
        self.run, self.checkpoint_s = run, checkpoint_s
        self.task = task or run.make_task(workers)
        self.training = run.make_training(self.task, workers)
        counters = run.restore(self.training) or {"rows": 0, "elapsed_s": 0.0}
        self.rows, self.elapsed_s = int(counters["rows"]), float(counters["elapsed_s"])
        self._followers, self.callbacks = tuple(callbacks), Callbacks(callbacks)
        self._test: MetricsRow | None = None
        self._start_work, self._start_elapsed_s = self.training.progress.work, self.elapsed_s
        self._start_episodes = self.training.episodes

    def train(self, report: Callable[[Status], None], stop: Callable[[], bool] = lambda: False) -> bool:
        """Trains until the product is written, `stop` returns True, or a callback asks to stop.

        Args:
            report: Called with the current status several times per second, and at the end.
            stop: Called after every step of the learner; True ends training with a checkpoint.

        Returns:
            Whether the run is finished.
        """
        with numeric_settings(), self.run.lock(), self._explain_errors():
            try:
                finished = self._train(report, stop)
            finally:
                self.callbacks.close()
        if self.callbacks.error is not None:
            raise self.callbacks.error
        return finished

    def _train(self, report: Callable[[Status], None], stop: Callable[[], bool]) -> bool:
        run, training = self.run, self.training
        run.truncate_metrics(self.rows)
        board = TensorBoardWriter(run.tensorboard, run.read_metrics())
        self.callbacks = Callbacks([board, *self._followers])
        clock = reported = saved = time.monotonic()
        while not training.done:
            milestone = training.milestone
            training.advance()
            now = time.monotonic()
            self.elapsed_s += now - clock
            clock = now
            if training.milestone != milestone:
                self._measure()
            stopping = stop() or self.callbacks.stopping
            if stopping or training.done or now - saved > self.checkpoint_s:
                self.save_checkpoint()
                saved = now
            if stopping or training.done or now - reported > _REPORT_EVERY_S:
                report(self.status())
                reported = now
            if stopping and not training.done:
                return False
        training.save(run.product_path, run.origin)
        run.previous_path.unlink(missing_ok=True)
        return True

    def status(self) -> Status:
        """Returns the current state of the run."""
        training, progress, elapsed = self.training, self.training.progress, self.elapsed_s - self._start_elapsed_s
        work = progress.work - self._start_work
        return Status(
            progress=progress,
            episodes=training.episodes,
            nonfinite=training.nonfinite,
            diverged=training.diverged,
            elapsed_s=self.elapsed_s,
            episodes_per_s=(training.episodes - self._start_episodes) / elapsed if elapsed > 0 else math.nan,
            remaining_s=elapsed * (1 - progress.work) / work if work > 0 else math.nan,
            test=self._test,
        )

    def save_checkpoint(self) -> None:
        """Writes a checkpoint."""
        arrays, counters = self.training.state()
        self.run.save_checkpoint(arrays, counters | {"elapsed_s": self.elapsed_s, "rows": self.rows})
        self.callbacks.checkpoint(self.run.checkpoint_path)

    def library(self) -> SkillLibrary | None:
        """Returns the components trained so far as a library; None before the first, or if a policy is trained."""
        return self.training.library(self.run.origin) if isinstance(self.training, EpisodicTraining) else None

    def _measure(self) -> None:
        """Tests the learner and adds a row of metrics."""
        numbers = self.training.measure(self.run.config.test_contexts)
        if numbers is None:
            return
        self._test = {**numbers, "wall_s": round(self.elapsed_s, 3)}
        self.run.append_metrics(self._test)
        self.rows += 1
        self.callbacks.metrics(finite_numbers(self._test))
        library = self.library()
        if library is not None:
            self.callbacks.component(library)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Adds to an error how training can continue."""
        folder = self.run.folder
        try:
            yield
        except TaskError as error:
            if math.isinf(self.checkpoint_s):  # there is no checkpoint to continue from
                raise
            raise SvslError(f"{error}; fix it, then svsl resume {folder} continues from the last checkpoint") from error
        except OSError as error:
            raise SvslError(
                f"cannot write to {folder} ({error.strerror or error}); the last checkpoint is intact: free some "
                f"space, then svsl resume {folder}"
            ) from None


@contextmanager
def numeric_settings() -> Iterator[None]:
    """Uses one BLAS thread, because the matrices are small, and an allocator that keeps freed memory."""
    # after one large block is freed, glibc no longer returns every freed array to the system page by page
    block = np.empty(31 * 2**20, dtype=np.uint8)
    del block
    with threadpool_limits(1):
        yield


@contextmanager
def stop_on_signals(message: str = _FINISHING) -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a stop request after the current batch; a second one interrupts.

    The first Ctrl-C prints the message, because a batch may take long. SIGHUP, sent when the terminal is closed, stays
    ignored under `nohup`.
    """
    stop_requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop_requested.is_set
        return

    def handler(number: int, frame: FrameType | None) -> None:
        if stop_requested.is_set():
            raise KeyboardInterrupt
        stop_requested.set()
        if number == signal.SIGINT and message:
            with suppress(RuntimeError):  # the signal came while something else was being printed
                print(message, file=sys.stderr, flush=True)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    old = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield stop_requested.is_set
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)
