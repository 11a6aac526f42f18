"""Quadratic models of the (augmented) return, fitted around stacks of linear Gaussians."""

from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
from scipy.linalg.lapack import dposv

from svsl.model.gaussians import Array, IntArray, LinearGaussian

RIDGE = 1e-10  # relative to the standardised features


@dataclass(frozen=True)
class Quadratic:
    """Models `f_k(x, z) = -1/2 z^T curvature_k z + z^T slope_k [x, 1] + (terms in x)` of K components.

    `z` are the whitened residuals of the Gaussian the model was fitted around, so the Gaussian's mean is at `z = 0`,
    its covariance is the identity, and `slope_k [x, 1]` is the gradient at the mean.
    """

    curvature: Array  # (K, dy, dy), symmetric; positive where the model is concave
    slope: Array  # (K, dy, dx + 1)
    moment: Array  # (K, dx + 1, dx + 1), mean of [x, 1] [x, 1]^T over the samples
    level: Array  # (K,), the value at the mean input and z = 0

    def select(self, index: IntArray) -> Self:
        """Returns the models `index`."""
        return type(self)(self.curvature[index], self.slope[index], self.moment[index], self.level[index])

    def replace(self, index: IntArray, models: Self) -> Self:
        """Returns all models, those of `index` replaced."""
        changed = self.select(np.arange(len(self.level)))
        for name in ("curvature", "slope", "moment", "level"):
            getattr(changed, name)[index] = getattr(models, name)
        return changed


def feature_count(dim: int) -> int:
    """Returns the number of monomials of degree at most two in `dim` variables."""
    return 1 + dim + dim * (dim + 1) // 2


@cache
def _pairs(dim_y: int, dim_x: int, input_products: bool) -> tuple[IntArray, IntArray]:
    """Returns which of `[y, x]` are multiplied."""
    first, second = np.triu_indices(dim_y + dim_x)
    used = (first < dim_y) | input_products
    return first[used], second[used]


def fit_quadratic(
    gaussian: LinearGaussian,
    x: Array,
    y: Array,
    targets: Array,
    importance: Array | None = None,
    *,
    shrinkage: float = 0.0,
    input_products: bool = True,
) -> Quadratic:
    """Fits quadratic models of the targets by ridge regression, around each component of `gaussian`.

    Args:
        gaussian: The K distributions whose whitened coordinates are used for `y`.
        x: `(K, n, dx)` inputs; whitened by their sample mean and covariance.
        y: `(K, n, dy)` samples.
        targets: `(K, n)`.
        importance: `(K, n)`, weights of the samples with a mean of 1; default all 1.
        shrinkage: How strongly the coefficients are drawn to 0, and the curvatures to one that all directions share.
        input_products: Whether products of two inputs are features; not needed if they are inputs themselves.
    """
    z = gaussian.whitened(x, y)
    count, dim_y = z.shape[:2]
    dim_x = x.shape[2]
    mean_x, cov_x, whiten_x = _whitening(x, importance)
    linear = z if not dim_x else np.concatenate([z, whiten_x @ (x - mean_x[:, None]).transpose(0, 2, 1)], axis=1)
    first, second = _pairs(dim_y, dim_x, input_products)
    features = np.concatenate([linear, linear.take(first, axis=1) * linear.take(second, axis=1)], axis=1)
    if shrinkage:
        features = np.concatenate([features, (z**2).sum(axis=1, keepdims=True)], axis=1)
    penalties = _penalties(dim_y, dim_x, input_products, shrinkage / x.shape[1]) if shrinkage else np.array(RIDGE)
    weights, level = _ridge(features, targets, importance, penalties)
    if shrinkage:  # what all directions have in common becomes a part of each
        weights, common = weights[:, :-1], weights[:, -1:]
        weights[:, dim_y + dim_x :] += common * ((first == second) & (first < dim_y))

    curvature = np.zeros((count, dim_y + dim_x, dim_y + dim_x))
    curvature[:, first, second] = -weights[:, dim_y + dim_x :]
    curvature += curvature.transpose(0, 2, 1)
    slope = np.zeros((count, dim_y, dim_x + 1))
    moment = np.ones((count, dim_x + 1, dim_x + 1))
    slope[:, :, -1] = weights[:, :dim_y]
    if dim_x:
        cross = -curvature[:, :dim_y, dim_y:] @ whiten_x
        slope[:, :, :-1] = cross
        slope[:, :, -1] -= (cross @ mean_x[:, :, None])[:, :, 0]
        moment[:, :-1, :-1] = cov_x + mean_x[:, :, None] * mean_x[:, None]
        moment[:, :-1, -1] = moment[:, -1, :-1] = mean_x
    return Quadratic(curvature[:, :dim_y, :dim_y], slope, moment, level)


def _whitening(x: Array, importance: Array | None) -> tuple[Array, Array, Array]:
    """Returns sample means `(K, dx)`, covariances, and maps `(K, dx, dx)` from centred to whitened inputs."""
    counted = x if importance is None else x * importance[:, :, None]
    mean = counted.sum(axis=1) / x.shape[1]
    if not x.shape[2]:
        return mean, np.zeros((len(x), 0, 0)), np.zeros((len(x), 0, 0))
    centred = x - mean[:, None]
    counted = centred if importance is None else centred * importance[:, :, None]
    cov = counted.transpose(0, 2, 1) @ centred / x.shape[1]
    variance = np.diagonal(cov, axis1=1, axis2=2)
    # identical or collinear inputs have no variance in some direction: widen it by a small part of the others
    widen = np.where(variance > (1e-9 * np.abs(x).max(axis=1)) ** 2, 1e-9 * variance, 1.0)
    return mean, cov, np.linalg.inv(np.linalg.cholesky(cov + widen[:, :, None] * np.eye(x.shape[2])))


@cache
def _penalties(dim_y: int, dim_x: int, input_products: bool, unit: float) -> Array:
    """Returns the penalties of all standardised features, the last of which is the sum of the squares of `z`.

    The terms are expected to come in groups that explain about as much as each other: the terms linear in `z`, its
    products with itself, its products with `x`, and the sum of its squares. So the penalty of a term is the size of its
    group. Terms in `x` alone do not change a step and have none.
    """
    first, second = _pairs(dim_y, dim_x, input_products)
    linear = np.where(np.arange(dim_y + dim_x) < dim_y, dim_y, 0)
    products = np.where(second < dim_y, dim_y * (dim_y + 1) // 2, np.where(first < dim_y, dim_y * dim_x, 0))
    return RIDGE + unit * np.concatenate([linear, products, [1]])


def _ridge(features: Array, targets: Array, importance: Array | None, penalties: Array) -> tuple[Array, Array]:
    """Solves a standardised ridge regression of `targets (K, n)` on `features (K, p, n)`, with intercept.

    Returns weights `(K, p)`, NaN where the normal equations could not be solved, and intercepts `(K,)`.
    """
    count, size, n = features.shape
    # standardising the Gram matrix is cheaper than standardising the features, and these are already near unit scale
    counted = features if importance is None else features * importance[:, None]
    mean = counted.sum(axis=2) / n
    gram = counted @ features.transpose(0, 2, 1) / n
    gram -= mean[:, :, None] * mean[:, None]
    diagonal = np.arange(size)
    scale = np.sqrt(np.maximum(gram[:, diagonal, diagonal], 0.0))
    scale = np.where(scale > np.maximum(1e-4, 1e-12 * scale.max(axis=1, keepdims=True)), scale, 1.0)
    gram /= scale[:, :, None] * scale[:, None]
    gram[:, diagonal, diagonal] += penalties
    target_mean = (targets if importance is None else targets * importance).sum(axis=1) / n
    offset = targets - target_mean[:, None]
    moments = (counted @ offset[:, :, None])[:, :, 0] / (n * scale)
    weights = np.empty_like(moments)
    for component in range(count):  # NumPy has no Cholesky solver for stacks
        _, solution, failed = dposv(gram[component], moments[component], lower=1, overwrite_a=1)
        weights[component] = np.nan if failed else solution
    weights /= scale
    return weights, target_mean - (weights * mean).sum(axis=1)
