"""Trust-region steps: one closed form for experts and context distributions, one for the component weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dgeqrf

from svsl.gaussians import Array, BoolArray, LinearGaussian
from svsl.mixture import log_normalised
from svsl.surrogates import Quadratic

_TOLERANCE = 1e-9  # relative error of the divergence at the bound
_MAX_TRIALS = 100


@dataclass(frozen=True)
class StepInfo:
    """What a step did, per component `(K,)`.

    Attributes:
        kl: Divergence from the old distribution.
        multiplier: The Lagrange multiplier `eta` of the bound; 0 where the bound does not bind.
        ok: False where the step could not be computed and the old distribution was kept.
    """

    kl: Array
    multiplier: Array
    ok: BoolArray


def gaussian_step(
    old: LinearGaussian, model: Quadratic, entropy_coef: float, kl_bound: float
) -> tuple[LinearGaussian, StepInfo]:
    """Maximises `E[model] + entropy_coef * H[new]` subject to `KL(new || old) <= kl_bound` for each component.

    With the eigenvalues `lam` of the curvature, `a` the mean squared gradient along each eigenvector and the
    multiplier `eta`, the variances along the eigenvectors become `(eta + entropy_coef) / (eta + lam)` and the mean
    moves by the gradient divided by `eta + lam`. A component whose model is not finite is left as it was.
    """
    curvature, slope = model.curvature, model.slope
    ok = np.isfinite(curvature.sum((1, 2)) + slope.sum((1, 2)))
    if not ok.all():
        curvature = np.where(ok[:, None, None], curvature, np.eye(old.bias.shape[1]))
        slope = np.where(ok[:, None, None], slope, 0.0)
    lam, basis = np.linalg.eigh(curvature)
    gradient = basis.transpose(0, 2, 1) @ slope
    push = np.maximum(np.einsum("kil,kil->ki", gradient, gradient @ model.moment), 0.0)

    def divergence(eta: Array) -> tuple[Array, Array]:
        stiffness = eta[:, None] + lam
        change = (lam - entropy_coef) / stiffness  # 1 - s, exact also where s is close to 1
        kl = 0.5 * (-change - np.log1p(-change) + push / stiffness**2).sum(axis=1)
        slope_kl = -(0.5 * change**2 / (eta[:, None] + entropy_coef) + push / stiffness**3).sum(axis=1)
        return kl, slope_kl

    # the multiplier that would meet the bound if it were much larger than the curvature
    guess = np.sqrt((0.25 * (lam - entropy_coef) ** 2 + 0.5 * push).sum(axis=1) / kl_bound)
    eta, kl = _smallest_multiplier(divergence, np.maximum(0.0, -lam[:, 0]), kl_bound, guess)
    stiffness = eta[:, None] + lam
    spread = (eta[:, None] + entropy_coef) / stiffness
    directions = old.chol @ basis
    move = directions @ (gradient / stiffness[:, :, None])
    chol = _triangular(directions * np.sqrt(spread)[:, None, :])
    gain, bias = old.gain + move[:, :, :-1], old.bias + move[:, :, -1]

    with np.errstate(divide="ignore", invalid="ignore"):
        log_det = np.log(np.diagonal(chol, axis1=1, axis2=2)).sum(axis=1)
    ok &= np.isfinite(move.sum((1, 2)) + chol.sum((1, 2)) + log_det) & (kl <= kl_bound)
    if not ok.all():
        gain = np.where(ok[:, None, None], gain, old.gain)
        bias = np.where(ok[:, None], bias, old.bias)
        chol = np.where(ok[:, None, None], chol, old.chol)
        kl = np.where(ok, kl, 0.0)
    return LinearGaussian.build(gain, bias, chol), StepInfo(kl, eta, ok)


def _triangular(factors: Array) -> Array:
    """Cholesky factors of `F F^T` for a stack of square `F`, without squaring their condition."""
    lower = np.empty_like(factors)
    for component, factor in enumerate(factors):  # NumPy's QR of a stack is no faster and slow for a single one
        upper = dgeqrf(factor.T)[0]
        lower[component] = np.tril((upper * np.sign(upper.diagonal())[:, None]).T)
    return lower


def categorical_step(log_weights: Array, rewards: Array, entropy_coef: float, kl_bound: float) -> Array:
    """Maximises `sum_o pi(o) reward(o) + entropy_coef * H[pi]` subject to `KL(pi || old) <= kl_bound`.

    Args:
        log_weights: `(K,)` old log probabilities.
        rewards: `(K,)`.
        entropy_coef: Weight of the entropy.
        kl_bound: The bound.

    Returns:
        The new log probabilities.
    """
    active = np.isfinite(log_weights)
    old, rewards = log_weights[active], rewards[active] - rewards[active].max()

    def solution(eta: float) -> Array:
        return log_normalised((eta * old + rewards) / (eta + entropy_coef))

    def divergence(eta: Array) -> tuple[Array, Array]:
        new = solution(float(eta[0]))
        p, ratio = np.exp(new), new - old
        # d log p / d eta is the centred (old - entropy-weighted score) / (eta + entropy_coef)
        score = (old - new) / (eta[0] + entropy_coef)
        slope = (p * (score - p @ score) * ratio).sum()
        return np.array([p @ ratio]), np.array([slope])

    guess = np.array([np.std(rewards - entropy_coef * old) / np.sqrt(2 * kl_bound)])
    eta, _ = _smallest_multiplier(divergence, np.zeros(1), kl_bound, guess)
    result = np.full_like(log_weights, -np.inf)
    result[active] = solution(float(eta[0]))
    return result


def _smallest_multiplier(
    divergence: Callable[[Array], tuple[Array, Array]], floor: Array, bound: float, guess: Array
) -> tuple[Array, Array]:
    """Finds, per component, the smallest `eta > floor` with `KL(eta) <= bound`, or `floor` = 0 itself if it will do.

    `KL` falls monotonically and behaves like `1 / (eta - pole)^2`, so Newton's method on `KL^(-1/2)`, kept inside a
    bracket, needs a handful of trials.

    Args:
        divergence: `eta -> (KL, dKL/deta)`.
        floor: `(K,)`, where `KL` has its pole or, if 0, where the bound may already hold.
        bound: The bound on `KL`.
        guess: `(K,)`, a first trial.

    Returns:
        The multipliers and their divergences.
    """
    target = bound * (1 - _TOLERANCE)  # a converged trial is safely inside
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        at_floor = divergence(floor)[0] if (floor == 0).any() else np.full_like(floor, np.inf)
        free = (floor == 0) & (at_floor <= bound)  # False for NaN
        low, high = floor, np.full_like(floor, np.inf)
        eta = np.maximum(guess, floor * (1 + 1e-6) + 1e-12)
        for _ in range(_MAX_TRIALS):
            kl, slope = divergence(eta)
            if (free | (np.abs(kl - target) <= 0.5 * _TOLERANCE * bound)).all():
                break
            inside = kl <= target
            low, high = np.where(inside, low, eta), np.where(inside, eta, high)
            newton = eta + 2 * kl / slope * (1 - np.sqrt(kl / target))
            good = (newton > low) & (newton < high)
            if not good.all():
                middle = np.where(np.isfinite(high), 0.5 * (low + high), 2 * eta + 1e-12)
                newton = np.where(good, newton, middle)
            eta = newton
        else:  # rounding keeps some component off the target: take what is known to be inside
            eta = np.where(kl <= bound, eta, np.minimum(high, 1e12))
            kl = divergence(eta)[0]
    return np.where(free, 0.0, eta), np.where(free, at_floor, kl)
