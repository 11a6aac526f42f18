"""The task checker: reports problems with a task before time is spent on training."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, TypeVar

import numpy as np

from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.tasks.base import Outcome, Task, context_names, outcome_problem, place_of, uniform_contexts, usable_returns

_EPISODES = 64
_MANY_COEFFICIENTS = 1500  # about 53 dimensions; from here on, a step takes seconds
_MEASURED_SIZE = 500
_T = TypeVar("_T")
Verdict = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        verdict: `ok`, `warning` (training works, but perhaps not well) or `error` (training would fail).
        text: What was checked and, if there is a problem, how to fix it.
    """

    verdict: Verdict
    text: str


class _Findings(list[Finding]):
    @property
    def failed(self) -> bool:
        return any(finding.verdict == "error" for finding in self)

    def expect(self, ok: bool, text: str, problem: str, verdict: Verdict = "error") -> bool:
        self.append(Finding("ok", text) if ok else Finding(verdict, f"{text}: {problem}"))
        return ok

    def attempt(self, doing: str, run: Callable[[], _T], fix: str = "") -> _T | None:
        """Runs user code; None if it raises anything, which is a finding."""
        try:
            return run()
        except (Exception, SystemExit) as error:
            self.append(Finding("error", f"{doing} {place_of(error)}{fix}"))
            return None


def check_task(task: Task, seed: int = 0) -> list[Finding]:
    """Checks the attributes of a task and runs a few batches of episodes."""
    findings = check_attributes(task)
    if findings.failed:
        return findings
    contexts = findings.attempt("drawing contexts:", lambda: uniform_contexts(task, _EPISODES, stream(seed, 0)))
    if contexts is None:
        return findings
    factor = np.linalg.cholesky(np.asarray(task.initial_cov, dtype=np.float64))
    parameters = task.initial_mean + stream(seed, 1).standard_normal((_EPISODES, task.parameter_dim)) @ factor.T
    given = contexts.copy(), parameters.copy()
    outcome = findings.attempt("evaluate raised", lambda: task.evaluate(*given, stream(seed, 2)))
    if not findings.failed:
        findings.append(_check_outcome(outcome, _EPISODES))
    if findings.failed or outcome is None:
        return findings
    if not (np.array_equal(contexts, given[0]) and np.array_equal(parameters, given[1])):
        findings.append(Finding("error", "evaluate changed its arguments in place; copy them first"))
    _check_behaviour(task, contexts, parameters, usable_returns(outcome.returns), seed, findings)
    if not findings.failed:
        start = time.perf_counter()  # the first call may have started threads or processes
        task.evaluate(contexts, parameters, stream(seed, 2))
        speed = _EPISODES / max(time.perf_counter() - start, 1e-9)
        findings.append(Finding("ok", f"speed: {speed:,.0f} episodes/s in a batch of {_EPISODES}"))
        findings.append(check_cost(task.parameter_dim + contexts.shape[1]))
    return findings


def check_cost(dim: int) -> Finding:
    """Estimates what a step of the default learner costs, with this many parameters and context dimensions in all."""
    coefficients = 1 + dim * (dim + 3) // 2
    buffer = int(1.5 * coefficients)
    episodes = int(0.6 * buffer)
    text = f"cost: {episodes:,} episodes for each step of a component, whose model has {coefficients:,} coefficients"
    if coefficients < _MANY_COEFFICIENTS:
        return Finding("ok", text)
    # the costly part is the product of the features of all episodes in the buffer with themselves
    features = stream(0).standard_normal((_MEASURED_SIZE, int(1.5 * _MEASURED_SIZE)))
    measured_s = []
    for _ in range(3):
        start = time.perf_counter()
        np.linalg.cholesky(features @ features.T)
        measured_s.append(time.perf_counter() - start)
    step_s, memory_gb = min(measured_s) * (coefficients / _MEASURED_SIZE) ** 3, 8e-9 * coefficients * buffer
    return Finding(
        "warning",
        f"{text} and takes about {step_s:,.0f} s and {memory_gb:,.1f} GB to fit; with half as many parameters it is a "
        "quarter of the episodes and a sixtieth of the time: use fewer, for instance fewer bases per joint",
    )


def check_attributes(task: Task) -> _Findings:
    """Checks the attributes of a task without running it."""
    findings, dim = _Findings(), task.parameter_dim
    is_size = isinstance(dim, Integral) and dim >= 1
    if not findings.expect(is_size, "parameter_dim", f"expected a whole number >= 1, got {dim!r}"):
        return findings
    arrays: dict[str, Array] = {}
    for name in ("context_low", "context_high", "initial_mean", "initial_cov"):
        try:
            arrays[name] = np.array(getattr(task, name), dtype=np.float64)
        except (AttributeError, TypeError, ValueError):
            findings.expect(False, name, f"expected an array of numbers, got {getattr(task, name, None)!r}")
            return findings
    low, high, mean, cov = arrays.values()
    is_box = low.ndim == 1 and low.shape == high.shape and len(low) >= 1
    shapes = f"expected two vectors of the same length, got shapes {low.shape} and {high.shape}"
    shapes += "; a task without a context declares one that it ignores, from 0 to 1" if low.size == 0 else ""
    if not findings.expect(is_box, "context box", shapes):
        return findings
    is_range = bool(np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all())
    findings.expect(is_range, "context range", f"expected finite low < high, got {low}, {high}")
    findings.expect(mean.shape == (dim,), "initial_mean", f"expected shape ({dim},), got {mean.shape}")
    if findings.expect(cov.shape == (dim, dim), "initial_cov", f"expected shape ({dim}, {dim}), got {cov.shape}"):
        symmetric = bool(np.isfinite(cov).all()) and np.allclose(cov, cov.T)
        positive = symmetric and bool((np.linalg.eigvalsh(cov) > 0).all())
        findings.expect(positive, "initial_cov is a covariance", "expected a symmetric, positive definite matrix")
    names, penalty = context_names(task), getattr(task, "penalty", None)
    count = f"expected {len(low)} (one per dimension), got {list(names)}"
    findings.expect(len(names) == len(low), "context_names", count)
    if penalty is not None:
        is_finite = isinstance(penalty, (int, float)) and bool(np.isfinite(penalty))
        findings.expect(is_finite, "penalty", f"expected a finite number, got {penalty!r}")
    return findings


def _check_outcome(outcome: Outcome | None, count: int) -> Finding:
    problem = outcome_problem(outcome, count)
    if problem is not None:
        return Finding("error", problem)
    assert outcome is not None
    returns, success = usable_returns(outcome.returns), outcome.success
    bad = int((~np.isfinite(returns)).sum())
    if bad == count:
        return Finding("error", "all returns are NaN, infinite or beyond 1e100 at the initial search distribution")
    if bad:
        problem = f"{bad} of {count} returns are NaN, infinite or beyond 1e100"
        return Finding("warning", f"{problem}; they count as the worst return seen")
    if np.ptp(returns) == 0:
        return Finding("error", "all returns are equal at the initial search distribution: nothing to improve")
    return Finding("ok", f"returns from {returns.min():.4g} to {returns.max():.4g}, {success.mean():.0%} successes")


def _check_behaviour(
    task: Task, contexts: Array, parameters: Array, returns: Array, seed: int, findings: _Findings
) -> None:
    """Checks repeatability, independence of the batch, single episodes, and scores outside the box if declared."""

    def run(rows: slice, contexts: Array = contexts) -> Array:
        outcome = task.evaluate(contexts[rows].copy(), parameters[rows].copy(), stream(seed, 2))
        return usable_returns(outcome.returns)

    not_repeatable = "the same rng gave other returns; draw all randomness from rng and keep no state between calls"
    not_independent = "the return of an episode depends on its batch (fine only if the task is random)"
    again = findings.attempt("repeatable: evaluate raised", lambda: run(slice(None)))
    if again is not None:
        findings.expect(np.array_equal(again, returns, equal_nan=True), "repeatable", not_repeatable)
    one = findings.attempt("a batch of one: evaluate raised", lambda: run(slice(1)))
    if one is not None:
        same = np.array_equal(one, returns[:1], equal_nan=True)
        findings.expect(same, "a batch of one", not_independent, "warning")
    if not getattr(task, "scores_outside", False):  # no learner asks for contexts outside the box
        return
    low, high = np.asarray(task.context_low), np.asarray(task.context_high)
    outside = np.where(contexts > 0.5 * (low + high), contexts + (high - low), contexts - (high - low))
    fix = "; with scores_outside, learners ask for such contexts; return clearly worse values for them than inside"
    doing = "contexts outside the box: evaluate raised"
    returns_outside = findings.attempt(doing, lambda: run(slice(None), outside), fix)
    if returns_outside is None:
        return
    if np.nanmean(returns_outside) < np.nanmean(returns):
        findings.append(Finding("ok", "contexts outside the box score worse"))
    else:
        drift = "so components may drift out of it; subtract a penalty there, or do without scores_outside"
        findings.append(Finding("warning", f"contexts outside the box score no worse, {drift}"))
