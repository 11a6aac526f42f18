"""`svsl resume`."""

import sys
from dataclasses import dataclass

from svsl.cli.parsing import Folder, parse
from svsl.cli.training import TrainingOptions, train_run
from svsl.runs.folder import Run


@dataclass(frozen=True, kw_only=True)
class Options(TrainingOptions):
    """Resume an interrupted run as if it had never stopped."""

    folder: Folder
    """The run folder."""


def main(args: list[str]) -> int:
    """Resumes a run."""
    options = parse(Options, args, "svsl resume")
    run = Run.open(options.folder)
    if run.finished:
        print(f"{run.folder} is finished: nothing to resume", file=sys.stderr)
        return 0
    return train_run(options, run.config, run.config.make_task(options.workers), lambda: run)
