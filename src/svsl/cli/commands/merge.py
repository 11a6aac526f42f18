"""`svsl merge`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from svsl.cli.commands.eval import show_side_by_side
from svsl.cli.parsing import Switch, parse, refuse_existing
from svsl.errors import SvslError
from svsl.runs.evaluation import evaluation
from svsl.runs.sources import open_library


@dataclass(frozen=True)
class Options:
    """Put libraries of one task together: every component of each, weighted in proportion to their number."""

    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_NAME RUN_OR_NAME [...]")]
    """Run folders, library files, or names of shipped libraries; they stay as they are."""
    out: Path
    """File of the merged library."""
    contexts: int = 500
    """Fresh contexts of the evaluation of each library and of all together."""
    overwrite: Switch = False
    """Replace a file that is already there."""

    def __post_init__(self) -> None:
        if len(self.sources) < 2:
            raise SvslError(f"merge what? expected at least 2 libraries, got {len(self.sources)}")
        if self.contexts < 1:
            raise SvslError(f"setting contexts: expected at least 1, got {self.contexts}")


def main(args: list[str]) -> int:
    """Writes the merged library and shows what it can do beside its parts."""
    from svsl.model.editing import merge

    options = parse(Options, args, "svsl merge")
    refuse_existing(options.out, options.overwrite)
    libraries = [open_library(source)[0] for source in options.sources]
    merged = merge(libraries)
    results = {
        name: evaluation(library, None, options.contexts)
        for name, library in [*zip(options.sources, libraries, strict=True), ("merged", merged)]
    }
    merged.save(options.out)
    show_side_by_side(results)
    print(f"library  {options.out}")
    return 0
