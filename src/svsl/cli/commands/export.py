"""`svsl export`."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from svsl.cli.parsing import SourceName, Switch, refuse_existing
from svsl.cli.task_choice import TrustFlag
from svsl.model.files import write_bytes
from svsl.runs.sources import open_source


@dataclass(frozen=True)
class Options(TrustFlag):
    """Export a library as a CSV table, one row per component."""

    source: SourceName
    """A run folder (finished or not), a library file, the name of a shipped library, or hf:user/name."""
    out: Path
    """The CSV file. Columns: component, weight, context_mean_I, context_cov_I_J, gain_P_I, bias_P, cov_P_Q; I and J
    count context dimensions and P and Q parameters, from 0. Quadratic experts also have gain_P_I_J."""
    overwrite: Switch = False
    """Replace an existing file."""


def main(options: Options) -> None:
    """Writes the table, with numbers that are read back exactly."""
    refuse_existing(options.out, options.overwrite)
    names, rows = open_source(options.source, options.choice).library.table()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([int(row[0]), *map(float, row[1:])] for row in rows)
    write_bytes(options.out, text.getvalue().encode())
    print(f"table    {options.out}")
