"""`svsl eval`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from svsl.cli.parsing import SourceName, Switch, require_range
from svsl.evaluation.result import Evaluation
from svsl.runs.evaluation import evaluate_source
from svsl.runs.sources import open_source
from svsl.show.tables import print_table


@dataclass(frozen=True)
class Options:
    """Evaluate a library or a policy: return, success, entropy, coverage."""

    source: SourceName
    """A run folder (finished or not), a library file, or the name of a shipped library."""
    json: Switch = False
    """Print one JSON object instead of a table."""
    contexts: int = 2000
    """Number of fresh uniform contexts."""
    seed: int | None = None
    """Seed of the contexts and of all other randomness (default: that of the run or library)."""

    def __post_init__(self) -> None:
        require_range(1, contexts=self.contexts)
        require_range(0, seed=self.seed)


def main(options: Options) -> None:
    """Evaluates a library or a policy."""
    evaluation = evaluate_source(open_source(options.source), options.contexts, seed=options.seed)
    if options.json:
        print(json.dumps(evaluation.to_json()))
    else:
        show_evaluation(evaluation)


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
        table.add_column(Text(heading), overflow="fold")
    for name in next(iter(columns.values())):
        values = [column.get(name) for column in columns.values()]
        table.add_row(name, *(Text(f"{v:.4g}" if isinstance(v, float) else str(v)) for v in values))
    print_table(table)
