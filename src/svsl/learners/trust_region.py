"""Trust-region steps: one closed form for experts and context distributions, one for the component weights."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import log1p

import numpy as np
from scipy.linalg.lapack import dgeqrf

from svsl.learners.surrogates import Quadratic
from svsl.model.gaussians import Array, BoolArray, LinearGaussian
from svsl.model.mixture import log_normalised

_TOLERANCE = 1e-9  # relative error of the divergence at the bound
_MAX_TRIALS = 100


@dataclass(frozen=True)
class StepInfo:
    """Diagnostics of a step, per component `(K,)`."""

    kl: Array  # divergence from the old distribution
    multiplier: Array  # the Lagrange multiplier eta of the bound; 0 where the bound does not bind
    ok: BoolArray  # False where the step could not be computed and the old distribution was kept


def gaussian_step(
    old: LinearGaussian, model: Quadratic, entropy_coef: float, kl_bound: float, entropy_change: Array | None = None
) -> tuple[LinearGaussian, StepInfo]:
    """Maximises `E[model] + entropy_coef * H[new]` subject to `KL(new || old) <= kl_bound` for each component.

    With the eigenvalues `lam` of the curvature, `a` the mean squared gradient along each eigenvector and the
    multiplier `eta`, the variances along the eigenvectors become `(eta + entropy_coef) / (eta + lam)` and the mean
    moves by the gradient divided by `eta + lam`. With `entropy_change (K,)`, also subject to
    `H[new] - H[old] >= entropy_change`, whose multiplier adds to `entropy_coef`. A component is left unchanged if its
    model is not finite or if no step satisfies both bounds.
    """
    curvature, slope = model.curvature, model.slope
    ok = np.isfinite(curvature.sum((1, 2)) + slope.sum((1, 2)))
    if not ok.all():
        curvature = np.where(ok[:, None, None], curvature, np.eye(old.bias.shape[1]))
        slope = np.where(ok[:, None, None], slope, 0.0)
    lam, basis = np.linalg.eigh(curvature)
    gradient = basis.transpose(0, 2, 1) @ slope
    gradient_term = np.maximum(np.einsum("kil,kil->ki", gradient, gradient @ model.moment), 0.0)

    # plain numbers are faster than arrays for a few eigenvalues
    least = [-math.inf] * len(lam) if entropy_change is None else entropy_change.tolist()
    problems = zip(lam.tolist(), gradient_term.tolist(), least, strict=True)
    solved = [_gaussian_multipliers(values, terms, entropy_coef, kl_bound, bound) for values, terms, bound in problems]
    eta, coef, kl = np.array(solved).T
    stiffness = eta[:, None] + lam
    spread = (eta + coef)[:, None] / stiffness
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
    """Returns the Cholesky factors of `F F^T` for a stack of square `F`, without squaring their condition number."""
    lower = np.empty_like(factors)
    for component, factor in enumerate(factors):  # NumPy's QR of a stack is no faster and slow for a single one
        upper = dgeqrf(factor.T)[0]
        lower[component] = np.tril((upper * np.sign(upper.diagonal())[:, None]).T)
    return lower


def categorical_step(log_weights: Array, rewards: Array, entropy_coef: float, kl_bound: float) -> Array:
    """Maximises `sum_o pi(o) reward(o) + entropy_coef * H[pi]` subject to `KL(pi || old) <= kl_bound`.

    Maps the old to the new log probabilities, `(K,)`, for `rewards (K,)`.
    """
    active = np.isfinite(log_weights)
    old, rewards = log_weights[active], rewards[active] - rewards[active].max()

    def solution(eta: float) -> Array:
        return log_normalised((eta * old + rewards) / (eta + entropy_coef))

    def divergence(eta: float) -> tuple[float, float]:
        new = solution(eta)
        p, ratio = np.exp(new), new - old
        # d log p / d eta is (old - new) / (eta + entropy_coef), centred
        score = -ratio / (eta + entropy_coef)
        return max(0.0, float(p @ ratio)), float((p * (score - p @ score)) @ ratio)

    guess = float(np.std(rewards - entropy_coef * old)) / math.sqrt(2 * kl_bound)
    eta, _ = _smallest_multiplier(divergence, 0.0, kl_bound, guess, free=entropy_coef > 0)
    result = np.full_like(log_weights, -np.inf)
    result[active] = solution(eta)
    return result


def _gaussian_multipliers(
    lam: list[float], squared_gradient: list[float], entropy_coef: float, bound: float, entropy_change: float
) -> tuple[float, float, float]:
    """Returns the multiplier of one Gaussian step, its entropy coefficient and its divergence.

    The eigenvalues `lam` ascend. The coefficient is the given one, or a larger one if the bound on the change of the
    entropy binds.
    """
    eta, kl = _gaussian_multiplier(lam, squared_gradient, entropy_coef, bound)
    if entropy_change == -math.inf or not 0.0 <= kl <= bound:
        return eta, entropy_coef, kl
    total = eta + entropy_coef
    if total > 0 and 0.5 * sum(math.log(total / (eta + value)) for value in lam) >= entropy_change:
        return eta, entropy_coef, kl
    return _bounded_multipliers(lam, squared_gradient, bound, entropy_change)


def _bounded_multipliers(
    lam: list[float], squared_gradient: list[float], bound: float, entropy_change: float
) -> tuple[float, float, float]:
    """The same where the change of the entropy is given.

    It determines the coefficient for every `eta`: `eta + coefficient` is `exp(2 entropy_change / d)` times the
    geometric mean of `eta + lam`. The divergence still falls monotonically with `eta`, so the same search finds it. It
    is infinite if nothing was found.
    """
    pairs, dim = list(zip(lam, squared_gradient, strict=True)), len(lam)
    factor = math.exp(2 * entropy_change / dim)
    least = 0.5 * dim * (factor - 1 - math.log(factor))  # divergence of the change itself, without anything learned

    def total(eta: float) -> float:
        return factor * math.exp(sum(math.log(eta + value) for value in lam) / dim)

    def divergence(eta: float) -> tuple[float, float]:
        try:
            softness = [1 / (eta + value) for value in lam]
            inverse, spread = sum(softness), total(eta)
            shifts = [squared * soft * soft for (_, squared), soft in zip(pairs, softness, strict=True)]
            kl = 0.5 * (spread * inverse - dim - 2 * entropy_change + sum(shifts))
            slope = 0.5 * spread * (inverse * inverse / dim - sum(soft * soft for soft in softness))
            return kl, slope - sum(shift * soft for shift, soft in zip(shifts, softness, strict=True))
        except (ValueError, ZeroDivisionError, OverflowError):
            return math.inf, math.nan

    floor, middle = max(0.0, -lam[0]), sum(lam) / dim
    if least < bound:
        # exact if the multiplier is much larger than the curvature
        guess = math.sqrt(sum(0.25 * (v - middle) * (v - middle) + 0.5 * p for v, p in pairs) / (bound - least))
        eta, kl = _smallest_multiplier(divergence, floor, bound, guess, free=lam[0] > 0)
        if kl <= bound:
            return eta, total(eta) - eta, kl
    return 2 * floor + 1, 0.0, math.inf


def _gaussian_multiplier(
    lam: list[float], squared_gradient: list[float], entropy_coef: float, bound: float
) -> tuple[float, float]:
    """Returns the multiplier of one Gaussian step and its divergence; the eigenvalues `lam` ascend."""
    pairs = list(zip(lam, squared_gradient, strict=True))

    def divergence(eta: float) -> tuple[float, float]:
        kl = slope = 0.0
        try:
            for value, squared in pairs:
                softness = 1 / (eta + value)
                change = (value - entropy_coef) * softness  # 1 - s, exact also where s is close to 1
                shift = squared * softness * softness
                kl += shift - change - log1p(-change)
                slope -= 0.5 * change * change / (eta + entropy_coef) + shift * softness
        except (ValueError, ZeroDivisionError):  # a variance that rounds to zero or to infinity
            return math.inf, math.nan
        return 0.5 * kl, slope

    # exact if the multiplier is much larger than the curvature
    guess = math.sqrt(sum(0.25 * (v - entropy_coef) * (v - entropy_coef) + 0.5 * p for v, p in pairs) / bound)
    return _smallest_multiplier(divergence, max(0.0, -lam[0]), bound, guess, free=lam[0] > 0 and entropy_coef > 0)


def _smallest_multiplier(
    divergence: Callable[[float], tuple[float, float]], floor: float, bound: float, guess: float, free: bool
) -> tuple[float, float]:
    """Finds the smallest `eta > floor` with `KL(eta) <= bound`, or 0 if the bound holds there.

    `KL` falls monotonically and behaves like `1 / (eta - pole)^2`, so Newton's method on `KL^(-1/2)`, kept inside a
    bracket, needs only a few trials. `divergence` maps `eta` to `KL` and its derivative; `floor` is where `KL` has its
    pole, or 0; `free` says that `KL` is finite at 0, so that the bound may hold there. Returns the multiplier and its
    divergence; a divergence above the bound (or NaN) if none was found.
    """
    if free:
        kl, _ = divergence(0.0)
        if kl <= bound:
            return 0.0, kl
    target = bound * (1 - _TOLERANCE)  # a converged trial is safely inside
    low, high = floor, math.inf
    eta = max(guess, floor * (1 + 1e-6) + 1e-12)
    for _ in range(_MAX_TRIALS):
        kl, slope = divergence(eta)
        if abs(kl - target) <= 0.5 * _TOLERANCE * bound:
            break
        if kl <= target:
            high = eta
        else:
            low = eta
        newton = eta + 2 * kl / slope * (1 - math.sqrt(kl / target)) if slope < 0 else math.nan
        middle = 0.5 * (low + high) if high < math.inf else 2 * eta + 1e-12
        eta = newton if low < newton < high else middle
    else:  # rounding keeps it off the target: take a multiplier known to be inside
        eta = min(high, 1e12)
        kl, _ = divergence(eta)
    return eta, kl
