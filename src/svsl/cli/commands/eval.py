"""`svsl eval`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from svsl.cli.parsing import Source, Switch, parse
from svsl.errors import SvslError
from svsl.runs.evaluation import evaluate_run, evaluation
from svsl.runs.folder import Run
from svsl.runs.sources import open_library
from svsl.show.tables import print_table


@dataclass(frozen=True)
class Options:
    """Measure a library or a policy: return, success, entropy, coverage."""

    source: Source
    """A run folder (the run may still be going on), a library file, or the name of a shipped library."""
    json: Switch = False
    """Print one JSON object instead of a table."""
    contexts: int = 2000
    """Number of fresh uniform contexts."""

    def __post_init__(self) -> None:
        if self.contexts < 1:
            raise SvslError(f"setting contexts: expected at least 1, got {self.contexts}")


def main(args: list[str]) -> int:
    """Measures the library of a run."""
    options = parse(Options, args, "svsl eval")
    folder = Path(options.source)
    if Run.config_path(folder).is_file():
        result = evaluate_run(Run.open(folder), options.contexts)
    else:
        result = evaluation(*open_library(options.source), options.contexts)
    if options.json:
        print(json.dumps(result))
    else:
        show_evaluation(result)
    return 0


def show_evaluation(result: dict[str, object]) -> None:
    """Prints the numbers as a table."""
    table = Table(title="Skill library" if "components" in result else "Policy", show_header=False)
    rows = {name: value for name, value in result.items() if not isinstance(value, dict)}
    for group in (value for value in result.values() if isinstance(value, dict)):
        rows |= group
    for name, value in rows.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    print_table(table)


def show_side_by_side(results: dict[str, dict[str, object]]) -> None:
    """Prints the numbers of several libraries, one a column, those only that can be compared."""
    table = Table(title="Skill libraries")
    for heading in ("", *results):
        table.add_column(heading, overflow="fold")
    for name, value in next(iter(results.values())).items():
        if name == "components" or isinstance(value, float):
            values = [result[name] for result in results.values()]
            table.add_row(name, *(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values))
    print_table(table)
