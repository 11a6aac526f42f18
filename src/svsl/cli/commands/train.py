"""`svsl train`."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import docstring_parser
import tyro

from svsl.cli.commands.resume import Work, work_on
from svsl.cli.parsing import Switch, new_flags, parse
from svsl.errors import SvslError
from svsl.learners.registry import LEARNERS, PRESETS, find_preset
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from svsl.tasks.registry import REGISTRY, task_factory


@dataclass(frozen=True, kw_only=True)
class Options(Work):
    """Train a skill library on a task and draw its figures."""

    out: Path | None = None
    """Run folder; default runs/TASK-seedN."""
    seed: int = 0
    """All randomness of the run comes from it."""
    learner: str = "svsl"
    """The method; it decides which further settings there are."""
    preset: str | None = None
    """A named set of defaults for the further settings; default the task's first (the paper's)."""
    test_contexts: int = 500
    """Fresh contexts of the test after each component."""
    overwrite: Switch = False
    """Replace a run that is already there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed < 0:
            raise SvslError(f"setting seed: expected at least 0, got {self.seed}")
        if self.test_contexts < 1:
            raise SvslError(f"setting test_contexts: expected at least 1, got {self.test_contexts}")


def main(args: list[str]) -> int:
    """Trains; the task and the learner decide which flags there are beside those of `Options`."""
    task, rest = split_task(args)
    learner = _flag_value(rest, "--learner") or "svsl"
    preset_name = _flag_value(rest, "--preset")
    preset = find_preset(task or "", learner, preset_name, _told(rest))
    settings = preset.settings
    task_options = task_flags(task, preset.task_options) if task else make_dataclass("TaskOptions", [], frozen=True)
    everything = make_dataclass(
        "Train",
        [
            ("run", Options, field(default=Options(learner=learner, preset=preset_name))),
            ("settings", type(settings), field(default=settings)),
            ("task", task_options, field(default=task_options())),
        ],
        namespace={"__doc__": f"Trains a skill library on {task or 'a task'} and draws its figures.{_choices(task)}"},
    )
    rest = new_flags(rest, settings.old_names)
    options = parse(everything, rest, f"svsl train {task or 'TASK'}")
    if task is None:
        raise SvslError(
            f"train what? svsl train TASK, with one of {', '.join(REGISTRY)}, gym:ENV_ID or your own module:factory"
        )
    run: Options = options.run
    config = RunConfig(task, vars(options.task), learner, options.settings, run.seed, run.test_contexts)
    config.check()  # an impossible configuration is refused before a folder is made
    file_name = re.sub(r"[^-.\w]+", ".", task)
    folder = run.out or Path("runs") / f"{file_name}-seed{run.seed}"
    return work_on(run, config, lambda: Run.create(folder, config, run.overwrite))


def _choices(task: str | None) -> str:
    """The learners and their presets, in words."""
    presets = {learner: ", ".join(PRESETS.get((task or "", learner), {"default": None})) for learner in LEARNERS}
    told = "; ".join(f"{learner} ({names})" for learner, names in presets.items())
    return f"\n\nLearners, with their presets for the task: {told}."


def split_task(args: list[str]) -> tuple[str | None, list[str]]:
    """Finds TASK among the arguments: if it can, not what is the value of a flag."""

    def may_be_value(position: int) -> bool:
        before = args[position - 1] if position else ""
        return before.startswith("--") and "=" not in before and before not in ("--quiet", "--overwrite")

    named = [p for p, word in enumerate(args) if word in REGISTRY or (":" in word and not word.startswith("-"))]
    if named:
        position = min(named, key=lambda p: (may_be_value(p), args[p] not in REGISTRY))
        return args[position], args[:position] + args[position + 1 :]
    for position, word in enumerate(args):
        near = difflib.get_close_matches(word, REGISTRY, n=1)
        if (position == 0 and not word.startswith("-")) or (near and not may_be_value(position)):
            task_factory(word)  # says which tasks there are
    return None, args


def _flag_value(args: list[str], flag: str) -> str | None:
    for position, word in enumerate(args):
        if word.startswith(flag + "="):
            return word.partition("=")[2]
        if word == flag and position + 1 < len(args):
            return args[position + 1]
    return None


def _told(args: list[str]) -> dict[str, object]:
    """The values of all flags that are given, by the names of their settings."""
    flags = {word.partition("=")[0] for word in args if word.startswith("--")}
    return {flag.removeprefix("--").replace("-", "_"): _flag_value(args, flag) for flag in flags}


def task_flags(task: str, defaults: Mapping[str, object]) -> type[Any]:
    """A dataclass of the options the task's factory takes, documented by its docstring."""
    factory = task_factory(task)
    function = factory.func if isinstance(factory, functools.partial) else factory
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    documents = {p.arg_name: p.description for p in docstring_parser.parse(inspect.getdoc(function) or "").params}
    fields: list[tuple[str, Any, Any]] = []
    for name, parameter in inspect.signature(factory).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.default is parameter.empty:
            raise SvslError(f"task {task!r}: its option {name!r} has no default, so the command line cannot make it")
        kind: Any = _without_functions(hints.get(name, type(parameter.default)))
        described = Annotated[kind, tyro.conf.arg(help=documents.get(name) or "Option of the task.")]
        fields.append((name, described, field(default=defaults.get(name, parameter.default))))
    return make_dataclass("TaskOptions", fields, frozen=True)


def _without_functions(kind: Any) -> Any:
    """What a command line can give of a union of types: all but functions."""
    members = get_args(kind)
    kept = tuple(member for member in members if get_origin(member) is not Callable)
    return functools.reduce(operator.or_, kept) if kept and kept != members else kind
