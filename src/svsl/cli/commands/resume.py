"""`svsl resume`."""

import sys
from dataclasses import dataclass

from svsl.cli.parsing import Folder
from svsl.cli.task_choice import TrustFlag
from svsl.cli.training import TrainingOptions, train_run
from svsl.runs.folder import Run


@dataclass(frozen=True, kw_only=True)
class Options(TrainingOptions, TrustFlag):
    """Resume an interrupted run as if it had never stopped."""

    folder: Folder
    """The run folder."""


def main(options: Options) -> int:
    """Resumes a run."""
    run = Run.open(options.folder, options.choice)
    if run.finished:
        print(f"{run.folder} is finished: nothing to resume", file=sys.stderr)
        return 0
    return train_run(options, run.config, run.make_task(options.workers), lambda: run)
