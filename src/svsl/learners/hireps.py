"""HiREPS: hierarchical relative entropy policy search (Daniel, Neumann and Peters, 2012 and 2016), episodic.

A mixture of a fixed number of options is re-weighted by one entropy-regularised problem per iteration: maximise the
return of `p(c, theta, o)` close to the stored episodes, with the task's distribution of contexts, and with
options that become more distinct from step to step. The options are then fitted to the weighted episodes.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from svsl.learners.base import require
from svsl.learners.fixed_mixture import STD_FLOOR, FixedMixtureConfig, FixedMixtureLearner
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.mixture import Mixture, logsumexp

_RIDGE = 1e-6


@dataclass(frozen=True)
class HiREPSConfig(FixedMixtureConfig):
    """Settings of the HiREPS learner.

    Examples:
        >>> import svsl
        >>> from svsl.learners.hireps import HiREPSConfig
        >>> HiREPSConfig(kl=0.5).kappa
        0.9
        >>> library = svsl.train("planar-reacher", learner="hireps", components=2, iterations=2, kl=0.5)
    """

    kl: float = 0.3
    """KL bound of an update, relative to the episodes it uses (epsilon)."""
    kappa: float = 0.9
    """Entropy of the responsibilities after an update, relative to before: below 1, options become distinct."""
    shrink: float = 1.0
    """Weight of the old covariance, in episodes per parameter."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.kl > 0, "kl", "above 0", self.kl)
        require(0 < self.kappa <= 1, "kappa", "above 0 and at most 1", self.kappa)


@dataclass(frozen=True)
class Reweighting:
    """The solution of an update."""

    weights: Array  # (n, K), p(episode i, option o), summing to one
    kl: float  # divergence of p from the episodes and their old responsibilities
    entropy: float  # -sum p log rho, the bounded entropy


def reweight(
    returns: Array, features: Array, log_responsibilities: Array, kl_bound: float, entropy_bound: float
) -> Reweighting:
    """Maximises `sum p_io R_i` under the bounds on divergence and entropy and with unchanged mean features.

    The dual in the multipliers `eta > 0`, `xi >= 0` and `v` is convex and minimised with its gradient.

    Args:
        returns: `(n,)`.
        features: `(n, d)` of the contexts, whose mean is kept.
        log_responsibilities: `(n, K)`, `log rho_io`.
        kl_bound: The bound on `KL(p || 1/n rho)`.
        entropy_bound: The bound on `-sum p log rho`; infinite for none.
    """
    scale = returns.std() + 1e-12
    rewards = (returns - returns.max()) / scale
    spread = features.std(axis=0) + 1e-12
    phi = (features - features.mean(axis=0)) / spread
    log_rho = np.maximum(log_responsibilities, -700.0)
    bounded = bool(np.isfinite(entropy_bound))

    def weights(x: Array) -> tuple[Array, float]:
        eta, xi, v = np.exp(x[0]), x[1], x[2:]
        log_p = (1 + xi / eta) * log_rho + ((rewards - phi @ v) / eta)[:, None]
        log_total = float(logsumexp(log_p.reshape(1, -1))[0])
        return np.exp(log_p - log_total), log_total

    def dual(x: Array) -> tuple[float, Array]:
        eta, xi = float(np.exp(x[0])), float(x[1])
        p, log_total = weights(x)
        log_mean = log_total - np.log(len(rewards))
        entropy = -float((p * log_rho).sum())
        expected = float(p.sum(axis=1) @ (rewards - phi @ x[2:]))
        kl = (expected - xi * entropy) / eta - log_mean
        slack = entropy_bound - entropy if bounded else 0.0
        value = eta * (kl_bound + log_mean) + (xi * entropy_bound if bounded else 0.0)
        gradient = np.concatenate([[eta * (kl_bound - kl), slack], -phi.T @ p.sum(axis=1)])
        return value, gradient

    start = np.zeros(2 + phi.shape[1])
    bounds = [(-12.0, 12.0), (0.0, 1e4 if bounded else 0.0), *[(None, None)] * phi.shape[1]]
    best = minimize(dual, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 1000, "ftol": 1e-13})
    p, _ = weights(best.x)
    kl = float((p * (np.log(np.maximum(p, 1e-300)) - log_rho)).sum() + np.log(len(rewards)))
    return Reweighting(p, kl, -float((p * log_rho).sum()))


class HiREPS(FixedMixtureLearner[HiREPSConfig]):
    """The learner."""

    def update(self) -> Mixture:
        """Re-weights the newest batches and fits the options to them."""
        contexts = self.episodes.contexts
        log_rho = self.options.log_responsibilities(contexts, self.episodes.parameters)
        entropy = -float((np.exp(log_rho) * np.maximum(log_rho, -700.0)).sum(axis=1).mean())
        first, second = np.triu_indices(contexts.shape[1])
        features = np.concatenate([contexts, contexts[:, first] * contexts[:, second]], axis=1)
        bound = self.config.kappa * entropy
        solution = reweight(self.returns, features, log_rho, self.config.kl, bound)
        # where the bound is out of reach, the whole step would go into the entropy and none into the return
        if solution.entropy > 1.01 * bound:
            solution = reweight(self.returns, features, log_rho, self.config.kl, np.inf)
        return self._fit(solution.weights)

    def _fit(self, weights: Array) -> Mixture:
        """Fits every option by weighted maximum likelihood, with covariances shrunk toward the old ones."""
        totals = weights.sum(axis=0)
        old, kept = self.drop_unused(self.options, totals)
        share = (weights[:, kept] / totals[kept]).T[:, None]  # (K, 1, n)
        effective = 1 / (share**2).sum(axis=2)  # (K, 1)
        contexts, parameters = self.episodes.contexts, self.episodes.parameters
        mean = (share @ contexts)[:, 0]
        centred = contexts - mean[:, None]
        scatter = (centred.transpose(0, 2, 1) * share) @ centred
        context_cov = self._shrunk(scatter, old.contexts.cov, effective)
        # regression on centred contexts: the intercept is the weighted mean
        ridge = _RIDGE * np.trace(scatter, axis1=1, axis2=2)[:, None, None] + 1e-12
        mean_parameters = (share @ parameters)[:, 0]
        cross = (centred.transpose(0, 2, 1) * share) @ (parameters - mean_parameters[:, None])
        pull = np.minimum(1.0, effective / (effective + 5.0 * (contexts.shape[1] + 1)))[:, :, None]  # few episodes
        slope = np.linalg.solve(scatter + ridge * np.eye(scatter.shape[1]), cross).transpose(0, 2, 1)
        gain = pull * slope + (1 - pull) * old.experts.gain
        bias = mean_parameters - (gain @ mean[:, :, None])[:, :, 0]
        residual = parameters - contexts @ gain.transpose(0, 2, 1) - bias[:, None]
        cov = self._shrunk((residual.transpose(0, 2, 1) * share) @ residual, old.experts.cov, effective)
        context_cov += np.diag((STD_FLOOR * (self.space.context_high - self.space.context_low)) ** 2)
        log_weights = np.log(totals[kept] / totals[kept].sum())
        return Mixture(
            log_weights,
            LinearGaussian.unconditional(mean, np.linalg.cholesky(context_cov)),
            LinearGaussian.build(gain, bias, self.floored(cov)),
        )

    def _shrunk(self, cov: Array, old: Array, effective: Array) -> Array:
        """Returns the unbiased weighted covariance, averaged with the old one, which counts as `shrink` episodes."""
        n = effective[:, :, None]
        unbiased = cov * n / np.maximum(n - 1, 0.1)
        pseudo = self.config.shrink * cov.shape[1]
        return (n * unbiased + pseudo * old) / (n + pseudo)
