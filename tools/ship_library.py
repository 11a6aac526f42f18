"""For maintainers: make the library of a finished run one that comes with the package.

python tools/ship_library.py runs/beer-pong-seed0

writes src/svsl/model/shipped_libraries/beer-pong.safetensors: the run's library, with its configuration (`config`) and
what `svsl eval` measures (`results`) as JSON in the metadata. tests/test_pretrained.py holds the file to them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace

from svsl.cli.commands.eval import show_evaluation
from svsl.cli.parsing import Folder, parse
from svsl.errors import SvslError, complain
from svsl.model.shipped import FOLDER
from svsl.runs.evaluation import evaluation
from svsl.runs.folder import Run

LARGEST_FILE = 400_000  # bytes


@dataclass(frozen=True)
class Options:
    """Make the library of a finished run one that comes with the package."""

    folder: Folder
    """The run folder."""
    contexts: int = 2000
    """Contexts of the evaluation that is written into the file."""


def main(args: list[str]) -> int:
    """Evaluates the library and writes it where `svsl.load_pretrained` finds it."""
    options = parse(Options, args, "ship_library.py")
    run = Run.open(options.folder)
    if not run.finished:
        raise SvslError(f"{run.folder} is not finished; svsl resume {run.folder} goes on")
    library = run.load_library()
    results = evaluation(library, run, options.contexts)
    told = {"config": run.config.to_json(), "results": json.dumps({**results, "contexts": options.contexts})}
    path = FOLDER / f"{run.config.task}.safetensors"
    replace(library, metadata={**library.metadata, **told}).save(path)
    show_evaluation(results)
    size = path.stat().st_size
    print(f"library  {path} ({size} bytes)")
    if size > LARGEST_FILE:
        raise SvslError(f"{path}: {size} bytes, expected at most {LARGEST_FILE}; svsl prune makes a library smaller")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SvslError as error:
        sys.exit(complain(str(error)))
