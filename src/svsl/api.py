"""Training from Python."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from svsl.errors import SvslError
from svsl.model.library import SkillLibrary
from svsl.tasks.base import Task
from svsl.tasks.registry import REGISTRY

if TYPE_CHECKING:
    from svsl.runs.config import RunConfig


def train(
    task: str | Task,
    *,
    seed: int = 0,
    learner: str = "svsl",
    preset: str | None = None,
    task_options: Mapping[str, object] | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    progress: bool = False,
    **settings: object,
) -> SkillLibrary:
    """Trains a skill library.

    Args:
        task: A name (`planar-reacher`, `module:factory`, `gym:ENV_ID`) or a task object.
        seed: All randomness comes from it.
        learner: `svsl`, `hireps` or `ladips`.
        preset: A named set of settings; default the task's first.
        task_options: Of a task given by its name.
        out: A run folder, as `svsl train --out` makes it: with checkpoints, for all commands. If the same run is there
            already, training goes on where it stopped, or the finished library is loaded. Without it nothing is kept.
        workers: Threads or processes of a task that simulates on several; default all cores.
        progress: Show where training stands.
        **settings: The learner's, such as `components=10`; the others are the preset's.

    Raises:
        SvslError: If the task, the learner and the settings do not go together, or `out` holds another run.
    """
    from svsl.runs.config import preset_config
    from svsl.runs.folder import Run
    from svsl.runs.training import Trainer, stop_on_signals
    from svsl.show.progress import ProgressDisplay

    made = None if isinstance(task, str) else task
    if made is not None and task_options:
        raise SvslError("task_options: a task object has its options already; leave them out")
    config = preset_config(_name_of(task), learner, preset, task_options or {}, settings, seed, complete=made is None)
    if config.step_based:
        raise SvslError(f"{learner} makes no skill library; svsl train --learner {learner} trains its policy")
    with ExitStack() as stack:
        folder = Path(out or stack.enter_context(tempfile.TemporaryDirectory()))
        if (folder / "config.json").exists():
            run = Run.open(folder)
            if run.config != config:
                raise SvslError(f"{folder} holds {_difference(run.config, config)}; choose another folder")
            if run.finished:
                return run.load_library()
        else:
            config.check(made)
            run = Run.create(folder, config)
        if made is not None and workers is not None and hasattr(made, "workers"):
            made.workers = workers
        trainer = Trainer(run, math.inf if out is None else 10.0, workers, made)
        stop = stack.enter_context(stop_on_signals())
        display = stack.enter_context(ProgressDisplay(f"{config.task} seed {seed}", quiet=not progress))
        if not trainer.train(display, stop):
            raise KeyboardInterrupt
        return run.load_library()


def _name_of(task: str | Task) -> str:
    """A task's name; that of an object is where its class is, so that commands can make it if it needs no options."""
    if isinstance(task, str):
        return task
    place = f"{type(task).__module__}:{type(task).__qualname__}"
    return next((name for name, path in REGISTRY.items() if path == place), place)


def _difference(old: RunConfig, new: RunConfig) -> str:
    """How one run is not another."""
    names = [f.name for f in fields(old) if getattr(old, f.name) != getattr(new, f.name)]
    return f"a run that differs in {' and '.join(names)}"
