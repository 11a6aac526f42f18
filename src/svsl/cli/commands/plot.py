"""`svsl plot`."""

from dataclasses import dataclass
from pathlib import Path

from svsl.cli.parsing import SourceNames
from svsl.cli.task_choice import TaskFlags
from svsl.errors import SvslError
from svsl.runs.sources import open_source
from svsl.show.plots.files import plot_library, plot_run, plot_side_by_side
from svsl.show.plots.style import FORMATS, check_format
from svsl.show.progress import StageDisplay


@dataclass(frozen=True)
class Options(TaskFlags):
    """Draw the figures of a run or a library, or several side by side."""

    sources: SourceNames
    """Run folders (finished or still training), library files, names of shipped libraries, or hf:user/name; only runs
    have a learning.png."""
    out: Path | None = None
    """For one source: the folder for its figures (default: figures in the run folder, or NAME-figures). For several:
    the picture (default: comparison.png)."""


def main(options: Options) -> int:
    """Draws the figures of a run or a library, or a comparison of several."""
    if not options.sources:
        raise SvslError("plot what? svsl plot RUN_OR_NAME, or several for a comparison")

    out = options.out
    if len(options.sources) > 1:
        picture = out or Path("comparison.png")
        check_format(picture)
        sources = [open_source(source, options.choice) for source in options.sources]
        columns = [(Path(source.name).absolute().name, source.library, source.make_task()) for source in sources]
        with StageDisplay("figure"):
            plot_side_by_side(columns, picture)
        print(f"figure   {picture}")
        return 0
    if out is not None and out.suffix.lower() in FORMATS:
        raise SvslError(f"out: one run or library has several figures; expected a folder for them, got {str(out)!r}")
    source = open_source(options.sources[0], options.choice)
    source.named_task.chosen(options.choice)  # rejects a task that is not trusted before anything is drawn
    with StageDisplay("figures") as progress:
        if source.run is not None:
            paths = plot_run(source.run, out, report=progress)
        else:
            folder = out or Path(f"{Path(source.name).stem}-figures")
            paths = plot_library(source.library, folder, source.make_task(), progress)
    for path in paths:
        print(f"figure   {path}")
    return 0 if paths else 2
