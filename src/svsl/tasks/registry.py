"""Tasks by name: the ones that come with the library, `gym:ENV_ID`, and the user's own as `module:factory`."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable

from svsl.errors import SvslError
from svsl.tasks.base import Outcome, Task, place_of

__all__ = ["REGISTRY", "Outcome", "Task", "default_options", "make_task", "task_factory"]

REGISTRY = {
    "planar-reacher": "svsl.tasks.planar_reacher:PlanarReacher",
    "beer-pong": "svsl.tasks.beer_pong:BeerPong",
    "table-tennis": "svsl.tasks.table_tennis:TableTennis",
    "reacher5": "svsl.tasks.reacher5:Reacher5",
}

_TASK_ATTRIBUTES = ("context_low", "context_high", "parameter_dim", "initial_mean", "initial_cov", "evaluate")


def task_factory(name: str) -> Callable[..., Task]:
    """The function or class that makes the task called `name` (a registered name, `gym:ENV_ID` or `module:factory`)."""
    if name.startswith("gym:"):
        from svsl.tasks.gymnasium_task import GymnasiumTask

        return functools.partial(GymnasiumTask, name.removeprefix("gym:"))
    path = REGISTRY.get(name, name)
    if ":" not in path:
        near = difflib.get_close_matches(name, REGISTRY, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known tasks: {', '.join(sorted(REGISTRY))}"
        raise SvslError(
            f"unknown task {name!r}: {hint} Your own task is given as module:factory, "
            "a Gymnasium environment as gym:ENV_ID"
        )
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (module_name == missing or module_name.startswith(missing + ".")):
            raise SvslError(
                f"task {name!r}: no module {module_name!r} in the current directory or the Python path"
            ) from None
        raise SvslError(f"task {name!r}: importing {module_name} failed: {place_of(error)}") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise SvslError(f"task {name!r}: module {module_name!r} has no function or class {attribute!r}")
    return factory


def default_options(name: str) -> dict[str, object]:
    """The options of the task called `name` that have a default, with it.

    Raises:
        SvslError: If there is no such task.
    """
    parameters = inspect.signature(task_factory(name)).parameters
    return {option: p.default for option, p in parameters.items() if p.default is not p.empty}


def make_task(name: str, /, **options: object) -> Task:
    """Makes a task.

    Args:
        name: A registered name, `gym:ENV_ID` or `module:factory`.
        **options: Passed to the task's factory.

    Raises:
        SvslError: If there is no such task or option, or it cannot be made.
    """
    factory = task_factory(name)
    allowed = inspect.signature(factory).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in allowed.values()):
        unknown = sorted(set(options) - set(allowed))
        if unknown:
            raise SvslError(f"task {name!r} has no option {unknown[0]!r}; options: {', '.join(allowed) or 'none'}")
    try:
        task = factory(**options)
    except SvslError:
        raise
    except Exception as error:
        raise SvslError(f"task {name!r}: making it failed: {place_of(error)}") from error
    if not isinstance(task, Task):
        missing = [attribute for attribute in _TASK_ATTRIBUTES if not hasattr(task, attribute)]
        raise SvslError(f"task {name!r}: a {type(task).__name__} without {', '.join(missing)} is no task")
    return task
