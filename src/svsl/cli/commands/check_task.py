"""`svsl check-task`."""

from __future__ import annotations

from dataclasses import dataclass

from svsl.cli.commands.train import split_task, task_flags
from svsl.cli.parsing import parse
from svsl.errors import SvslError
from svsl.learners.registry import find_preset
from svsl.tasks.registry import make_task


@dataclass(frozen=True)
class Options:
    """Tell what a learner would stumble over in a task of your own."""


def main(args: list[str]) -> int:
    """Runs the checker on a task, with the options it takes."""
    task, rest = split_task(args)
    if task is None:
        parse(Options, [word for word in rest if word in ("-h", "--help")], "svsl check-task TASK")
        raise SvslError("check what? svsl check-task TASK, with a task's name, gym:ENV_ID or your own module:factory")
    options = parse(task_flags(task, find_preset(task).task_options), rest, f"svsl check-task {task}")
    from svsl.tasks.check import check_task

    findings = check_task(make_task(task, **vars(options)))
    for finding in findings:
        print(f"{finding.verdict:8}{finding.text}")
    return 2 if any(f.verdict == "error" for f in findings) else 0
