"""All numbers of what a run has learned, or of a library."""

from __future__ import annotations

from svsl.evaluation.metrics import evaluate
from svsl.model.library import SkillLibrary
from svsl.model.random import stream
from svsl.runs.config import EVAL_STREAM, import_ppo
from svsl.runs.folder import Run
from svsl.runs.sources import seed_of, task_of
from svsl.runs.training import numeric_settings
from svsl.tasks.base import Task


def evaluate_run(
    run: Run, contexts: int = 2000, workers: int | None = None, task: Task | None = None
) -> dict[str, object]:
    """All numbers of what a run has learned so far; `task` is the run's, made here by default."""
    if not run.config.step_based:
        return evaluation(run.load_library(), run, contexts, workers, task)
    result: dict[str, object] = import_ppo().evaluation(run, contexts, workers)
    return result


def evaluation(
    library: SkillLibrary,
    run: Run | None,
    contexts: int = 2000,
    workers: int | None = None,
    task: Task | None = None,
) -> dict[str, object]:
    """All numbers of a library; a run adds how far it is and how long it took."""
    told, metrics = library.metadata, run.read_metrics() if run else []
    seed = seed_of(library)
    with numeric_settings():
        task = task_of(library, workers) if task is None else task
        numbers = evaluate(library, task, stream(seed, EVAL_STREAM), contexts)
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
