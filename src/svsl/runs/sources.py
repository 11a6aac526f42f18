"""Sources of libraries: a run folder, a library file or the name of a shipped library."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from svsl.errors import SvslError
from svsl.learners.registry import find_preset
from svsl.model.library import SkillLibrary
from svsl.model.shipped import load_pretrained, pretrained_names
from svsl.runs.config import RunConfig, require_fit, use_workers
from svsl.runs.folder import Run
from svsl.tasks.base import Task
from svsl.tasks.registry import make_task


@dataclass(frozen=True)
class Source:
    """A library and what is known about its training.

    Attributes:
        name: As the user gave it.
        run: The run that trained it, None for a library without one.
        loaded: The library; by default that of the run, loaded on first use.
    """

    name: str
    run: Run | None = None
    loaded: SkillLibrary | None = None

    @cached_property
    def library(self) -> SkillLibrary:
        """The library; of an unfinished run, the components trained so far."""
        if self.loaded is not None:
            return self.loaded
        assert self.run is not None
        return self.run.load_library()


def open_source(where: str) -> Source:
    """Opens a run folder, a library file or a shipped library, looked up in this order.

    Raises:
        SvslError: If `where` is none of them.
    """
    path = Path(where)
    if path.is_file():
        return Source(where, loaded=SkillLibrary.load(path))
    if where in pretrained_names() and not Run.config_path(path).exists():
        return Source(where, loaded=load_pretrained(where))
    if not path.exists():
        shipped = ", ".join(pretrained_names())
        raise SvslError(f"{where} is not a run folder, a library file or a shipped library ({shipped})")
    return Source(where, Run.open(path))


def config_of(library: SkillLibrary, run: Run | None = None) -> RunConfig:
    """Returns the configuration a library was trained with; the task's preset if nothing records it."""
    if run is not None:
        return run.config
    if "config" in library.metadata:
        try:
            return RunConfig.from_json(library.metadata["config"])
        except (ValueError, TypeError) as error:
            raise SvslError(f"the configuration in the library's metadata cannot be read ({error})") from None
    name, options = _task_in_metadata(library)
    return RunConfig(name, options, "svsl", find_preset(name).settings, seed_of(library))


def seed_of(library: SkillLibrary) -> int:
    """Returns the seed a library was trained with; 0 if its metadata does not record it."""
    try:
        return int(library.metadata.get("seed", 0))
    except ValueError:
        raise SvslError(
            f"seed in the library's metadata: expected a number, got {library.metadata['seed']!r}"
        ) from None


def task_of(library: SkillLibrary, workers: int | None = None) -> Task:
    """Creates the task named in a library's metadata, with `workers` as in `use_workers`."""
    name, options = _task_in_metadata(library)
    task = make_task(name, **options)
    require_fit(library, task, name)
    use_workers(task, workers)
    return task


def _task_in_metadata(library: SkillLibrary) -> tuple[str, dict[str, object]]:
    if "task" not in library.metadata:
        raise SvslError("the library's metadata names no task; save it with metadata={'task': NAME}")
    try:
        return library.metadata["task"], dict(json.loads(library.metadata.get("task_options", "{}")))
    except ValueError as error:
        raise SvslError(f"the task's options in the library's metadata cannot be read ({error})") from None
