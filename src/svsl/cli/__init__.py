"""The command line: `svsl COMMAND ...`."""

from svsl.cli.dispatch import main

__all__ = ["main"]
