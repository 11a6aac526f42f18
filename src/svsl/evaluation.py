"""How good and how versatile a library is: one place for every number the library reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svsl.gaussians import Array
from svsl.library import SkillLibrary
from svsl.mixture import Mixture, logsumexp
from svsl.tasks import Outcome, Task

ACTIVE_PROBABILITY = 0.01
ENTROPY_CONTEXTS, ENTROPY_SAMPLES = 400, 1000


@dataclass(frozen=True)
class Execution:
    """Outcomes of a library on uniform contexts.

    Attributes:
        contexts: `(n, dc)`.
        mean: Executing the mean of a component drawn by the gating.
        sampled: Executing parameters drawn from the same components.
    """

    contexts: Array
    mean: Outcome
    sampled: Outcome


def uniform_contexts(task: Task, count: int, rng: np.random.Generator) -> Array:
    """Contexts drawn uniformly from the task's box."""
    low, high = np.asarray(task.context_low, dtype=np.float64), np.asarray(task.context_high, dtype=np.float64)
    return rng.uniform(low, high, (count, len(low)))


def finite_outcome(outcome: Outcome, penalty: float | None) -> Outcome:
    """The outcome with NaN and infinite returns replaced by the penalty or the worst finite return."""
    returns = np.asarray(outcome.returns, dtype=np.float64)
    finite = np.isfinite(returns)
    if finite.all():
        return outcome
    if penalty is None:
        penalty = float(returns[finite].min()) if finite.any() else float("nan")
    return Outcome(np.where(finite, returns, penalty), np.asarray(outcome.success) & finite, outcome.info)


def execute(mixture: Mixture, task: Task, count: int, rng: np.random.Generator) -> Execution:
    """Runs a mixture on `count` fresh uniform contexts, by component means and by sampled parameters."""
    contexts = uniform_contexts(task, count, rng)
    components = mixture.sample_components(contexts, rng)
    penalty = getattr(task, "penalty", None)
    outcomes = [
        finite_outcome(task.evaluate(contexts, parameters, rng), penalty)
        for parameters in (
            mixture.component_means(contexts, components),
            mixture.sample_parameters(contexts, components, rng),
        )
    ]
    return Execution(contexts, *outcomes)


def mixture_entropy(mixture: Mixture, contexts: Array, samples: int, rng: np.random.Generator) -> Array:
    """Monte-Carlo entropy of `pi(theta|c)` in nats for each context: `(n,)`."""
    entropies = np.empty(len(contexts))
    for row, context in enumerate(contexts):
        repeated = np.broadcast_to(context, (samples, len(context)))
        log_gating = mixture.log_gating(context[None])
        components = rng.choice(len(mixture), size=samples, p=np.exp(log_gating[0]))
        parameters = mixture.sample_parameters(repeated, components, rng)
        entropies[row] = -logsumexp(log_gating + mixture.experts.log_prob(repeated, parameters)).mean()
    return entropies


def success_map(
    library: SkillLibrary, task: Task, dims: tuple[int, int], cells: int, rng: np.random.Generator, repeats: int = 1
) -> Array:
    """Success of component means over a grid of two context dimensions: `(cells, cells)`, the second dimension first.

    In each cell every component with a gating probability of at least 0.01 is run once and counts with that
    probability: the expectation that the paper estimates from 100 draws. Further context dimensions are drawn
    uniformly, `repeats` times.
    """
    low, high = np.asarray(task.context_low), np.asarray(task.context_high)
    centres = (np.arange(cells) + 0.5) / cells
    grid = np.stack(np.meshgrid(centres, centres), axis=-1).reshape(-1, 2)
    contexts = rng.random((repeats * len(grid), len(low)))
    contexts[:, list(dims)] = np.tile(grid, (repeats, 1))
    contexts = low + (high - low) * contexts
    gating = library.gating(contexts)
    gating = np.where(gating >= ACTIVE_PROBABILITY, gating, 0.0)
    gating /= gating.sum(axis=1, keepdims=True)
    rows, components = np.nonzero(gating)
    success = task.evaluate(contexts[rows], library.mixture.component_means(contexts[rows], components), rng).success
    expected = np.bincount(rows, weights=gating[rows, components] * np.asarray(success), minlength=len(contexts))
    return expected.reshape(repeats, cells, cells).mean(axis=0)


def evaluate(
    library: SkillLibrary, task: Task, rng: np.random.Generator, contexts: int = 2000
) -> dict[str, float | dict[str, float]]:
    """The numbers of `svsl eval`.

    Args:
        library: What to evaluate.
        task: On which task.
        rng: All randomness of the evaluation.
        contexts: Number of fresh uniform contexts.

    Returns:
        `return_mean`, `success_rate`: executing the mean of a component drawn by the gating.
        `return_sampled`, `success_sampled`: executing drawn parameters.
        `mixture_entropy`: entropy of `pi(theta|c)`, averaged over contexts.
        `coverage`: share of contexts where the mean of the most probable component succeeds.
        `active_components`: components with a gating probability of at least 0.01, averaged over contexts.
        `diagnostics`: means of the task's own named diagnostics, executing component means, where they are defined.
    """
    mixture = library.mixture
    result = execute(mixture, task, contexts, rng)
    gating = np.exp(mixture.log_gating(result.contexts))
    best = mixture.component_means(result.contexts, gating.argmax(axis=1))
    entropy = mixture_entropy(mixture, result.contexts[:ENTROPY_CONTEXTS], ENTROPY_SAMPLES, rng)
    numeric = {name: values for name, values in result.mean.info.items() if values.dtype.kind in "biuf"}
    return {
        "return_mean": float(result.mean.returns.mean()),
        "success_rate": float(result.mean.success.mean()),
        "return_sampled": float(result.sampled.returns.mean()),
        "success_sampled": float(result.sampled.success.mean()),
        "mixture_entropy": float(entropy.mean()),
        "coverage": float(np.mean(task.evaluate(result.contexts, best, rng).success)),
        "active_components": float((gating >= ACTIVE_PROBABILITY).sum(axis=1).mean()),
        "diagnostics": {
            name: float(np.nanmean(finite))
            for name, values in numeric.items()
            if np.isfinite(finite := np.asarray(values, dtype=np.float64)).any()
        },
    }
