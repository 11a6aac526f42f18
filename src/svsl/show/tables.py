"""Tables for the terminal."""

from rich.console import Console
from rich.table import Table


def print_table(table: Table) -> None:
    """Prints a table: as wide as the terminal, or as wide as it needs if the output is a file or a pipe."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, console.measure(table, options=console.options.update(width=10_000)).maximum)
    console.print(table)
