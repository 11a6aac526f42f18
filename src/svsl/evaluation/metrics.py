"""How good and how versatile a library is: one place for every number the library reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from svsl.model.gaussians import Array, BoolArray
from svsl.model.library import SkillLibrary
from svsl.model.mixture import Mixture, logsumexp
from svsl.tasks.base import Outcome, Task, finite_outcome, run_episodes, uniform_contexts, valid_contexts

ACTIVE_PROBABILITY = 0.01
ENTROPY_CONTEXTS, ENTROPY_SAMPLES = 400, 1000
REPERTOIRE_CONTEXTS = 200


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


def execute(mixture: Mixture, task: Task, count: int, rng: np.random.Generator) -> Execution:
    """Runs a mixture on `count` fresh uniform contexts, by component means and by sampled parameters."""
    contexts = uniform_contexts(task, count, rng)
    components = mixture.sample_components(contexts, rng)
    penalty = getattr(task, "penalty", None)
    outcomes = [
        finite_outcome(run_episodes(task, contexts, parameters, rng), penalty)
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
    uniformly, `repeats` times. NaN where no context is valid.
    """
    low, high = np.asarray(task.context_low), np.asarray(task.context_high)
    centres = (np.arange(cells) + 0.5) / cells
    grid = np.stack(np.meshgrid(centres, centres), axis=-1).reshape(-1, 2)
    contexts = rng.random((repeats * len(grid), len(low)))
    contexts[:, list(dims)] = np.tile(grid, (repeats, 1))
    contexts = low + (high - low) * contexts
    gating = library.gating(contexts)
    most = gating.max(axis=1, keepdims=True)  # hundreds may share a context
    gating = np.where(gating >= np.minimum(ACTIVE_PROBABILITY, most), gating, 0.0)
    gating /= gating.sum(axis=1, keepdims=True)
    rows, components = np.nonzero(gating)
    means = library.mixture.component_means(contexts[rows], components)
    success = run_episodes(task, contexts[rows], means, rng).success
    expected = np.bincount(rows, weights=gating[rows, components] * success, minlength=len(contexts))
    valid = valid_contexts(task, contexts).reshape(repeats, cells, cells)
    total = np.where(valid, expected.reshape(repeats, cells, cells), 0.0).sum(axis=0)
    return np.where(valid.any(axis=0), total / np.maximum(valid.sum(axis=0), 1), np.nan)


@dataclass(frozen=True)
class Repertoire:
    """Every component's mean executed in every context of a sample: what the library could do, with its gating.

    Attributes:
        gating: `(n, K)`.
        success: `(n, K)` bool.
        modes: `(n, K)`, the task's name for the kind of behaviour, or None if it names none.
        paths: `(n, K, d)`, what a behaviour looks like, scaled so that a root mean square distance of 1 is a clear
            difference; or None if the task does not say.
    """

    gating: Array
    success: BoolArray
    modes: NDArray[np.generic] | None
    paths: Array | None


def repertoire(library: SkillLibrary, task: Task, contexts: Array, rng: np.random.Generator) -> Repertoire:
    """Executes all component means in all contexts `(n, dc)`."""
    count, components = len(contexts), len(library)
    repeated = np.repeat(contexts, components, axis=0)
    means = library.mixture.component_means(repeated, np.tile(np.arange(components), count))
    # a task that names its modes at a cost does so in `describe` instead of `evaluate`
    outcome = run_episodes(task, repeated, means, rng, described=True)
    modes, paths = outcome.info.get("mode"), outcome.info.get("path")
    return Repertoire(
        library.gating(contexts),
        outcome.success.reshape(count, components),
        None if modes is None else modes.reshape(count, components),
        None if paths is None else np.asarray(paths, dtype=np.float64).reshape(count, components, -1),
    )


def solving_shares(found: Repertoire) -> Array:
    """Gating probabilities of the components that succeed, normalised; rows without success are zero: `(n, K)`."""
    shares = np.where(found.success, found.gating, 0.0)
    total = shares.sum(axis=1, keepdims=True)
    return shares / np.where(total > 0, total, 1.0)


def behaviour_entropy(found: Repertoire) -> float:
    """Entropy of the modes of successes, divided by the log of the number of modes ever seen, averaged over contexts.

    0: one way in each context (or none); 1: every context is solved in every way, equally often.
    """
    if found.modes is None or not found.success.any():
        return float("nan")
    names, index = np.unique(np.where(found.success, found.modes, found.modes[found.success][0]), return_inverse=True)
    if len(names) == 1:
        return 0.0
    shares = solving_shares(found)
    per_mode = np.stack([np.where(index.reshape(shares.shape) == m, shares, 0.0).sum(1) for m in range(len(names))], 1)
    return float(_entropy(per_mode).mean() / np.log(len(names)))


def vendi_score(found: Repertoire) -> float:
    """Effective number of different successful paths in a context, averaged over contexts (0 where none succeeds).

    The exponential of the entropy of the eigenvalues of `sqrt(p_i p_j) exp(-d_ij^2 / 2)`, with `p` the gating among the
    successes and `d` the root mean square distance of two paths in the task's unit (Friedman and Dieng, 2023).
    """
    if found.paths is None:
        return float("nan")
    scores = np.zeros(len(found.gating))
    for row, shares in enumerate(solving_shares(found)):
        used = np.flatnonzero(shares > 1e-6)
        paths, p = found.paths[row, used], shares[used]
        distance_sq = ((paths[:, None] - paths[None]) ** 2).mean(axis=2)
        kernel = np.exp(-0.5 * distance_sq) * np.sqrt(p[:, None] * p)
        if len(used):
            scores[row] = np.exp(_entropy(np.maximum(np.linalg.eigvalsh(kernel), 0.0)))
    return float(scores.mean())


def success_without_top(found: Repertoire) -> float:
    """Expected success if the most probable component of each context is taken away and the gating renormalised."""
    if found.gating.shape[1] == 1:
        return 0.0
    rest = found.gating.copy()
    rest[np.arange(len(rest)), rest.argmax(axis=1)] = 0.0
    total = rest.sum(axis=1)
    expected = (rest * found.success).sum(axis=1) / np.where(total > 0, total, 1.0)
    return float(expected.mean())


def _entropy(probabilities: Array) -> Array:
    """`-sum p log p` over the last axis, with `0 log 0 = 0`."""
    return -(probabilities * np.log(np.where(probabilities > 0, probabilities, 1.0))).sum(axis=-1)


def evaluate(
    library: SkillLibrary, task: Task, rng: np.random.Generator, contexts: int = 2000
) -> dict[str, float | dict[str, float] | None]:
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
        `coverage_any`: share of contexts where the mean of any component succeeds.
        `active_components`: components with a gating probability of at least 0.01, averaged over contexts.
        `gating_entropy`: entropy of `pi(o|c)` in nats, averaged over contexts.
        `behaviour_entropy`, `vendi_score`, `success_without_top`: see the functions of these names; None where the task
            has no modes or paths.
        `diagnostics`: means of the task's own named diagnostics, executing component means, where they are defined.
    """
    mixture = library.mixture
    result = execute(mixture, task, contexts, rng)
    gating = np.exp(mixture.log_gating(result.contexts))
    best = mixture.component_means(result.contexts, gating.argmax(axis=1))
    entropy = mixture_entropy(mixture, result.contexts[:ENTROPY_CONTEXTS], ENTROPY_SAMPLES, rng)
    found = repertoire(library, task, result.contexts[:REPERTOIRE_CONTEXTS], rng)
    numeric = {name: v for name, v in result.mean.info.items() if v.dtype.kind in "biuf" and v.ndim == 1}
    return {
        "return_mean": float(result.mean.returns.mean()),
        "success_rate": float(result.mean.success.mean()),
        "return_sampled": float(result.sampled.returns.mean()),
        "success_sampled": float(result.sampled.success.mean()),
        "mixture_entropy": float(entropy.mean()),
        "coverage": float(run_episodes(task, result.contexts, best, rng).success.mean()),
        "active_components": float((gating >= ACTIVE_PROBABILITY).sum(axis=1).mean()),
        "coverage_any": float(found.success.any(axis=1).mean()),
        "gating_entropy": float(_entropy(gating).mean()),
        "behaviour_entropy": _none_if_nan(behaviour_entropy(found)),
        "vendi_score": _none_if_nan(vendi_score(found)),
        "success_without_top": success_without_top(found),
        "diagnostics": {
            name: float(np.nanmean(finite))
            for name, values in numeric.items()
            if np.isfinite(finite := np.asarray(values, dtype=np.float64)).any()
        },
    }


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value
