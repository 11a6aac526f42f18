"""`svsl tasks`."""

from dataclasses import dataclass

from svsl.cli.parsing import first_line
from svsl.tasks.registry import REGISTRY, task_factory


@dataclass(frozen=True)
class Options:
    """List the tasks that come with svsl."""


def main(options: Options) -> None:
    """Lists the tasks."""
    width = max(map(len, REGISTRY))
    for name in REGISTRY:
        print(f"{name:{width}}  {first_line(task_factory(name))}")
