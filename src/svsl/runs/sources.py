"""Sources of libraries: a run folder, a library file, a shipped library, or a repository on the Hugging Face Hub."""

import functools
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from svsl.errors import SvslError, complain
from svsl.learners.registry import find_preset
from svsl.model.editing import by_use
from svsl.model.files import parse_json, write_bytes
from svsl.model.hub import PREFIX, split_name
from svsl.model.library import SkillLibrary, recorded_count
from svsl.model.shipped import load_pretrained, pretrained_names
from svsl.runs.config import RunConfig, require_fit, use_workers
from svsl.runs.folder import Run
from svsl.runs.trust import NamedTask, TaskChoice
from svsl.tasks.base import Task, uniform_contexts

_CONTEXTS = 10_000  # in which the use of components is measured


@dataclass(frozen=True)
class Source:
    """A library and what is known about its training.

    Attributes:
        name: As the user gave it.
        run: The run that trained it, None for a library without one.
        loaded: The library; by default that of the run, loaded on first use.
        path: The library file; None for a run, a shipped library or one from the Hub.
        choice: What the user says about the task.
    """

    name: str
    run: Run | None = None
    loaded: SkillLibrary | None = None
    path: Path | None = None
    choice: TaskChoice = field(default_factory=TaskChoice)

    @classmethod
    def of(cls, run: Run) -> "Source":
        """Returns the source that is a run."""
        return cls(str(run.folder), run, choice=run.choice)

    @cached_property
    def library(self) -> SkillLibrary:
        """The library; of an unfinished run, the components trained so far."""
        if self.loaded is not None:
            return self.loaded
        assert self.run is not None
        return self.run.load_library()

    @property
    def named_task(self) -> NamedTask:
        """The task as the source names it."""
        if self.run is not None:
            return self.run.named_task
        return _task_in_metadata(self.library, self.path, self.name)

    @property
    def task_name(self) -> str:
        """Name of the task: the user's choice, or the one that the source names."""
        return self.choice.task or self.named_task.name

    def make_task(self, workers: int | None = None) -> Task:
        """Creates the task, if it is shipped or the user trusts it, with `workers` as in `use_workers`.

        Raises:
            SvslError: If the task is not trusted, cannot be created, or does not fit the library.
        """
        task = self.named_task.create(self.choice)
        if self.run is None or not self.run.config.step_based:
            require_fit(self.library, task, self.task_name)
            _compare_boxes(self.library, task, self.task_name)
        use_workers(task, workers)
        return task

    def save(self, path: Path) -> None:
        """Writes the library to a file, which is trusted as this source is."""
        self.library.save(path)
        name, options = self.named_task.chosen(self.choice)
        NamedTask(name, options, path).remember()

    def copy(self, path: Path) -> None:
        """Writes the library to a file, byte for byte if it comes from one, and says nothing about trust."""
        own = self.path if self.run is None else self.run.library_path
        if own is None:
            self.library.save(path)
        else:
            write_bytes(path, own.read_bytes())

    def holding(self, library: SkillLibrary, name: str) -> "Source":
        """Returns a source of a library made from this one, on the same task."""
        path = self.path if self.run is None else self.run.folder
        return replace(self, name=name, run=None, loaded=library, path=path)


def open_source(where: str, choice: TaskChoice | None = None) -> Source:
    """Opens `hf:user/name`, a run folder, a library file or a shipped library. Runs no code of its task.

    `choice` is what the user says about the task; by default only shipped tasks and those trained here are created.

    Raises:
        SvslError: If `where` is none of them.

    Examples:
        >>> from svsl.runs.sources import open_source
        >>> source = open_source("beer-pong")
        >>> source.library.parameter_dim
        15
    """
    path, choice = Path(where), choice or TaskChoice()
    if where.startswith(PREFIX):
        return Source(where, loaded=SkillLibrary.from_pretrained(*split_name(where)), choice=choice)
    if path.is_file():
        return Source(where, loaded=SkillLibrary.load(path), path=path, choice=choice)
    if where in pretrained_names() and not Run.config_path(path).exists():
        return Source(where, loaded=load_pretrained(where), choice=choice)
    if not path.exists():
        shipped = ", ".join(pretrained_names())
        raise SvslError(
            f"{where} is not a run folder, a library file or a shipped library ({shipped}); "
            f"one on the Hugging Face Hub is {PREFIX}user/name"
        )
    return replace(Source.of(Run.open(path, choice)), name=where)


def config_of(library: SkillLibrary, run: Run | None = None) -> RunConfig:
    """Returns the configuration a library was trained with; the task's preset if nothing records it.

    Its task is always the one whose trust was decided: a configuration in the metadata could name another.
    """
    if run is not None:
        return run.config
    task = _task_in_metadata(library)
    if "config" in library.metadata:
        try:
            recorded = RunConfig.from_json(library.metadata["config"])
            return replace(recorded, task=task.name, task_options=task.options)
        except (ValueError, TypeError) as error:
            raise SvslError(f"the configuration in the library's metadata cannot be read ({error})") from None
    return RunConfig(task.name, task.options, "svsl", find_preset(task.name).settings, seed_of(library))


def with_regions(library: SkillLibrary, task: Task) -> SkillLibrary:
    """Returns the library with context distributions and weights that say where its components are used.

    Those of most libraries do. Where the gating was learned as a whole, only the gating means something.

    Args:
        library: A library that fits the task.
        task: Its contexts are drawn uniformly, only valid ones.
    """
    try:
        learned = RunConfig.from_json(library.metadata["config"]).settings.learns_gating
    except (KeyError, ValueError, TypeError):  # a merged library, or one from elsewhere
        learned = False
    return by_use(library, uniform_contexts(task, _CONTEXTS, np.random.default_rng(0))) if learned else library


def seed_of(library: SkillLibrary) -> int:
    """Returns the seed a library was trained with; 0 if its metadata does not record it."""
    return recorded_count(library.metadata, "seed")


def task_of(library: SkillLibrary, workers: int | None = None) -> Task:
    """Creates the task named in a library's metadata, if it is shipped, with `workers` as in `use_workers`."""
    return Source("library", loaded=library).make_task(workers)


def _task_in_metadata(library: SkillLibrary, path: Path | None = None, source: str = "the library") -> NamedTask:
    if "task" not in library.metadata:
        raise SvslError("the library's metadata names no task; save it with metadata={'task': NAME}")
    try:
        options = dict(parse_json(library.metadata.get("task_options", "{}")))
        return NamedTask(str(library.metadata["task"]), options, path, source)
    except (ValueError, TypeError) as error:
        raise SvslError(f"the task's options in the library's metadata cannot be read ({error})") from None


@functools.cache  # once, also if every tab of a page has its own task
def _say(line: str) -> None:
    complain(line)


def _compare_boxes(library: SkillLibrary, task: Task, name: str) -> None:
    """Says so if the context box of the task is not that of the library."""
    ours, theirs = (library.context_low, library.context_high), (task.context_low, task.context_high)
    if not np.array_equal(ours, theirs):
        (low, high), (new_low, new_high) = (map(_listed, box) for box in (ours, theirs))
        _say(
            f"the context box of {name} is {new_low} to {new_high}, the library was trained for {low} to {high}: "
            "what follows may be about contexts it never saw"
        )


def _listed(corner: ArrayLike) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in np.asarray(corner, dtype=np.float64)) + ")"
