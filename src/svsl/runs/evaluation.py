"""Evaluation of a run or a library, and the copy a run folder keeps of it."""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from svsl.errors import SvslError
from svsl.evaluation.intervals import summarise_contexts, summarise_trial
from svsl.evaluation.metrics import METRICS, Report, diagnostics, no_report, run_trial
from svsl.evaluation.result import Evaluation
from svsl.learners.base import PolicyTraining
from svsl.model.files import parse_json, write_bytes
from svsl.model.library import recorded_count
from svsl.model.random import EVAL_STREAM, stream
from svsl.model.version import __version__
from svsl.runs.folder import Run
from svsl.runs.sources import Source, seed_of
from svsl.runs.training import numeric_settings
from svsl.tasks.base import Task


def evaluate_source(
    source: Source,
    contexts: int = 2000,
    workers: int | None = None,
    task: Task | None = None,
    seed: int | None = None,
    report: Report = no_report,
) -> Evaluation:
    """Evaluates a library, or the policy of a step-based run.

    Args:
        source: Where it comes from; a run adds its progress and its training time.
        contexts: Number of fresh uniform contexts.
        workers: Threads or processes of the task (default: all cores).
        task: The task, if it already exists; by default it is created.
        seed: Seed of the contexts and of all other randomness (default: that of the run or library).
        report: Called with the share of the work done so far, 0 to 1, and what is being done now.

    Raises:
        SvslError: If nothing is trained yet, or the library does not fit its task.

    Examples:
        >>> from svsl.runs.evaluation import evaluate_source
        >>> from svsl.runs.sources import open_source
        >>> evaluation = evaluate_source(open_source("planar-reacher"), contexts=100)
        >>> evaluation.metrics["success_rate"] > 0.9
        True
    """
    run = source.run
    if run is not None:
        run.require_files()
    if run is not None and run.config.step_based:
        report(0.0, "episodes of the policy")
        return _evaluate_policy(run, contexts, workers, seed)
    library, rows = source.library, run.read_metrics() if run else []
    metadata, evaluation_seed = library.metadata, seed_of(library) if seed is None else int(seed)
    task, rng = task or source.make_task(workers), stream(evaluation_seed, EVAL_STREAM)
    with numeric_settings():
        trial = run_trial(library, task, rng, contexts, report)
        report(1.0, "intervals")
        metrics, intervals = summarise_trial(trial)
    return Evaluation(
        task=source.task_name,
        learner=metadata.get("learner"),
        seed=seed_of(library),
        evaluation_seed=evaluation_seed,
        finished=run is None or run.finished,
        components=len(library),
        episodes=recorded_count(metadata, "episodes"),
        episodes_simulated=recorded_count(metadata, "episodes_simulated"),
        wall_s=rows[-1].get("wall_s") if rows else None,
        metrics=metrics,
        intervals=intervals,
        diagnostics=diagnostics(trial.execution.mean),
    )


def evaluate_run(
    run: Run,
    contexts: int = 2000,
    workers: int | None = None,
    task: Task | None = None,
    report: Report = no_report,
) -> Evaluation:
    """Evaluates what a run has learned so far; see `evaluate_source`."""
    return evaluate_source(Source.of(run), contexts, workers, task, report=report)


def _evaluate_policy(run: Run, contexts: int, workers: int | None, seed: int | None) -> Evaluation:
    config, rows = run.config, run.read_metrics()
    evaluation_seed = config.seed if seed is None else int(seed)
    # the seed of a restored policy only matters for its evaluation
    training = replace(config, seed=evaluation_seed).make_training(run.make_task(workers), workers=workers)
    assert isinstance(training, PolicyTraining)
    if run.finished:
        training.load(run.product_path)
    elif run.restore(training) is None:
        raise SvslError(f"{run.folder} has no trained policy yet; svsl resume {run.folder} continues it")
    metrics, intervals = summarise_contexts(training.evaluate(contexts))
    return Evaluation(
        task=config.task,
        learner=config.learner,
        seed=config.seed,
        evaluation_seed=evaluation_seed,
        finished=run.finished,
        components=None,
        episodes=training.episodes,
        episodes_simulated=training.episodes,
        wall_s=rows[-1].get("wall_s") if rows else None,
        metrics=metrics,
        intervals=intervals,
    )


def stored_evaluation(
    run: Run,
    contexts: int = 2000,
    workers: int | None = None,
    task: Task | None = None,
    report: Report = no_report,
) -> Evaluation | None:
    """Returns the evaluation in the run folder; evaluates the run if it is missing or outdated.

    It is stored together with the hash of the library or checkpoint it belongs to and the names of the metrics. If
    only the numbers of the run are left, the stored one is returned. None for a run without a trained component.
    """
    if run.record is not None:
        return _read(run.evaluation_path)
    learned = run.product_path if run.finished else run.checkpoint_path
    if not learned.exists():
        return None
    digest = hashlib.sha256(learned.read_bytes()).hexdigest()
    made_for = {"sha256": digest, "contexts": contexts, "svsl": __version__, "metrics": list(METRICS)}
    stored = _read(run.evaluation_path, made_for)
    if stored is not None:
        return stored
    try:
        evaluation = evaluate_run(run, contexts, workers, task, report)
    except SvslError:
        if run.finished:
            raise
        return None  # the checkpoint was written before any component was trained
    content = {"made_for": made_for, "evaluation": evaluation.to_json()}
    with contextlib.suppress(OSError):  # a read-only folder: evaluated again next time
        write_bytes(run.evaluation_path, (json.dumps(content, indent=2) + "\n").encode())
    return evaluation


def _read(path: Path, made_for: Mapping[str, object] | None = None) -> Evaluation | None:
    """Returns the evaluation in a file; None if there is none, or if it was made for something else than expected."""
    try:
        stored = parse_json(path.read_text())
        return Evaluation.from_json(stored["evaluation"]) if made_for in (None, stored["made_for"]) else None
    except (OSError, AttributeError, KeyError, TypeError, ValueError):  # missing, or not written by us
        return None
