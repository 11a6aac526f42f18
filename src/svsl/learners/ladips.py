"""LaDiPS: layered direct policy search (End, Akrour, Peters and Neumann, 2017), reconstructed from its description.

The experts and the gating of a fixed number of options are improved by two separate problems, each with a trust region.
Experts follow a quadratic model of the return (MORE) that is fitted to the episodes of all options, weighted by their
importance; how fast their entropy falls is bounded as in MORE (Abdolmaleki et al., 2015). The gating maximises the
expected return of the options it chooses, its entropy bounded from below.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from svsl.errors import SvslError
from svsl.learners.base import Arrays, SearchSpace, require
from svsl.learners.fixed_mixture import FixedMixtureConfig, FixedMixtureLearner
from svsl.learners.gating import expected_values, gating_step, gating_unit, with_gating_of
from svsl.learners.surrogates import Quadratic, feature_count, fit_quadratic
from svsl.learners.trust_region import gaussian_step
from svsl.model.gaussians import Array, IntArray, LinearGaussian
from svsl.model.mixture import Mixture, log_normalised

_EPISODES_PER_FEATURE = 3  # an option's model is fitted to this many of its most important episodes
_GATING_CONTEXTS = 500  # uniform contexts used to improve the gating


@dataclass(frozen=True)
class LaDiPSConfig(FixedMixtureConfig):
    """Settings of the LaDiPS learner.

    Examples:
        >>> import svsl
        >>> from svsl.learners.ladips import LaDiPSConfig
        >>> LaDiPSConfig().kl_expert
        0.1
        >>> library = svsl.train("planar-reacher", learner="ladips", components=2, iterations=2, gating_entropy=0.0)
    """

    batch: int = 1000
    """New episodes per iteration."""
    history: int = 12
    """Newest batches used by an update."""
    kl_expert: float = 0.1
    """KL bound of an expert's step."""
    kl_gating: float = 0.05
    """Bound on the expected KL divergence of a gating step."""
    gating_entropy: float | None = None
    """Lower bound on the expected entropy of the gating, in nats; default log(components / 2)."""
    entropy_rate: float | None = 0.99
    """Share of its distance to the least entropy that an expert keeps in a step (MORE's kappa); None for no bound."""
    min_entropy: float = -7.0
    """Least entropy of an expert, relative to the initial search, in nats per parameter (-7: a thousandth as wide)."""

    added: ClassVar[Mapping[str, object]] = {"entropy_rate": None}

    @property
    def learns_gating(self) -> bool:
        """Always."""
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kl_expert", "kl_gating"):
            require(getattr(self, name) > 0, name, "above 0", getattr(self, name))
        rate = self.entropy_rate
        require(rate is None or 0 <= rate <= 1, "entropy_rate", "0 to 1, or None for no bound", rate)
        require(-math.inf < self.min_entropy <= 0, "min_entropy", "a number of at most 0", self.min_entropy)
        if self.gating_entropy is not None and self.gating_entropy > np.log(self.components):
            raise SvslError(
                f"setting gating_entropy: expected at most log({self.components}) = {np.log(self.components):.3g}, the "
                f"entropy of a uniform gating, got {self.gating_entropy:.3g}; reduce it along with components"
            )

    def scaled(self, scale: float, power: float) -> Self:
        """Returns the settings of a smaller run; the entropy bound keeps its share of the largest possible entropy."""
        small = super(LaDiPSConfig, replace(self, gating_entropy=None)).scaled(scale, power)
        if self.gating_entropy is None or self.components == 1:
            return replace(small, gating_entropy=self.gating_entropy)
        share = math.log(small.components) / math.log(self.components)
        return replace(small, gating_entropy=self.gating_entropy * share)


class LaDiPS(FixedMixtureLearner[LaDiPSConfig]):
    """The learner."""

    def __init__(self, config: LaDiPSConfig, space: SearchSpace, rng: np.random.Generator) -> None:
        super().__init__(config, space, rng)
        self._features = feature_count(len(space.context_low) + len(space.initial_mean))
        if config.batch * config.history < _EPISODES_PER_FEATURE * self._features:
            raise SvslError(
                f"settings batch and history: expected at least {_EPISODES_PER_FEATURE * self._features} episodes "
                f"together for a model of {self._features} features, got {config.batch} x {config.history}"
            )
        self._log_drawn: Array = np.zeros(0)  # log density of each episode's parameters under the mixture that drew it
        self._unit = gating_unit(space)
        self._least_entropy = self.options.experts.entropy[0] + config.min_entropy * len(space.initial_mean)

    def update(self) -> Mixture:
        """Makes one step of every expert and of the gating, from the same weighted episodes."""
        old, contexts, parameters = self.options, self.episodes.contexts, self.episodes.parameters
        new = slice(-self.config.batch, None)
        self._log_drawn = self.newest(self._log_drawn, old.log_prob(contexts[new], parameters[new]))
        if len(contexts) < _EPISODES_PER_FEATURE * self._features:
            return old
        rows, importance = self._share(old.experts.log_prob(contexts, parameters).T - self._log_drawn)
        own, returns = contexts[rows], self.returns[rows]
        model = fit_quadratic(old.experts, own, parameters[rows], returns, importance)
        experts, _ = gaussian_step(old.experts, model, 0.0, self.config.kl_expert, self._entropy_change(old.experts))
        experts = LinearGaussian.build(experts.gain, experts.bias, self.floored(experts.cov))
        units = self._unit.select(np.zeros(len(old), dtype=np.intp))
        values = fit_quadratic(units, own[:, :, :0], own, returns, importance)
        return self._gated(Mixture(old.log_weights, old.contexts, experts), values)

    def _entropy_change(self, experts: LinearGaussian) -> Array | None:
        """Returns the lower bound `(rate - 1) (H - H_min)` on the change of each expert's entropy, if there is one."""
        rate = self.config.entropy_rate
        return None if rate is None else (rate - 1) * np.maximum(experts.entropy - self._least_entropy, 0.0)

    def _share(self, log_importance: Array) -> tuple[IntArray, Array]:
        """Returns the most important episodes for each option and their weights: `(K, m)` both.

        The weights `pi(theta|c,o) / q(theta|c)` are truncated at their median, so that the effective number of episodes
        is at least half of `m`, one and a half for each feature.
        """
        count = _EPISODES_PER_FEATURE * self._features
        rows = np.argpartition(log_importance, -count, axis=1)[:, -count:]
        rows.sort(axis=1)
        log_weights = np.take_along_axis(log_importance, rows, axis=1)
        log_weights = np.minimum(log_weights, np.median(log_weights, axis=1, keepdims=True))
        return rows, count * np.exp(log_normalised(log_weights))

    def _gated(self, mixture: Mixture, values: Quadratic) -> Mixture:
        """Returns the mixture with a gating improved for the expected returns `values` of its options."""
        low, high = self.space.context_low, self.space.context_high
        contexts = self.rng.uniform(low, high, (_GATING_CONTEXTS, len(low)))
        expected = expected_values(values, self._unit, contexts)
        if not np.isfinite(expected).all():
            return mixture
        entropy = self.config.gating_entropy
        least = min(np.log(len(mixture)), np.log(self.config.components / 2) if entropy is None else entropy)
        step = gating_step(mixture.log_gating(contexts), expected, self.config.kl_gating, least)
        gated = with_gating_of(mixture, values, self._unit, step)
        return self.drop_unused(gated, np.exp(gated.log_gating(contexts)).mean(axis=0))[0]

    def state(self) -> Arrays:
        """Returns everything `restore` needs."""
        return super().state() | {"log_drawn": self._log_drawn}

    def restore(self, state: Arrays) -> None:
        """Continues from a `state`."""
        super().restore(state)
        self._log_drawn = np.asarray(state["log_drawn"], float)
