"""What should be said about a finished run besides its numbers."""

from collections.abc import Mapping

import numpy as np

from svsl.evaluation.metrics import run_finite
from svsl.model.random import EVAL_STREAM, stream
from svsl.runs.folder import Run
from svsl.tasks.base import Task, uniform_contexts

_NOTABLE_LOSS = 0.05  # drop of the success rate that is worth a warning
_START_EPISODES = 200


def remarks(run: Run, numbers: Mapping[str, float | None], task: Task) -> list[str]:
    """Returns one line for each thing a user should know about a finished run.

    Args:
        run: The run.
        numbers: Its metrics: those of its evaluation or of its last test.
        task: Its task.
    """
    lines = [missing_components(run, numbers), weight_stage_warning(run), nothing_learned(run, numbers, task)]
    return [line for line in lines if line is not None]


def weight_stage_warning(run: Run) -> str | None:
    """Returns a warning if the library was clearly better before its weights were learned, None otherwise."""
    if not run.config.settings.learns_weights:
        return None
    before, after = ([None, None, *run.read_metrics()])[-2:]
    if before is None or after is None or before["success_rate"] - after["success_rate"] < _NOTABLE_LOSS:
        return None
    if before["components"] == 1:  # one component needs no weights
        return None
    return (
        f"weights  learning them kept {after['components']} of {before['components']} components, and success fell "
        f"from {before['success_rate']:.0%} to {after['success_rate']:.0%} in tests: a larger --beta-weight keeps more"
    )


def missing_components(run: Run, numbers: Mapping[str, float | None]) -> str | None:
    """Explains why a library has fewer components than were asked for; None if it has all."""
    asked, kept = getattr(run.config.settings, "components", None), numbers.get("components")
    rows = run.read_metrics()
    if asked is None or kept is None or not rows:
        return None
    base = len(run.load_base() or ())
    parts = 2 ** getattr(run.config.settings, "splits", 0)  # a deleted component would have been split
    kept, deleted = int(kept) - base, parts * int(rows[-1].get("deleted", 0))
    if kept >= asked:
        return None
    light = asked - kept - deleted
    reasons = [f"{deleted} deleted as stuck"] * (deleted > 0) + [f"{light} too light"] * (light > 0)
    return f"kept     {kept} of {asked}{' new' if base else ''} components: {', '.join(reasons)}"


def nothing_learned(run: Run, numbers: Mapping[str, float | None], task: Task) -> str | None:
    """Returns a pointer to what helps if nothing succeeds or the return is no better than at the start."""
    success, learned = numbers.get("success_rate"), numbers.get("return_mean")
    if success == 0:
        problem = "no episode succeeded"
    elif not run.config.step_based and learned is not None and learned <= (start := _start_return(run, task)):
        problem = f"the return {learned:.4g} is no better than that of the initial search, {start:.4g}"
    else:
        return None
    return f"verdict  {problem}: docs/not-learning.md says what to try"


def _start_return(run: Run, task: Task) -> float:
    """Returns the mean return of parameters drawn from the task's initial distribution."""
    rng = stream(run.config.seed, EVAL_STREAM, 1)
    contexts = uniform_contexts(task, _START_EPISODES, rng)
    mean, cov = (np.asarray(a, dtype=np.float64) for a in (task.initial_mean, task.initial_cov))
    parameters = mean + rng.standard_normal((len(contexts), len(mean))) @ np.linalg.cholesky(cov).T
    return float(run_finite(task, contexts, parameters, rng).returns.mean())
