"""Where a library is: a run folder, a library file or the name of a shipped library."""

from __future__ import annotations

import json
from pathlib import Path

from svsl.errors import SvslError
from svsl.learners.registry import find_preset
from svsl.model.library import SkillLibrary
from svsl.model.shipped import load_pretrained, pretrained_names
from svsl.runs.config import RunConfig, json_options, require_fit, use_workers
from svsl.runs.folder import Run
from svsl.tasks.base import Task
from svsl.tasks.registry import make_task


def open_library(where: str) -> tuple[SkillLibrary, Run | None]:
    """The library of a run folder, of a file, or of a shipped name, and the run if there is one.

    Raises:
        SvslError: If there is nothing of the kind.
    """
    path = Path(where)
    if path.is_file():
        return SkillLibrary.load(path), None
    if not path.exists():
        if where in pretrained_names():
            return load_pretrained(where), None
        shipped = ", ".join(pretrained_names())
        raise SvslError(f"{where} is no run folder, no library file and no shipped library ({shipped})")
    run = Run.open(path)
    return run.load_library(), run


def config_of(library: SkillLibrary, run: Run | None = None) -> RunConfig:
    """The configuration a library was trained with; where neither its run nor its metadata tells, the task's preset.

    Raises:
        SvslError: If the library does not even name its task, or its configuration cannot be read.
    """
    told = library.metadata
    if run is not None:
        return run.config
    if "config" in told:
        try:
            return RunConfig.from_json(told["config"])
        except (SvslError, ValueError, KeyError, TypeError) as error:
            raise SvslError(f"the configuration in the library's metadata cannot be read ({error})") from None
    if "task" not in told:
        raise SvslError("the library's metadata names no task; metadata={'task': NAME} tells it when saving")
    options = json.loads(told.get("task_options", "{}"))
    return RunConfig(told["task"], options, "svsl", find_preset(told["task"]).settings, seed_of(library))


def seed_of(library: SkillLibrary) -> int:
    """The seed a library was trained with; 0 if its metadata does not tell.

    Raises:
        SvslError: If what it tells is no number.
    """
    try:
        return int(library.metadata.get("seed", 0))
    except ValueError:
        raise SvslError(
            f"seed in the library's metadata: expected a number, got {library.metadata['seed']!r}"
        ) from None


def task_of(library: SkillLibrary, workers: int | None = None) -> Task:
    """The task a library was trained on, on so many threads if it simulates on several (all cores unless told).

    Raises:
        SvslError: If the library does not say, or does not fit it any more.
    """
    if "task" not in library.metadata:
        raise SvslError("the library's metadata names no task; metadata={'task': NAME} tells it when saving")
    try:
        options = json_options(json.loads(library.metadata.get("task_options", "{}")))
    except ValueError as error:
        raise SvslError(f"the task's options in the library's metadata cannot be read ({error})") from None
    task = make_task(library.metadata["task"], **options)
    require_fit(library, task, library.metadata["task"])
    use_workers(task, workers)
    return task
