"""Checks of arguments given in Python, where no parser has looked at them."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from svsl.errors import SvslError
from svsl.learners.base import LearnerConfig, SearchSpace
from svsl.tasks.base import Task
from svsl.tasks.registry import missing_attributes

_WORDS = {
    int: "a whole number", float: "a number", bool: "True or False", str: "a string", dict: "names and values",
    NoneType: "None",
}  # fmt: skip


def require_task(task: str | Task | SearchSpace) -> None:
    """Rejects what is neither the name of a task nor a task object, such as its class."""
    if isinstance(task, type):
        raise SvslError(
            f"task: expected a name or a task object, got the class {task.__name__}; create one: {task.__name__}()"
        )
    missing = [] if isinstance(task, str | SearchSpace) else missing_attributes(task)
    if missing:
        raise SvslError(f"task: expected a name or a task object, but {type(task).__name__} has no {missing[0]}")


def require_count(name: str, value: object, least: int = 0) -> int:
    """Returns a whole number of at least `least` as a plain integer; rejects anything else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SvslError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    return int(value)


def require_name(name: str, value: object) -> None:
    """Rejects anything but a string."""
    if not isinstance(value, str):
        raise SvslError(f"{name}: expected a name, got {value!r}")


def plain_settings(kind: type[LearnerConfig], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with NumPy's numbers as Python's; rejects values of a wrong type."""
    plain = {name: _plain(value) for name, value in settings.items()}
    require_types(get_type_hints(kind), plain, "setting ")
    return plain


def require_types(hints: Mapping[str, Any], values: Mapping[str, object], kind: str = "") -> None:
    """Rejects a value that has not the type that `hints` demand under its name."""
    for name, value in values.items():
        if name in hints and not _fits(value, hints[name]):
            raise SvslError(f"{kind}{name}: expected {_describe(hints[name])}, got {value!r}")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _fits(value: object, hint: Any) -> bool:
    """Returns whether a value has the type of a setting."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, member) for member in arguments)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)  # True is not 1
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_describe(member) for member in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    return "a tuple of numbers" if origin is tuple else _WORDS.get(hint, str(hint))
