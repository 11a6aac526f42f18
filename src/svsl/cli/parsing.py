"""Parsing shared by all commands: flags become a dataclass, a user's mistake one line."""

import contextlib
import inspect
import io
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import tyro

from svsl.errors import SvslError


def _several(metavar: str) -> Any:
    return tyro.conf.arg(metavar=f"{metavar} [{metavar} ...]", help_behavior_hint="(required)")


T = TypeVar("T")
Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
Folders = Annotated[tuple[Path, ...], tyro.conf.Positional, _several("RUN")]
SourceName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_NAME")]
SourceNames = Annotated[tuple[str, ...], tyro.conf.Positional, _several("RUN_OR_NAME")]
Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]

_CONFIG = (tyro.conf.OmitArgPrefixes,)
_PLAIN_WORDS = {
    "invalid literal for int() with base 10:": "expected a whole number, got",
    "could not convert string to float:": "expected a number, got",
}


def first_line(documented: object) -> str:
    """Returns the first line of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def parse(
    kind: Callable[..., T], args: Sequence[str], prog: str, old_names: Mapping[str, str] = MappingProxyType({})
) -> T:
    """Parses flags with tyro; a mistake is reported in one line instead of tyro's box.

    `old_names` maps former names of settings, which are still accepted, to the current ones.
    """
    with _one_line_errors(prog):
        return tyro.cli(kind, args=_with_new_names(args, old_names), prog=prog, config=_CONFIG)


def parse_known(kind: Callable[..., T], args: Sequence[str], prog: str) -> T:
    """Parses only the flags of `kind`; all others, including `--help`, are left for a later `parse`."""
    with _one_line_errors(prog):
        return tyro.cli(kind, args=args, prog=prog, config=_CONFIG, add_help=False, return_unknown_args=True)[0]


def split_first(
    args: Sequence[str], prog: str, complaint: str, help_flags: Callable[[], Callable[..., Any]]
) -> tuple[str, list[str]]:
    """Splits off the argument that decides which flags exist, and so must come before them.

    Without it, `--help` shows the flags that `help_flags()` returns; anything else is an error with the message
    `complaint`. `prog` is the command and the argument's name, such as `svsl train TASK`.
    """
    if args and not args[0].startswith("-"):
        return args[0], list(args[1:])
    if not {"-h", "--help"}.isdisjoint(args):
        parse(help_flags(), ["--help"], prog)
    raise SvslError(complaint)


def require_range(low: float, high: float = math.inf, **settings: float | None) -> None:
    """Rejects settings below `low` or above `high`, and NaN; None is accepted."""
    expected = f"at least {low}" if high == math.inf else f"{low} to {high}"
    for name, value in settings.items():
        if value is not None and not low <= value <= high:
            raise SvslError(f"setting {name}: expected {expected}, got {value}")


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Rejects an output file that exists, before any work is done; `overwrite` allows a file to be replaced."""
    if path.is_dir() or (path.exists() and not overwrite):
        raise SvslError(f"{path} already exists; choose another --out" + ("" if path.is_dir() else " or --overwrite"))


def _with_new_names(args: Sequence[str], old_names: Mapping[str, str]) -> list[str]:
    """Returns the arguments with the flags of renamed settings replaced."""

    def new_name(flag: re.Match[str]) -> str:
        new = old_names.get(flag[2].replace("-", "_"))
        return flag[0] if new is None else flag[1] + new.replace("_", "-")

    return [re.sub(r"^(--(?:no-)?)([\w-]+)", new_name, word) for word in args]


@contextlib.contextmanager
def _one_line_errors(prog: str) -> Iterator[None]:
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            yield
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise SvslError(f"{_summary(errors.getvalue())}; {prog} --help lists the flags") from None


def _summary(box: str) -> str:
    """Returns the message of one of tyro's framed error texts, with the flags it suggests."""
    lines = [line.strip(" │") for line in box.strip().splitlines()]
    parts = itertools.groupby(lines, lambda line: re.fullmatch("[╭╰].*|[─-]+", line) is not None)
    groups = [list(group) for is_rule, group in parts if not is_rule]
    if not box.startswith("╭"):  # without UTF-8 the title is not in the frame but the first group
        groups = groups[1:]
    message, *others = groups or [["wrong arguments"]]
    suggestions = [group for group in others if group[0].startswith(("Perhaps you meant", "Arguments similar"))]
    close_matches = [line.split()[0] for group in suggestions for line in group if line.startswith("--")]
    hint = f" (did you mean {' or '.join(close_matches)}?)" if close_matches else ""
    text = re.sub(r"^Error parsing (\w+: )?", "", " ".join(message)).strip(" .")
    text = re.sub(r"no type matching .* - <class '\w+'>: ", "", text)  # None or a number: what the number lacks
    for python_words, plain_words in _PLAIN_WORDS.items():
        text = text.replace(python_words, plain_words)
    return text + hint
