"""Which tasks may be created: one that a file names is imported only if it is shipped, or the user trusts it.

Creating a task `module:factory` or `gym:ENV_ID` imports modules and calls the factory. The name of a task that the user
types is meant to be run. A name in a library or a run folder may come from anybody: it counts if the task comes with
svsl, if the user created that folder or file here with this task, or if the user says so (`TaskChoice`).
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from svsl.errors import SvslError
from svsl.model.files import write_bytes
from svsl.tasks.base import Task
from svsl.tasks.registry import REGISTRY, make_task

STATE_VARIABLE = "SVSL_STATE_DIR"


@dataclass(frozen=True)
class TaskChoice:
    """What the user says about the task that a file names.

    Attributes:
        task: Use this task instead.
        options: Changed options of the task.
        trust: Create whatever task the file names.

    Examples:
        >>> from svsl.runs.sources import open_source
        >>> from svsl.runs.trust import TaskChoice
        >>> narrow = open_source("beer-pong", TaskChoice(options={"cup_radius": 0.04}))
        >>> narrow.make_task().cup_radius
        0.04
    """

    task: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    trust: bool = False


@dataclass(frozen=True)
class NamedTask:
    """A task as a file names it.

    Attributes:
        name: Its name.
        options: Its options.
        path: The run folder or library file; None if it is shipped, or comes from the Hub.
        source: What to call it in a message if it has no path.
    """

    name: str
    options: Mapping[str, object]
    path: Path | None
    source: str = "the library"

    @property
    def trusted(self) -> bool:
        """Whether it comes with svsl, or its file was created here with this task."""
        if self.name in REGISTRY:
            return True
        paths = [] if self.path is None else [self.path, self.path.parent]  # a library file in the folder of its run
        return any(_read(path) == self._record for path in paths)

    def chosen(self, choice: TaskChoice) -> tuple[str, dict[str, object]]:
        """Returns the name and the options of the task to create.

        Raises:
            SvslError: If nobody trusts it.
        """
        if choice.task is None and not choice.trust and not self.trusted:
            raise SvslError(
                f"{self.path or self.source}: its task {self.name!r} does not come with svsl and was not trained "
                "here, so it is not imported; if you trust its code, add --trust-task, or name the task with --task if "
                "the command has it (in Python: pass the task)"
            )
        name = choice.task or self.name
        return name, {**(self.options if name == self.name else {}), **choice.options}

    def create(self, choice: TaskChoice) -> Task:
        """Creates the task, the only way from a name in a file to running code."""
        name, options = self.chosen(choice)
        return make_task(name, **options)

    def remember(self) -> None:
        """Records that the user created the file here with this task, if the disk permits."""
        if self.name not in REGISTRY and self.path is not None:
            with contextlib.suppress(OSError, RuntimeError):  # a read-only disk, no home: the user will be asked
                write_bytes(_record_path(self.path), self._record.encode())

    @property
    def _record(self) -> str:
        return json.dumps({"task": self.name, "task_options": dict(self.options)}, sort_keys=True)


def _read(path: Path) -> str | None:
    try:
        return _record_path(path).read_text()
    except (OSError, RuntimeError, ValueError):
        return None


def _record_path(path: Path) -> Path:
    """Returns the user's record of a run folder or library file: one small file each, outside of what is shared."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "svsl"
    folder = Path(os.environ.get(STATE_VARIABLE) or state) / "trusted"
    return folder / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"
