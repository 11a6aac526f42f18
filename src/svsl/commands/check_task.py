"""`svsl check-task`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from svsl.commands.base import parse
from svsl.tasks import make_task


@dataclass(frozen=True)
class Options:
    """Tell what a learner would stumble over in a task of your own."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """A task's name or module:factory."""


def main(args: list[str]) -> int:
    """Runs the checker on a task."""
    options = parse(Options, args, "svsl check-task")
    from svsl.task_check import check_task

    findings = check_task(make_task(options.task))
    for finding in findings:
        print(f"{finding.verdict:8}{finding.text}")
    return 2 if any(f.verdict == "error" for f in findings) else 0
