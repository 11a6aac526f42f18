"""The one error type whose message is written for the user, and how it is printed."""

import contextlib
import sys


class SvslError(ValueError):
    """A mistake that the user can fix; the message says what was wrong, what was expected and how to fix it.

    The command line prints it as one line and exits with code 2.

    Examples:
        >>> import svsl
        >>> try:
        ...     svsl.make_task("golf")
        ... except svsl.SvslError as error:
        ...     print(str(error).split(":")[0])
        unknown task 'golf'
    """


def complain(message: str, code: int = 2) -> int:
    """Prints a message as one line and returns the exit code."""
    with contextlib.suppress(OSError):  # the terminal may be closed
        print("svsl: " + printable(" ".join(message.split())), file=sys.stderr)
    return code


def printable(text: str) -> str:
    """Returns a text, which may come from a file, without control characters that a terminal would obey."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
