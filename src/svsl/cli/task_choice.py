"""Flags with which the user says which task a library or a run may use."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from svsl.cli.parsing import Switch
from svsl.errors import SvslError
from svsl.runs.trust import TaskChoice

NamedValues = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")]


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
    task_option: NamedValues = ()
    """Change an option of the task; can be repeated."""

    @property
    def choice(self) -> TaskChoice:
        """What the user says about the task."""
        return TaskChoice(self.task, named_values("task_option", self.task_option), self.trust_task)


def named_values(flag: str, texts: Sequence[str]) -> dict[str, object]:
    """Returns the names and values that were given to a flag as NAME=VALUE."""
    return dict(_named_value(flag, text) for text in texts)


def _named_value(flag: str, text: str) -> tuple[str, object]:
    """Returns a name and its value; a value that is not JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SvslError(f"{flag}: expected NAME=VALUE, got {text!r}")
    try:
        return name.replace("-", "_"), json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
    except ValueError:
        return name.replace("-", "_"), value
