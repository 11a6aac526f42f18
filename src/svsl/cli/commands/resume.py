"""`svsl resume`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from svsl.cli.commands.eval import show_evaluation
from svsl.cli.commands.plot import draw
from svsl.cli.parsing import Folder, Switch, parse
from svsl.errors import SvslError, complain
from svsl.runs.config import RunConfig
from svsl.runs.evaluation import evaluate_run
from svsl.runs.folder import Run
from svsl.tasks.base import Task

_LOSS = 0.05  # of the success rate, worth a word


@dataclass(frozen=True, kw_only=True)
class Work:
    """How a run is worked on, whatever it learns."""

    quiet: Switch = False
    """Show no progress and no results."""
    checkpoint_s: float = 10.0
    """Seconds between checkpoints."""
    workers: int | None = None
    """Threads or processes of a simulated task; default all cores. The result does not depend on it."""
    backend: Literal["local", "ray"] = "local"
    """Where episodes run: on this machine, or spread over a Ray cluster."""
    ray_address: str | None = None
    """The cluster; default the environment's RAY_ADDRESS, or a Ray of its own on this machine."""

    def __post_init__(self) -> None:
        if self.checkpoint_s < 0:
            raise SvslError(f"setting checkpoint_s: expected at least 0, got {self.checkpoint_s:g}")
        if self.workers is not None and self.workers < 0:
            raise SvslError(f"setting workers: expected at least 0, got {self.workers}")


@dataclass(frozen=True, kw_only=True)
class Options(Work):
    """Go on with an interrupted run as if it had never stopped."""

    folder: Folder
    """The run folder."""


def main(args: list[str]) -> int:
    """Goes on with a run."""
    options = parse(Options, args, "svsl resume")
    run = Run.open(options.folder)
    if run.finished:
        print(f"{run.folder} is finished: nothing to resume", file=sys.stderr)
        return 0
    return work_on(options, run.config, lambda: run)


@contextmanager
def episodes_on(backend: str, ray_address: str | None, config: RunConfig) -> Iterator[Task | None]:
    """The run's task with its episodes on a Ray cluster; None for a local run, which never imports Ray."""
    if backend == "local":
        yield None
        return
    from svsl.backends.ray_cluster import RayTask, connected

    with connected(ray_address):
        yield RayTask(config.task, config.task_options)


def lost_by_weights(run: Run) -> str | None:
    """What to know if the library was clearly better before its weights were learned; None if it was not."""
    if not run.config.settings.learns_weights:
        return None
    before, after = ([None, None, *run.read_metrics()])[-2:]
    if before is None or after is None or before["success_rate"] - after["success_rate"] < _LOSS:
        return None
    return (
        f"weights  learning them left {after['components']} of {before['components']} components, and success fell "
        f"from {before['success_rate']:.0%} to {after['success_rate']:.0%} in tests: a larger --beta-weight keeps more"
    )


def work_on(work: Work, config: RunConfig, opened: Callable[[], Run]) -> int:
    """Trains a run to its end or to Ctrl-C, then shows its numbers and draws its figures.

    Args:
        work: How.
        config: Of the run.
        opened: Opens or makes the run's folder; not called before the cluster, if there shall be one, was reached.
    """
    from svsl.runs.training import make_trainer, stop_on_signals
    from svsl.show.progress import ProgressDisplay

    with episodes_on(work.backend, work.ray_address, config) as task:
        run = opened()
        trainer = make_trainer(run, work.checkpoint_s, work.workers, task)
        title = f"{config.task} seed {config.seed}"
        with stop_on_signals() as stop, ProgressDisplay(title, work.quiet) as display:
            finished = trainer.train(display, stop)
    if not finished:
        return complain(f"stopped and saved; svsl resume {run.folder} goes on", code=130)
    if not work.quiet:
        show_evaluation(evaluate_run(run))
        told = lost_by_weights(run)
        if told is not None:
            print(told)
        draw(run)
        print(f"{run.product_path.stem:8} {run.product_path}")
    return 0
