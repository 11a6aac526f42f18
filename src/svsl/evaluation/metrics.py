"""Metrics of a library on a task; `METRICS` names them."""

from collections.abc import Callable
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


def is_active(gating: Array) -> BoolArray:
    """Returns which components are active, given gating probabilities `(..., K)`.

    Active means a probability of at least 0.01 or, where hundreds of components share a context so that none reaches
    it, the highest one there.
    """
    return np.asarray(gating >= np.minimum(ACTIVE_PROBABILITY, gating.max(axis=-1, keepdims=True)))


@dataclass(frozen=True)
class Execution:
    """Outcomes of a mixture on uniform contexts.

    Attributes:
        contexts: `(n, dc)`.
        mean: Executing the mean of a component drawn by the gating.
        sampled: Executing parameters drawn from the same components.
    """

    contexts: Array
    mean: Outcome
    sampled: Outcome


def run_finite(
    task: Task, contexts: Array, parameters: Array, rng: np.random.Generator, described: bool = False
) -> Outcome:
    """Runs episodes as `run_episodes` does; one with a NaN or infinite return counts as a failure."""
    outcome = run_episodes(task, contexts, parameters, rng, described)
    return finite_outcome(outcome, getattr(task, "penalty", None))


def execute(mixture: Mixture, task: Task, count: int, rng: np.random.Generator) -> Execution:
    """Runs a mixture on `count` fresh uniform contexts, by component means and by sampled parameters."""
    contexts = uniform_contexts(task, count, rng)
    components = mixture.sample_components(contexts, rng)
    means = mixture.component_means(contexts, components)
    samples = mixture.sample_parameters(contexts, components, rng)
    return Execution(contexts, *(run_finite(task, contexts, parameters, rng) for parameters in (means, samples)))


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

    In each cell every active component is run once and counts with its gating probability: the expectation that the
    paper estimates from 100 draws. Further context dimensions are drawn uniformly, `repeats` times. NaN where no
    context is valid.
    """
    low, high = np.asarray(task.context_low), np.asarray(task.context_high)
    centres = (np.arange(cells) + 0.5) / cells
    grid = np.stack(np.meshgrid(centres, centres), axis=-1).reshape(-1, 2)
    contexts = rng.random((repeats * len(grid), len(low)))
    contexts[:, list(dims)] = np.tile(grid, (repeats, 1))
    contexts = low + (high - low) * contexts
    gating = library.gating(contexts)
    gating = np.where(is_active(gating), gating, 0.0)
    gating /= gating.sum(axis=1, keepdims=True)
    rows, components = np.nonzero(gating)
    means = library.mixture.component_means(contexts[rows], components)
    success = run_finite(task, contexts[rows], means, rng).success
    expected = np.bincount(rows, weights=gating[rows, components] * success, minlength=len(contexts))
    valid = valid_contexts(task, contexts).reshape(repeats, cells, cells)
    total = np.where(valid, expected.reshape(repeats, cells, cells), 0.0).sum(axis=0)
    return np.where(valid.any(axis=0), total / np.maximum(valid.sum(axis=0), 1), np.nan)


@dataclass(frozen=True)
class Repertoire:
    """Every component's mean executed in every context of a sample: what the library can do, with its gating.

    Attributes:
        gating: `(n, K)`.
        success: `(n, K)` bool.
        modes: `(n, K)`, the task's name for the kind of behaviour; None if it names none.
        paths: `(n, K, d)`, the shape of each behaviour, scaled so that a root mean square distance of 1 is a clear
            difference; None if the task does not provide it.
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
    # a task for which naming modes is slow does so in `describe` instead of `evaluate`
    outcome = run_finite(task, repeated, means, rng, described=True)
    modes, paths = outcome.info.get("mode"), outcome.info.get("path")
    return Repertoire(
        library.gating(contexts),
        outcome.success.reshape(count, components),
        None if modes is None else modes.reshape(count, components),
        None if paths is None else np.asarray(paths, dtype=np.float64).reshape(count, components, -1),
    )


def success_shares(repertoire: Repertoire) -> Array:
    """Gating among the components that succeed, `(n, K)`; a row without success is zero."""
    shares = np.where(repertoire.success, repertoire.gating, 0.0)
    total = shares.sum(axis=1, keepdims=True)
    return shares / np.where(total > 0, total, 1.0)


def behaviour_entropy(repertoire: Repertoire) -> float | None:
    """Entropy of the modes of successes, divided by the log of the number of modes seen, averaged over contexts.

    0: one mode per context (or none); 1: every context is solved in every mode, equally often. None if the task names
    no modes or nothing succeeds.
    """
    success, modes = repertoire.success, repertoire.modes
    if modes is None or not success.any():
        return None
    names, index = np.unique(np.where(success, modes, modes[success][0]), return_inverse=True)
    if len(names) == 1:
        return 0.0
    shares = success_shares(repertoire)
    per_mode = np.stack([np.where(index.reshape(shares.shape) == m, shares, 0.0).sum(1) for m in range(len(names))], 1)
    return float(_entropy(per_mode).mean() / np.log(len(names)))


def vendi_score(repertoire: Repertoire) -> float | None:
    """Effective number of different successful paths in a context, averaged over contexts (0 where none succeeds).

    The exponential of the entropy of the eigenvalues of `sqrt(p_i p_j) exp(-d_ij^2 / 2)`, with `p` the gating among the
    successes and `d` the root mean square distance of two paths in the task's unit (Friedman and Dieng, 2023). None if
    the task provides no paths.
    """
    if repertoire.paths is None:
        return None
    scores = np.zeros(len(repertoire.gating))
    for row, shares in enumerate(success_shares(repertoire)):
        used = np.flatnonzero(shares > 1e-6)
        paths, p = repertoire.paths[row, used], shares[used]
        distance_sq = ((paths[:, None] - paths[None]) ** 2).mean(axis=2)
        kernel = np.exp(-0.5 * distance_sq) * np.sqrt(p[:, None] * p)
        if len(used):
            scores[row] = np.exp(_entropy(np.maximum(np.linalg.eigvalsh(kernel), 0.0)))
    return float(scores.mean())


def success_without_top(repertoire: Repertoire) -> float:
    """Expected success if the most probable component of each context is removed and the gating renormalised."""
    if repertoire.gating.shape[1] == 1:
        return 0.0
    rest = repertoire.gating.copy()
    rest[np.arange(len(rest)), rest.argmax(axis=1)] = 0.0
    return expected_success(rest, repertoire.success)


def expected_success(gating: Array, success: BoolArray) -> float:
    """Mean over contexts of the success of a component drawn by the renormalised gating; both `(n, K)`."""
    total = gating.sum(axis=1)
    return float(((gating * success).sum(axis=1) / np.where(total > 0, total, 1.0)).mean())


def _entropy(probabilities: Array) -> Array:
    """`-sum p log p` over the last axis, with `0 log 0 = 0`."""
    return -(probabilities * np.log(np.where(probabilities > 0, probabilities, 1.0))).sum(axis=-1)


@dataclass(frozen=True)
class Trial:
    """All executions from which the metrics of a library are computed, in `n` fresh uniform contexts."""

    execution: Execution
    gating: Array  # (n, K)
    most_probable: Outcome  # of the mean of the most probable component
    entropies: Array  # of pi(theta|c) in the first contexts
    repertoire: Repertoire  # in the first contexts


METRICS: dict[str, Callable[[Trial], float | None]] = {
    # executing the mean of a component drawn by the gating
    "return_mean": lambda trial: float(trial.execution.mean.returns.mean()),
    "success_rate": lambda trial: float(trial.execution.mean.success.mean()),
    # executing sampled parameters
    "return_sampled": lambda trial: float(trial.execution.sampled.returns.mean()),
    "success_sampled": lambda trial: float(trial.execution.sampled.success.mean()),
    # entropy of pi(theta|c) in nats, averaged over contexts
    "mixture_entropy": lambda trial: float(trial.entropies.mean()),
    # share of contexts where the mean of the most probable component succeeds
    "coverage": lambda trial: float(trial.most_probable.success.mean()),
    # number of active components, averaged over contexts
    "active_components": lambda trial: float(is_active(trial.gating).sum(axis=1).mean()),
    # share of contexts where the mean of any component succeeds
    "coverage_any": lambda trial: float(trial.repertoire.success.any(axis=1).mean()),
    # entropy of pi(o|c) in nats, averaged over contexts
    "gating_entropy": lambda trial: float(_entropy(trial.gating).mean()),
    "behaviour_entropy": lambda trial: behaviour_entropy(trial.repertoire),
    "vendi_score": lambda trial: vendi_score(trial.repertoire),
    "success_without_top": lambda trial: success_without_top(trial.repertoire),
}


def run_trial(library: SkillLibrary, task: Task, rng: np.random.Generator, contexts: int = 2000) -> Trial:
    """Executes a library in `contexts` fresh uniform contexts; all randomness comes from `rng`."""
    mixture = library.mixture
    execution = execute(mixture, task, contexts, rng)
    gating = np.exp(mixture.log_gating(execution.contexts))
    best = mixture.component_means(execution.contexts, gating.argmax(axis=1))
    entropies = mixture_entropy(mixture, execution.contexts[:ENTROPY_CONTEXTS], ENTROPY_SAMPLES, rng)
    behaviours = repertoire(library, task, execution.contexts[:REPERTOIRE_CONTEXTS], rng)
    return Trial(execution, gating, run_finite(task, execution.contexts, best, rng), entropies, behaviours)


def diagnostics(trial: Trial) -> dict[str, float]:
    """Means of the task's named diagnostics, executing component means, where they are defined."""
    info = trial.execution.mean.info
    numeric = {name: v.astype(np.float64) for name, v in info.items() if v.dtype.kind in "biuf" and v.ndim == 1}
    return {name: float(np.nanmean(v)) for name, v in numeric.items() if np.isfinite(v).any()}
