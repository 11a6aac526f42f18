"""Training from Python."""

import json
import math
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from svsl.errors import SvslError
from svsl.learners.ask_tell import AskTell
from svsl.learners.base import SearchSpace
from svsl.learners.registry import make_learner as make_plain_learner
from svsl.model.library import SkillLibrary
from svsl.model.random import LEARNER_STREAM, stream
from svsl.model.version import __version__
from svsl.runs.arguments import require_count
from svsl.runs.callbacks import Callback, checked_callbacks
from svsl.runs.config import RunConfig, make_config, use_workers
from svsl.runs.folder import Run
from svsl.runs.training import Trainer, stop_on_signals
from svsl.runs.trust import TaskChoice
from svsl.show.progress import ProgressDisplay
from svsl.tasks.base import Task
from svsl.tasks.check import check_attributes


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
    callbacks: Sequence[Callback] = (),
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
        callbacks: Objects of `svsl.Callback`, called during training. One that returns False stops it early: the
            library so far is returned, and the same call with the same `out` continues.
        **settings: Settings of the learner, such as `components=10`; the others are the preset's.

    Raises:
        SvslError: If an argument is wrong, `out` holds another run, the task or a callback fails, or a callback stops
            training before the first component is trained.

    Examples:
        >>> import svsl
        >>> svsl.train("planar-reacher", components=1, iterations=2)
        SkillLibrary(planar-reacher: 1 components, 2 context dimensions, 10 parameters)
    """
    followers = checked_callbacks(callbacks)
    if out is not None and not isinstance(out, str | Path):
        raise SvslError(f"out: expected a path, got {out!r}")
    workers = None if workers is None else require_count("workers", workers)
    config = make_config(task, learner, preset, task_options, settings, seed)
    _require_library(config)
    task_object = None if isinstance(task, str) else task
    with ExitStack() as stack:
        folder = Path(out or stack.enter_context(tempfile.TemporaryDirectory()))
        if Run.config_path(folder).exists():
            run = _same_run(folder, config)
            if run.finished:
                return run.load_library()
        else:
            run = _new_run(folder, config, task_object, remember=out is not None)
        if task_object is not None:
            use_workers(task_object, workers)
        trainer = Trainer(run, math.inf if out is None else 10.0, workers, task_object, followers)
        stop = stack.enter_context(stop_on_signals())
        display = stack.enter_context(ProgressDisplay(f"{config.task} seed {seed}", quiet=not progress))
        return run.load_library() if trainer.train(display, stop) else _library_so_far(trainer)


def make_learner(
    task: str | Task | SearchSpace,
    *,
    seed: int = 0,
    learner: str = "svsl",
    preset: str | None = None,
    task_options: Mapping[str, object] | None = None,
    **settings: object,
) -> AskTell:
    """Creates a learner whose episodes you run yourself.

    It asks for the same episodes as `svsl.train` with the same arguments, and learns the same from their returns.

    Args:
        task: As in `svsl.train`; only its context box and initial distribution are used. Or a `svsl.SearchSpace`.
        seed: Seed of all randomness in the learner.
        learner: `svsl`, `hireps` or `ladips`.
        preset: A named set of settings; default the task's first.
        task_options: Options of a task given by name.
        **settings: Settings of the learner, such as `components=10`; the others are the preset's.

    Raises:
        SvslError: If the task, the learner and the settings do not fit together.

    Examples:
        >>> import svsl
        >>> learner = svsl.make_learner("planar-reacher", components=1, iterations=2)
        >>> while not learner.done:
        ...     episodes = learner.ask()
        ...     learner.tell([-sum(row**2) for row in episodes.parameters])  # returns from wherever episodes run
        >>> learner.library()
        SkillLibrary(planar-reacher: 1 components, 2 context dimensions, 10 parameters)
    """
    config = make_config(task, learner, preset, task_options, settings, seed)
    _require_library(config)
    box = config.make_task() if isinstance(task, str) else task
    findings = check_attributes(cast(Task, box))  # a search space has all that is checked
    errors = [finding.text for finding in findings if finding.verdict == "error"]
    if errors:
        raise SvslError(f"task {config.task!r}: {errors[0]}")
    space = SearchSpace.of(box)
    metadata = {"learner": learner, "seed": str(config.seed), "svsl": __version__}
    if not isinstance(task, SearchSpace):
        options = json.dumps(dict(config.task_options))
        metadata |= {"task": config.task, "task_options": options, "config": config.to_json()}
    plain = make_plain_learner(learner, config.settings, space, stream(config.seed, LEARNER_STREAM))
    return AskTell(plain, space, metadata)


def _new_run(folder: Path, config: RunConfig, task: Task | None, remember: bool) -> Run:
    """Creates a run folder, once the configuration fits its task."""
    config.check(task)
    if config.settings.warning is not None:
        warnings.warn(config.settings.warning, stacklevel=3)
    return Run.create(folder, config, remember=remember)


def _same_run(folder: Path, config: RunConfig) -> Run:
    """Opens a run folder, which must hold a run of this configuration."""
    run = Run.open(folder, TaskChoice(trust=True))  # it must have the configuration given here
    differences = run.config.differences(config)
    if differences:
        raise SvslError(f"{folder} holds another run ({'; '.join(differences)}); choose another folder")
    return run


def _library_so_far(trainer: Trainer) -> SkillLibrary:
    """Returns the library of a training that a callback stopped."""
    if not trainer.callbacks.stopping:
        raise KeyboardInterrupt
    library = trainer.library()
    if library is None:
        raise SvslError("a callback stopped training before the first component was trained: there is no library")
    return library


def _require_library(config: RunConfig) -> None:
    name = config.learner
    if config.product != "library":
        raise SvslError(f"{name} does not learn a skill library; svsl train --learner {name} trains its policy")
