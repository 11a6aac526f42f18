"""`svsl merge`."""

from dataclasses import dataclass
from pathlib import Path

from svsl.cli.parsing import SourceNames, Switch, refuse_existing, require_range
from svsl.cli.task_choice import TaskFlags
from svsl.errors import SvslError
from svsl.model.editing import merge
from svsl.runs.evaluation import evaluate_source
from svsl.runs.sources import open_source, with_regions
from svsl.show.progress import StageDisplay
from svsl.show.tables import show_side_by_side


@dataclass(frozen=True)
class Options(TaskFlags):
    """Merge libraries of one task: all their components, each library weighted by its number of components."""

    sources: SourceNames
    """At least two run folders, library files, names of shipped libraries or hf:user/name; they are not modified."""
    out: Path
    """File of the merged library."""
    contexts: int = 500
    """Number of fresh contexts for the evaluation of each library and of the merged one."""
    overwrite: Switch = False
    """Replace an existing file."""

    def __post_init__(self) -> None:
        if len(self.sources) < 2:
            raise SvslError(f"merge what? expected at least 2 libraries, got {len(self.sources)}")
        require_range(1, contexts=self.contexts)


def main(options: Options) -> None:
    """Writes the merged library and prints its evaluation beside those of its parts."""
    refuse_existing(options.out, options.overwrite)
    parts = [open_source(source, options.choice) for source in options.sources]
    tasks = [part.make_task() for part in parts]
    libraries = [with_regions(part.library, task) for part, task in zip(parts, tasks, strict=True)]
    merged = parts[0].holding(merge(libraries), "merged")
    evaluations = {}
    for source, task in zip([*parts, merged], [*tasks, tasks[0]], strict=True):
        with StageDisplay(f"evaluation {source.name}") as progress:
            evaluations[source.name] = evaluate_source(source, options.contexts, task=task, report=progress)
    merged.save(options.out)
    show_side_by_side(evaluations)
    print(f"library  {options.out}")
