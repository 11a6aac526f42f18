"""The command line: `svsl COMMAND ...`."""

from collections.abc import Sequence

from svsl.errors import complain

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code, also if Ctrl-C is pressed while the command line is imported."""
    try:
        from svsl.cli.dispatch import main as run

        return run(argv)
    except KeyboardInterrupt:
        return complain("interrupted", code=130)
