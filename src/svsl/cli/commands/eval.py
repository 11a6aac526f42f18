"""`svsl eval`."""

import json
from dataclasses import dataclass

from svsl.cli.parsing import SourceName, Switch, require_range
from svsl.cli.task_choice import TaskFlags
from svsl.runs.evaluation import evaluate_source
from svsl.runs.sources import open_source
from svsl.show.progress import StageDisplay
from svsl.show.tables import show_evaluation


@dataclass(frozen=True)
class Options(TaskFlags):
    """Evaluate a library or a policy: return, success, entropy, coverage."""

    source: SourceName
    """A run folder (finished or not), a library file, the name of a shipped library, or hf:user/name."""
    json: Switch = False
    """Print one JSON object instead of a table."""
    contexts: int = 2000
    """Number of fresh uniform contexts; in a tenth of them, but at least 20, all components are run."""
    seed: int | None = None
    """Seed of the contexts and of all other randomness (default: that of the run or library)."""

    def __post_init__(self) -> None:
        require_range(1, contexts=self.contexts)
        require_range(0, seed=self.seed)


def main(options: Options) -> None:
    """Evaluates a library or a policy."""
    source = open_source(options.source, options.choice)
    with StageDisplay("evaluation") as progress:
        evaluation = evaluate_source(source, options.contexts, seed=options.seed, report=progress)
    if options.json:
        print(json.dumps(evaluation.to_json()))
    else:
        show_evaluation(evaluation)
