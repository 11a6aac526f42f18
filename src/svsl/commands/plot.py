"""`svsl plot`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from svsl.commands.base import parse
from svsl.errors import SvslError
from svsl.runs import Run


@dataclass(frozen=True)
class Options:
    """Draw the figures of a run, or several runs side by side."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR [DIR ...]")]
    """Run folders; a run may still be going on. One gets its figures drawn into its folder."""
    out: Path = Path("comparison.png")
    """Picture of several runs side by side."""


def main(args: list[str]) -> int:
    """Draws the figures of a run or a comparison of several."""
    options = parse(Options, args, "svsl plot")
    runs = [Run.open(folder) for folder in options.folders]
    if not runs:
        raise SvslError("plot what? svsl plot DIR, or several for a comparison")
    if len(runs) == 1:
        draw(runs[0])
    else:
        from svsl.plots import plot_comparison

        print(f"figure   {plot_comparison(runs, options.out)}")
    return 0


def draw(run: Run) -> None:
    """Draws the figures of a run and prints their paths."""
    from svsl.plots import plot_run

    for path in plot_run(run):
        print(f"figure   {path}")
