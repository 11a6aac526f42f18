"""The command line: `svsl COMMAND ...`. Each command is a module of `svsl.cli.commands`."""

import ast
import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from svsl.cli.parsing import parse
from svsl.errors import SvslError, complain
from svsl.model.version import __version__

# in the order of `svsl --help`
COMMANDS = (
    "train", "resume", "extend", "eval", "plot", "compare", "reproduce", "view", "video",
    "prune", "merge", "export", "push", "bench", "tasks", "check-task",
)  # fmt: skip
_PARSE_THEMSELVES = ("train", "extend", "check-task", "reproduce")  # their `main` is given the arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code, 2 for anything the user can fix."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(args)
    except SvslError as error:
        return complain(str(error))
    except BrokenPipeError:  # the reader of a pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError as error:
        return complain(f"not enough memory ({error}); choose smaller sizes")
    except OSError as error:
        return complain(f"{error.filename or 'file'}: {error.strerror or error}")


def _dispatch(args: list[str]) -> int:
    name = args[0] if args else "--help"
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"svsl {__version__}")
        return 0
    if name not in COMMANDS:
        close_matches = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close_matches[0]}?" if close_matches else f"commands: {', '.join(COMMANDS)}"
        raise SvslError(f"unknown command {name!r}; {hint}")
    module = _module(name)
    code = module.main(args[1:] if name in _PARSE_THEMSELVES else parse(module.Options, args[1:], f"svsl {name}"))
    return code or 0


def _module(command: str) -> ModuleType:
    return import_module(f"svsl.cli.commands.{command.replace('-', '_')}")


def _summary(command: str) -> str:
    """The first line of the docstring of a command's `Options`, read without importing what the command needs."""
    path = Path(__file__).parent / "commands" / f"{command.replace('-', '_')}.py"
    classes = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
    return next(ast.get_docstring(node) or "" for node in classes if node.name == "Options").partition("\n")[0]


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {_summary(name)}" for name in COMMANDS]
    footer = "svsl COMMAND --help shows the flags of a command, svsl --version the version."
    return "\n".join(["usage: svsl COMMAND ...", "", *lines, "", footer])
