"""The task checker: reports problems with a task before time is spent on training."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import numpy as np

from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.tasks.base import Outcome, Task, context_names, outcome_problem, place_of, uniform_contexts

_EPISODES = 64


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        verdict: `ok`, `warning` (training works, but perhaps not well) or `error` (training would fail).
        text: What was checked and, if there is a problem, how to fix it.
    """

    verdict: Literal["ok", "warning", "error"]
    text: str


def check_task(task: Task, seed: int = 0) -> list[Finding]:
    """Checks the attributes of a task and runs a few batches of episodes."""
    findings = check_attributes(task)
    if any(f.verdict == "error" for f in findings):
        return findings
    try:
        contexts = uniform_contexts(task, _EPISODES, stream(seed, 0))
    except Exception as error:  # user code may raise anything
        return [*findings, Finding("error", f"drawing contexts: {place_of(error)}")]
    factor = np.linalg.cholesky(np.asarray(task.initial_cov, dtype=np.float64))
    parameters = task.initial_mean + stream(seed, 1).standard_normal((_EPISODES, task.parameter_dim)) @ factor.T
    originals = contexts.copy(), parameters.copy()
    try:
        outcome = task.evaluate(contexts, parameters, stream(seed, 2))
    except Exception as error:  # user code may raise anything
        return [*findings, Finding("error", f"evaluate raised {place_of(error)}")]
    findings += _check_outcome(outcome, _EPISODES)
    if any(f.verdict == "error" for f in findings):
        return findings
    if not (np.array_equal(contexts, originals[0]) and np.array_equal(parameters, originals[1])):
        findings.append(Finding("error", "evaluate changed its arguments in place; copy them first"))
        contexts, parameters = originals
    findings += _check_behaviour(task, contexts, parameters, outcome, seed)
    if any(f.verdict == "error" for f in findings):
        return findings
    start = time.perf_counter()  # the first call may have started threads or processes
    task.evaluate(contexts, parameters, stream(seed, 2))
    seconds = time.perf_counter() - start
    findings.append(Finding("ok", f"speed: {_EPISODES / max(seconds, 1e-9):,.0f} episodes/s in a batch of {_EPISODES}"))
    return findings


def check_attributes(task: Task) -> list[Finding]:
    """Checks the attributes of a task without running it."""
    findings: list[Finding] = []

    def expect(ok: bool, text: str, problem: str) -> bool:
        findings.append(Finding("ok", text) if ok else Finding("error", f"{text}: {problem}"))
        return ok

    dim = task.parameter_dim
    if not expect(
        isinstance(dim, Integral) and dim >= 1, "parameter_dim", f"expected a whole number >= 1, got {dim!r}"
    ):
        return findings
    arrays: dict[str, Array] = {}
    for name in ("context_low", "context_high", "initial_mean", "initial_cov"):
        try:
            arrays[name] = np.array(getattr(task, name), dtype=np.float64)
        except (AttributeError, TypeError, ValueError):
            expect(False, name, f"expected an array of numbers, got {getattr(task, name, None)!r}")
            return findings
    low, high = arrays["context_low"], arrays["context_high"]
    is_box = low.ndim == 1 and low.shape == high.shape and len(low) >= 1
    shapes = f"expected two vectors of the same length, got shapes {low.shape} and {high.shape}"
    if not expect(is_box, "context box", shapes):
        return findings
    finite = bool(np.isfinite(low).all() and np.isfinite(high).all())
    expect(finite and bool((low < high).all()), "context range", f"expected finite low < high, got {low}, {high}")
    mean, cov = arrays["initial_mean"], arrays["initial_cov"]
    expect(mean.shape == (dim,), "initial_mean", f"expected shape ({dim},), got {mean.shape}")
    if expect(cov.shape == (dim, dim), "initial_cov", f"expected shape ({dim}, {dim}), got {cov.shape}"):
        symmetric = bool(np.isfinite(cov).all()) and np.allclose(cov, cov.T)
        positive = symmetric and bool((np.linalg.eigvalsh(cov) > 0).all())
        expect(positive, "initial_cov is a covariance", "expected a symmetric, positive definite matrix")
    names = context_names(task)
    expect(len(names) == len(low), "context_names", f"expected {len(low)} (one per dimension), got {list(names)}")
    penalty = getattr(task, "penalty", None)
    if penalty is not None:
        expect(
            isinstance(penalty, (int, float)) and np.isfinite(penalty),
            "penalty",
            f"expected a finite number, got {penalty!r}",
        )
    return findings


def _check_outcome(outcome: Outcome, count: int) -> list[Finding]:
    problem = outcome_problem(outcome, count)
    if problem is not None:
        return [Finding("error", problem)]
    returns, success = outcome.returns, outcome.success
    bad = int((~np.isfinite(returns)).sum())
    if bad == count:
        return [Finding("error", "all returns are NaN or infinite at the initial search distribution")]
    if bad:
        return [
            Finding("warning", f"{bad} of {count} returns are NaN or infinite; they count as the worst return seen")
        ]
    if np.ptp(returns) == 0:
        return [Finding("error", "all returns are equal at the initial search distribution: nothing to improve")]
    return [Finding("ok", f"returns from {returns.min():.4g} to {returns.max():.4g}, {success.mean():.0%} successes")]


def _check_behaviour(task: Task, contexts: Array, parameters: Array, outcome: Outcome, seed: int) -> list[Finding]:
    """Checks repeatability, independence of the batch, single episodes, and the cost of leaving the context box."""
    findings: list[Finding] = []

    def run(rows: slice, contexts: Array = contexts) -> Array:
        rng = stream(seed, 2)
        return np.asarray(task.evaluate(contexts[rows].copy(), parameters[rows].copy(), rng).returns, dtype=np.float64)

    def compare(
        text: str, problem: str, compute: Callable[[], Array], expected: Array, verdict: Literal["warning", "error"]
    ) -> None:
        try:
            same = np.array_equal(compute(), expected, equal_nan=True)
        except Exception as error:  # user code may raise anything
            findings.append(Finding("error", f"{text}: evaluate raised {place_of(error)}"))
            return
        findings.append(Finding("ok", text) if same else Finding(verdict, f"{text}: {problem}"))

    first = np.asarray(outcome.returns, dtype=np.float64)
    not_repeatable = "the same rng gave other returns; draw all randomness from rng and keep no state between calls"
    compare("repeatable", not_repeatable, lambda: run(slice(None)), first, "error")
    not_independent = "the return of an episode depends on its batch (fine only if the task is random)"
    compare("a batch of one", not_independent, lambda: run(slice(0, 1)), first[:1], "warning")
    low, high = np.asarray(task.context_low), np.asarray(task.context_high)
    outside = np.where(contexts > 0.5 * (low + high), contexts + (high - low), contexts - (high - low))
    try:
        returns = run(slice(None), outside)
    except Exception as error:  # user code may raise anything
        fix = "learners ask for such contexts; return clearly worse values for them than inside"
        text = f"contexts outside the box: evaluate raised {place_of(error)}; {fix}"
        return [*findings, Finding("error", text)]
    if np.nanmean(returns) < np.nanmean(first):
        findings.append(Finding("ok", "contexts outside the box score worse"))
    else:
        findings.append(
            Finding(
                "warning",
                "contexts outside the box score no worse, so components may drift out of it; subtract a penalty there",
            )
        )
    return findings
