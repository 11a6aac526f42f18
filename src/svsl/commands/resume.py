"""`svsl resume`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from svsl.commands.base import Folder, Switch, complain, parse
from svsl.commands.eval import evaluation, show_evaluation
from svsl.commands.plot import draw
from svsl.runs import Run


@dataclass(frozen=True)
class Options:
    """Go on with an interrupted run as if it had never stopped."""

    folder: Folder
    """The run folder."""
    quiet: Switch = False
    """Show no progress and no results."""
    checkpoint_s: float = 10.0
    """Seconds between checkpoints."""
    workers: int | None = None
    """Threads or processes of a simulated task; default all cores. The result does not depend on it."""


def main(args: list[str]) -> int:
    """Goes on with a run."""
    options = parse(Options, args, "svsl resume")
    run = Run.open(options.folder)
    if run.finished:
        print(f"{run.folder} is finished: nothing to resume", file=sys.stderr)
        return 0
    return work_on(run, options.quiet, options.checkpoint_s, options.workers)


def work_on(run: Run, quiet: bool, checkpoint_s: float, workers: int | None) -> int:
    """Trains a run to its end or to Ctrl-C, then shows its numbers and draws its figures."""
    from svsl.progress import ProgressDisplay
    from svsl.training import Trainer, stop_on_signals

    trainer = Trainer(run, checkpoint_s=checkpoint_s, workers=workers)
    title = f"{run.config.task} seed {run.config.seed}"
    with stop_on_signals() as stop, ProgressDisplay(title, quiet) as display:
        finished = trainer.train(display, stop)
    if not finished:
        return complain(f"stopped and saved; svsl resume {run.folder} goes on", code=130)
    if not quiet:
        show_evaluation(evaluation(run.load_library(), run))
        draw(run)
        print(f"library  {run.library_path}")
    return 0
