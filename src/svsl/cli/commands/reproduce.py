"""`svsl reproduce`."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from svsl.backends.base import BACKENDS, SlurmJobs
from svsl.cli.parsing import Switch, parse, require_range
from svsl.cli.task_choice import NamedValues, named_values
from svsl.errors import SvslError, complain
from svsl.experiments.catalogue import EXPERIMENTS, Experiment, find_experiment, plan, seeds_of
from svsl.experiments.progress import ReproductionDisplay, show_status
from svsl.experiments.report import write_report
from svsl.experiments.reproduction import Reproduction
from svsl.experiments.runner import run_jobs
from svsl.runs.training import stop_on_signals


@dataclass(frozen=True)
class Options:
    """Reproduce an experiment of the paper: all seeds, figures, table and report."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """The experiment; --list shows them."""
    list: Switch = False
    """List the experiments and their cost without running any."""
    seeds: int | None = None
    """Seeds per method (default: the paper's number; fewer, but at least 2, at a smaller scale)."""
    scale: float = 1.0
    """Share of the paper's size, above 0 and at most 1; 0.05 takes minutes and shows that everything works."""
    backend: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(BACKENDS) + "}")] = "local"
    """Where seeds are trained: in processes on this machine, on a Ray cluster, or as jobs of a Slurm cluster."""
    status: Switch = False
    """Only show how far the runs are, wherever they are trained."""
    ray_address: str | None = None
    """Address of the cluster (default: RAY_ADDRESS, or a new Ray instance on this machine)."""
    slurm_option: NamedValues = ()
    """What to ask of Slurm for each job, such as partition=NAME, time=MINUTES or mem=8GB; can be repeated."""
    runs_per_job: int = 1
    """Seeds that share one job of Slurm, each with its share of the job's cpus_per_task (default: one core each)."""
    workers: int | None = None
    """Seeds trained at the same time (default: one per core). The result does not depend on it."""
    out: Path | None = None
    """Folder of all runs and the report (default: runs/NAME). All nodes of a cluster must share it."""
    quiet: Switch = False
    """Do not show progress."""
    checkpoint_s: float = 10.0
    """Seconds between checkpoints of a run."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise SvslError(f"setting backend: expected one of {', '.join(BACKENDS)}, got {self.backend!r}")
        if not 0 < self.scale <= 1:
            raise SvslError(f"setting scale: expected above 0 and at most 1, got {self.scale:g}")
        require_range(1, seeds=self.seeds, workers=self.workers, runs_per_job=self.runs_per_job)
        if self.backend != "slurm" and (self.slurm_option or self.runs_per_job > 1):
            raise SvslError("slurm_option and runs_per_job are for --backend slurm")

    @property
    def where(self) -> str | SlurmJobs | None:
        """Where the backend runs programs."""
        if self.backend != "slurm":
            return self.ray_address
        options = named_values("slurm_option", self.slurm_option)
        if self.workers is not None:
            options = {"array_parallelism": -(-self.workers // self.runs_per_job), **options}
        return SlurmJobs(self.runs_per_job, options)


def main(args: list[str]) -> int:
    """Runs an experiment and writes its report."""
    options = parse(Options, args, "svsl reproduce")
    if options.list:
        for name, experiment in EXPERIMENTS.items():
            print(_describe(name, experiment, options))
        return 0
    if options.name is None:
        raise SvslError(f"reproduce what? svsl reproduce NAME, with one of {', '.join(EXPERIMENTS)}")
    experiment = find_experiment(options.name)
    seeds, folder = options.seeds or seeds_of(experiment, options.scale), options.out or Path("runs") / options.name
    reproduction = Reproduction(options.name, experiment, folder, seeds, options.scale, options.checkpoint_s)
    if options.status:
        reproduction.look()
        show_status(reproduction.name, reproduction.jobs)
        return 0
    try:
        return _reproduce(reproduction, options, "svsl reproduce " + shlex.join(args))
    except OSError as error:
        raise SvslError(
            f"cannot write to {folder} ({error.strerror or error}); the files there are intact: make room, then the "
            "same command continues"
        ) from None


def _reproduce(reproduction: Reproduction, options: Options, command: str) -> int:
    with reproduction.open():
        with stop_on_signals() as stop, ReproductionDisplay(reproduction.name, options.quiet) as display:
            workers = None if options.backend == "slurm" else options.workers  # Slurm itself limits its array
            run_jobs(reproduction, options.backend, options.where, workers, display, stop)
        if any(job.state == "detached" for job in reproduction.jobs):
            return complain(
                "the runs go on in Slurm; the same command follows them again, --status shows how far they are, and "
                "scancel ends them (squeue --me lists their jobs)",
                code=130,
            )
        if any(job.state == "stopped" for job in reproduction.jobs):
            return complain("stopped and saved; the same command continues", code=130)
        failed = [job for job in reproduction.jobs if job.state == "failed"]
        for job in failed:
            complain(f"{job.run.folder.name} failed: {job.message} (details in {job.log})")
        if failed:
            complain("the same command retries them from their checkpoints")
        for kind, path in write_report(reproduction, command):
            print(f"{kind:8} {path}")
    return 1 if failed else 0


def _describe(name: str, experiment: Experiment, options: Options) -> str:
    seeds = options.seeds or seeds_of(experiment, options.scale)
    try:
        configs = plan(experiment, 1, options.scale)
        costs = [f"{arm.label} {own[0].planned_episodes() / 1e6:.3g}" for arm, own in configs.items()]
        cost = f"{seeds} seeds of {', '.join(costs)} million episodes"
    except SvslError as error:
        cost = f"not available: {error}"
    return f"{name}: {experiment.title}\n    {cost}"
