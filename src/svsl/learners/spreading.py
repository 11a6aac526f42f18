"""Components that start together, spread evenly over the box, and components that are split into halves."""

from dataclasses import replace

import numpy as np

from svsl.learners.base import SearchSpace
from svsl.learners.svsl_config import SVSLConfig
from svsl.learners.svsl_steps import Start, initial_experts
from svsl.model.editing import measured_use
from svsl.model.gaussians import Array, IntArray, LinearGaussian
from svsl.model.mixture import Mixture, log_normalised
from svsl.tasks.base import uniform_contexts

_POINTS, _POINTS_PER_CLUSTER = 2000, 200  # contexts that are clustered
_TRIALS, _ROUNDS = 10, 30  # the best of several clusterings is taken


def start_spread(count: int, config: SVSLConfig, space: SearchSpace, rng: np.random.Generator) -> Start:
    """Returns `count` components with the task's initial search, spread evenly over the box.

    Their context distributions have the means and covariances of clusters of uniform contexts (k-means, in units of the
    box's width). So if the valid part of the box falls into parts, so do the components.
    """
    points = uniform_contexts(space, _POINTS + _POINTS_PER_CLUSTER * count, rng)
    return _clusters(points, count, space, rng)[0], initial_experts(count, config, space)


def split(mixture: Mixture, learns_gating: bool, space: SearchSpace, rng: np.random.Generator) -> Mixture:
    """Returns the mixture of two halves of each component, which are adjacent and share its expert and its weight.

    If the gating is learned, their weights are their shares of the contexts.
    """
    contexts, log_shares = split_contexts(mixture, space, rng)
    halves = mixture.select(np.arange(len(log_shares)) // 2)
    return replace(halves, contexts=contexts, log_weights=log_shares if learns_gating else halves.log_weights)


def split_contexts(mixture: Mixture, space: SearchSpace, rng: np.random.Generator) -> tuple[LinearGaussian, Array]:
    """Returns the context distributions of two halves of each component, and the logarithms of their shares.

    They are clusters of the uniform contexts that the gating gives to the component. Halves of a component are
    adjacent; shares are fractions of all contexts. A component with too few contexts is duplicated, with the mean and
    covariance of where the gating is highest.
    """
    points = uniform_contexts(space, _POINTS * len(mixture), rng)
    owners = mixture.sample_components(points, rng)
    regions = measured_use(mixture, points, space.context_high - space.context_low)[1]
    halves, shares = regions.select(np.zeros(0, np.intp)), np.zeros((len(mixture), 2))
    for component in range(len(mixture)):
        own = points[owners == component]
        shares[component] = max(len(own), 1) / 2
        half = regions.select(np.array([component, component]))
        if len(own) >= _POINTS_PER_CLUSTER:
            half, shares[component] = _clusters(own, 2, space, rng)
        halves = halves.append(half)
    return halves, log_normalised(np.log(shares.ravel()))


def _clusters(
    points: Array, count: int, space: SearchSpace, rng: np.random.Generator
) -> tuple[LinearGaussian, IntArray]:
    """Returns the Gaussians of clusters of contexts `(n, dc)`, and the sizes of the clusters."""
    width = space.context_high - space.context_low
    labels = min((k_means(points / width, count, rng) for _ in range(_TRIALS)), key=lambda trial: trial[0])[1]
    clusters = [points[labels == label] for label in range(count)]
    means = np.stack([cluster.mean(axis=0) for cluster in clusters])
    covs = np.stack([(c - m).T @ (c - m) / len(c) for c, m in zip(clusters, means, strict=True)])
    flat = np.diag((1e-3 * width) ** 2)  # a cluster may be flat
    contexts = LinearGaussian.unconditional(means, np.linalg.cholesky(covs + flat))
    return contexts, np.array([len(cluster) for cluster in clusters])


def k_means(points: Array, count: int, rng: np.random.Generator) -> tuple[float, IntArray]:
    """Returns the mean squared distance of points `(n, d)` to the centres of their clusters, and their clusters."""
    centres = points[rng.choice(len(points), count, replace=False)]
    for _ in range(_ROUNDS):
        squared = (points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1)
        labels = squared.argmin(axis=1)
        for empty in np.flatnonzero(np.bincount(labels, minlength=count) == 0):  # takes the worst point
            worst = squared.min(axis=1).argmax()
            labels[worst], squared[worst] = empty, -np.inf
        sums = np.stack([np.bincount(labels, weights=column, minlength=count) for column in points.T], axis=1)
        centres = sums / np.bincount(labels, minlength=count)[:, None]
    return float(((points - centres[labels]) ** 2).sum(axis=1).mean()), labels
