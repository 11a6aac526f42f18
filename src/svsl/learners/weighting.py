"""Rewards of the weight update: the objective of each component minus the value of the contexts it covers."""

import numpy as np

from svsl.learners.svsl_config import SVSLConfig
from svsl.learners.trust_region import categorical_step
from svsl.model.gaussians import Array, IntArray
from svsl.model.mixture import Mixture

_KERNEL_DENOMINATOR = 0.5  # exp(-|dc|^2 / 0.5), in units of the context scale
_KERNEL_ENTRIES = 2**24  # size limit of the kernel matrix: 128 MiB


class WeightRewards:
    """`r(o)` of the weight update as a function of the current weights (the paper's objective L_p).

    `r(o)` is the mean over component o's episodes of
    `R + gamma log pi(o|c,theta) + alpha H[pi(theta|c,o)] + (beta - gamma) log pi(o|c) - V(c)`, plus
    `beta H[pi(c|o)]`. `V(c)` is the Nadaraya-Watson estimate of the return over all episodes, each weighted by
    `pi(o|c) / pi^(o|c)` with `pi^` the gating of equal weights, since as many are drawn of every component: one that is
    alone where returns are naturally low is not penalised for it.

    Args:
        config: Resolved settings.
        mixture: The model the episodes were drawn from.
        owners: `(n,)`, the component that drew each episode.
        contexts: `(n, dc)`, their contexts.
        returns: `(n,)`.
        log_likelihood: `(n, K)`, of each episode under every component: `log pi(theta|c,o)`, or what tells behaviours
            apart.
    """

    def __init__(
        self,
        config: SVSLConfig,
        mixture: Mixture,
        owners: IntArray,
        contexts: Array,
        returns: Array,
        log_likelihood: Array,
    ) -> None:
        log_contexts = mixture.contexts.log_prob(contexts[:, :0], contexts)
        log_both = log_contexts + log_likelihood
        self.config, self.owners, self.returns = config, owners, returns
        self.counts = np.bincount(owners, minlength=len(mixture))
        self.entropies = config.alpha * mixture.experts.entropy + config.beta * mixture.contexts.entropy
        self._gating = _OwnShare(log_contexts, owners)
        self._responsibility = _OwnShare(log_both, owners)
        self._drawn_log_gating = self._gating(np.zeros(len(mixture)))
        scaled = (contexts - contexts.mean(axis=0)) / np.array(
            config.context_scale
        )  # centred, so that distances stay exact
        # the value is smooth: where all pairs would not fit in memory, it is evaluated at every n-th episode
        stride = -(-(len(contexts) ** 2) // _KERNEL_ENTRIES)
        stride = max(1, min(stride, int(self.counts[self.counts > 0].min())))  # at least one point of every component
        self._points = slice(None, None, stride)
        self._kernel = _kernel(scaled[self._points], scaled)
        self._point_counts = np.bincount(owners[self._points], minlength=len(mixture))

    def __call__(self, log_weights: Array) -> Array:
        """Returns the rewards `(K,)` under the weights `exp(log_weights)`."""
        log_weights = np.maximum(log_weights, -700.0)
        log_gating = self._gating(log_weights)
        targets = self.returns.copy()
        if self.config.auxiliary:
            gamma, beta = self.config.distinction_price, self.config.beta
            targets += gamma * self._responsibility(log_weights) + (beta - gamma) * log_gating
        importance = np.exp(log_gating - self._drawn_log_gating)
        top, bottom = (self._kernel @ np.stack([importance * self.returns, importance], axis=1)).T
        value = top / (bottom + 1e-300)
        mean_value = self._mean(value, self.owners[self._points], self._point_counts)
        rewards = self._mean(targets, self.owners, self.counts) - mean_value + self.entropies
        return np.where(self.counts > 0, rewards, rewards[self.counts > 0].min())  # no episodes: as the worst

    @staticmethod
    def _mean(values: Array, owners: IntArray, counts: IntArray) -> Array:
        return np.bincount(owners, weights=values, minlength=len(counts)) / np.maximum(counts, 1)


def learn_weights(
    config: SVSLConfig, mixture: Mixture, owners: IntArray, contexts: Array, returns: Array, log_likelihood: Array
) -> Array:
    """Returns the log weights `(K,)` after all weight updates; arguments as for `WeightRewards`."""
    assert config.beta_weight is not None
    rewards = WeightRewards(config, mixture, owners, contexts, returns, log_likelihood)
    log_weights = mixture.log_weights
    for _ in range(config.weight_iterations):
        log_weights = categorical_step(log_weights, rewards(log_weights), config.beta_weight, config.kl_weight)
    return log_weights


def kept_components(log_weights: Array, min_weight: float, base: int) -> IntArray:
    """Returns the components that are not too light, the first `base`, and at least the heaviest."""
    heavy = log_weights >= np.log(min_weight) if min_weight > 0 else np.isfinite(log_weights)
    heavy[:base] = True
    heavy[log_weights.argmax()] |= not heavy.any()
    return np.flatnonzero(heavy)


class _OwnShare:
    """`log (w_o d_io / sum_k w_k d_ik)` of each row's own component o, for many weights `w` and fixed densities."""

    def __init__(self, log_density: Array, owners: IntArray) -> None:
        top = log_density.max(axis=1)
        self._relative = np.exp(log_density - top[:, None])
        self._own = np.take_along_axis(log_density, owners[:, None], axis=1)[:, 0] - top
        self._owners = owners

    def __call__(self, log_weights: Array) -> Array:
        return self._own + log_weights[self._owners] - np.log(self._relative @ np.exp(log_weights))


def _kernel(points: Array, samples: Array) -> Array:
    kernel = points @ samples.T  # the only array of this size
    kernel *= 2
    kernel -= (points**2).sum(axis=1)[:, None]
    kernel -= (samples**2).sum(axis=1)
    kernel /= _KERNEL_DENOMINATOR
    return np.exp(kernel, out=kernel)
