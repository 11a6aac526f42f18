"""The rewards of the weight update against a loop over all pairs of episodes."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers import components_of, random_mixture
from svsl.bench import reference
from svsl.learners import weighting
from svsl.learners.svsl_config import SVSLConfig
from svsl.learners.weighting import WeightRewards
from svsl.model.gaussians import Array, IntArray, LinearGaussian
from svsl.model.mixture import Mixture

ALPHA, BETA = 0.3, 1.1
SCALE = (0.7, 2.0)


class Episodes:
    """Unequally many episodes of three overlapping components, with returns that depend on everything."""

    def __init__(self, seed: int, counts: tuple[int, ...] = (5, 9, 7)) -> None:
        rng = np.random.default_rng(seed)
        self.mixture: Mixture = random_mixture(rng, len(counts), 2, 3)
        self.owners: IntArray = np.repeat(np.arange(len(counts)), counts)
        self.contexts: Array = self.mixture.contexts.bias[self.owners] + 0.5 * rng.standard_normal((sum(counts), 2))
        self.parameters: Array = self.mixture.sample_parameters(self.contexts, self.owners, rng)
        self.returns: Array = -self.owners - self.contexts[:, 0] ** 2 - np.abs(self.parameters[:, 1])

    def rewards(self, auxiliary: bool = True) -> WeightRewards:
        config = SVSLConfig(alpha=ALPHA, beta=BETA, auxiliary=auxiliary, context_scale=SCALE)
        log_likelihood = self.mixture.experts.log_prob(self.contexts, self.parameters)
        return WeightRewards(config, self.mixture, self.owners, self.contexts, self.returns, log_likelihood)

    def naive_rewards(self, log_weights: Array, auxiliary: bool = True, stride: int = 1) -> Array:
        components, n = components_of(self.mixture), len(self.owners)
        gating = reference.log_gating(components, log_weights, self.contexts)
        drawn_gating = reference.log_gating(components, np.zeros(len(components)), self.contexts)  # equally many
        responsibility = reference.log_responsibilities(components, log_weights, self.contexts, self.parameters)
        rewards = np.zeros(len(components))
        for o, component in enumerate(components):
            own = np.flatnonzero(self.owners == o)
            points = [i for i in own if i % stride == 0]
            values = []
            for i in points:
                top = bottom = 0.0
                for j in range(n):
                    distance = (((self.contexts[i] - self.contexts[j]) / SCALE) ** 2).sum()
                    owner = self.owners[j]
                    weight = np.exp(gating[j, owner] - drawn_gating[j, owner] - distance / 0.5)
                    top, bottom = top + weight * self.returns[j], bottom + weight
                values.append(top / bottom)
            target = self.returns[own].mean()
            if auxiliary:
                target += ALPHA * responsibility[own, o].mean() + (BETA - ALPHA) * gating[own, o].mean()
            rewards[o] = (
                target - np.mean(values) + ALPHA * entropy(component.cov) + BETA * entropy(component.context_cov)
            )
        return rewards


def entropy(cov: NDArray[np.float64]) -> float:
    return 0.5 * float(np.log(np.linalg.det(2 * np.pi * np.e * cov)))


LOG_WEIGHTS = np.log([0.6, 0.1, 0.3])


@pytest.mark.parametrize("auxiliary", [True, False])
def test_rewards_are_those_of_the_double_loop(auxiliary: bool) -> None:
    episodes = Episodes(0)
    rewards = episodes.rewards(auxiliary)
    for log_weights in (episodes.mixture.log_weights, LOG_WEIGHTS):
        expected = episodes.naive_rewards(log_weights, auxiliary)
        np.testing.assert_allclose(rewards(log_weights), expected, rtol=1e-9, atol=1e-9)


def test_a_thinned_value_baseline_is_evaluated_at_every_nth_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = Episodes(1)
    monkeypatch.setattr(weighting, "_KERNEL_ENTRIES", 21 * 21 // 2 - 1)
    thinned = episodes.rewards()(LOG_WEIGHTS)
    np.testing.assert_allclose(thinned, episodes.naive_rewards(LOG_WEIGHTS, stride=3), rtol=1e-9, atol=1e-9)
    assert np.abs(thinned - episodes.naive_rewards(LOG_WEIGHTS)).max() > 1e-3


def test_thinning_leaves_every_component_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = Episodes(1)
    monkeypatch.setattr(weighting, "_KERNEL_ENTRIES", 1)
    np.testing.assert_allclose(
        episodes.rewards()(LOG_WEIGHTS), episodes.naive_rewards(LOG_WEIGHTS, stride=5), rtol=1e-9, atol=1e-9
    )


def test_a_component_alone_where_returns_are_low_is_not_penalised() -> None:
    """Two components of the same shape, far apart: only what sets them off from their surroundings counts."""
    episodes = Episodes(2, (12, 12))
    contexts = episodes.mixture.contexts
    far = type(contexts).unconditional([[0.0, 0.0], [500.0, 0.0]], np.stack([contexts.chol[0]] * 2))
    experts = episodes.mixture.experts.select(np.array([0, 0]))
    episodes.mixture = Mixture(np.log([0.5, 0.5]), far, experts)
    noise = np.random.default_rng(3).standard_normal((12, 2))
    episodes.contexts = np.concatenate([noise, noise + np.array([500.0, 0.0])])
    episodes.parameters = episodes.mixture.component_means(episodes.contexts, np.zeros(24, dtype=np.intp))
    episodes.returns = np.repeat([-1.0, -100.0], 12)
    rewards = episodes.rewards()(episodes.mixture.log_weights)
    assert rewards[0] == pytest.approx(rewards[1], abs=1e-9)


def test_rewards_stay_finite_when_a_weight_has_all_but_vanished() -> None:
    """The lost component's own episodes are where no other has any density."""
    episodes = Episodes(4, (6, 6))
    contexts = episodes.mixture.contexts
    far = type(contexts).unconditional([[0.0, 0.0], [500.0, 0.0]], np.stack([contexts.chol[0]] * 2))
    episodes.mixture = Mixture(np.log([0.5, 0.5]), far, episodes.mixture.experts)
    episodes.contexts = far.bias[episodes.owners] + 0.1
    assert np.isfinite(episodes.rewards()(np.array([0.0, -2000.0]))).all()


@pytest.mark.parametrize("shift", [1e8, 1.7e9])
def test_the_origin_of_the_contexts_does_not_matter(shift: float) -> None:
    near, far = Episodes(4), Episodes(4)
    far.contexts = near.contexts + shift
    contexts = far.mixture.contexts
    far.mixture = replace(far.mixture, contexts=LinearGaussian.unconditional(contexts.bias + shift, contexts.chol))
    experts = far.mixture.experts
    bias = experts.bias - experts.gain @ np.full(2, shift)
    far.mixture = replace(far.mixture, experts=LinearGaussian.build(experts.gain, bias, experts.chol))
    log_weights = np.log([0.2, 0.5, 0.3])
    expected = near.rewards(auxiliary=False)(log_weights)
    np.testing.assert_allclose(far.rewards(auxiliary=False)(log_weights), expected, atol=1e-4)
