"""`svsl compare`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from svsl.cli.parsing import Folders, Switch, require_range
from svsl.cli.task_choice import TrustFlag
from svsl.errors import SvslError
from svsl.model.files import write_bytes
from svsl.runs import comparison
from svsl.runs.comparison import Group, Table
from svsl.runs.folder import Run
from svsl.show.plots.learning import plot_learning
from svsl.show.plots.style import check_format
from svsl.show.progress import StageDisplay
from svsl.show.tables import print_columns


@dataclass(frozen=True)
class Options(TrustFlag):
    """Compare runs: groups of seeds, final results and learning curves with their uncertainty."""

    folders: Folders
    """Run folders of one task, finished or not. Runs that differ only in their seed form a group."""
    metrics: str = ",".join(comparison.TABLE_METRICS)
    """Metrics in the table, separated by commas; any metric of svsl eval."""
    out: Path = Path("comparison.png")
    """File for the figure of the learning curves."""
    panels: str = ""
    """Task option, such as reward, whose values get separate panels because their returns cannot be compared."""
    csv: Path | None = None
    """Also write the table to this CSV file."""
    json: Switch = False
    """Print one JSON object instead of a table."""
    contexts: int = 2000
    """Number of fresh contexts for each run's evaluation, which is stored in its folder."""

    def __post_init__(self) -> None:
        require_range(1, contexts=self.contexts)


def main(options: Options) -> None:
    """Compares runs."""
    if not options.folders:
        raise SvslError("compare what? svsl compare RUN RUN ...")

    check_format(options.out)
    groups = comparison.group_runs([Run.open(folder, options.choice) for folder in options.folders])
    metrics = [name.strip() for name in options.metrics.split(",")]
    with StageDisplay("evaluation") as progress:
        table = comparison.summary_table(groups, metrics, options.contexts, progress)
    if options.csv is not None:
        write_bytes(options.csv, comparison.to_csv(table).encode())
    drawn = any(comparison.learning_curve(group, "return_mean") for group in groups)
    figure = plot_learning(groups, options.out, panels=options.panels) if drawn else None
    if options.json:
        print(json.dumps({"groups": _as_json(groups, table), "figure": str(figure) if figure else None}))
        return
    columns = {}
    for group in groups:
        cells = {metric: "\n".join(comparison.format_summary(s)) for metric, s in table[group.label].items()}
        columns[f"{group.label}\n{comparison.describe_seeds(group)}"] = cells
    print_columns("mean ± 95 % interval (Student's t), interquartile mean [95 % bootstrap interval]", columns)
    if options.csv is not None:
        print(f"table    {options.csv}")
    print(f"figure   {figure}" if figure else "no figure: no run has been tested yet")


def _as_json(groups: list[Group], table: Table) -> list[dict[str, object]]:
    return [
        {
            "label": group.label,
            "runs": [str(run.folder) for run in group.runs],
            "unfinished": sum(not run.finished for run in group.runs),
            "metrics": {
                name: {key: None if np.isnan(value) else value for key, value in asdict(summary).items()}
                for name, summary in table[group.label].items()
            },
        }
        for group in groups
    ]
