"""Training a run from the command line, shared by `svsl train`, `svsl resume` and `svsl extend`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from svsl.cli.parsing import Switch, require_range
from svsl.errors import complain
from svsl.runs.config import RunConfig
from svsl.runs.evaluation import evaluate_run
from svsl.runs.folder import Run
from svsl.runs.training import Trainer, stop_on_signals
from svsl.show.progress import ProgressDisplay
from svsl.show.tables import show_evaluation
from svsl.tasks.base import Task

_NOTABLE_LOSS = 0.05  # drop of the success rate that is worth a warning


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a run is trained; none of these options changes what it learns."""

    quiet: Switch = False
    """Show no progress and no results."""
    checkpoint_s: float = 10.0
    """Seconds between checkpoints."""
    workers: int | None = None
    """Threads or processes of a simulated task, 0 for none besides this one (default: all cores). Changes no result."""
    backend: Literal["local", "ray"] = "local"
    """Where episodes run: on this machine, or spread over a Ray cluster."""
    ray_address: str | None = None
    """Address of the Ray cluster (default: the environment variable RAY_ADDRESS, or a new local Ray instance)."""

    def __post_init__(self) -> None:
        require_range(0, checkpoint_s=self.checkpoint_s, workers=self.workers)


@dataclass(frozen=True, kw_only=True)
class NewRunOptions(TrainingOptions):
    """Options of the commands that start a run."""

    test_contexts: int = 500
    """Number of new contexts per test, after each component."""
    overwrite: Switch = False
    """Replace an existing run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(1, test_contexts=self.test_contexts)


def train_run(options: TrainingOptions, config: RunConfig, task: Task, open_run: Callable[[], Run]) -> int:
    """Trains a run until it is finished or Ctrl-C, prints its evaluation, draws its figures and returns the exit code.

    `open_run` opens or creates the run folder; it is called once the cluster, if there is one, is connected.
    """
    if config.settings.warning is not None and not options.quiet:
        print(f"svsl: {config.settings.warning}", file=sys.stderr)
    with _cluster_task(options, config) as remote:
        run = open_run()
        local = None if config.step_based else task  # a step-based learner simulates the task in its own way
        trainer = Trainer(run, options.checkpoint_s, options.workers, remote or local)
        title = f"{config.task} seed {config.seed}"
        with stop_on_signals() as stop, ProgressDisplay(title, options.quiet) as display:
            finished = trainer.train(display, stop)
    if not finished:
        return complain(f"stopped and saved; svsl resume {run.folder} continues", code=130)
    if not options.quiet:
        _report(run, task)
    return 0


def weight_stage_warning(run: Run) -> str | None:
    """Returns a warning if the library was clearly better before its weights were learned, None otherwise."""
    if not run.config.settings.learns_weights:
        return None
    before, after = ([None, None, *run.read_metrics()])[-2:]
    if before is None or after is None or before["success_rate"] - after["success_rate"] < _NOTABLE_LOSS:
        return None
    return (
        f"weights  learning them kept {after['components']} of {before['components']} components, and success fell "
        f"from {before['success_rate']:.0%} to {after['success_rate']:.0%} in tests: a larger --beta-weight keeps more"
    )


@contextmanager
def _cluster_task(options: TrainingOptions, config: RunConfig) -> Iterator[Task | None]:
    """Yields the run's task with its episodes on a Ray cluster; None for a local run, which never imports Ray."""
    if options.backend == "local":
        yield None
        return
    from svsl.backends.ray_cluster import connected
    from svsl.tasks.remote import RayTask

    with connected(options.ray_address):
        yield RayTask(config.task, config.task_options)


def _report(run: Run, task: Task) -> None:
    """Prints the evaluation, draws the figures and says where the results are."""
    # not at the top: matplotlib and MuJoCo's renderer take 75 MB that training does not need
    from svsl.show.plots.files import plot_run

    show_evaluation(evaluate_run(run, task=task))
    warning = weight_stage_warning(run)
    if warning is not None:
        print(warning)
    for path in plot_run(run, task=task):
        print(f"figure   {path}")
    print(f"{run.product_path.stem:8} {run.product_path}")
