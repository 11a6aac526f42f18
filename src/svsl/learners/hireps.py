"""HiREPS: hierarchical relative entropy policy search (Daniel, Neumann and Peters, 2012 and 2016), episodic.

A mixture of a fixed number of options is re-weighted by one entropy-regularised problem per iteration: maximise the
return of `p(c, theta, o)` close to the episodes at hand, with contexts distributed as the task wants them, and with
options that become more distinct from step to step. The options are then fitted to the weighted episodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from svsl.errors import SvslError
from svsl.gaussians import Array, LinearGaussian
from svsl.learners.base import Arrays, Episodes, Progress, SearchSpace, above, below
from svsl.mixture import Mixture, logsumexp
from svsl.random import rng_from_array, rng_to_array

_MILESTONE_EVERY = 10  # iterations between evaluations
_RIDGE = 1e-6
_STD_FLOOR = 1e-5  # of an option, relative to the initial search and the context box


@dataclass(frozen=True)
class HiREPSConfig:
    """Settings of the HiREPS learner."""

    components: int = 20
    """Options; all exist from the start (the paper's N)."""
    iterations: int = 300
    """Updates."""
    kl: float = 0.3
    """Bound on the divergence of an update from the episodes it uses (epsilon)."""
    kappa: float = 0.9
    """Entropy of the responsibilities after an update, relative to before: below 1, options become distinct."""
    batch: int = 3000
    """New episodes per iteration."""
    history: int = 1
    """Newest batches an update uses."""
    min_weight: float = 1e-6
    """Options that weigh less are dropped."""
    shrink: float = 1.0
    """Pull of the old covariance: it counts as this many episodes for each parameter."""
    context_std: tuple[float, ...] | None = None
    """Standard deviation of the initial context distributions; default a quarter of the box's width."""

    def __post_init__(self) -> None:
        for name in ("components", "iterations", "batch", "history"):
            if getattr(self, name) < 1:
                raise SvslError(f"setting {name}: expected at least 1, got {getattr(self, name)}")
        if not self.kl > 0:
            raise SvslError(f"setting kl: expected above 0, got {self.kl}")
        if not 0 < self.kappa <= 1:
            raise SvslError(f"setting kappa: expected above 0 and at most 1, got {self.kappa}")


@dataclass(frozen=True)
class Reweighting:
    """The solution of one update's problem.

    Attributes:
        weights: `(n, K)`, `p(episode i, option o)`, summing to one.
        kl: Divergence of `p` from the episodes and their old responsibilities.
        entropy: `-sum p log rho`, the entropy that is bounded.
    """

    weights: Array
    kl: float
    entropy: float


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


class HiREPS:
    """The learner; see `svsl.learners.base.Learner` for the contract."""

    def __init__(self, config: HiREPSConfig, space: SearchSpace, rng: np.random.Generator) -> None:
        self.config, self.space, self.rng = config, space, rng
        self.iteration, self.dropped = 0, 0
        self._mixture = self._initial_mixture()
        dims = len(space.context_low), len(space.initial_mean)
        self._history = Episodes(np.zeros((0, dims[0])), np.zeros((0, dims[1])))
        self._returns: Array = np.zeros(0)
        self._asked: Episodes | None = None

    def _initial_mixture(self) -> Mixture:
        """Options spread over the context box and over the initial search distribution."""
        config, space, count = self.config, self.space, self.config.components
        width = space.context_high - space.context_low
        std = 0.25 * width if config.context_std is None else np.array(config.context_std)
        if std.shape != width.shape:
            raise SvslError(f"setting context_std: expected {len(width)} numbers, got {len(std)}")
        means = space.context_low + width * self.rng.random((count, len(width)))
        contexts = LinearGaussian.unconditional(means, np.broadcast_to(np.diag(std), (count, len(std), len(std))))
        chol = np.linalg.cholesky(space.initial_cov)
        bias = space.initial_mean + self.rng.standard_normal((count, len(chol))) @ chol.T
        gain = np.zeros((count, len(chol), len(width)))
        experts = LinearGaussian.build(gain, bias, np.broadcast_to(chol, (count, *chol.shape)))
        return Mixture(np.full(count, -np.log(count)), contexts, experts)

    def ask(self) -> Episodes:
        """Uniform contexts, options by the gating, parameters by their experts."""
        low, high = self.space.context_low, self.space.context_high
        contexts = self.rng.uniform(low, high, (self.config.batch, len(low)))
        components = self._mixture.sample_components(contexts, self.rng)
        self._asked = Episodes(contexts, self._mixture.sample_parameters(contexts, components, self.rng))
        return self._asked

    def tell(self, returns: Array) -> None:
        """Re-weights the newest batches and fits the options to them."""
        assert self._asked is not None, "tell without ask"
        keep = (self.config.history - 1) * self.config.batch
        old = len(self._returns) - min(keep, len(self._returns))
        contexts = np.concatenate([self._history.contexts[old:], self._asked.contexts])
        parameters = np.concatenate([self._history.parameters[old:], self._asked.parameters])
        self._history, self._returns = Episodes(contexts, parameters), np.concatenate([self._returns[old:], returns])
        self._asked = None
        log_rho = self._mixture.log_responsibilities(contexts, parameters)
        entropy = -float((np.exp(log_rho) * np.maximum(log_rho, -700.0)).sum(axis=1).mean())
        first, second = np.triu_indices(contexts.shape[1])
        features = np.concatenate([contexts, contexts[:, first] * contexts[:, second]], axis=1)
        bound = self.config.kappa * entropy
        solution = reweight(self._returns, features, log_rho, self.config.kl, bound)
        if solution.entropy > 1.01 * bound:  # out of reach: all of the step would go into it, and none into the return
            solution = reweight(self._returns, features, log_rho, self.config.kl, np.inf)
        self._mixture = self._fit(solution.weights)
        self.iteration += 1

    def _fit(self, weights: Array) -> Mixture:
        """Weighted maximum likelihood of every option, its covariances shrunk toward the old ones."""
        totals = weights.sum(axis=0)
        kept = np.flatnonzero(totals >= self.config.min_weight)
        self.dropped += len(totals) - len(kept)
        old, share = self._mixture.select(kept), (weights[:, kept] / totals[kept]).T[:, None]  # (K, 1, n)
        effective = 1 / (share**2).sum(axis=2)  # (K, 1)
        contexts, parameters = self._history.contexts, self._history.parameters
        mean = (share @ contexts)[:, 0]
        centred = contexts - mean[:, None]
        context_cov = self._shrunk((centred.transpose(0, 2, 1) * share) @ centred, old.contexts.cov, effective)
        # regression on centred contexts: the intercept is the weighted mean
        scatter = (centred.transpose(0, 2, 1) * share) @ centred
        ridge = _RIDGE * np.trace(scatter, axis1=1, axis2=2)[:, None, None] + 1e-12
        mean_parameters = (share @ parameters)[:, 0]
        cross = (centred.transpose(0, 2, 1) * share) @ (parameters - mean_parameters[:, None])
        pull = np.minimum(1.0, effective / (effective + 5.0 * (contexts.shape[1] + 1)))[:, :, None]  # few episodes
        slope = np.linalg.solve(scatter + ridge * np.eye(scatter.shape[1]), cross).transpose(0, 2, 1)
        gain = pull * slope + (1 - pull) * old.experts.gain
        bias = mean_parameters - (gain @ mean[:, :, None])[:, :, 0]
        residual = parameters - contexts @ gain.transpose(0, 2, 1) - bias[:, None]
        cov = self._shrunk((residual.transpose(0, 2, 1) * share) @ residual, old.experts.cov, effective)
        # a floor far below any precision that matters: without it converged options shrink to points
        width = self.space.context_high - self.space.context_low
        context_cov += np.diag((_STD_FLOOR * width) ** 2)
        cov += _STD_FLOOR**2 * self.space.initial_cov
        log_weights = np.log(totals[kept] / totals[kept].sum())
        return Mixture(
            log_weights,
            LinearGaussian.unconditional(mean, np.linalg.cholesky(context_cov)),
            LinearGaussian.build(gain, bias, np.linalg.cholesky(cov)),
        )

    def _shrunk(self, cov: Array, old: Array, effective: Array) -> Array:
        """The unbiased weighted covariance, averaged with the old one as if that were so many episodes."""
        n = effective[:, :, None]
        unbiased = cov * n / np.maximum(n - 1, 0.1)
        pseudo = self.config.shrink * cov.shape[1]
        return (n * unbiased + pseudo * old) / (n + pseudo)

    @property
    def done(self) -> bool:
        """Whether all iterations are made."""
        return self.iteration >= self.config.iterations

    @property
    def milestone(self) -> int:
        """Counts every tenth iteration, and the last."""
        return -(-self.iteration // _MILESTONE_EVERY) if self.done else self.iteration // _MILESTONE_EVERY

    @property
    def progress(self) -> Progress:
        """Where training stands."""
        recent = float(self._returns[-self.config.batch :].mean()) if len(self._returns) else float("nan")
        total, kept = self.config.iterations, len(self._mixture)
        return Progress(
            kept,
            self.config.components,
            self.iteration,
            total,
            self.iteration / total,
            recent,
            {"dropped": self.dropped},
        )

    def mixture(self) -> Mixture | None:
        """The current mixture; None before the first update."""
        return self._mixture if self.iteration else None

    def state(self) -> Arrays:
        """Everything `restore` needs."""
        assert self._asked is None, "no state between ask and tell"
        state: Arrays = {
            "rng": rng_to_array(self.rng),
            "counters": np.array([self.iteration, self.dropped], dtype=np.int64),
            "contexts": self._history.contexts,
            "parameters": self._history.parameters,
            "returns": self._returns,
        }
        return state | above("mixture.", self._mixture.to_arrays())

    def restore(self, state: Arrays) -> None:
        """Goes on from `state`."""
        self.iteration, self.dropped = (int(value) for value in state["counters"])
        self.rng = rng_from_array(state["rng"].astype(np.uint64))
        contexts, parameters = np.asarray(state["contexts"], float), np.asarray(state["parameters"], float)
        if contexts.shape[1:] != self.space.context_low.shape:
            raise ValueError(f"contexts of {contexts.shape[1]} dimensions")
        self._history, self._returns = Episodes(contexts, parameters), np.asarray(state["returns"], float)
        self._mixture = Mixture.from_arrays(below(state, "mixture."))
        self._asked = None
