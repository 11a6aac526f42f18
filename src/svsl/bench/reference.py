"""A slow, straightforward reference of the SVSL update.

Written the way a first version is written: a Python loop over components, explicit inverses, densities by the
textbook formula, and the trust region's dual minimised by L-BFGS-B. It shares no code with the fast path, so it is
the oracle of the tests and the yardstick "straightforward reference" of `svsl bench`. Nothing else imports it.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]

RIDGE = 1e-10


@dataclass(frozen=True)
class Component:
    """One component: `pi(c|o) = N(context_mean, context_cov)` and `pi(theta|c,o) = N(gain c + bias, cov)`."""

    context_mean: Array
    context_cov: Array
    gain: Array
    bias: Array
    cov: Array


@dataclass(frozen=True)
class Samples:
    """One component's episodes: `contexts (n, dc)`, `parameters (n, dt)`, `returns (n,)`."""

    contexts: Array
    parameters: Array
    returns: Array


def log_density(y: Array, mean: Array, cov: Array) -> Array:
    """Log density of rows `y (n, d)` under `N(mean, cov)`; `mean` is `(d,)` or one row for each `y`."""
    residual = y - mean
    distance = (residual @ np.linalg.inv(cov) * residual).sum(axis=1)
    log_det: float = np.linalg.slogdet(cov)[1]
    return np.asarray(-0.5 * (distance + log_det + y.shape[1] * np.log(2 * np.pi)))


def log_gating(components: list[Component], log_weights: Array, contexts: Array) -> Array:
    """`log pi(o|c)` for rows of contexts: `(n, K)`."""
    columns = [
        log_weights[o] + log_density(contexts, component.context_mean, component.context_cov)
        for o, component in enumerate(components)
    ]
    joint = np.stack(columns, axis=1)
    return np.asarray(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))


def log_responsibilities(components: list[Component], log_weights: Array, contexts: Array, parameters: Array) -> Array:
    """`log pi(o|c,theta)` for rows: `(n, K)`."""
    return _responsibilities(components, log_gating(components, log_weights, contexts), contexts, parameters)


def _responsibilities(components: list[Component], gating: Array, contexts: Array, parameters: Array) -> Array:
    columns = [
        gating[:, o] + log_density(parameters, contexts @ component.gain.T + component.bias, component.cov)
        for o, component in enumerate(components)
    ]
    joint = np.stack(columns, axis=1)
    return np.asarray(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))


def fit_quadratic_raw(
    x: Array, y: Array, targets: Array, gain: Array, bias: Array, cov: Array
) -> tuple[Array, Array, Array]:
    """Fits `-1/2 y^T Q y + y^T (A x + b) + (terms in x only)` to the targets of one component.

    The regression is done in whitened coordinates, `y` by the component's own `N(gain x + bias, cov)` and `x` by its
    sample mean and covariance, on standardised features; the result is in raw coordinates.

    Takes `x (n, dx)` (`dx` may be 0), `y (n, dy)`, `targets (n,)`, `gain (dy, dx)`, `bias (dy,)` and `cov (dy, dy)`;
    returns `Q (dy, dy)`, `A (dy, dx)` and `b (dy,)`.
    """
    dim_y, dim = y.shape[1], y.shape[1] + x.shape[1]
    y_map = np.linalg.inv(np.linalg.cholesky(cov))
    x_mean, x_map = x.mean(axis=0), np.zeros((0, 0))
    if x.shape[1]:
        x_cov = np.cov(x.T, bias=True).reshape(x.shape[1], x.shape[1])
        x_var = np.diag(x_cov)
        varies = x_var > (1e-9 * np.abs(x).max(axis=0)) ** 2  # more than rounding
        x_map = np.linalg.inv(np.linalg.cholesky(x_cov + np.diag(np.where(varies, 1e-9 * x_var, 1.0))))
    u = np.hstack([(y - x @ gain.T - bias) @ y_map.T, (x - x_mean) @ x_map.T])

    pairs = [(i, j) for i in range(dim) for j in range(i, dim)]
    features = np.column_stack([u] + [u[:, i] * u[:, j] for i, j in pairs])
    scale = features.std(axis=0)
    scale[scale <= max(1e-4, 1e-12 * scale.max())] = 1.0  # whitened, so these are constant or collinear
    features = (features - features.mean(axis=0)) / scale
    normal = features.T @ features + RIDGE * len(x) * np.eye(features.shape[1])
    weights = np.linalg.solve(normal, features.T @ (targets - targets.mean())) / scale

    curvature = np.zeros((dim, dim))
    for (i, j), weight in zip(pairs, weights[dim:], strict=True):
        curvature[i, j] -= weight
        curvature[j, i] -= weight
    # z = y_map (y - gain x - bias) and v = x_map (x - x_mean) put into -1/2 z^T C z - z^T D v + z^T w
    cross = y_map.T @ curvature[:dim_y, dim_y:] @ x_map
    q = y_map.T @ curvature[:dim_y, :dim_y] @ y_map
    return q, q @ gain - cross, q @ bias + y_map.T @ weights[:dim_y] + cross @ x_mean


def gaussian_step_raw(
    gain: Array,
    bias: Array,
    cov: Array,
    q: Array,
    a: Array,
    b: Array,
    contexts: Array,
    entropy_coef: float,
    kl_bound: float,
) -> tuple[Array, Array, Array]:
    """Maximises `E[model] + entropy_coef * H[new]` subject to `mean_c KL(new || old) <= kl_bound`.

    With `F = eta cov^-1 + Q` the solution for a multiplier `eta` has the covariance `(eta + entropy_coef) F^-1` and
    its mean moves by `F^-1` times the model's gradient at the old mean. `eta` minimises the convex dual, whose
    derivative is `kl_bound - KL`.

    The old distribution has `gain (dy, dx)`, `bias (dy,)` and `cov (dy, dy)`; the model `-1/2 y^T Q y + y^T (A x + b)`
    has `q (dy, dy)`, `a (dy, dx)` and `b (dy,)`; it and the divergence are averaged over `contexts (n, dx)`. Returns
    the new gain, bias and covariance.
    """
    dim, precision = len(bias), np.linalg.inv(cov)
    log_det_cov: float = np.linalg.slogdet(cov)[1]
    gradient = contexts @ (a - q @ gain).T + (b - q @ bias)
    gradient_moment = gradient.T @ gradient / len(contexts)

    def dual(eta: float) -> tuple[float, float]:
        inverse = np.linalg.inv(eta * precision + q)
        new_cov = (eta + entropy_coef) * inverse
        log_ratio: float = np.linalg.slogdet(new_cov)[1] - log_det_cov
        shift = inverse @ gradient_moment
        divergence = 0.5 * (np.trace(precision @ (new_cov + shift @ inverse)) - dim - log_ratio)
        value = eta * kl_bound + 0.5 * np.trace(shift) + 0.5 * (eta + entropy_coef) * log_ratio
        return float(value), float(kl_bound - divergence)

    def log_dual(log_eta: Array) -> tuple[float, Array]:
        distance = float(np.exp(log_eta[0]))
        value, slope = dual(floor + distance)
        return value, np.array([slope * distance])

    smallest = float(np.linalg.eigvals(cov @ q).real.min())
    floor = max(0.0, -smallest)  # F must be positive definite
    if smallest > 0 and entropy_coef > 0 and dual(0.0)[1] >= 0:
        eta = 0.0
    else:
        result = minimize(
            log_dual,
            np.zeros(1),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-40, 40)],
            options={"ftol": 1e-15, "gtol": 1e-10},
        )
        eta = floor + float(np.exp(result.x[0]))
    inverse = np.linalg.inv(eta * precision + q)
    new_cov = (eta + entropy_coef) * inverse
    return gain + inverse @ (a - q @ gain), bias + inverse @ (b - q @ bias), 0.5 * (new_cov + new_cov.T)


def clip_std_raw(cov: Array, scale: Array, low: float, high: float) -> Array:
    """Limits the standard deviations along the principal axes of one covariance, in units of `scale`."""
    variance, axes = np.linalg.eigh(cov / np.outer(scale, scale))
    return np.asarray(axes @ np.diag(np.clip(variance, low**2, high**2)) @ axes.T * np.outer(scale, scale))


def update_context(
    components: list[Component],
    log_weights: Array,
    o: int,
    samples: Samples,
    alpha: float,
    beta: float,
    kl_bound: float,
) -> tuple[Array, Array]:
    """One step of `pi(c|o)` on its own episodes: the new mean and covariance."""
    old, contexts = components[o], samples.contexts
    gating = log_gating(components, log_weights, contexts)
    responsibility = _responsibilities(components, gating, contexts, samples.parameters)
    targets = samples.returns + alpha * responsibility[:, o] + (beta - alpha) * gating[:, o]
    nothing, no_gain = np.zeros((len(contexts), 0)), np.zeros((contexts.shape[1], 0))
    model = fit_quadratic_raw(nothing, contexts, targets, no_gain, old.context_mean, old.context_cov)
    _, mean, cov = gaussian_step_raw(no_gain, old.context_mean, old.context_cov, *model, nothing, beta, kl_bound)
    return mean, cov


def update_expert(
    components: list[Component], log_weights: Array, o: int, samples: Samples, alpha: float, kl_bound: float
) -> tuple[Array, Array, Array]:
    """One step of `pi(theta|c,o)` on its own episodes: the new gain, bias and covariance."""
    old, contexts = components[o], samples.contexts
    responsibility = log_responsibilities(components, log_weights, contexts, samples.parameters)[:, o]
    targets = samples.returns + alpha * responsibility
    model = fit_quadratic_raw(contexts, samples.parameters, targets, old.gain, old.bias, old.cov)
    return gaussian_step_raw(old.gain, old.bias, old.cov, *model, contexts, alpha, kl_bound)


def update_components(
    components: list[Component],
    log_weights: Array,
    index: list[int],
    context_samples: list[Samples],
    expert_samples: list[Samples],
    *,
    alpha: float,
    beta: float,
    kl_context: float,
    kl_expert: float,
    context_scale: Array,
    std_limits: tuple[float, float] = (5e-5, 3.0),
) -> list[Component]:
    """One iteration for the components `index`: their context steps, then their expert steps.

    There is one element of `context_samples` and `expert_samples` for each component of `index`. `std_limits` are the
    lowest and the highest standard deviation of a context distribution, in units of `context_scale (dc,)`. Returns all
    components, those of `index` updated.
    """
    moved = list(components)
    for o, samples in zip(index, context_samples, strict=True):
        mean, cov = update_context(components, log_weights, o, samples, alpha, beta, kl_context)
        moved[o] = replace(components[o], context_mean=mean, context_cov=clip_std_raw(cov, context_scale, *std_limits))
    result = list(moved)
    for o, samples in zip(index, expert_samples, strict=True):
        gain, bias, cov = update_expert(moved, log_weights, o, samples, alpha, kl_expert)
        result[o] = replace(moved[o], gain=gain, bias=bias, cov=cov)
    return result
