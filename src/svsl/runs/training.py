"""The loop of every run: ask, evaluate, tell; now and then test, write metrics and a checkpoint."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from svsl.errors import SvslError
from svsl.evaluation.metrics import execute, mixture_entropy
from svsl.learners.base import Learner, Progress, above
from svsl.model.gaussians import Array
from svsl.model.random import rng_from_array, rng_to_array, stream
from svsl.runs.config import TASK_STREAM, TEST_STREAM, import_ppo
from svsl.runs.folder import MetricsRow, Run
from svsl.runs.tensorboard import TensorBoardWriter
from svsl.tasks.base import Task, run_episodes

_REPORT_EVERY_S = 0.2


@dataclass(frozen=True)
class Status:
    """What a progress display shows.

    Attributes:
        progress: Where the learner stands.
        episodes: Episodes run so far.
        nonfinite: How many of them had a NaN or infinite return.
        diverged: How many simulations blew up.
        elapsed_s: Training time so far, over all interruptions.
        episodes_per_s: Current speed.
        remaining_s: Estimated time to the end; NaN if not yet known.
        test: The newest row of metrics, None before the first.
    """

    progress: Progress
    episodes: int
    nonfinite: int
    diverged: int
    elapsed_s: float
    episodes_per_s: float
    remaining_s: float
    test: MetricsRow | None


class Trainer:
    """One process working on one run.

    Args:
        run: The run; if it has a checkpoint, training goes on from there.
        checkpoint_s: Seconds between checkpoints; infinite if nobody will resume the run.
        workers: Threads of tasks that simulate on several; all cores unless told.
        task: What to evaluate on instead of the configuration's task, with the same outcomes (on other machines, say).
    """

    def __init__(
        self, run: Run, checkpoint_s: float = 10.0, workers: int | None = None, task: Task | None = None
    ) -> None:
        self.run, self.checkpoint_s = run, checkpoint_s
        self.task: Task = task or run.config.make_task(workers)
        self.learner: Learner = run.make_learner(self.task)
        self.task_rng = stream(run.config.seed, TASK_STREAM)
        penalty = getattr(self.task, "penalty", None)
        self.penalty = None if penalty is None else float(penalty)
        self.episodes, self.simulated, self.nonfinite, self.rows = 0, 0, 0, 0
        self.worst_return, self.elapsed_s = np.inf, 0.0
        self.flagged: dict[str, int] = {}
        self._resume()
        self._test: MetricsRow | None = None
        self._start_work = self.learner.progress.work
        self._start_episodes, self._start_elapsed_s = self.episodes, self.elapsed_s

    def train(self, report: Callable[[Status], None], stop: Callable[[], bool] = lambda: False) -> bool:
        """Trains until the library is written or `stop` says so; returns whether it is finished."""
        with working_on(self.run):
            return self._train(report, stop)

    def _train(self, report: Callable[[Status], None], stop: Callable[[], bool]) -> bool:
        self.run.truncate_metrics(self.rows)
        board = TensorBoardWriter(self.run.folder / "tensorboard", self.run.read_metrics())
        clock = time.monotonic()
        reported = saved = clock
        while not self.learner.done:
            milestone = self.learner.milestone
            self._one_batch()
            now = time.monotonic()
            self.elapsed_s += now - clock
            clock = now
            if self.learner.milestone != milestone and self.learner.mixture() is not None:
                self._test = self._measure()
                self.run.append_metrics(self._test)
                board.add(self._test)
                self.rows += 1
            stopping = stop()
            if stopping or self.learner.done or now - saved > self.checkpoint_s:
                self._save()
                saved = now
            if stopping or self.learner.done or now - reported > _REPORT_EVERY_S:
                report(self.status())
                reported = now
            if stopping and not self.learner.done:
                return False
        self.run.save_library(self.learner, self.task, self.episodes, self.simulated)
        return True

    def status(self) -> Status:
        """Where the run stands now."""
        progress, elapsed = self.learner.progress, self.elapsed_s - self._start_elapsed_s
        rate = (self.episodes - self._start_episodes) / elapsed if elapsed > 0 else float("nan")
        work = progress.work - self._start_work
        remaining = elapsed * (1 - progress.work) / work if work > 0 else float("nan")
        diverged = self.flagged.get("diverged", 0)
        return Status(progress, self.episodes, self.nonfinite, diverged, self.elapsed_s, rate, remaining, self._test)

    def _one_batch(self) -> None:
        episodes = self.learner.ask()
        with self._safe_run():
            outcome = run_episodes(self.task, episodes.contexts, episodes.parameters, self.task_rng)
        returns = outcome.returns.astype(np.float64)
        self.episodes += len(returns)
        simulated = outcome.info.get("simulated")
        self.simulated += len(returns) if simulated is None else int(np.count_nonzero(simulated))
        for name, flags in outcome.info.items():
            if name == "diverged" or name.startswith("invalid_"):
                self.flagged[name] = self.flagged.get(name, 0) + int(np.count_nonzero(flags))
        self.learner.tell(self._finite(returns))

    @contextmanager
    def _safe_run(self) -> Iterator[None]:
        """Where the user's code runs: if it fails, the message also says that the run is safe."""
        try:
            yield
        except SvslError as error:
            if np.isinf(self.checkpoint_s):  # there is nothing to go on from
                raise
            raise SvslError(
                f"{error}; mend it, then svsl resume {self.run.folder} goes on from the last checkpoint"
            ) from error

    def _finite(self, returns: Array) -> Array:
        """Returns with every NaN or infinity counted and replaced by the penalty or the worst return seen."""
        finite = np.isfinite(returns)
        if finite.any():
            self.worst_return = min(self.worst_return, float(returns[finite].min()))
        if finite.all():
            return returns
        self.nonfinite += int((~finite).sum())
        replacement = self.penalty if self.penalty is not None else self.worst_return
        if not np.isfinite(replacement):
            raise SvslError(
                f"task {self.run.config.task!r}: all of its first {len(returns)} returns are NaN or infinite, so there "
                "is nothing to learn from; svsl check-task may tell why, or give the task a finite `penalty`"
            )
        return np.where(finite, returns, replacement)

    def _measure(self) -> MetricsRow:
        """Tests the components trained so far on fresh contexts."""
        mixture = self.learner.mixture()
        assert mixture is not None
        rng = stream(self.run.config.seed, TEST_STREAM, self.learner.milestone)
        with self._safe_run():
            result = execute(mixture, self.task, self.run.config.test_contexts, rng)
        progress = self.learner.progress
        return {
            "episodes": self.episodes,
            "episodes_simulated": self.simulated,
            "milestone": self.learner.milestone,
            "components": len(mixture),
            "return_mean": float(result.mean.returns.mean()),
            "success_rate": float(result.mean.success.mean()),
            "return_sampled": float(result.sampled.returns.mean()),
            "mixture_entropy": float(mixture_entropy(mixture, result.contexts[:50], 100, rng).mean()),
            "recent_return": progress.recent_return,
            **progress.counts,
            "nonfinite_returns": self.nonfinite,
            **self.flagged,
            "wall_s": round(self.elapsed_s, 3),
        }

    def _save(self) -> None:
        arrays = above("learner.", self.learner.state()) | {"task_rng": rng_to_array(self.task_rng)}
        counters = {
            "episodes": self.episodes,
            "simulated": self.simulated,
            "nonfinite": self.nonfinite,
            "flagged": self.flagged,
            "worst_return": self.worst_return,
            "elapsed_s": self.elapsed_s,
            "rows": self.rows,
        }
        self.run.save_checkpoint(arrays, counters)

    def _resume(self) -> None:
        checkpoint = self.run.load_checkpoint()
        if checkpoint is None:
            return
        arrays, counters = checkpoint
        self.run.restore_learner(self.learner, arrays)
        self.task_rng = rng_from_array(arrays["task_rng"].astype(np.uint64))
        self.episodes, self.simulated = int(counters["episodes"]), int(counters["simulated"])
        self.nonfinite, self.rows = int(counters["nonfinite"]), int(counters["rows"])
        self.flagged = dict(counters["flagged"])
        self.worst_return, self.elapsed_s = float(counters["worst_return"]), float(counters["elapsed_s"])


class AnyTrainer(Protocol):
    """What works on a run, whatever the learner."""

    def train(self, report: Callable[[Status], None], stop: Callable[[], bool] = ...) -> bool:
        """Trains until the run is finished or `stop` says so; returns whether it is finished."""
        ...


def make_trainer(
    run: Run, checkpoint_s: float = 10.0, workers: int | None = None, task: Task | None = None
) -> AnyTrainer:
    """The trainer of the run's learner; the arguments are those of `Trainer`.

    Raises:
        SvslError: If a step-based learner shall run its episodes elsewhere.
    """
    if not run.config.step_based:
        return Trainer(run, checkpoint_s, workers, task)
    if task is not None:
        raise SvslError(f"{run.config.learner} acts step by step on this machine; leave out --backend")
    trainer: AnyTrainer = import_ppo().PPOTrainer(run, checkpoint_s, workers)
    return trainer


@contextmanager
def working_on(run: Run) -> Iterator[None]:
    """Locks the run's folder, sets up the numerics, and says what to do when the disk is full."""
    with numeric_settings(), run.lock():
        try:
            yield
        except OSError as error:
            raise SvslError(
                f"cannot write to {run.folder} ({error.strerror}); the last checkpoint is whole: make room, "
                f"then svsl resume {run.folder}"
            ) from None


@contextmanager
def numeric_settings() -> Iterator[None]:
    """One BLAS thread, because the matrices are small, and an allocator that keeps freed memory."""
    # having freed one large block, glibc no longer hands every freed array back to the system page by page
    block = np.empty(31 * 2**20, dtype=np.uint8)
    del block
    with threadpool_limits(1):
        yield


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C or SIGTERM into a wish to stop after the current batch; a second one interrupts."""
    wish = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wish.is_set
        return

    def handler(number: int, frame: FrameType | None) -> None:
        if wish.is_set():
            raise KeyboardInterrupt
        wish.set()

    old = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish.is_set
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)
