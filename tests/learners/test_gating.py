"""Gating steps: at a price for entropy, and in SVSL's closing stage."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import helpers
from helpers import advance, assert_continues_bit_for_bit, space_of
from svsl import SvslError
from svsl.learners.base import SearchSpace
from svsl.learners.buffer import ReplayBuffer
from svsl.learners.gating import (
    GatingStep,
    expected_values,
    gating_unit,
    priced_gating_step,
    standard_errors,
    with_gating_of,
)
from svsl.learners.surrogates import Quadratic, fit_quadratic
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.learners.svsl_steps import gating_update
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.mixture import Mixture, log_normalised
from svsl.model.random import stream
from toys import Parabola, Unimodal

CONFIG = SVSLConfig(
    components=3, iterations=10, closing_iterations=6, closing_batch=15, kl_gating=0.05, weight_iterations=0,
    buffer=40, shrinkage=1.0,
)  # fmt: skip
LINE = SearchSpace(np.array([-1.0]), np.array([1.0]), np.zeros(1), np.eye(1))


def objective(log_pi: Array, expected: Array, price: float) -> float:
    return float((np.exp(log_pi) * (expected - price * log_pi)).sum(axis=1).mean())


@pytest.mark.parametrize(("kl_bound", "price"), [(0.1, 0.0), (0.1, 0.5), (0.3, 2.0)])
def test_the_step_at_a_price_is_the_optimum_of_a_general_optimiser(kl_bound: float, price: float) -> None:
    rng = stream(2)
    log_q, expected = log_normalised(rng.standard_normal((2, 3))), 3 * rng.standard_normal((2, 3)) - 40

    def divergence(x: Array) -> float:
        log_pi = log_normalised(x.reshape(2, 3))
        return float((np.exp(log_pi) * (log_pi - log_q)).sum(axis=1).mean())

    best = minimize(
        lambda x: -objective(log_normalised(x.reshape(2, 3)), expected, price),
        log_q.ravel(),
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": lambda x: kl_bound - divergence(x)}],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert best.success
    step = priced_gating_step(log_q, expected, kl_bound, price)
    ours = log_normalised(step.keep * log_q + step.gain * expected)
    assert divergence(ours.ravel()) == pytest.approx(step.kl) == pytest.approx(kl_bound, rel=1e-6)
    np.testing.assert_allclose(np.exp(ours), np.exp(log_normalised(best.x.reshape(2, 3))), atol=2e-3)


def test_a_bound_that_does_not_bind_leaves_the_softmax_of_the_price() -> None:
    rng = stream(3)
    log_q, expected = log_normalised(rng.standard_normal((5, 3))), rng.standard_normal((5, 3))
    step = priced_gating_step(log_q, expected, 100.0, 0.7)
    ours = log_normalised(step.keep * log_q + step.gain * expected)
    np.testing.assert_allclose(ours, log_normalised(expected / 0.7), atol=1e-2)


def filled_buffer(mixture: Mixture, size: int, returns: Array, rng: np.random.Generator) -> ReplayBuffer:
    """A buffer of uniform contexts in [-1, 1], with returns `(K, size)` as a function of nothing else."""
    buffer = ReplayBuffer(size, 1, 1, len(mixture))
    buffer.contexts[:] = rng.uniform(-1, 1, buffer.contexts.shape)
    buffer.parameters[:], buffer.returns[:], buffer.filled[:] = 0.0, returns, size
    return buffer


def two_components() -> Mixture:
    contexts = LinearGaussian.unconditional(np.array([[-0.3], [0.6]]), np.array([[[0.5]], [[0.8]]]))
    experts = LinearGaussian.build(np.zeros((2, 1, 1)), np.zeros((2, 1)), np.array([[[0.1]], [[0.4]]]))
    return Mixture(np.log([0.3, 0.7]), contexts, experts)


@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_the_gating_ends_at_the_softmax_of_returns_and_entropies_over_gamma(alpha: float) -> None:
    rng, mixture, gamma = stream(4), two_components(), 0.5
    config = SVSLConfig(alpha=alpha, gamma=gamma, auxiliary=False, kl_gating=0.05, weight_iterations=0,
                        closing_iterations=1)  # fmt: skip
    grid = np.linspace(-1, 1, 21)[:, None]
    buffer = filled_buffer(mixture, 60, np.zeros((2, 60)), rng)
    buffer.returns[0] = buffer.contexts[0, :, 0]  # component 0 is worth c, component 1 is worth -c
    buffer.returns[1] = -buffer.contexts[1, :, 0]
    for _ in range(60):
        mixture, _ = gating_update(mixture, buffer, config, lambda *episodes: np.zeros((1, 2)), LINE, rng)
    worth = np.concatenate([grid, -grid], axis=1) + alpha * mixture.experts.entropy
    np.testing.assert_allclose(np.exp(mixture.log_gating(grid)), np.exp(log_normalised(worth / gamma)), atol=1e-3)


@pytest.mark.parametrize("price", [0.0, 1e-3, 0.5, 50.0])
@pytest.mark.parametrize("spread", [0.0, 1e-9, 1.0, 1e6])
def test_the_bound_holds_at_every_price_and_scale(price: float, spread: float) -> None:
    """Also where all are equally good, so that only the price moves the gating."""
    rng = stream(7)
    log_q = log_normalised(3 * rng.standard_normal((50, 4)))
    step = priced_gating_step(log_q, spread * rng.standard_normal((50, 4)) - 1e3, 0.01, price)
    assert step.kl <= 0.01 * 1.001


@pytest.mark.parametrize("price", [0.0, 1e-3, 0.5])
def test_the_bound_holds_where_all_but_one_component_are_hardly_used(price: float) -> None:
    """What is worth more lies 300 nats away, where differences of unit scale need a huge multiplier."""
    expected = stream(7).standard_normal((200, 4))
    log_q = log_normalised(np.where(np.arange(4) == 0, 0.0, -300.0) + np.zeros((200, 1)))
    step = priced_gating_step(log_q, expected, 0.01, price)
    ours = log_normalised(step.keep * log_q + step.gain * expected)
    assert (np.exp(ours) * (ours - log_q)).sum(axis=1).mean() <= 0.01 * 1.001


def test_standard_errors_are_those_of_a_polynomial_fit() -> None:
    rng, unit = stream(11), gating_unit(LINE)
    contexts = rng.uniform(-1, 1, (2, 40, 1))
    targets = np.sin(3 * contexts[:, :, 0]) + np.array([[0.1], [2.0]]) * rng.standard_normal((2, 40))
    values = fit_quadratic(unit.select(np.zeros(2, np.intp)), contexts[:, :, :0], contexts, targets)
    for k, error in enumerate(standard_errors(values, unit, contexts, targets)):
        _, cov = np.polyfit(contexts[k, :, 0], targets[k], 2, cov=True)
        design = np.vander(contexts[k, :, 0], 3)
        variances = np.einsum("ni,ij,nj->n", design, cov, design)
        assert error == pytest.approx(np.sqrt(variances.mean()), rel=1e-6)


def test_the_least_price_is_a_tenth_of_the_standard_error() -> None:
    rng, mixture = stream(12), two_components()
    buffer = filled_buffer(mixture, 60, 0.2 * rng.standard_normal((2, 60)), rng)
    config = SVSLConfig(alpha=0.0, gamma=0.0, auxiliary=False, kl_gating=0.05, closing_iterations=1)
    for _ in range(150):
        mixture, _ = gating_update(mixture, buffer, config, lambda *episodes: np.zeros((1, 2)), LINE, rng)
    grid, worth, variances = np.linspace(-1, 1, 21)[:, None], [], []
    for k in range(2):
        weights, cov = np.polyfit(buffer.contexts[k, :, 0], buffer.returns[k], 2, cov=True)
        design = np.vander(buffer.contexts[k, :, 0], 3)
        worth.append(np.polyval(weights, grid[:, 0]))
        variances.append(np.einsum("ni,ij,nj->n", design, cov, design).mean())
    use = np.exp(mixture.log_gating(rng.uniform(-1, 1, (5000, 1)))).mean(axis=0)
    price = 0.1 * np.sqrt(use @ variances)
    np.testing.assert_allclose(
        np.exp(mixture.log_gating(grid)), np.exp(log_normalised(np.stack(worth, axis=1) / price)), atol=0.02
    )


def test_a_gating_that_was_certain_changes_its_mind() -> None:
    """Which of two components is better changes after 100 steps, and nothing is paid for entropy."""
    rng, mixture = stream(13), two_components()
    config = SVSLConfig(alpha=0.0, gamma=0.0, auxiliary=False, kl_gating=0.01, closing_iterations=1)
    grid, first_share = np.linspace(-1, 1, 21)[:, None], []
    for step in range(160):
        buffer = filled_buffer(mixture, 60, 0.2 * rng.standard_normal((2, 60)), rng)
        buffer.returns[int(step >= 100)] += 1
        mixture, _ = gating_update(mixture, buffer, config, lambda *episodes: np.zeros((1, 2)), LINE, rng)
        first_share.append(np.exp(mixture.log_gating(grid))[:, 0].mean())
    assert first_share[99] > 0.99
    assert first_share[-1] < 0.1


@pytest.mark.parametrize("lost", ["missing", "not finite"])
def test_a_component_without_a_model_keeps_its_share(lost: str) -> None:
    rng, mixture = stream(5), two_components()
    buffer = filled_buffer(mixture, 30, np.zeros((2, 30)), rng)
    buffer.returns[0] = 3.0  # all are worth the same, and nothing is left unexplained
    if lost == "missing":
        buffer.filled[1] = 29
        buffer.returns[1] = 1e6
    else:
        buffer.returns[1] = np.nan
    config = replace(CONFIG, gamma=0.0, alpha=0.0, auxiliary=False)
    after, failed = gating_update(mixture, buffer, config, lambda *episodes: np.zeros((1, 2)), LINE, rng)
    grid = np.linspace(-1, 1, 21)[:, None]
    np.testing.assert_allclose(after.log_gating(grid), mixture.log_gating(grid), atol=1e-5)
    assert failed == (lost == "not finite")
    priced, _ = gating_update(
        mixture, buffer, replace(config, gamma=0.5), lambda *episodes: np.zeros((1, 2)), LINE, rng
    )
    moved = np.abs(np.exp(priced.log_gating(grid)) - np.exp(mixture.log_gating(grid))).max()
    assert 1e-3 < moved < 0.3, "the price moves it no further than the bound of 0.05 allows"
    buffer.filled[0] = 29  # and none is left alone
    if lost == "missing":
        same, failed = gating_update(mixture, buffer, config, lambda *episodes: np.zeros((1, 2)), LINE, rng)
        assert same is mixture
        assert failed == 0


def test_a_gating_step_counts_the_log_share_of_each_component() -> None:
    """Against the formula `R + gamma log pi(o|c,theta) + alpha H`, one component with twice the likelihood."""
    rng, mixture = stream(8), two_components()
    buffer = filled_buffer(mixture, 60, np.zeros((2, 60)), rng)
    gamma = 0.5
    config = replace(CONFIG, gamma=gamma, alpha=0.0, kl_gating=100.0)
    log_likelihood = np.log([[1.0, 2.0]])
    after, _ = gating_update(mixture, buffer, config, lambda *episodes: log_likelihood, LINE, rng)
    grid = np.linspace(-1, 1, 21)[:, None]
    # what each component is worth is a quadratic fitted to the log share at its own contexts
    worth = []
    for k in range(2):
        c = buffer.contexts[k, :, 0]
        share = log_normalised(mixture.log_context_joint(buffer.contexts[k]) + log_likelihood)[:, k]
        worth.append(np.polyval(np.polyfit(c, gamma * share, 2), grid[:, 0]))
    np.testing.assert_allclose(after.log_gating(grid), log_normalised(np.stack(worth, axis=1) / gamma), atol=5e-3)


def test_a_mixture_has_the_gating_of_its_step() -> None:
    rng, mixture, unit = stream(6), two_components(), gating_unit(LINE)
    own = rng.uniform(-1, 1, (2, 50, 1))
    targets = np.stack([np.sin(own[0, :, 0]), 2 * own[1, :, 0] ** 2])
    values = fit_quadratic(unit.select(np.zeros(2, np.intp)), own[:, :, :0], own, targets)
    contexts = rng.uniform(-1, 1, (30, 1))
    expected, old = expected_values(values, unit, contexts), mixture.log_gating(contexts)
    np.testing.assert_allclose(expected[:, 1], 2 * contexts[:, 0] ** 2, atol=1e-6)
    step = priced_gating_step(old, expected, 0.05, 0.1)
    after = with_gating_of(mixture, values, unit, step)
    np.testing.assert_allclose(
        after.log_gating(contexts), log_normalised(step.keep * old + step.gain * expected), atol=1e-9
    )
    assert after.experts is mixture.experts
    assert after.contexts.chol.max() == pytest.approx(0.5)  # a quarter of the box


@pytest.mark.parametrize("common", [0.0, 1e3])
def test_a_mixture_has_its_gating_after_many_steps_whatever_the_components_share(common: float) -> None:
    """A shared term cancels, but a large one would drown the differences; some components are beaten everywhere."""
    rng, count, dim, gain = stream(9), 6, 2, 10.0
    space = SearchSpace(-np.ones(dim), np.ones(dim), np.zeros(1), np.eye(1))
    unit, contexts = gating_unit(space), rng.uniform(-1, 1, (500, dim))
    curvature = rng.standard_normal((count, dim, dim))
    curvature = curvature + curvature.transpose(0, 2, 1)
    slope, level = rng.standard_normal((count, dim, 1)), 3 * rng.standard_normal(count)
    own = Quadratic(curvature, slope, np.ones((count, 1, 1)), level)
    shared = Quadratic(curvature + common * np.eye(dim), slope + 2 * common, np.ones((count, 1, 1)), level - 3 * common)
    everywhere = LinearGaussian.unconditional(np.zeros((count, dim)), np.tile(np.eye(dim), (count, 1, 1)))
    experts = LinearGaussian.build(np.zeros((count, 1, dim)), np.zeros((count, 1)), np.ones((count, 1, 1)))
    mixture = Mixture(np.full(count, -np.log(count)), everywhere, experts)
    for _ in range(20):
        mixture = with_gating_of(mixture, shared, unit, GatingStep(1.0, gain / 20, 0.0, 0.0))
    gating = np.exp(log_normalised(gain * expected_values(own, unit, contexts)))
    assert gating.max(axis=0).min() < 1e-6, "one of them is never used"
    np.testing.assert_allclose(np.exp(mixture.log_gating(contexts)), gating, atol=1e-8)


def test_a_step_moves_the_gating_by_its_bound_while_few_buffers_are_full() -> None:
    """Then nearly all are worth the same, and a tiny price still moves the gating, by a large gain."""
    rng, mixture = stream(10), two_components()
    buffer = filled_buffer(mixture, 40, np.zeros((2, 40)), rng)
    buffer.returns[0] = -20 * buffer.contexts[0, :, 0] ** 2 + rng.standard_normal(40)
    buffer.filled[1] = 0
    config = replace(CONFIG, alpha=0.0, gamma=1e-6, auxiliary=False, kl_gating=0.002)
    contexts = rng.uniform(-1, 1, (2000, 1))
    for _ in range(10):
        after, _ = gating_update(mixture, buffer, config, lambda *episodes: np.zeros((1, 2)), LINE, rng)
        new, old = after.log_gating(contexts), mixture.log_gating(contexts)
        assert (np.exp(new) * (new - old)).sum(axis=1).mean() < 0.003
        mixture = after


def test_the_closing_stage_sends_contexts_to_the_better_components() -> None:
    """Against the same stage without gating steps, averaged over the gating."""
    task, contexts = Parabola(), np.linspace(-1, 1, 101)[:, None]
    config = replace(CONFIG, components=4, iterations=30, alpha=0.01, closing_iterations=40)

    def expected_return(mixture: Mixture) -> float:
        gating = np.exp(mixture.log_gating(contexts))
        means = np.stack([mixture.component_means(contexts, np.full(101, k)) for k in range(len(mixture))], axis=1)
        return float((gating * -20 * (means[:, :, 0] - contexts**2) ** 2).sum(axis=1).mean())

    for seed in range(3):
        returns = []
        for kl_gating in (None, 0.05):
            learner = SVSL(replace(config, kl_gating=kl_gating), space_of(task), stream(seed))
            mixture = helpers.trained(learner, task).mixture()
            assert mixture is not None
            returns.append(expected_return(mixture))
        assert returns[1] > 0.6 * returns[0], "the loss is much smaller"


def test_gating_steps_take_no_episodes_and_continue_bit_for_bit() -> None:
    task, space = Unimodal(), space_of(Unimodal())
    without = replace(CONFIG, kl_gating=None)
    assert CONFIG.planned_episodes(space) == without.planned_episodes(space)
    learner, asked = SVSL(CONFIG, space, stream(0)), 0
    while not learner.done:
        asked += advance(learner, task)
    assert asked == CONFIG.planned_episodes(space)
    assert_continues_bit_for_bit(lambda seed: SVSL(CONFIG, space, stream(seed)), task)


def test_weights_are_learned_only_where_the_gating_is_not() -> None:
    both = replace(CONFIG, weight_iterations=10)
    assert both.planned_episodes(space_of(Unimodal())) == CONFIG.planned_episodes(space_of(Unimodal()))
    learner = helpers.trained(SVSL(both, space_of(Unimodal()), stream(0)), Unimodal())
    same = helpers.trained(SVSL(CONFIG, space_of(Unimodal()), stream(0)), Unimodal())
    np.testing.assert_array_equal(learner.state()["mixture.log_weights"], same.state()["mixture.log_weights"])
    assert replace(both, closing_iterations=0).learns_weights
    assert replace(both, kl_gating=None).learns_weights


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SvslError, match="kl_gating: expected above 0, got 0"):
        replace(CONFIG, kl_gating=0.0)


def test_a_gating_needs_enough_episodes_and_a_closing_stage() -> None:
    space = SearchSpace(-np.ones(6), np.ones(6), np.zeros(1), np.eye(1))
    with pytest.raises(SvslError, match="buffer: expected at least the 28 features of a gating step's model, got 20"):
        replace(CONFIG, buffer=20).resolved(space)
    assert replace(CONFIG, buffer=20, closing_iterations=0).resolved(space).buffer == 20
    assert "kl_gating has no effect" in (replace(CONFIG, closing_iterations=0).warning or "")
    assert CONFIG.warning is None


def test_frozen_components_take_no_gating_steps() -> None:
    base = helpers.random_mixture(stream(1), 2, 2, 3)
    with pytest.raises(SvslError, match=r"kl_gating: expected None, to keep the base as it is, got 0\.05"):
        SVSL(CONFIG, space_of(Unimodal()), stream(0), base, freeze=True)


def test_new_components_get_equal_shares_and_the_old_ones_keep_theirs() -> None:
    task = Unimodal()
    base = replace(helpers.random_mixture(stream(1), 3, 2, 3), log_weights=np.log([0.7, 0.3, 1e-300]))
    learner = SVSL(replace(CONFIG, components=2, iterations=2), space_of(task), stream(1), base)
    for count in (4, 5):
        while len(learner._current) < count:
            advance(learner, task)
        expected = np.concatenate([3 * np.exp(base.log_weights), np.ones(count - 3)]) / count
        np.testing.assert_allclose(np.exp(learner._current.log_weights), expected, rtol=1e-9)
