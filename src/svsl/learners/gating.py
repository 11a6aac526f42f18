"""Steps of a Gaussian gating: its logits and the expected returns of the components are quadratic in the context.

So the best gating in a trust region is again a Gaussian gating, and no fit is needed.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize

from svsl.learners.base import SearchSpace
from svsl.learners.surrogates import Quadratic, feature_count
from svsl.model.gaussians import LOG_2PI, Array, LinearGaussian
from svsl.model.mixture import Mixture, log_normalised, logsumexp

_LOG_MULTIPLIERS = (-12.0, 12.0)  # range of the multipliers, for expected returns of unit scale
_LEAST_LOG_ETA = -7.0  # the bound does not stop a gating that is nearly deterministic from growing without end
_MOST_LOG_ETA = 300.0  # beyond it no step is made
_LEAST_LOG_GATING = -1e100  # instead of minus infinity


def gating_unit(space: SearchSpace) -> LinearGaussian:
    """Returns the coordinates of a gating: a quarter of the box is 1."""
    half = 0.5 * (space.context_high - space.context_low)
    return LinearGaussian.unconditional(space.context_low[None] + half, 0.5 * np.diag(half)[None])


def expected_values(values: Quadratic, unit: LinearGaussian, contexts: Array) -> Array:
    """Returns the expected returns `A(c, o)`, `(n, K)`, of models `values` without inputs in coordinates `unit`."""
    z = unit.whitened(contexts[None, :, :0], contexts[None])[0].T  # (n, dc)
    bent = np.einsum("ni,kij,nj->nk", z, values.curvature, z)
    expected: Array = values.level + z @ values.slope[:, :, 0].T - 0.5 * bent
    return expected


def standard_errors(values: Quadratic, unit: LinearGaussian, contexts: Array, targets: Array) -> Array:
    """Returns the standard errors `(K,)` of models of `targets (K, n)`, at their own `contexts (K, n, dc)` on average.

    They follow from the variance that the models leave unexplained.
    """
    count, n, dim = contexts.shape
    z = unit.select(np.zeros(count, np.intp)).whitened(contexts[:, :, :0], contexts)  # (K, dc, n)
    bent = np.einsum("kin,kij,kjn->kn", z, values.curvature, z)
    fitted = values.level[:, None] + np.einsum("kin,ki->kn", z, values.slope[:, :, 0]) - 0.5 * bent
    features = feature_count(dim)
    unexplained = ((targets - fitted) ** 2).sum(axis=1) / max(1, n - features)
    errors: Array = np.sqrt(unexplained * features / n)
    return errors


@dataclass(frozen=True)
class GatingStep:
    """The solution of a gating step: `log pi(o|c) = keep log q(o|c) + gain A(c, o) + constant(c)`."""

    keep: float  # factor of the old log gating, 0 to 1
    gain: float  # factor of the expected returns
    kl: float  # divergence from the old gating, averaged over the contexts
    entropy: float  # entropy of the new gating, averaged over the contexts


def gating_step(log_gating: Array, expected: Array, kl_bound: float, least_entropy: float) -> GatingStep:
    """Maximises `mean_c sum_o pi(o|c) A(c,o)` with a bounded mean divergence from `q` and a least mean entropy.

    The dual in the multipliers `eta > 0` and `omega >= 0` of the two bounds is convex and minimised with its gradient.
    If the trust region does not contain the required entropy, the step gets as close to it as possible.

    Args:
        log_gating: `(n, K)`, the old `log q(o|c)`.
        expected: `(n, K)`, expected returns `A(c, o)`; a constant shared by all options of a context cancels.
        kl_bound: The bound on the mean of `KL(pi(.|c) || q(.|c))`.
        least_entropy: The bound on the mean entropy.
    """
    log_q, advantages, scale = _standardised(log_gating, expected)

    def dual(x: Array) -> tuple[float, Array]:
        eta, omega = np.exp(x)
        log_pi, log_total = _solution(log_q, advantages, eta, omega)
        kl, entropy = _measures(log_pi, log_q)
        value = eta * kl_bound - omega * least_entropy + (eta + omega) * float(log_total.mean())
        return value, np.array([eta * (kl_bound - kl), omega * (entropy - least_entropy)])

    best = minimize(dual, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[_LOG_MULTIPLIERS] * 2)
    eta, omega = np.exp(best.x)
    kl, entropy = _measures(_solution(log_q, advantages, eta, omega)[0], log_q)
    if kl <= 1.01 * kl_bound:
        return GatingStep(eta / (eta + omega), 1 / (scale * (eta + omega)), kl, entropy)

    # the required entropy is out of reach: flatten the gating as far as the trust region allows
    def excess(keep: float) -> float:
        return _measures(log_normalised(keep * log_q), log_q)[0] - kl_bound

    keep = brentq(excess, 0.0, 1.0) if excess(0.0) > 0 else 0.0
    return GatingStep(keep, 0.0, *_measures(log_normalised(keep * log_q), log_q))


def priced_gating_step(log_gating: Array, expected: Array, kl_bound: float, price: float) -> GatingStep:
    """Maximises `mean_c sum_o pi(o|c) A(c,o) + price H[pi(.|c)]` with a bounded mean divergence from `q`.

    The multiplier of the bound is the smallest with which it holds; arguments as for `gating_step`.
    """
    log_q, advantages, scale = _standardised(log_gating, expected)

    def solution(log_eta: float) -> Array:
        return _solution(log_q, advantages, np.exp(log_eta), price / scale)[0]

    def excess(log_eta: float) -> float:
        return _measures(solution(log_eta), log_q)[0] - kl_bound

    low, high = _LEAST_LOG_ETA, _LOG_MULTIPLIERS[1] + np.log1p(price / scale)  # the price may dwarf the differences
    while excess(high) > 0:  # and so may differences where a component has hardly been used
        if high > _MOST_LOG_ETA:
            return GatingStep(1.0, 0.0, *_measures(log_q, log_q))
        high += _LOG_MULTIPLIERS[1]
    log_eta = low if excess(low) <= 0 else brentq(excess, low, high)
    total = np.exp(log_eta) + price / scale
    return GatingStep(np.exp(log_eta) / total, 1 / (scale * total), *_measures(solution(log_eta), log_q))


def _standardised(log_gating: Array, expected: Array) -> tuple[Array, Array, float]:
    """Returns the old log gating, advantages of unit scale, and that scale."""
    log_q = np.maximum(log_gating, _LEAST_LOG_GATING)
    centred = expected - (np.exp(log_q) * expected).sum(axis=1, keepdims=True)
    spread = np.sqrt((np.exp(log_q) * centred**2).sum(axis=1).mean())
    scale = float(max(spread, 1e-9 * np.abs(expected).max())) + 1e-12  # equal but for rounding is equal
    return log_q, centred / scale, scale


def _solution(log_q: Array, advantages: Array, eta: float, omega: float) -> tuple[Array, Array]:
    """Returns the gating of two multipliers, and the logarithms of its normalisers."""
    log_values = (eta * log_q + advantages) / (eta + omega)
    log_total = logsumexp(log_values)
    return log_values - log_total[:, None], log_total


def _measures(log_pi: Array, log_q: Array) -> tuple[float, float]:
    """Returns the mean divergence from the old gating, and the mean entropy."""
    pi = np.exp(log_pi)
    return float((pi * (log_pi - log_q)).sum(axis=1).mean()), -float((pi * log_pi).sum(axis=1).mean())


def with_gating_of(mixture: Mixture, values: Quadratic, unit: LinearGaussian, step: GatingStep) -> Mixture:
    """Returns the mixture with the gating of a step.

    Terms shared by all components cancel in a gating, so its context distributions are not unique: the widest of them
    gets a standard deviation of a quarter of the box.
    """
    old, scale, centre = mixture.contexts, np.diagonal(unit.chol[0]), unit.bias[0]
    inverse = np.linalg.inv(old.chol / scale[:, None])
    precision = inverse.transpose(0, 2, 1) @ inverse
    mean = (old.bias - centre) / scale
    pull = (precision @ mean[:, :, None])[:, :, 0]
    level = mixture.log_weights + old.log_norm - 0.5 * (mean * pull).sum(axis=1)

    # the gain is large where all are about equally good: what they share would drown their differences
    precision = step.keep * precision + step.gain * _differences(values.curvature)
    pull = step.keep * pull + step.gain * _differences(values.slope[:, :, 0])
    level = step.keep * level + step.gain * _differences(values.level)
    # remove the mean pull, make the widest a quarter of the box
    dim = len(scale)
    pull -= pull.mean(axis=0)
    precision += (1 - np.linalg.eigvalsh(precision).min()) * np.eye(dim)
    chol_inv = np.linalg.inv(np.linalg.cholesky(precision))
    cov = chol_inv.transpose(0, 2, 1) @ chol_inv
    mean = (cov @ pull[:, :, None])[:, :, 0]
    log_det = 2 * np.log(np.diagonal(chol_inv, axis1=1, axis2=2)).sum(axis=1)
    log_weights = log_normalised(level + 0.5 * (mean * pull).sum(axis=1) + 0.5 * (log_det + dim * LOG_2PI))
    chol = np.linalg.cholesky(cov) * scale[:, None]
    return Mixture(log_weights, LinearGaussian.unconditional(centre + scale * mean, chol), mixture.experts)


def _differences(coefficients: Array) -> Array:
    return coefficients - coefficients.mean(axis=0)
