"""Training a run from the command line, shared by `svsl train`, `svsl resume` and `svsl extend`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from svsl.cli.parsing import Switch, require_range
from svsl.errors import complain
from svsl.evaluation.metrics import trial_episodes
from svsl.runs.config import RunConfig
from svsl.runs.evaluation import evaluate_run
from svsl.runs.folder import Run
from svsl.runs.training import Status, Trainer, stop_on_signals
from svsl.runs.verdict import remarks
from svsl.show.progress import ProgressDisplay, StageDisplay
from svsl.show.tables import show_evaluation
from svsl.tasks.base import Task

_FIGURE_EPISODES = 3000  # of the figures of two context dimensions, about


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a run is trained; none of these options changes what it learns."""

    quiet: Switch = False
    """Show no progress and no results: do not evaluate, and draw no figures."""
    eval_contexts: int = 2000
    """Number of fresh contexts in the evaluation after training; 0: no evaluation."""
    figures: Annotated[Switch, tyro.conf.arg(help_behavior_hint="(default: they are drawn)")] = True
    """Draw no figures after training."""
    checkpoint_s: float = 10.0
    """Seconds between checkpoints."""
    workers: int | None = None
    """Threads or processes of a simulated task, 0 for none besides this one (default: all cores). Changes no result."""
    backend: Literal["local", "ray"] = "local"
    """Where episodes run: on this machine, or spread over a Ray cluster."""
    ray_address: str | None = None
    """Address of the Ray cluster (default: the environment variable RAY_ADDRESS, or a new local Ray instance)."""

    def __post_init__(self) -> None:
        require_range(0, checkpoint_s=self.checkpoint_s, workers=self.workers, eval_contexts=self.eval_contexts)


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
        display = ProgressDisplay(title, options.quiet, after_s=lambda status: _after_s(options, config, task, status))
        with stop_on_signals() as stop, display:
            finished = trainer.train(display, stop)
    if not finished:
        return complain(f"stopped and saved; svsl resume {run.folder} continues", code=130)
    if not options.quiet:
        _report(run, task, options)
    return 0


def _after_s(options: TrainingOptions, config: RunConfig, task: Task, status: Status) -> float:
    """Estimates how long the evaluation and the figures will take, by the speed of the episodes so far."""
    components = (status.test or {}).get("components", status.progress.components)
    episodes = trial_episodes(options.eval_contexts, components)
    if options.figures and not config.step_based:
        episodes += _FIGURE_EPISODES * -(-len(task.context_low) // 2)
    return episodes / status.episodes_per_s if status.episodes_per_s > 0 else 0.0


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


def _report(run: Run, task: Task, options: TrainingOptions) -> None:
    """Prints the evaluation, draws the figures and says where the results are."""
    numbers = (run.read_metrics() or [{}])[-1]
    if options.eval_contexts:
        with StageDisplay("evaluation") as progress:
            evaluation = evaluate_run(run, options.eval_contexts, task=task, report=progress)
        show_evaluation(evaluation)
        numbers = evaluation.numbers
    for remark in remarks(run, numbers, task):
        print(remark)
    if options.figures:
        # not at the top: matplotlib and MuJoCo's renderer take 75 MB that training does not need
        from svsl.show.plots.files import plot_run

        with StageDisplay("figures") as progress:
            paths = plot_run(run, task=task, report=progress)
        for path in paths:
            print(f"figure   {path}")
    print(f"{run.product_path.stem:8} {run.product_path}")
