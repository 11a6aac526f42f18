"""Steps of a Gaussian gating: its logits and the expected returns of the components are quadratic in the context.

So the best gating in a trust region is again a Gaussian gating, and no fit is needed.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize

from svsl.learners.base import SearchSpace
from svsl.learners.surrogates import Quadratic
from svsl.model.gaussians import LOG_2PI, Array, LinearGaussian
from svsl.model.mixture import Mixture, log_normalised, logsumexp

_LOG_MULTIPLIERS = (-12.0, 12.0)  # range of the multipliers, for expected returns of unit scale
_NEWTON_STEPS, _NEWTON_TOLERANCE = 100, 1e-12
_SIZES = 0.5 ** np.arange(30)  # of a Newton step


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
    keep = brentq(lambda keep: _measures(log_normalised(keep * log_q), log_q)[0] - kl_bound, 0.0, 1.0)
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

    low, high = _LOG_MULTIPLIERS
    high += np.log1p(price / scale)  # against a price that dwarfs the differences
    log_eta = low if excess(low) <= 0 else high if excess(high) > 0 else brentq(excess, low, high)
    total = np.exp(log_eta) + price / scale
    return GatingStep(np.exp(log_eta) / total, 1 / (scale * total), *_measures(solution(log_eta), log_q))


def _standardised(log_gating: Array, expected: Array) -> tuple[Array, Array, float]:
    """Returns the old log gating, advantages of unit scale, and that scale."""
    log_q = np.maximum(log_gating, -700.0)
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


def with_gating_of(
    mixture: Mixture, values: Quadratic, unit: LinearGaussian, step: GatingStep, uniform: Array
) -> Mixture:
    """Returns the mixture with the gating of a step.

    A factor shared by all components cancels in a gating, so many mixtures have it. This is the one whose contexts
    `p(c)` have the mean and the covariance of the contexts `uniform (n, dc)`: its context distributions stay near the
    box, and its weights are about the shares of the contexts.
    """
    old, scale, centre = mixture.contexts, np.diagonal(unit.chol[0]), unit.bias[0]
    inverse = np.linalg.inv(old.chol / scale[:, None])
    precision = inverse.transpose(0, 2, 1) @ inverse
    mean = (old.bias - centre) / scale
    pull = (precision @ mean[:, :, None])[:, :, 0]
    level = mixture.log_weights + old.log_norm - 0.5 * (mean * pull).sum(axis=1)
    logits = _Logits(
        step.keep * precision + step.gain * values.curvature,
        step.keep * pull + step.gain * values.slope[:, :, 0],
        step.keep * level + step.gain * values.level,
    ).matching((uniform - centre) / scale, np.linalg.eigvalsh(precision).min())
    log_masses, means, covs = logits.integrals()
    chol = np.linalg.cholesky(covs) * scale[:, None]
    contexts = LinearGaussian.unconditional(centre + scale * means, chol)
    return Mixture(log_normalised(log_masses), contexts, mixture.experts)


@dataclass(frozen=True)
class _Logits:
    """Logits `level_o + pull_o' c - c' precision_o c / 2` of a gating; if they are concave, of a mixture, too."""

    precision: Array  # (K, dc, dc)
    pull: Array  # (K, dc)
    level: Array  # (K,)

    def plus(self, shared: Array) -> "_Logits":
        """Returns the same gating: adds a quadratic, given by its pull and its precision in one row, to all logits."""
        dim = self.pull.shape[1]
        return _Logits(self.precision + shared[dim:].reshape(dim, dim), self.pull + shared[:dim], self.level)

    def integrals(self) -> tuple[Array, Array, Array]:
        """Returns the components' log masses, means and covariances; a LinAlgError if one is not concave."""
        chol_inv = np.linalg.inv(np.linalg.cholesky(self.precision))
        covs = chol_inv.transpose(0, 2, 1) @ chol_inv
        means = (covs @ self.pull[:, :, None])[:, :, 0]
        log_dets = 2 * np.log(np.diagonal(chol_inv, axis1=1, axis2=2)).sum(axis=1)
        return self.level + 0.5 * ((means * self.pull).sum(axis=1) + log_dets + means.shape[1] * LOG_2PI), means, covs

    def matching(self, contexts: Array, least: float) -> "_Logits":
        """Returns the same gating, of the mixture under which `contexts (n, dc)` are most likely.

        Their log likelihood is concave in the shared quadratic, as in every exponential family, and at its maximum the
        mixture has their first and second moments. Newton's method with a line search; it starts at these logits, made
        concave with a curvature of at least `least`.
        """
        dim = contexts.shape[1]
        target = np.concatenate([contexts.mean(axis=0), -0.5 * (contexts.T @ contexts / len(contexts)).ravel()])
        missing = max(0.0, least - np.linalg.eigvalsh(self.precision).min())
        shared = np.concatenate([np.zeros(dim), (missing * np.eye(dim)).ravel()])

        def loss(shared: Array) -> float:
            try:
                return float(logsumexp(self.plus(shared).integrals()[0]) - shared @ target)
            except np.linalg.LinAlgError:
                return np.inf

        value = loss(shared)
        for _ in range(_NEWTON_STEPS):
            moments, covariance = self.plus(shared)._moments()
            step = np.linalg.lstsq(covariance, target - moments)[0]  # singular: off-diagonal entries count twice
            decrease = float((target - moments) @ step)
            size = next((size for size in _SIZES if loss(shared + size * step) < value - 0.1 * size * decrease), 0.0)
            if decrease < _NEWTON_TOLERANCE or not size:
                break
            shared = shared + size * step
            value = loss(shared)
        return self.plus(shared)

    def _moments(self) -> tuple[Array, Array]:
        """Returns the mean and the covariance of `c` and `-c c' / 2` under the mixture, in the order of `plus`."""
        log_masses, means, covs = self.integrals()
        weights, dim = np.exp(log_normalised(log_masses)), means.shape[1]
        outer = means[:, :, None] * means[:, None]
        of_each = np.concatenate([means, -0.5 * (covs + outer).reshape(len(means), -1)], axis=1)
        mean = weights @ of_each
        covariance = np.einsum("k,ki,kj->ij", weights, of_each - mean, of_each - mean)  # between the components
        third = np.einsum("k,kij,kl->ijl", weights, covs, means)  # and, from here on, within them
        fourth = np.einsum("k,kil,kjm->ijlm", weights, covs, covs + outer)
        fourth += np.einsum("k,kil,kjm->ijlm", weights, outer, covs)
        mixed = -0.5 * (third + third.transpose(0, 2, 1)).reshape(dim, -1)
        covariance[:dim, :dim] += np.einsum("k,kij->ij", weights, covs)
        covariance[:dim, dim:] += mixed
        covariance[dim:, :dim] += mixed.T
        covariance[dim:, dim:] += 0.25 * (fourth + fourth.transpose(0, 1, 3, 2)).reshape(dim * dim, -1)
        return mean, covariance
