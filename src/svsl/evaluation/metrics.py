"""Metrics of a library on a task; `METRICS` names them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svsl.model.gaussians import Array, BoolArray
from svsl.model.library import SkillLibrary
from svsl.model.mixture import Mixture, is_active, logsumexp
from svsl.tasks.base import Outcome, Task, finite_outcome, run_episodes, uniform_contexts, valid_contexts

ENTROPY_CONTEXTS, ENTROPY_SAMPLES = 400, 1000

# called with the share of the work done so far, 0 to 1, and what is being done now
Report = Callable[[float, str], None]


def no_report(share: float, what: str) -> None:
    """Reports nothing."""


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


def execute(
    mixture: Mixture, task: Task, count: int, rng: np.random.Generator, report: Report = no_report
) -> Execution:
    """Runs a mixture on `count` fresh uniform contexts, by component means and by sampled parameters.

    Examples:
        >>> import numpy as np
        >>> import svsl
        >>> from svsl.evaluation.metrics import execute
        >>> library, task = svsl.load_pretrained("planar-reacher"), svsl.make_task("planar-reacher")
        >>> execution = execute(library.mixture, task, 100, np.random.default_rng(0))
        >>> bool(execution.mean.success.mean() >= execution.sampled.success.mean() - 0.1)
        True
    """
    contexts = uniform_contexts(task, count, rng)
    components = mixture.sample_components(contexts, rng)
    means = mixture.component_means(contexts, components)
    samples = mixture.sample_parameters(contexts, components, rng)
    report(0.0, "means of components")
    mean = run_finite(task, contexts, means, rng)
    report(0.5, "drawn parameters")
    return Execution(contexts, mean, run_finite(task, contexts, samples, rng))


def mixture_entropy(mixture: Mixture, contexts: Array, samples: int, rng: np.random.Generator) -> Array:
    """Monte-Carlo entropy of `pi(theta|c)` in nats for each context: `(n,)`.

    Examples:
        >>> import numpy as np
        >>> import svsl
        >>> from svsl.evaluation.metrics import mixture_entropy
        >>> library = svsl.load_pretrained("planar-reacher")
        >>> mixture_entropy(library.mixture, np.array([[6.0, 1.5]]), 1000, np.random.default_rng(0)).shape
        (1,)
    """
    entropies = np.empty(len(contexts))
    for row, context in enumerate(contexts):
        repeated = np.broadcast_to(context, (samples, len(context)))
        log_gating = mixture.log_gating(context[None])
        components = rng.choice(len(mixture), size=samples, p=np.exp(log_gating[0]))
        parameters = mixture.sample_parameters(repeated, components, rng)
        entropies[row] = -logsumexp(log_gating + mixture.log_likelihood(repeated, parameters)).mean()
    return entropies


def success_map(
    library: SkillLibrary, task: Task, dims: tuple[int, int], cells: int, rng: np.random.Generator, repeats: int = 1
) -> Array:
    """Success of component means over a grid of two context dimensions: `(cells, cells)`, the second dimension first.

    In each cell every active component is run once and counts with its gating probability: the expectation that the
    paper estimates from 100 draws. Further context dimensions are drawn uniformly, `repeats` times. NaN where no
    context is valid.

    Examples:
        >>> import numpy as np
        >>> import svsl
        >>> from svsl.evaluation.metrics import success_map
        >>> library, task = svsl.load_pretrained("planar-reacher"), svsl.make_task("planar-reacher")
        >>> success_map(library, task, dims=(0, 1), cells=10, rng=np.random.default_rng(0)).shape
        (10, 10)
    """
    contexts = grid_contexts(task, dims, cells, rng, repeats)
    gating, valid = library.gating(contexts, outside="extrapolate"), valid_contexts(task, contexts)
    gating = np.where(is_active(gating), gating, 0.0)
    gating /= gating.sum(axis=1, keepdims=True)
    gating[~valid] = 0.0
    rows, components = np.nonzero(gating)
    means = library.mixture.component_means(contexts[rows], components)
    success = run_finite(task, contexts[rows], means, rng).success
    expected = np.bincount(rows, weights=gating[rows, components] * success, minlength=len(contexts))
    total, count = (v.reshape(repeats, cells, cells).sum(axis=0) for v in (expected, valid))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def grid_contexts(task: Task, dims: Sequence[int], cells: int, rng: np.random.Generator, repeats: int = 1) -> Array:
    """Contexts at the centres of a grid over some dimensions, the others drawn uniformly, all of it `repeats` times.

    The first of `dims` changes fastest: `(repeats * cells ** len(dims), dc)`.
    """
    low, high = np.asarray(task.context_low), np.asarray(task.context_high)
    centres = (np.arange(cells) + 0.5) / cells
    grid = np.stack(np.meshgrid(*[centres] * len(dims)), axis=-1).reshape(-1, len(dims))
    contexts = rng.random((repeats * len(grid), len(low)))
    contexts[:, list(dims)] = np.tile(grid, (repeats, 1))
    return np.asarray(low + (high - low) * contexts)


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


def repertoire(
    mixture: Mixture, task: Task, contexts: Array, rng: np.random.Generator, min_gating: float = 0.0
) -> Repertoire:
    """Executes component means in all contexts `(n, dc)`: all, or those with a gating of at least `min_gating`.

    The others count as failures.

    Examples:
        >>> import numpy as np
        >>> import svsl
        >>> from svsl.evaluation.metrics import repertoire, ways
        >>> library, task = svsl.load_pretrained("planar-reacher"), svsl.make_task("planar-reacher")
        >>> found = repertoire(library.mixture, task, np.array([[6.0, 1.5], [5.0, 0.0]]), np.random.default_rng(0))
        >>> found.success.shape
        (2, 80)
        >>> bool((ways(found) >= 1).all())
        True
    """
    gating = np.exp(mixture.log_gating(contexts))
    executed = gating >= min_gating
    rows, components = np.nonzero(executed)
    means = mixture.component_means(contexts[rows], components)
    # a task for which naming modes is slow does so in `describe` instead of `evaluate`
    outcome = run_finite(task, contexts[rows], means, rng, described=True)

    def table(values: NDArray[Any]) -> NDArray[Any]:
        filled = np.zeros((*executed.shape, *values.shape[1:]), values.dtype)
        filled[executed] = values
        return filled

    modes, paths = outcome.info.get("mode"), outcome.info.get("path")
    return Repertoire(
        gating,
        table(outcome.success),
        None if modes is None else table(modes),
        None if paths is None else table(np.asarray(paths, dtype=np.float64).reshape(len(rows), -1)),
    )


def success_shares(repertoire: Repertoire) -> Array:
    """Gating among the components that succeed, `(n, K)`; a row without success is zero."""
    shares = np.where(repertoire.success, repertoire.gating, 0.0)
    total = shares.sum(axis=1, keepdims=True)
    return shares / np.where(total > 0, total, 1.0)


def ways(repertoire: Repertoire) -> Array | None:
    """Effective number of modes among the successes of each context (0 where none succeeds): `(n,)`.

    The exponential of the entropy of the modes, weighted by the gating: 1 for one mode, m for m equally probable ones.
    None if the task names no modes.
    """
    if repertoire.modes is None:
        return None
    shares = _per_mode(success_shares(repertoire), repertoire.modes)
    return np.where(shares.any(axis=1), np.exp(_entropy(shares)), 0.0)


def several_kinds(repertoire: Repertoire, kinds: int) -> BoolArray | None:
    """Whether active components succeed in at least `kinds` modes of each context: `(n,)`; None without modes."""
    if repertoire.modes is None:
        return None
    successes = _per_mode(repertoire.success & is_active(repertoire.gating), repertoire.modes)
    return np.asarray((successes > 0).sum(axis=1) >= kinds)


def _per_mode(weights: Array | BoolArray, modes: NDArray[np.generic]) -> Array:
    """Sums of weights `(n, K)` over the components of each mode: `(n, modes)`."""
    names, index = np.unique(modes, return_inverse=True)
    cells = np.arange(len(modes))[:, None] * len(names) + index.reshape(modes.shape)
    sums = np.bincount(cells.ravel(), weights.ravel(), len(modes) * len(names))
    return np.asarray(sums, dtype=np.float64).reshape(len(modes), len(names))


def vendi_score(repertoire: Repertoire) -> Array | None:
    """Effective number of different successful paths in each context (0 where none succeeds): `(n,)`.

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
    return scores


def success_without_top(repertoire: Repertoire) -> Array:
    """Expected success if the most probable component of a context is removed and the gating renormalised: `(n,)`."""
    rest = repertoire.gating.copy()
    rest[np.arange(len(rest)), rest.argmax(axis=1)] = 0.0
    return expected_success(rest, repertoire.success)


def expected_success(gating: Array, success: BoolArray) -> Array:
    """Success of a component drawn by the renormalised gating in each context: `(n,)`; both arguments `(n, K)`."""
    total = gating.sum(axis=1)
    return (gating * success).sum(axis=1) / np.where(total > 0, total, 1.0)


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


# one value per context, `(n,)`; None if the task does not define the metric
METRICS: dict[str, Callable[[Trial], NDArray[Any] | None]] = {
    # executing the mean of a component drawn by the gating
    "return_mean": lambda trial: trial.execution.mean.returns,
    "success_rate": lambda trial: trial.execution.mean.success,
    # executing sampled parameters
    "return_sampled": lambda trial: trial.execution.sampled.returns,
    "success_sampled": lambda trial: trial.execution.sampled.success,
    # entropy of pi(theta|c) in nats
    "mixture_entropy": lambda trial: trial.entropies,
    # whether the mean of the most probable component succeeds
    "coverage": lambda trial: trial.most_probable.success,
    "active_components": lambda trial: is_active(trial.gating).sum(axis=1),
    # whether the mean of any component succeeds
    "coverage_any": lambda trial: np.asarray(trial.repertoire.success.any(axis=1)),
    # entropy of pi(o|c) in nats
    "gating_entropy": lambda trial: _entropy(trial.gating),
    "ways": lambda trial: ways(trial.repertoire),
    "two_kinds": lambda trial: several_kinds(trial.repertoire, 2),
    "three_kinds": lambda trial: several_kinds(trial.repertoire, 3),
    "vendi_score": lambda trial: vendi_score(trial.repertoire),
    "success_without_top": lambda trial: success_without_top(trial.repertoire),
}


def repertoire_contexts(contexts: int) -> int:
    """Returns in how many of the contexts of a trial all components are run: a tenth, but at least 20."""
    return min(contexts, max(20, contexts // 10))


def trial_episodes(contexts: int, components: int) -> int:
    """Returns the number of episodes of a trial."""
    return 3 * contexts + repertoire_contexts(contexts) * components


def run_trial(
    library: SkillLibrary, task: Task, rng: np.random.Generator, contexts: int = 2000, report: Report = no_report
) -> Trial:
    """Executes a library in `contexts` fresh uniform contexts; all randomness comes from `rng`.

    Means, drawn parameters and the most probable component are run in all of them, all components in a tenth.

    Examples:
        >>> import numpy as np
        >>> import svsl
        >>> from svsl.evaluation.metrics import METRICS, run_trial
        >>> library, task = svsl.load_pretrained("planar-reacher"), svsl.make_task("planar-reacher")
        >>> trial = run_trial(library, task, np.random.default_rng(0), contexts=100)
        >>> METRICS["ways"](trial).shape  # in the tenth of the contexts, at least 20, in which all components are run
        (20,)
    """
    mixture, total = library.mixture, trial_episodes(contexts, len(library))
    execution = execute(mixture, task, contexts, rng, lambda share, what: report(share * 2 * contexts / total, what))
    report(2 * contexts / total, "entropies")
    gating = np.exp(mixture.log_gating(execution.contexts))
    best = mixture.component_means(execution.contexts, gating.argmax(axis=1))
    entropies = mixture_entropy(mixture, execution.contexts[:ENTROPY_CONTEXTS], ENTROPY_SAMPLES, rng)
    report(2 * contexts / total, "all components")
    behaviours = repertoire(mixture, task, execution.contexts[: repertoire_contexts(contexts)], rng)
    report(1 - contexts / total, "most probable components")
    return Trial(execution, gating, run_finite(task, execution.contexts, best, rng), entropies, behaviours)


def diagnostics(outcome: Outcome) -> dict[str, float]:
    """Means of the task's named diagnostics, where they are defined."""
    numeric = {name: v.astype(np.float64) for name, v in outcome.info.items() if v.dtype.kind in "biuf" and v.ndim == 1}
    return {name: float(np.nanmean(v)) for name, v in numeric.items() if np.isfinite(v).any()}
