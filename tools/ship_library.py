"""For maintainers: ship the library of a finished run with the package.

python tools/ship_library.py runs/beer-pong-seed0

writes src/svsl/model/shipped_libraries/beer-pong.safetensors: the run's library, with its configuration (`config`) and
the results of `svsl eval` (`results`) as JSON in the metadata, which tests/model/test_pretrained.py checks.
"""

import json
import sys
from dataclasses import dataclass, replace

from svsl.cli.parsing import Folder, parse
from svsl.errors import SvslError, complain
from svsl.model.shipped import FOLDER
from svsl.runs.evaluation import evaluate_run
from svsl.runs.folder import Run
from svsl.show.tables import show_evaluation

LARGEST_FILE = 400_000  # bytes


@dataclass(frozen=True)
class Options:
    """Ship the library of a finished run with the package."""

    folder: Folder
    """The run folder."""
    contexts: int = 2000
    """Fresh contexts for the evaluation that is stored in the file."""


def main(args: list[str]) -> int:
    """Evaluates the library and writes it to where `svsl.load_pretrained` looks for it."""
    options = parse(Options, args, "ship_library.py")
    run = Run.open(options.folder)
    if not run.finished:
        raise SvslError(f"{run.folder} is not finished; svsl resume {run.folder} continues it")
    library = run.load_library()
    evaluation = evaluate_run(run, options.contexts)
    results = {**evaluation.to_json(), "contexts": options.contexts}
    metadata = {**library.metadata, "config": run.config.to_json(), "results": json.dumps(results)}
    path = FOLDER / f"{run.config.task}.safetensors"
    replace(library, metadata=metadata).save(path)
    show_evaluation(evaluation)
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
