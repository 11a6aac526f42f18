"""Tasks by name: built-in tasks, `gym:ENV_ID` for Gymnasium environments and `module:factory` for users' tasks."""

import difflib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable

import numpy as np

from svsl.errors import SvslError
from svsl.tasks.base import Task, place_of

REGISTRY = {
    "planar-reacher": "svsl.tasks.planar_reacher:PlanarReacher",
    "beer-pong": "svsl.tasks.beer_pong:BeerPong",
    "table-tennis": "svsl.tasks.table_tennis:TableTennis",
    "reacher5": "svsl.tasks.reacher5:Reacher5",
    "hopper-jump": "svsl.tasks.hopper_jump:HopperJump",
    "box-pushing": "svsl.tasks.box_pushing:BoxPushing",
}

_TASK_ATTRIBUTES = ("context_low", "context_high", "parameter_dim", "initial_mean", "initial_cov", "evaluate")


def task_factory(name: str) -> Callable[..., Task]:
    """Returns the function or class that creates the task of this name, see `make_task`."""
    if not isinstance(name, str):
        raise SvslError(f"task: expected a name, got {name!r}")
    if name not in REGISTRY and (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)  # where a user's task is; other commands import nothing from there
    if name.startswith("gym:"):
        from svsl.tasks.gymnasium_task import GymnasiumTask

        return functools.partial(GymnasiumTask, name.removeprefix("gym:"))
    path = REGISTRY.get(name, name)
    if ":" not in path:
        close = difflib.get_close_matches(name, REGISTRY, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known tasks: {', '.join(sorted(REGISTRY))}."
        raise SvslError(
            f"unknown task {name!r}: {hint} Give your own task as module:factory, a Gymnasium environment as gym:ENV_ID"
        )
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (module_name == missing or module_name.startswith(missing + ".")):
            raise SvslError(
                f"task {name!r}: no module {module_name!r} in the current directory or on the Python path"
            ) from None
        raise SvslError(f"task {name!r}: importing {module_name} failed: {place_of(error)}") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise SvslError(f"task {name!r}: module {module_name!r} has no function or class {attribute!r}")
    return factory


def default_options(name: str) -> dict[str, object]:
    """Returns the options of a task that have a default value, with that value."""
    parameters = inspect.signature(task_factory(name)).parameters
    return {option: p.default for option, p in parameters.items() if p.default is not p.empty}


def make_task(name: str, /, **options: object) -> Task:
    """Creates a task.

    Args:
        name: A registered name, `gym:ENV_ID` or `module:factory`.
        **options: Passed to the task's factory.

    Raises:
        SvslError: If the task or an option does not exist, or the task cannot be created.

    Examples:
        >>> import svsl
        >>> task = svsl.make_task("planar-reacher", free_first_joint=False)
        >>> task.parameter_dim
        10
    """
    factory = task_factory(name)
    allowed = inspect.signature(factory).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in allowed.values()):
        unknown = sorted(set(options) - set(allowed))
        if unknown:
            raise SvslError(f"task {name!r} has no option {unknown[0]!r}; options: {', '.join(allowed) or 'none'}")
    for option, value in options.items():
        _check_kind(option, value, allowed[option].default if option in allowed else None)
    try:
        task = factory(**options)
    except SvslError:
        raise
    except (Exception, SystemExit) as error:
        raise SvslError(f"task {name!r}: creating it failed: {place_of(error)}") from error
    if not isinstance(task, Task):
        missing = ", ".join(missing_attributes(task))
        raise SvslError(f"task {name!r}: {type(task).__name__} has no {missing}; a task needs them")
    return task


def _check_kind(option: str, value: object, default: object) -> None:
    """Rejects a value of another kind than an option's default, if that is a switch, a number or a text."""
    kinds = {"true or false": (bool, np.bool_), "a number": (int, float, np.integer, np.floating), "a text": (str,)}
    of = [next((name for name, kind in kinds.items() if isinstance(x, kind)), "another kind") for x in (default, value)]
    if of[0] in kinds and of[0] != of[1]:
        raise SvslError(f"option {option}: expected {of[0]}, got {value!r}")


def missing_attributes(task: object) -> list[str]:
    """Returns which attributes an object lacks to be a task."""
    return [attribute for attribute in _TASK_ATTRIBUTES if not hasattr(task, attribute)]
