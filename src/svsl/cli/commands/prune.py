"""`svsl prune`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from svsl.cli.commands.eval import show_side_by_side
from svsl.cli.parsing import Source, Switch, parse, refuse_existing
from svsl.errors import SvslError
from svsl.evaluation.metrics import repertoire
from svsl.model.library import SkillLibrary
from svsl.model.random import stream
from svsl.runs.config import PRUNE_STREAM
from svsl.runs.evaluation import evaluation
from svsl.runs.sources import open_library, seed_of, task_of
from svsl.tasks.base import uniform_contexts


@dataclass(frozen=True)
class Options:
    """Drop components of a library: light ones, or those that are not missed."""

    source: Source
    """A run folder, a library file, or the name of a shipped library; it stays as it is."""
    out: Path
    """File of the smaller library."""
    min_weight: float | None = None
    """Drop components that weigh less."""
    max_components: int | None = None
    """Keep the heaviest so many."""
    redundant: Switch = False
    """Also drop components, one after the other, as long as no success and no way of succeeding is lost: every
    component is run in a sample of contexts, and a way is a context together with the task's mode."""
    tolerance: float = 0.0
    """With --redundant: share of the success and of the ways that may be lost."""
    contexts: int = 500
    """Fresh contexts of the evaluation before and after; --redundant looks at as many others."""
    overwrite: Switch = False
    """Replace a file that is already there."""

    def __post_init__(self) -> None:
        if self.min_weight is None and self.max_components is None and not self.redundant:
            raise SvslError("prune what? give --min-weight W, --max-components K or --redundant")
        if self.min_weight is not None and not 0 <= self.min_weight < 1:
            raise SvslError(f"setting min_weight: expected from 0 to below 1, got {self.min_weight}")
        if self.max_components is not None and self.max_components < 1:
            raise SvslError(f"setting max_components: expected at least 1, got {self.max_components}")
        if not 0 <= self.tolerance < 1:
            raise SvslError(f"setting tolerance: expected from 0 to below 1, got {self.tolerance}")
        if self.contexts < 1:
            raise SvslError(f"setting contexts: expected at least 1, got {self.contexts}")


def main(args: list[str]) -> int:
    """Writes a smaller library and shows what it can do beside the old one."""
    from svsl.model.editing import heavy_components, select

    options = parse(Options, args, "svsl prune")
    refuse_existing(options.out, options.overwrite)
    library, _ = open_library(options.source)
    pruned = select(library, heavy_components(library, options.min_weight or 0.0, options.max_components))
    if options.redundant:
        pruned = without_redundant(pruned, options.tolerance, options.contexts)
    results = {name: evaluation(lib, None, options.contexts) for name, lib in (("before", library), ("after", pruned))}
    pruned.save(options.out)
    show_side_by_side(results)
    print(f"library  {options.out}")
    return 0


def without_redundant(library: SkillLibrary, tolerance: float, contexts: int) -> SkillLibrary:
    """The library without the components that are not missed in a sample of contexts."""
    from svsl.evaluation.pruning import needed_components
    from svsl.model.editing import select
    from svsl.runs.training import numeric_settings

    task, rng = task_of(library), stream(seed_of(library), PRUNE_STREAM)
    with numeric_settings():
        found = repertoire(library, task, uniform_contexts(task, contexts, rng), rng)
    return select(library, needed_components(found, tolerance))
