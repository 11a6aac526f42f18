"""`svsl eval`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from svsl.cli.parsing import Source, Switch, parse
from svsl.errors import SvslError
from svsl.evaluation.result import Evaluation
from svsl.runs.evaluation import evaluate_source
from svsl.runs.sources import open_source
from svsl.show.tables import print_table


@dataclass(frozen=True)
class Options:
    """Evaluate a library or a policy: return, success, entropy, coverage."""

    source: Source
    """A run folder (finished or not), a library file, or the name of a shipped library."""
    json: Switch = False
    """Print one JSON object instead of a table."""
    contexts: int = 2000
    """Number of fresh uniform contexts."""

    def __post_init__(self) -> None:
        if self.contexts < 1:
            raise SvslError(f"setting contexts: expected at least 1, got {self.contexts}")


def main(args: list[str]) -> int:
    """Evaluates a library or a policy."""
    options = parse(Options, args, "svsl eval")
    evaluation = evaluate_source(open_source(options.source), options.contexts)
    if options.json:
        print(json.dumps(evaluation.to_json()))
    else:
        show_evaluation(evaluation)
    return 0


def show_evaluation(evaluation: Evaluation) -> None:
    """Prints an evaluation as a table."""
    table = Table(title="Policy" if evaluation.components is None else "Skill library", show_header=False)
    values = evaluation.to_json() | dict(evaluation.diagnostics or {})
    values.pop("diagnostics", None)
    for name, value in values.items():
        table.add_row(name, _cell(value))
    print_table(table)


def show_side_by_side(evaluations: Mapping[str, Evaluation]) -> None:
    """Prints the evaluations of several libraries, one per column: the number of components and the metrics."""
    table = Table(title="Skill libraries")
    for heading in ("", *evaluations):
        table.add_column(heading, overflow="fold")
    columns = [{"components": e.components, **e.metrics} for e in evaluations.values()]
    for name, value in columns[0].items():
        if value is not None:
            table.add_row(name, *(_cell(column[name]) for column in columns))
    print_table(table)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
