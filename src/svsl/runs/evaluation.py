"""All numbers of what a run has learned, or of a library."""

from __future__ import annotations

from typing import Any

from svsl.errors import SvslError
from svsl.evaluation.metrics import evaluate
from svsl.model.library import SkillLibrary
from svsl.model.random import EVAL_STREAM, stream
from svsl.runs.folder import Run
from svsl.runs.sources import seed_of, task_of
from svsl.runs.training import numeric_settings


def evaluate_run(run: Run, contexts: int = 2000, workers: int | None = None) -> dict[str, object]:
    """All numbers of what a run has learned so far."""
    if not run.config.step_based:
        return evaluation(run.load_library(), run, contexts, workers)
    return _policy_evaluation(run, contexts, workers)


def evaluation(
    library: SkillLibrary, run: Run | None, contexts: int = 2000, workers: int | None = None
) -> dict[str, object]:
    """All numbers of a library; a run adds how far it is and how long it took."""
    told, metrics = library.metadata, run.read_metrics() if run else []
    seed = seed_of(library)
    with numeric_settings():
        numbers = evaluate(library, task_of(library, workers), stream(seed, EVAL_STREAM), contexts)
    return {
        "task": told["task"],
        "learner": told.get("learner"),
        "seed": seed,
        "finished": run is None or run.finished,
        "components": len(library),
        "episodes": int(told.get("episodes", 0)),
        "episodes_simulated": int(told.get("episodes_simulated", 0)),
        "wall_s": metrics[-1]["wall_s"] if metrics else None,
        **numbers,
    }


def _policy_evaluation(run: Run, contexts: int, workers: int | None) -> dict[str, object]:
    """All numbers of a step-based policy."""
    config, metrics = run.config, run.read_metrics()
    training: Any = run.make_training(config.make_task(workers), workers)
    if run.finished:
        policy, episodes = training.load_policy(run.product_path)
    elif run.restore(training) is None:
        raise SvslError(f"{run.folder} has no trained policy yet; svsl resume {run.folder} continues it")
    else:
        policy, episodes = training.policy, training.episodes
    return {
        "task": config.task,
        "learner": config.learner,
        "seed": config.seed,
        "finished": run.finished,
        "episodes": episodes,
        "episodes_simulated": episodes,
        "wall_s": metrics[-1]["wall_s"] if metrics else None,
        **training.evaluate(policy, contexts),
    }
