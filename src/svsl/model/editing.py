"""Pruning, merging and describing libraries without training."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from svsl.errors import SvslError
from svsl.model.files import parse_json
from svsl.model.gaussians import Array, IntArray, LinearGaussian
from svsl.model.library import SkillLibrary, recorded_count
from svsl.model.mixture import Mixture, log_normalised, logsumexp

_FLAT = 1e-3  # least standard deviation of the contexts of a component, relative to the box


def select(library: SkillLibrary, index: IntArray) -> SkillLibrary:
    """Returns the library of the components `index`, with renormalised weights.

    The metadata lists their numbers in the trained library and drops its evaluation (`results`).
    """
    metadata = dict(library.metadata)
    metadata.pop("results", None)
    numbers = _kept_components(library)
    metadata["kept_components"] = json.dumps([numbers[k] for k in index])
    return replace(library, mixture=library.mixture.select(index), metadata=metadata)


def _kept_components(library: SkillLibrary) -> list[int]:
    """Returns the numbers of a library's components in the library that was trained."""
    if "kept_components" not in library.metadata:
        return list(range(len(library)))
    try:
        numbers = [int(number) for number in parse_json(library.metadata["kept_components"])]
    except (ValueError, TypeError):
        numbers = []
    if len(numbers) != len(library):
        raise SvslError(f"kept_components in the library's metadata: expected a list of {len(library)} numbers")
    return numbers


def heavy_components(library: SkillLibrary, min_weight: float = 0.0, max_components: int | None = None) -> IntArray:
    """Returns the components with at least `min_weight`, at most the `max_components` heaviest, in ascending order."""
    log_weights = library.mixture.log_weights
    with np.errstate(divide="ignore"):
        kept = np.flatnonzero(log_weights >= np.log(min_weight))
    if not len(kept):
        heaviest = float(np.exp(log_weights.max()))
        raise SvslError(f"setting min_weight: no component weighs {min_weight}, the heaviest weighs {heaviest:.3g}")
    heaviest_first = kept[np.argsort(-log_weights[kept], kind="stable")]
    return np.sort(heaviest_first[:max_components])


def by_use(library: SkillLibrary, contexts: Array) -> SkillLibrary:
    """Returns the library with the context distributions and weights of the `contexts (n, dc)` its components get.

    A context distribution has the mean and covariance of the contexts, each counted by the component's gating there,
    and a weight is its mean gating. The gating stays about the same.
    """
    log_weights, regions = measured_use(library.mixture, contexts, library.context_high - library.context_low)
    return replace(library, mixture=Mixture(log_weights, regions, library.mixture.experts))


def measured_use(mixture: Mixture, contexts: Array, width: Array) -> tuple[Array, LinearGaussian]:
    """Returns the log shares of the contexts `(n, dc)` that components get by the gating, and Gaussians of these.

    The contexts are those of a box of a given `width (dc,)`.
    """
    log_gating = np.maximum(mixture.log_gating(contexts), -700.0).T  # one that is hardly used has a place, too
    counted = np.exp(log_normalised(log_gating))  # (K, n)
    means = counted @ contexts
    products = (contexts[:, :, None] * contexts[:, None]).reshape(len(contexts), -1)
    covs = (counted @ products).reshape(len(mixture), len(width), -1) - means[:, :, None] * means[:, None]
    regions = LinearGaussian.unconditional(means, np.linalg.cholesky(covs + np.diag((_FLAT * width) ** 2)))
    return log_normalised(logsumexp(log_gating)), regions


def merge(libraries: Sequence[SkillLibrary]) -> SkillLibrary:
    """Merges libraries of one task into one library with all their components.

    Each library gets a share of the weight proportional to its number of components, divided among them by their own
    weights, so neither the order nor merging in several steps matters. Task options are those of the first library;
    the metadata keeps the metadata of all.
    """
    first = libraries[0]
    for number, other in enumerate(libraries[1:], start=2):
        for name, expected, actual in (
            ("task", first.metadata.get("task"), other.metadata.get("task")),
            ("context dimensions", first.context_dim, other.context_dim),
            ("parameters", first.parameter_dim, other.parameter_dim),
            ("context box from", first.context_low.tolist(), other.context_low.tolist()),
            ("context box to", first.context_high.tolist(), other.context_high.tolist()),
        ):
            if actual != expected:
                raise SvslError(
                    f"library {number} has {name} {actual}, the first has {expected}; only libraries of one task merge"
                )
    counts = np.array([len(library) for library in libraries])
    mixtures = [library.mixture for library in libraries]
    if max(mixture.expert_degree for mixture in mixtures) == 2:
        mixtures = [m if m.expert_degree == 2 else m.with_quadratic_experts() for m in mixtures]
    log_weights = np.concatenate(
        [m.log_weights + np.log(share) for m, share in zip(mixtures, counts / counts.sum(), strict=True)]
    )
    contexts, experts = mixtures[0].contexts, mixtures[0].experts
    for mixture in mixtures[1:]:
        contexts, experts = contexts.append(mixture.contexts), experts.append(mixture.experts)
    sources = [dict(library.metadata) for library in libraries]
    metadata = {name: first.metadata[name] for name in ("task", "task_options", "svsl") if name in first.metadata}
    for name in ("episodes", "episodes_simulated"):
        metadata[name] = str(sum(recorded_count(source, name) for source in sources))
    metadata |= {"learner": "merge", "merged": json.dumps(sources)}
    return replace(first, mixture=Mixture(log_weights, contexts, experts), metadata=metadata)
