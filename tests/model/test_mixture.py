"""The mixture compared with naive loops, quadrature and sample frequencies."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp as scipy_logsumexp
from scipy.stats import multivariate_normal

from helpers import components_of, few_examples, random_mixture
from svsl.bench import reference
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.mixture import Mixture, log_normalised, logsumexp, sample_rows


def with_disabled_ends(mixture: Mixture, rng: np.random.Generator) -> Mixture:
    """The mixture between two disabled components."""
    dead = random_mixture(rng, 2, mixture.contexts.bias.shape[1], mixture.experts.bias.shape[1])
    order = np.array([len(mixture), *range(len(mixture)), len(mixture) + 1])
    return Mixture(
        np.concatenate([[-np.inf], mixture.log_weights, [-np.inf]]),
        mixture.contexts.append(dead.contexts).select(order),
        mixture.experts.append(dead.experts).select(order),
    )


@few_examples(10)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 4), dim_c=st.integers(1, 3), dim_t=st.integers(1, 4))
def test_gating_and_responsibilities_match_naive_loops(seed: int, count: int, dim_c: int, dim_t: int) -> None:
    rng = np.random.default_rng(seed)
    mixture = random_mixture(rng, count, dim_c, dim_t)
    contexts, parameters = rng.standard_normal((9, dim_c)), rng.standard_normal((9, dim_t))
    components = components_of(mixture)
    np.testing.assert_allclose(
        mixture.log_gating(contexts), reference.log_gating(components, mixture.log_weights, contexts), atol=1e-9
    )
    np.testing.assert_allclose(
        mixture.log_responsibilities(contexts, parameters),
        reference.log_responsibilities(components, mixture.log_weights, contexts, parameters),
        atol=1e-9,
    )


@few_examples(6)
@given(seed=st.integers(0, 10**6), dim_c=st.integers(1, 4))
def test_quadratic_experts_match_a_plain_polynomial_with_scipy(seed: int, dim_c: int) -> None:
    rng = np.random.default_rng(seed)
    mixture = random_mixture(rng, 2, dim_c, 2, degree=2)
    contexts, parameters = rng.standard_normal((3, dim_c)), rng.standard_normal((3, 2))
    for row, c in enumerate(contexts):
        terms = [*c, *(c[i] * c[j] for i in range(dim_c) for j in range(i, dim_c))]
        means = [mixture.experts.gain[o] @ terms + mixture.experts.bias[o] for o in range(2)]
        np.testing.assert_allclose(mixture.component_means(contexts[[row, row]], np.arange(2)), means, rtol=1e-9)
        logs = [multivariate_normal(means[o], mixture.experts.cov[o]).logpdf(parameters[row]) for o in range(2)]
        np.testing.assert_allclose(mixture.log_likelihood(contexts, parameters)[row], logs, rtol=1e-9)
        gating = mixture.log_gating(contexts)[row]
        np.testing.assert_allclose(mixture.log_prob(contexts, parameters)[row], scipy_logsumexp(gating + logs))


def test_gating_responsibilities_and_density_match_bayes_rule_with_scipy() -> None:
    rng = np.random.default_rng(1)
    mixture = random_mixture(rng, 3, 2, 2)
    context, parameters = np.array([0.3, -0.5]), np.array([0.1, 0.8])
    weights = np.exp(mixture.log_weights)
    context_densities, expert_densities = np.empty(3), np.empty(3)
    for o, part in enumerate(components_of(mixture)):
        context_densities[o] = multivariate_normal(part.context_mean, part.context_cov).pdf(context)
        expert_densities[o] = multivariate_normal(part.gain @ context + part.bias, part.cov).pdf(parameters)
    gating = weights * context_densities / (weights * context_densities).sum()
    density = (gating * expert_densities).sum()
    np.testing.assert_allclose(np.exp(mixture.log_gating(context[None])[0]), gating, rtol=1e-9)
    np.testing.assert_allclose(
        np.exp(mixture.log_responsibilities(context[None], parameters[None])[0]), gating * expert_densities / density
    )
    assert np.exp(mixture.log_prob(context[None], parameters[None])[0]) == pytest.approx(density, rel=1e-9)


def test_a_disabled_component_has_no_effect_and_is_never_drawn() -> None:
    rng = np.random.default_rng(2)
    mixture = random_mixture(rng, 2, 2, 3)
    padded = with_disabled_ends(mixture, rng)
    contexts, parameters = rng.standard_normal((50, 2)), rng.standard_normal((50, 3))
    for name in ("log_gating", "log_context_joint"):
        got = getattr(padded, name)(contexts)
        np.testing.assert_allclose(got[:, 1:3], getattr(mixture, name)(contexts), atol=1e-12)
        assert (got[:, [0, 3]] == -np.inf).all()
    responsibilities = padded.log_responsibilities(contexts, parameters)
    np.testing.assert_allclose(responsibilities[:, 1:3], mixture.log_responsibilities(contexts, parameters), atol=1e-12)
    assert (responsibilities[:, [0, 3]] == -np.inf).all()
    np.testing.assert_allclose(
        padded.log_prob(contexts, parameters), mixture.log_prob(contexts, parameters), atol=1e-12
    )
    drawn = padded.sample_components(np.repeat(contexts, 100, axis=0), rng)
    assert set(drawn.tolist()) == {1, 2}


class ExtremeGenerator(np.random.Generator):
    """A generator whose uniform numbers are all the same."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.value = value

    def random(self, size: tuple[int, ...]) -> Array:  # type: ignore[override]
        return np.full(size, self.value)


@pytest.mark.parametrize(("value", "expected"), [(0.0, 1), (1 - 2**-53, 2)])
def test_rows_are_never_drawn_outside_their_support(value: float, expected: int) -> None:
    probabilities = np.array([[0.0, 0.3, 0.7, 0.0], [0.0, 1 / 3, 2 / 3 + 1e-15, 0.0], [0.0, 0.1, 0.9 - 1e-12, 0.0]])
    np.testing.assert_array_equal(sample_rows(probabilities, ExtremeGenerator(value)), expected)


def test_components_are_drawn_with_the_gating_probabilities() -> None:
    rng = np.random.default_rng(3)
    mixture = random_mixture(rng, 3, 1, 1)
    n = 20_000
    for context in (-0.5, 1.0):
        contexts = np.full((n, 1), context)
        frequency = np.bincount(mixture.sample_components(contexts, rng), minlength=3) / n
        np.testing.assert_allclose(frequency, np.exp(mixture.log_gating(contexts[:1])[0]), atol=5 * 0.5 / np.sqrt(n))


def test_parameters_are_drawn_from_the_chosen_expert() -> None:
    rng = np.random.default_rng(4)
    mixture = random_mixture(rng, 3, 2, 3)
    n = 30_000
    components = np.tile([2, 0], n // 2)
    contexts = np.tile([[1.0, -0.5], [0.2, 2.0]], (n // 2, 1))
    drawn = mixture.sample_parameters(contexts, components, rng)
    for row, o in ((0, 2), (1, 0)):
        mean = mixture.experts.gain[o] @ contexts[row] + mixture.experts.bias[o]
        np.testing.assert_allclose(mixture.component_means(contexts[: row + 1], components[: row + 1])[row], mean)
        own = drawn[row::2]
        np.testing.assert_allclose(own.mean(axis=0), mean, atol=5 / np.sqrt(n / 2))
        np.testing.assert_allclose(np.cov(own.T), mixture.experts.cov[o], atol=5 * np.sqrt(4 / n))


def test_density_integrates_to_one_and_its_entropy_matches_monte_carlo() -> None:
    rng = np.random.default_rng(5)
    mixture = random_mixture(rng, 3, 2, 1)
    context = np.array([0.4, -0.2])
    grid = np.linspace(-30, 30, 60_001)[:, None]
    density = np.exp(mixture.log_prob(np.broadcast_to(context, (len(grid), 2)), grid))
    step = grid[1, 0] - grid[0, 0]
    assert density.sum() * step == pytest.approx(1, abs=1e-9)
    entropy = -(density * np.log(density + 1e-300)).sum() * step
    contexts = np.tile(context, (40_000, 1))
    drawn = mixture.sample_parameters(contexts, mixture.sample_components(contexts, rng), rng)
    information = -mixture.log_prob(contexts, drawn)
    assert information.mean() == pytest.approx(entropy, abs=5 * information.std() / 200)


def test_select_matches_a_new_mixture_with_renormalised_weights() -> None:
    mixture = random_mixture(np.random.default_rng(6), 4, 2, 2)
    chosen = np.array([3, 1])
    selected = mixture.select(chosen)
    weights = np.exp(mixture.log_weights[chosen])
    np.testing.assert_allclose(np.exp(selected.log_weights), weights / weights.sum(), rtol=1e-12)
    contexts = np.random.default_rng(7).standard_normal((5, 2))
    fresh = Mixture(
        selected.log_weights,
        LinearGaussian.unconditional(mixture.contexts.bias[chosen], mixture.contexts.chol[chosen]),
        LinearGaussian.build(mixture.experts.gain[chosen], mixture.experts.bias[chosen], mixture.experts.chol[chosen]),
    )
    np.testing.assert_allclose(selected.log_joint(contexts, contexts), fresh.log_joint(contexts, contexts), rtol=1e-12)


def test_arrays_restore_the_mixture_bit_for_bit() -> None:
    mixture = random_mixture(np.random.default_rng(8), 3, 2, 4)
    mixture = replace(mixture, log_weights=np.array([-np.inf, -0.1, -2.3]))
    arrays = mixture.to_arrays()
    back = Mixture.from_arrays(arrays)
    assert {name: array.tobytes() for name, array in back.to_arrays().items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    assert len(arrays) == 11


def test_gating_far_from_every_component_is_a_distribution() -> None:
    mixture = random_mixture(np.random.default_rng(9), 3, 2, 2)
    log_gating = mixture.log_gating(np.array([[1e4, -1e4], [3e5, 2e5]]))
    np.testing.assert_allclose(np.exp(log_gating).sum(axis=1), 1, rtol=1e-12)


def test_logsumexp_of_extreme_values() -> None:
    values = np.array([[1e4, 1e4 - 1, -np.inf], [-1e5, -1e5, -1e5], [-np.inf, -np.inf, -np.inf], [0.0, -700, 700]])
    np.testing.assert_allclose(logsumexp(values), scipy_logsumexp(values, axis=1), rtol=1e-14)
    np.testing.assert_allclose(np.exp(log_normalised(values[:2])).sum(axis=1), 1, rtol=1e-12)
