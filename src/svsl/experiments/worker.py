"""The worker of one job: trains a run and evaluates it. Backends run it as `python -m svsl.experiments.worker`."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from svsl.backends.base import STOPPED
from svsl.errors import SvslError, complain
from svsl.experiments.behaviour import stored_behaviour
from svsl.runs.evaluation import stored_evaluation
from svsl.runs.folder import Run
from svsl.runs.training import Status, Trainer, stop_on_signals
from svsl.runs.trust import TaskChoice

_LOCK_WAIT_S = 60.0


def main(args: Sequence[str], stop: Callable[[], bool] | None = None) -> int:
    """Trains and evaluates one run; returns 0 if it is finished, `STOPPED`, or 1 after an error message.

    `args` are the run folder, its task, the threads of a simulated task, the contexts of the evaluation, and the
    seconds between checkpoints. Without `stop`, the worker stops on SIGTERM or when its parent process has ended.
    """
    folder, task, threads, contexts, checkpoint_s = args
    run_args = Path(folder), task, int(threads), int(contexts), float(checkpoint_s)
    try:
        if stop is not None:
            return 0 if train_and_evaluate(*run_args, stop) else STOPPED
        parent = os.getppid()
        with stop_on_signals() as stop_requested:
            finished = train_and_evaluate(*run_args, lambda: stop_requested() or os.getppid() != parent)
        return 0 if finished else STOPPED
    except KeyboardInterrupt:
        return STOPPED
    except SvslError as error:
        return complain(str(error), code=1)
    except OSError as error:
        return complain(f"{error.filename or folder}: {error.strerror or error}", code=1)


def train_and_evaluate(
    folder: Path, task_name: str, threads: int, contexts: int, checkpoint_s: float, stop: Callable[[], bool]
) -> bool:
    """Trains a run from its last checkpoint and evaluates it; returns False if it was stopped before its end."""
    run, task = Run.open(folder, TaskChoice(task_name)), None  # the experiment names the task, not the folder
    if not run.finished:
        with run.lock(_LOCK_WAIT_S):  # a worker on a lost machine may still be about to end
            pass
        trainer = Trainer(run, checkpoint_s, threads)
        if not trainer.train(lambda status: write_progress(run, status), stop):
            return False
        task = trainer.task  # saves compiling its simulation again
    newest = run.read_progress()
    stored_evaluation(run, contexts, threads, task, lambda share, _: run.write_progress({**newest, "evaluated": share}))
    stored_behaviour(run, threads, task)
    return True


def write_progress(run: Run, status: Status) -> None:
    """Writes the run's progress for the parent process."""
    run.write_progress({"work": status.progress.work, "episodes": status.episodes, "diverged": status.diverged})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
