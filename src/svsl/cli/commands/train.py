"""`svsl train`."""

import re
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

from svsl.cli.parsing import parse, parse_known, require_range, split_first
from svsl.cli.task_flags import task_option_flags, training_flags
from svsl.cli.training import NewRunOptions, train_run
from svsl.learners.registry import LEARNERS, PRESETS, find_preset
from svsl.runs.config import make_config
from svsl.runs.folder import Run
from svsl.tasks.registry import REGISTRY


@dataclass(frozen=True, kw_only=True)
class Method:
    """The learner and the preset, which decide with the task which settings exist and their defaults."""

    learner: str = "svsl"
    """Learning method; it decides which settings follow."""
    preset: str | None = None
    """Named set of defaults for the settings (default: the first that fits the task's options; the paper's, where there
    is one)."""


@dataclass(frozen=True, kw_only=True)
class Options(Method, NewRunOptions):
    """Train a skill library on a task and draw its figures."""

    out: Path | None = None
    """Run folder (default: runs/TASK-seedN)."""
    seed: int = 0
    """Seed of all randomness in the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(0, seed=self.seed)


def main(args: list[str]) -> int:
    """Trains; the task, its options, the learner and the preset decide the other flags and their defaults."""
    task_name, flags = split_first(
        args,
        "svsl train TASK",
        "train what? TASK comes first: svsl train TASK [OPTIONS], with TASK one of "
        f"{', '.join(REGISTRY)}, gym:ENV_ID or your own module:factory",
        lambda: _help_flags(args),
    )
    first_flags = make_dataclass("First", [("method", Method), ("task", task_option_flags(task_name, Options))])
    first: Any = parse_known(first_flags, flags, f"svsl train {task_name}")
    method: Method = first.method
    defaults = make_config(task_name, method.learner, method.preset, first.task, {})
    own = Options(learner=method.learner, preset=method.preset)
    kind = training_flags(own, defaults.settings, task_name, defaults.task_options, _describe(task_name))
    options = parse(kind, flags, f"svsl train {task_name}", defaults.settings.old_names)
    run: Options = options.run
    changes = {"task_options": options.task, "settings": options.settings}
    config = replace(defaults, **changes, seed=run.seed, test_contexts=run.test_contexts)
    task = config.make_task(run.workers)
    config.check(task)  # rejects an invalid configuration before the folder is created
    file_name = re.sub(r"[^-.\w]+", ".", task_name)
    folder = run.out or Path("runs") / f"{file_name}-seed{run.seed}"
    return train_run(run, config, task, lambda: Run.create(folder, config, run.overwrite))


def _help_flags(args: list[str]) -> type[Any]:
    """Returns the flags of `svsl train --help`, without a task."""
    method = parse_known(Method, args, "svsl train TASK")
    settings = find_preset("", method.learner).settings
    return training_flags(Options(learner=method.learner), settings, None, {}, _describe(None))


def _describe(task: str | None) -> str:
    """Returns what the command does, and the learners with their presets."""
    presets = {learner: ", ".join(PRESETS.get((task or "", learner), {"default": None})) for learner in LEARNERS}
    listed = "; ".join(f"{learner} ({names})" for learner, names in presets.items())
    return (
        f"Trains a skill library on {task or 'a task'} and draws its figures.\n\n"
        f"Learners, with their presets for the task: {listed}."
    )
