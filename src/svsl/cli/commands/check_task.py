"""`svsl check-task`."""

from dataclasses import dataclass, field, make_dataclass

from svsl.cli.parsing import parse, split_first
from svsl.cli.task_flags import task_option_flags
from svsl.runs.config import make_config
from svsl.tasks.check import check_task
from svsl.tasks.registry import make_task


@dataclass(frozen=True)
class Options:
    """Report problems a learner would have with your own task."""


def main(args: list[str]) -> int:
    """Checks a task with the given options."""
    name, flags = split_first(
        args,
        "svsl check-task TASK",
        "check what? TASK comes first: svsl check-task TASK [OPTIONS], with TASK a task's name, gym:ENV_ID or your own "
        "module:factory",
        lambda: Options,
    )
    kind, defaults = task_option_flags(name), make_config(name, "svsl", None, {}, {}).task_options
    group = [("task", kind, field(default_factory=lambda: defaults))]
    options = parse(
        make_dataclass("Flags", group, namespace={"__doc__": Options.__doc__}), flags, f"svsl check-task {name}"
    )

    findings = check_task(make_task(name, **options.task))
    for finding in findings:
        print(f"{finding.verdict:8}{finding.text}")
    return 2 if any(f.verdict == "error" for f in findings) else 0
