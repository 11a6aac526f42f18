"""Tables for the terminal."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from svsl.errors import printable
from svsl.evaluation.result import Evaluation


def print_table(table: Table) -> None:
    """Prints a table: as wide as the terminal, or as wide as it needs if the output is a file or a pipe."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, console.measure(table, options=console.options.update(width=10_000)).maximum)
    console.print(table)


def show_evaluation(evaluation: Evaluation) -> None:
    """Prints an evaluation as a table."""
    values = evaluation.to_json() | _metric_cells(evaluation) | dict(evaluation.diagnostics or {})
    for name in ("intervals", "diagnostics"):
        values.pop(name, None)
    print_columns("Policy" if evaluation.components is None else "Skill library", {"": values}, show_header=False)
    if evaluation.intervals:
        print("[low, high]: 95 % interval of the mean over contexts")


def show_side_by_side(evaluations: Mapping[str, Evaluation]) -> None:
    """Prints the evaluations of several libraries, one per column: the number of components and the metrics."""
    columns = {}
    for name, evaluation in evaluations.items():
        defined = {metric: cell for metric, cell in _metric_cells(evaluation).items() if cell is not None}
        columns[name] = {"components": evaluation.components, **defined}
    print_columns("Skill libraries", columns)


def _metric_cells(evaluation: Evaluation) -> dict[str, object]:
    """The metrics as `value [low, high]`, or the plain value where the interval is unknown."""
    cells: dict[str, object] = dict(evaluation.metrics)
    for name, (low, high) in evaluation.intervals.items():
        cells[name] = f"{evaluation.metrics[name]:.4g} [{low:.4g}, {high:.4g}]"
    return cells


def print_columns(title: str, columns: Mapping[str, Mapping[str, object]], show_header: bool = True) -> None:
    """Prints a table with one row per metric and one named column per mapping."""
    table = Table(title=title, show_header=show_header)
    for heading in ("metric", *columns):
        table.add_column(Text(printable(heading)), overflow="fold")
    for name in next(iter(columns.values())):
        values = [column.get(name) for column in columns.values()]
        table.add_row(*(Text(printable(cell)) for cell in (name, *map(_cell, values))))
    print_table(table)


def _cell(value: object) -> str:
    """A number with four digits, `n/a` for a value that is not defined."""
    return "n/a" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
