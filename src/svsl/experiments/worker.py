"""One seed of a reproduction in a process of its own: trains and evaluates a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from svsl.errors import SvslError, complain
from svsl.runs.comparison import run_numbers
from svsl.runs.folder import Run
from svsl.runs.training import Status, make_trainer, stop_on_signals

STOPPED = 130  # exit code: not finished, but saved
_LOCK_WAIT_S = 60.0


@dataclass(frozen=True)
class Work:
    """What a worker is told.

    Attributes:
        folder: The run.
        threads: Of a simulated task.
        contexts: Of the evaluation.
        checkpoint_s: Seconds between checkpoints.
    """

    folder: str
    threads: int
    contexts: int
    checkpoint_s: float


def train_and_evaluate(work: Work, stop: Callable[[], bool]) -> bool:
    """Trains a run from where it stands and evaluates it; returns False if it was stopped before its end."""
    run = Run.open(Path(work.folder))
    if not run.finished:
        with run.lock(_LOCK_WAIT_S):  # a worker lost with its machine may still be dying
            pass
        trainer = make_trainer(run, work.checkpoint_s, work.threads)
        if not trainer.train(lambda status: report(run, status), stop):
            return False
    run_numbers(run, work.contexts, work.threads)
    return True


def report(run: Run, status: Status) -> None:
    """Writes progress for the parent process."""
    run.write_progress({"work": status.progress.work, "episodes": status.episodes, "diverged": status.diverged})


def main() -> int:
    """Works on one run; the parent process reads the exit code, and the log if it is not 0."""
    folder, threads, contexts, checkpoint_s = sys.argv[1:]
    work, parent = Work(folder, int(threads), int(contexts), float(checkpoint_s)), os.getppid()
    try:
        with stop_on_signals() as wish:
            finished = train_and_evaluate(work, lambda: wish() or os.getppid() != parent)
        return 0 if finished else STOPPED
    except KeyboardInterrupt:
        return STOPPED
    except SvslError as error:
        return complain(str(error), code=1)
    except OSError as error:
        return complain(f"{error.filename or folder}: {error.strerror or error}", code=1)


if __name__ == "__main__":
    sys.exit(main())
