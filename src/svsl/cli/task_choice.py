"""Flags with which the user says which task a library or a run may use."""

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from svsl.cli.parsing import Switch
from svsl.errors import SvslError
from svsl.runs.trust import TaskChoice


@dataclass(frozen=True, kw_only=True)
class TrustFlag:
    """The flag of commands that use a run's own task."""

    trust_task: Switch = False
    """Import and run the task that the source names, although it does not come with svsl and was not trained here."""

    @property
    def choice(self) -> TaskChoice:
        """What the user says about the task."""
        return TaskChoice(trust=self.trust_task)


@dataclass(frozen=True, kw_only=True)
class TaskFlags(TrustFlag):
    """The flags of commands that may also use another task."""

    task: str | None = None
    """Use this task instead of the one that the source names: a task's name, gym:ENV_ID or module:factory."""
    task_option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Change an option of the task; can be repeated."""

    @property
    def choice(self) -> TaskChoice:
        """What the user says about the task."""
        return TaskChoice(self.task, dict(map(_option, self.task_option)), self.trust_task)


def _option(text: str) -> tuple[str, object]:
    """Returns the name and the value of an option; a value that is not JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SvslError(f"task_option: expected NAME=VALUE, got {text!r}")
    try:
        return name.replace("-", "_"), json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
    except ValueError:
        return name.replace("-", "_"), value
