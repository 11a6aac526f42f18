"""Training from Python."""

import math
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from svsl.errors import SvslError
from svsl.model.library import SkillLibrary
from svsl.runs.config import make_config, use_workers
from svsl.runs.folder import Run
from svsl.runs.training import Trainer, stop_on_signals
from svsl.runs.trust import TaskChoice
from svsl.show.progress import ProgressDisplay
from svsl.tasks.base import Task


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
        seed: Seed of all randomness.
        learner: `svsl`, `hireps` or `ladips`.
        preset: A named set of settings; default the task's first.
        task_options: Options of a task given by name.
        out: A run folder, as created by `svsl train --out`, with checkpoints and usable by all commands. If it already
            holds the same run, training is resumed, or the finished library is loaded. By default nothing is kept.
        workers: Threads or processes of a simulated task (default: all cores, 0: none besides this process).
        progress: Show a progress display.
        **settings: Settings of the learner, such as `components=10`; the others are the preset's.

    Raises:
        SvslError: If the task, the learner and the settings do not fit together, or `out` holds another run.
    """
    config = make_config(task, learner, preset, task_options, settings, seed)
    if config.product != "library":
        raise SvslError(f"{learner} does not learn a skill library; svsl train --learner {learner} trains its policy")
    task_object = None if isinstance(task, str) else task
    with ExitStack() as stack:
        folder = Path(out or stack.enter_context(tempfile.TemporaryDirectory()))
        if Run.config_path(folder).exists():
            run = Run.open(folder, TaskChoice(trust=True))  # it must have the configuration given here
            differences = run.config.differences(config)
            if differences:
                raise SvslError(f"{folder} holds another run ({'; '.join(differences)}); choose another folder")
            if run.finished:
                return run.load_library()
        else:
            config.check(task_object)
            if config.settings.warning is not None:
                warnings.warn(config.settings.warning, stacklevel=2)
            run = Run.create(folder, config, remember=out is not None)
        if task_object is not None:
            use_workers(task_object, workers)
        trainer = Trainer(run, math.inf if out is None else 10.0, workers, task_object)
        stop = stack.enter_context(stop_on_signals())
        display = stack.enter_context(ProgressDisplay(f"{config.task} seed {seed}", quiet=not progress))
        if not trainer.train(display, stop):
            raise KeyboardInterrupt
        return run.load_library()
