"""Stacks of linear-Gaussian distributions: the experts and, with no input, the context distributions."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

LOG_2PI = float(np.log(2 * np.pi))
_ROWS_PER_BLOCK = 512  # keeps the whitened block of all components in the cache


@dataclass(frozen=True, repr=False)
class LinearGaussian:
    """K distributions `p_k(y | x) = N(y | gain_k x + bias_k, chol_k chol_k^T)`.

    An unconditional Gaussian has a zero-dimensional `x`.

    Attributes:
        gain: `(K, dy, dx)`.
        bias: `(K, dy)`.
        chol: `(K, dy, dy)`, lower triangular with a positive diagonal.
        whitener: `(dy + dx + 1, dy, K)`, maps a row `[y, x, 1]` to the whitened residuals of all components.
        log_norm: `(K,)`, the log density at the mean.
    """

    gain: Array
    bias: Array
    chol: Array
    whitener: Array
    log_norm: Array

    @classmethod
    def build(cls, gain: ArrayLike, bias: ArrayLike, chol: ArrayLike) -> Self:
        """Builds the stack from its parameters and precomputes the whitening maps."""
        gain, bias, chol = (np.asarray(a, dtype=np.float64) for a in (gain, bias, chol))
        dim = bias.shape[1]
        inverse = np.linalg.inv(chol)
        whitener = np.empty((dim + gain.shape[2] + 1, dim, len(bias)))
        whitener[:dim] = inverse.transpose(2, 1, 0)
        whitener[dim:-1] = -(inverse @ gain).transpose(2, 1, 0)
        whitener[-1] = -(inverse @ bias[:, :, None])[:, :, 0].T
        log_det = np.log(np.diagonal(chol, axis1=1, axis2=2)).sum(axis=1)
        return cls(gain, bias, chol, whitener, -0.5 * dim * LOG_2PI - log_det)

    @classmethod
    def unconditional(cls, mean: ArrayLike, chol: ArrayLike) -> Self:
        """Builds a stack without input from means `(K, dy)` and Cholesky factors `(K, dy, dy)`."""
        mean = np.asarray(mean, dtype=np.float64)
        return cls.build(np.zeros((*mean.shape, 0)), mean, chol)

    def __repr__(self) -> str:
        count, dim_y, dim_x = self.gain.shape
        return f"LinearGaussian({count} of {dim_y} dimensions given {dim_x})"

    def __len__(self) -> int:
        return len(self.bias)

    @property
    def cov(self) -> Array:
        """Covariances, `(K, dy, dy)`."""
        return self.chol @ self.chol.transpose(0, 2, 1)

    @property
    def entropy(self) -> Array:
        """Differential entropies in nats, `(K,)`."""
        return 0.5 * self.bias.shape[1] - self.log_norm

    def select(self, index: IntArray) -> "LinearGaussian":
        """Returns the stack of the components `index`."""
        return LinearGaussian(
            self.gain[index], self.bias[index], self.chol[index], self.whitener[:, :, index], self.log_norm[index]
        )

    def append(self, other: "LinearGaussian") -> "LinearGaussian":
        """Returns this stack followed by `other`."""
        return LinearGaussian(
            np.concatenate([self.gain, other.gain]),
            np.concatenate([self.bias, other.bias]),
            np.concatenate([self.chol, other.chol]),
            np.concatenate([self.whitener, other.whitener], axis=2),
            np.concatenate([self.log_norm, other.log_norm]),
        )

    def replace(self, index: IntArray, other: "LinearGaussian") -> "LinearGaussian":
        """Returns this stack with the components `index` replaced by those of `other`."""
        if np.array_equal(index, np.arange(len(self))):
            return other
        new = LinearGaussian(*(getattr(self, field.name).copy() for field in fields(self)))
        new.gain[index], new.bias[index], new.chol[index] = other.gain, other.bias, other.chol
        new.whitener[:, :, index], new.log_norm[index] = other.whitener, other.log_norm
        return new

    def log_prob(self, x: Array, y: Array) -> Array:
        """Log densities of rows `y (n, dy)` given `x (n, dx)` under every component: `(n, K)`."""
        rows, dim, count = len(y), self.bias.shape[1], len(self)
        inputs = np.concatenate([y, x, np.ones((rows, 1))], axis=1)
        whitener = self.whitener.reshape(-1, dim * count)
        result = np.empty((rows, count))
        for start in range(0, rows, _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            z = (inputs[block] @ whitener).reshape(-1, dim, count)
            np.einsum("ndk,ndk->nk", z, z, out=result[block])
        result *= -0.5
        result += self.log_norm
        return result

    def whitened(self, x: Array, y: Array) -> Array:
        """Whitens each component's own samples `y (K, n, dy)` with inputs `x (K, n, dx)`.

        Returns `chol^-1 (y - gain x - bias)` with the samples last, `(K, dy, n)`.
        """
        dim = self.bias.shape[1]
        maps = self.whitener.transpose(2, 1, 0)
        z = maps[:, :, :dim] @ y.transpose(0, 2, 1) + maps[:, :, -1:]
        if x.shape[2]:
            z += maps[:, :, dim:-1] @ x.transpose(0, 2, 1)
        return z

    def sample(self, x: Array, rng: np.random.Generator) -> Array:
        """Draws one `y` from each component for each of its inputs `x (K, n, dx)`: `(K, n, dy)`."""
        noise = rng.standard_normal((*x.shape[:2], self.bias.shape[1]))
        return x @ self.gain.transpose(0, 2, 1) + self.bias[:, None] + noise @ self.chol.transpose(0, 2, 1)


def clip_std(gaussian: LinearGaussian, scale: Array, low: float, high: float) -> LinearGaussian:
    """Clips the standard deviations along the principal axes to `[low, high]`, in units of `scale (dy,)`."""
    scaled = gaussian.chol / scale[:, None]
    trace, dim = (scaled**2).sum((1, 2)), len(scale)
    det = np.prod(np.diagonal(scaled, axis1=1, axis2=2) ** 2, axis=1)
    if (trace <= high**2).all() and (det >= low**2 * trace ** (dim - 1)).all():
        return gaussian  # the largest variance is at most the trace, the smallest at least det / trace^(dim - 1)
    variance, axes = np.linalg.eigh(scaled @ scaled.transpose(0, 2, 1))
    cov = (axes * np.clip(variance, low**2, high**2)[:, None]) @ axes.transpose(0, 2, 1)
    outside = np.any((variance < low**2) | (variance > high**2), axis=1)
    chol = np.linalg.cholesky(cov) * scale[:, None]
    return LinearGaussian.build(gaussian.gain, gaussian.bias, np.where(outside[:, None, None], chol, gaussian.chol))
