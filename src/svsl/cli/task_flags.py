"""The options of a task and the settings of a learner as flags."""

import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import field, fields, make_dataclass
from typing import Annotated, Any, TypedDict, get_args, get_origin, get_type_hints

import docstring_parser
import tyro

from svsl.errors import SvslError
from svsl.learners.base import LearnerConfig
from svsl.tasks.registry import default_options, task_factory


def task_option_flags(task: str | None, *others: Any) -> Any:
    """Returns the options of the task's factory as a `TypedDict`, documented by the factory's docstring.

    None of its keys is required: parsed without defaults, it holds only the options that were given. `task` is None for
    no options; `others` are the dataclasses of the command's other flags, whose names an option must not have.
    """
    taken = {f.name for other in others for f in fields(other)}
    kinds: dict[str, Any] = {}
    if task is not None:
        factory = task_factory(task)
        function = factory.func if isinstance(factory, functools.partial) else factory
        hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
        documents = {p.arg_name: p.description for p in docstring_parser.parse(inspect.getdoc(function) or "").params}
        for name, parameter in inspect.signature(factory).parameters.items():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if parameter.default is parameter.empty:
                raise SvslError(f"task {task!r}: its option {name!r} needs a default to be used from the command line")
            if name in taken:
                raise SvslError(f"task {task!r}: its option {name!r} has the name of another flag; rename it")
            kind: Any = _without_functions(hints.get(name, type(parameter.default)))
            kinds[name] = Annotated[kind, tyro.conf.arg(help=documents.get(name) or "Option of the task.")]
    return TypedDict("TaskOptions", kinds, total=False)  # type: ignore[operator]


def training_flags(
    run: Any, settings: LearnerConfig, task: str | None, task_options: Mapping[str, object], description: str
) -> type[Any]:
    """Returns a dataclass of all flags of a command that trains, documented by `description`.

    Its fields are the command's own flags `run` and the learner's `settings`, both given with their defaults, and the
    options of the `task`, if there is one; `task_options` are defaults that differ from the task's own.
    """
    options = task_option_flags(task, run, settings)
    defaults = {**(default_options(task) if task else {}), **task_options}
    defaults = {name: value for name, value in defaults.items() if name in options.__annotations__}
    return make_dataclass(
        "Flags",
        [
            ("run", type(run), field(default=run)),
            ("settings", type(settings), field(default=settings)),
            ("task", options, field(default_factory=lambda: defaults)),
        ],
        namespace={"__doc__": description},
    )


def _without_functions(kind: Any) -> Any:
    """Returns the members of a union that can be given on a command line: all but functions."""
    members = get_args(kind)
    kept = tuple(member for member in members if get_origin(member) is not Callable)
    return functools.reduce(operator.or_, kept) if kept and kept != members else kind
