"""What commands share: flags become a dataclass, a user's mistake one line."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from svsl.errors import SvslError

T = TypeVar("T")
Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
Source = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_NAME")]
Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def first_line(documented: object) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def parse(kind: Callable[..., T], args: list[str], prog: str) -> T:
    """Parses flags with tyro; a mistake becomes one line instead of its box."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(kind, args=args, prog=prog, config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise SvslError(f"{_first_paragraph(errors.getvalue())}; {prog} --help lists the flags") from None


def new_flags(args: list[str], old_names: Mapping[str, str]) -> list[str]:
    """Returns the arguments with former names of flags replaced by the current ones."""
    flags = {f"--{old.replace('_', '-')}": f"--{new.replace('_', '-')}" for old, new in old_names.items()}
    parts = [arg.partition("=") for arg in args]
    return [flags.get(flag.replace("_", "-"), flag) + sign + value for flag, sign, value in parts]


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Says so before any work is done if a file is in the way.

    Raises:
        SvslError: If `path` is there and may not be replaced.
    """
    if path.is_dir() or (path.exists() and not overwrite):
        raise SvslError(f"{path} is already there; choose another --out" + ("" if path.is_dir() else " or --overwrite"))


def _first_paragraph(box: str) -> str:
    """The message of a framed error text, and its suggestion if it has one."""
    paragraphs, current = [], list[str]()
    for line in [*box.splitlines(), "──"]:
        text = line.strip(" │")
        if text.startswith(("─", "╭", "╰")):
            paragraphs.append(" ".join(current))
            current = []
        else:
            current.append(text)
    filled = [p for p in paragraphs if p]
    hint = next((" (" + p.split("(default")[0].strip() + ")" for p in filled if p.startswith("Perhaps")), "")
    message = filled[0] if filled else "wrong arguments"
    return re.sub(r"^Error parsing \w+: ", "", message) + hint
