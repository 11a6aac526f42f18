"""The checker for users' tasks: says what is wrong before hours are trained on it."""

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
    """One thing that was looked at.

    Attributes:
        verdict: `ok`, `warning` (training works, perhaps not well) or `error` (training would fail).
        text: What was found and, if it is bad, how to mend it.
    """

    verdict: Literal["ok", "warning", "error"]
    text: str


def check_task(task: Task, seed: int = 0) -> list[Finding]:
    """Looks at a task's attributes and runs a few batches of it."""
    findings = check_attributes(task)
    if any(f.verdict == "error" for f in findings):
        return findings
    try:
        contexts = uniform_contexts(task, _EPISODES, stream(seed, 0))
    except Exception as error:  # whatever the user's code raises is the finding
        return [*findings, Finding("error", f"drawing contexts: {place_of(error)}")]
    factor = np.linalg.cholesky(np.asarray(task.initial_cov, dtype=np.float64))
    parameters = task.initial_mean + stream(seed, 1).standard_normal((_EPISODES, task.parameter_dim)) @ factor.T
    kept = contexts.copy(), parameters.copy()
    try:
        outcome = task.evaluate(contexts, parameters, stream(seed, 2))
    except Exception as error:  # whatever the user's code raises is the finding
        return [*findings, Finding("error", f"evaluate raised {place_of(error)}")]
    findings += _check_outcome(outcome, _EPISODES)
    if any(f.verdict == "error" for f in findings):
        return findings
    if not (np.array_equal(contexts, kept[0]) and np.array_equal(parameters, kept[1])):
        findings.append(Finding("error", "evaluate changed its arguments in place; copy them first"))
        contexts, parameters = kept
    findings += _check_behaviour(task, contexts, parameters, outcome, seed)
    if any(f.verdict == "error" for f in findings):
        return findings
    start = time.perf_counter()  # not of the first call, which may have started threads or processes
    task.evaluate(contexts, parameters, stream(seed, 2))
    seconds = time.perf_counter() - start
    findings.append(Finding("ok", f"speed: {_EPISODES / max(seconds, 1e-9):,.0f} episodes/s in a batch of {_EPISODES}"))
    return findings


def check_attributes(task: Task) -> list[Finding]:
    """Looks at a task without running it."""
    findings: list[Finding] = []

    def expect(good: bool, text: str, fix: str) -> bool:
        findings.append(Finding("ok", text) if good else Finding("error", f"{text}: {fix}"))
        return good

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
    box_fine = low.ndim == 1 and low.shape == high.shape and len(low) >= 1
    shapes = f"expected two vectors of one length, got shapes {low.shape} and {high.shape}"
    if not expect(box_fine, "context box", shapes):
        return findings
    finite = bool(np.isfinite(low).all() and np.isfinite(high).all())
    expect(finite and bool((low < high).all()), "context range", f"expected finite low < high, got {low}, {high}")
    mean, cov = arrays["initial_mean"], arrays["initial_cov"]
    expect(mean.shape == (dim,), "initial_mean", f"expected shape ({dim},), got {mean.shape}")
    if expect(cov.shape == (dim, dim), "initial_cov", f"expected shape ({dim}, {dim}), got {cov.shape}"):
        symmetric = bool(np.isfinite(cov).all()) and np.allclose(cov, cov.T)
        positive = symmetric and bool((np.linalg.eigvalsh(cov) > 0).all())
        expect(positive, "initial_cov is a covariance", "expected a symmetric, positive definite matrix")
    names, fix = context_names(task), "expected as many as the context has dimensions"
    expect(len(names) == len(low), "context_names", f"{fix}, {len(low)}, got {list(names)}")
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
        return [Finding("error", "all returns are equal at the initial search distribution: nothing to climb")]
    return [Finding("ok", f"returns from {returns.min():.4g} to {returns.max():.4g}, {success.mean():.0%} successes")]


def _check_behaviour(task: Task, contexts: Array, parameters: Array, outcome: Outcome, seed: int) -> list[Finding]:
    """Repeatability, independence of the batch, single episodes, and the cost of leaving the context box."""
    findings: list[Finding] = []

    def run(rows: slice, contexts: Array = contexts) -> Array:
        rng = stream(seed, 2)
        return np.asarray(task.evaluate(contexts[rows].copy(), parameters[rows].copy(), rng).returns, dtype=np.float64)

    def compare(
        text: str, fix: str, make: Callable[[], Array], expected: Array, verdict: Literal["warning", "error"]
    ) -> None:
        try:
            same = np.array_equal(make(), expected, equal_nan=True)
        except Exception as error:  # whatever the user's code raises is the finding
            findings.append(Finding("error", f"{text}: evaluate raised {place_of(error)}"))
            return
        findings.append(Finding("ok", text) if same else Finding(verdict, f"{text}: {fix}"))

    first = np.asarray(outcome.returns, dtype=np.float64)
    again = "the same rng gave other returns; draw all randomness from the rng and keep no state between calls"
    compare("repeatable", again, lambda: run(slice(None)), first, "error")
    alone = "an episode's return changes with the batch it comes in (fine only if the task is random)"
    compare("a batch of one", alone, lambda: run(slice(0, 1)), first[:1], "warning")
    low, high = np.asarray(task.context_low), np.asarray(task.context_high)
    outside = np.where(contexts > 0.5 * (low + high), contexts + (high - low), contexts - (high - low))
    try:
        returns = run(slice(None), outside)
    except Exception as error:  # whatever the user's code raises is the finding
        fix = "learners ask for such contexts, so give them a return that is clearly worse than inside"
        text = f"contexts outside the box: evaluate raised {place_of(error)}; {fix}"
        return [*findings, Finding("error", text)]
    if np.nanmean(returns) < np.nanmean(first):
        findings.append(Finding("ok", "contexts outside the box score worse"))
    else:
        findings.append(
            Finding(
                "warning",
                "contexts outside the box score no worse: components may drift out of it; subtract a penalty there",
            )
        )
    return findings
