"""`svsl prune`."""

from dataclasses import dataclass
from pathlib import Path

from svsl.cli.parsing import SourceName, Switch, refuse_existing, require_range
from svsl.cli.task_choice import TaskFlags
from svsl.errors import SvslError
from svsl.evaluation.metrics import repertoire
from svsl.evaluation.pruning import needed_components
from svsl.model.editing import heavy_components, select
from svsl.model.random import PRUNE_STREAM, stream
from svsl.runs.evaluation import evaluate_source
from svsl.runs.sources import open_source, seed_of, with_regions
from svsl.runs.training import numeric_settings
from svsl.show.progress import StageDisplay
from svsl.show.tables import show_side_by_side
from svsl.tasks.base import uniform_contexts


@dataclass(frozen=True)
class Options(TaskFlags):
    """Drop components of a library: those with little weight, or those it does not need."""

    source: SourceName
    """A run folder, a library file, the name of a shipped library, or hf:user/name; it is not modified."""
    out: Path
    """File of the pruned library."""
    min_weight: float | None = None
    """Drop components with a smaller weight than this."""
    max_components: int | None = None
    """Keep the N heaviest components."""
    redundant: Switch = False
    """Also drop components one by one as long as neither success nor a solution is lost: every component is run in a
    sample of contexts, and a solution is a context together with the task's mode."""
    tolerance: float = 0.0
    """With --redundant: share of the success and of the solutions that may be lost."""
    contexts: int = 500
    """Number of fresh contexts for the evaluation before and after; --redundant uses as many others."""
    overwrite: Switch = False
    """Replace an existing file."""

    def __post_init__(self) -> None:
        if self.min_weight is None and self.max_components is None and not self.redundant:
            raise SvslError("prune what? give --min-weight W, --max-components K or --redundant")
        for name, value in (("min_weight", self.min_weight), ("tolerance", self.tolerance)):
            if value is not None and not 0 <= value < 1:
                raise SvslError(f"setting {name}: expected from 0 to below 1, got {value}")
        require_range(1, max_components=self.max_components, contexts=self.contexts)


def main(options: Options) -> None:
    """Writes the pruned library and prints its evaluation beside that of the original."""
    refuse_existing(options.out, options.overwrite)
    source = open_source(options.source, options.choice)
    source.named_task.chosen(options.choice)  # rejects a task that is not trusted under the name the user gave
    before = source.holding(source.library, "before")
    task = before.make_task()
    heavy = heavy_components(with_regions(before.library, task), options.min_weight or 0.0, options.max_components)
    after = before.holding(select(before.library, heavy), "after")
    if options.redundant:
        rng = stream(seed_of(after.library), PRUNE_STREAM)
        with numeric_settings():
            behaviours = repertoire(after.library.mixture, task, uniform_contexts(task, options.contexts, rng), rng)
        after = before.holding(select(after.library, needed_components(behaviours, options.tolerance)), "after")
    evaluations = {}
    for source in (before, after):
        with StageDisplay(f"evaluation {source.name}") as progress:
            evaluations[source.name] = evaluate_source(source, options.contexts, task=task, report=progress)
    after.save(options.out)
    show_side_by_side(evaluations)
    print(f"library  {options.out}")
