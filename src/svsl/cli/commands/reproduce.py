"""`svsl reproduce`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from svsl.cli.parsing import Switch, parse
from svsl.errors import SvslError, complain
from svsl.experiments.catalogue import EXPERIMENTS, Experiment, find_experiment, plan, planned_episodes, seeds_of
from svsl.experiments.reproduction import Job, Reproduction, run_local


@dataclass(frozen=True)
class Options:
    """Reproduce a comparison of the paper: all seeds, figures, table and report."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """The experiment; --list names them."""
    list: Switch = False
    """List the experiments with their cost, and run nothing."""
    seeds: int | None = None
    """Seeds of each method; default the paper's number, fewer (at least 2) at a smaller scale."""
    scale: float = 1.0
    """Share of the paper's size, above 0 and at most 1; 0.05 shows in minutes that everything works."""
    backend: Literal["local", "ray"] = "local"
    """Processes on this machine, or tasks on a Ray cluster."""
    ray_address: str | None = None
    """The cluster; default the environment's RAY_ADDRESS, or a Ray of its own on this machine."""
    workers: int | None = None
    """Seeds trained at the same time; default one for each core. The result does not depend on it."""
    out: Path | None = None
    """Folder of all runs and the report; default runs/NAME. It must be shared by all nodes of a cluster."""
    quiet: Switch = False
    """Show no progress."""
    checkpoint_s: float = 10.0
    """Seconds between checkpoints of a run."""

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise SvslError(f"setting scale: expected above 0 and at most 1, got {self.scale:g}")
        for name in ("seeds", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SvslError(f"setting {name}: expected at least 1, got {value}")


def main(args: list[str]) -> int:
    """Runs an experiment and reports."""
    options = parse(Options, args, "svsl reproduce")
    if options.list:
        for name, experiment in EXPERIMENTS.items():
            print(_listed(name, experiment, options))
        return 0
    if options.name is None:
        raise SvslError(f"reproduce what? svsl reproduce NAME, with one of {', '.join(EXPERIMENTS)}")
    experiment = find_experiment(options.name)
    seeds = options.seeds or seeds_of(experiment, options.scale)
    made = Reproduction(
        options.name,
        experiment,
        options.out or Path("runs") / options.name,
        seeds,
        options.scale,
        options.checkpoint_s,
    )
    try:
        return _reproduce(made, options, "svsl reproduce " + shlex.join(args))
    except OSError as error:
        raise SvslError(
            f"cannot write to {made.folder} ({error.strerror or error}); what is there is whole: make room, then the "
            "same command goes on"
        ) from None


def _reproduce(made: Reproduction, options: Options, command: str) -> int:
    from svsl.runs.training import stop_on_signals
    from svsl.show.progress import ReproductionDisplay

    with made.open():
        with stop_on_signals() as stop, ReproductionDisplay(made.name, options.quiet) as display:
            if options.backend == "ray":
                from svsl.backends.ray_cluster import run_on_ray

                run_on_ray(made, options.ray_address, options.workers, display, stop)
            else:
                run_local(made, options.workers, display, stop)
        if any(job.state == "stopped" for job in made.jobs):
            return complain("stopped and saved; the same command goes on", code=130)
        code = _complain_of([job for job in made.jobs if job.state == "failed"])
        from svsl.experiments.report import write_report

        for kind, path in write_report(made, command):
            print(f"{kind:8} {path}")
    return code


def _complain_of(failed: list[Job]) -> int:
    for job in failed:
        complain(f"{job.run.folder.name} failed: {job.message} (all of it in {job.run.log_path})")
    if failed:
        print("svsl: the same command tries the failed ones again from their checkpoints", file=sys.stderr)
    return 1 if failed else 0


def _listed(name: str, experiment: Experiment, options: Options) -> str:
    seeds = options.seeds or seeds_of(experiment, options.scale)
    try:
        configs = plan(experiment, 1, options.scale)
        costs = [f"{arm.label} {planned_episodes(own[0]) / 1e6:.3g}" for arm, own in configs.items()]
        cost = f"{seeds} seeds of {', '.join(costs)} million episodes"
    except SvslError as error:
        cost = f"not available: {error}"
    return f"{name}: {experiment.title}\n    {cost}"
