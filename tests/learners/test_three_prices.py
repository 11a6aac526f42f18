"""The price of being distinct, by parameters or by behaviour, and the closing stage."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from helpers import advance, assert_continues_bit_for_bit, random_mixture, space_of, trained
from svsl import Outcome, SvslError, Task
from svsl.evaluation.metrics import repertoire, several_kinds
from svsl.learners.behaviours import BehaviourModel, fit_behaviour, log_likelihoods
from svsl.learners.episodic import EpisodicTraining
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.mixture import Mixture
from svsl.model.random import stream
from toys import Bimodal, Parabola, Twins, Unimodal

BRIEF = SVSLConfig(components=3, iterations=15, finetune_every=5, alpha=0.01, beta=1.0)


def learner(config: SVSLConfig, task: Task, seed: int = 0) -> SVSL:
    return SVSL(config, space_of(task), stream(seed))


def result(config: SVSLConfig, task: Task, seed: int = 0) -> Mixture:
    mixture = trained(learner(config, task, seed), task).mixture()
    assert mixture is not None
    return mixture


def share_of_two_kinds(mixture: Mixture, task: Task) -> float:
    """Share of contexts in which active components succeed in both ways."""
    kinds = several_kinds(repertoire(mixture, task, np.linspace(-0.98, 0.98, 50)[:, None], stream(0)), 2)
    assert kinds is not None
    return float(kinds.mean())


@pytest.mark.parametrize("task", [Bimodal(), Unimodal()])
def test_a_gamma_of_alpha_is_the_paper(task: Task) -> None:
    paper, three_prices = result(BRIEF, task), result(replace(BRIEF, gamma=BRIEF.alpha), task)
    for name, array in paper.to_arrays().items():
        assert_array_equal(array, three_prices.to_arrays()[name], err_msg=name)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, np.nan])
def test_gamma_is_between_zero_and_beta(gamma: float) -> None:
    with pytest.raises(
        SvslError, match=r"setting gamma: expected (at least 0|at most beta \(1\)|a finite number), got"
    ):
        replace(BRIEF, gamma=gamma)


def objective(mixture: Mixture, config: SVSLConfig) -> float:
    """`E[R] + alpha H(theta|c,o) + gamma I(o;theta|c) + beta H(c)` by sums over a fine grid of one context and one
    parameter."""
    c, theta = np.linspace(-6, 6, 241), np.linspace(-7, 7, 561)
    grid_c, grid_theta = (g.reshape(-1, 1) for g in np.meshgrid(c, theta, indexing="ij"))
    cell = (c[1] - c[0]) * (theta[1] - theta[0])
    log_context = mixture.log_context_joint(grid_c)  # log pi(o, c)
    log_expert = mixture.experts.log_prob(grid_c, grid_theta)
    log_joint = log_context + log_expert
    joint = np.exp(log_joint) * cell
    log_c = np.log(np.exp(log_context).sum(axis=1, keepdims=True))
    log_c_theta = np.log(np.exp(log_joint).sum(axis=1, keepdims=True))
    information = (log_joint - log_c_theta) - (log_context - log_c)  # log pi(o|c,theta) - log pi(o|c)
    values = ripples(grid_c, grid_theta)[:, None] - config.alpha * log_expert - config.beta * log_c
    return float((joint * (values + config.distinction_price * information)).sum())


def ripples(contexts: Array, parameters: Array) -> Array:
    """A return with several optima: near `theta = c` and half a period from it."""
    error = parameters[:, 0] - contexts[:, 0]
    return -(error**2) / 4 + np.cos(3 * error) - contexts[:, 0] ** 2 / 4


@pytest.mark.parametrize("gamma", [0.0, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("what", ["contexts", "experts"])
def test_the_objective_does_not_fall_over_an_update(what: str, gamma: float) -> None:
    """Small steps from very many episodes. The weights are not in it: the paper's value of a context is not either."""
    config = SVSLConfig(
        components=3, alpha=0.2, beta=1.0, gamma=gamma, kl_expert=1e-3, kl_context=1e-3, buffer=20_000,
        context_scale=(1.0,),
    )  # fmt: skip
    for seed in range(3):
        rng = stream(seed)
        mixture = random_mixture(rng, 3, 1, 1)
        made = SVSL(config, space_of(Wide()), rng, mixture)
        while made.stage == "fill":
            advance(made, Wide())
        made._keep(np.arange(3))  # without the new component
        before, index = made._current, np.arange(3)
        update = made._update_contexts if what == "contexts" else made._update_experts
        update(index)
        gain = objective(made._current, config) - objective(before, config)
        assert gain > 0


class Wide:
    """`ripples`, in a box that nothing leaves."""

    context_low, context_high = np.array([-100.0]), np.array([100.0])
    parameter_dim, initial_mean, initial_cov = 1, np.zeros(1), np.eye(1)

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        return Outcome(ripples(contexts, parameters), np.zeros(len(contexts), dtype=bool))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_gamma_near_beta_keeps_both_ways_where_alpha_divides_the_contexts(seed: int) -> None:
    task, config = Twins(), replace(BRIEF, components=4, iterations=120, finetune_every=50, weight_iterations=0)
    assert share_of_two_kinds(result(config, task, seed), task) < 0.8
    versatile = replace(config, gamma=0.9, distinguish_by="behaviour")
    assert share_of_two_kinds(result(versatile, task, seed), task) == 1.0


def test_behaviours_are_fitted_by_least_squares() -> None:
    rng = stream(1)
    contexts, behaviours = rng.standard_normal((30, 2)), rng.standard_normal((30, 5))
    behaviours[[3, 17]] = np.nan  # episodes that were not simulated
    model, good = fit_behaviour(contexts, behaviours), np.isfinite(behaviours).all(axis=1)
    inputs = np.column_stack([contexts, np.ones(30)])[good]
    expected = np.linalg.lstsq(inputs, behaviours[good], rcond=None)[0].T
    assert_allclose(model.weights, expected, atol=1e-7)
    assert_allclose(model.variance, np.mean((behaviours[good] - inputs @ expected.T) ** 2) + 1 / 8)


def test_a_component_without_described_episodes_predicts_nothing() -> None:
    for episodes in (8, 0):
        model = fit_behaviour(np.ones((episodes, 1)), np.full((episodes, 4), np.nan))
        assert model.variance == 1e3
        assert_array_equal(model.weights, np.zeros((4, 2)))


def test_the_likelihood_of_behaviours_is_that_of_the_plain_formula() -> None:
    rng = stream(2)
    models = [BehaviourModel(rng.standard_normal((6, 3)), v) for v in (0.2, 1.0, 7.0)]
    contexts, behaviours = rng.standard_normal((9, 2)), 3 * rng.standard_normal((9, 6))
    behaviours[4, 2] = np.nan
    got = log_likelihoods(models, contexts, behaviours)
    for row in range(9):
        for column, model in enumerate(models):
            distance = np.mean((behaviours[row] - model.weights @ [*contexts[row], 1.0]) ** 2)
            expected = 0.0 if row == 4 else -0.5 * distance / model.variance - 0.5 * np.log(model.variance)
            assert_allclose(got[row, column], expected, rtol=1e-9)


def test_without_descriptions_skills_are_told_apart_by_parameters() -> None:
    plain, described = (EpisodicTraining(learner(c, Unimodal()), Unimodal(), 0) for c in (BRIEF, _by_behaviour(BRIEF)))
    for training in (plain, described):
        while not training.done:
            training.advance()
    for name, array in plain.learner.state().items():
        assert_array_equal(array, described.learner.state()[name], err_msg=name)


def _by_behaviour(config: SVSLConfig) -> SVSLConfig:
    return replace(config, distinguish_by="behaviour")


def test_the_closing_stage_fits_experts_to_the_contexts_they_are_used_in() -> None:
    task, config = Parabola(), replace(BRIEF, iterations=30, weight_iterations=0)
    contexts = np.linspace(-1, 1, 101)[:, None]

    def expected_return(mixture: Mixture) -> float:
        gating = np.exp(mixture.log_gating(contexts))
        means = np.stack([mixture.component_means(contexts, np.full(101, k)) for k in range(len(mixture))], axis=1)
        return float((gating * -20 * (means[:, :, 0] - contexts**2) ** 2).sum(axis=1).mean())

    for seed in range(3):
        before, after = (result(replace(config, closing_iterations=n), task, seed) for n in (0, 40))
        assert_array_equal(before.contexts.bias, after.contexts.bias)  # only experts are trained
        assert expected_return(after) > 0.9 * expected_return(before)


CLOSING = replace(BRIEF, closing_iterations=6, closing_batch=15)


@pytest.mark.parametrize("config", [CLOSING, replace(_by_behaviour(CLOSING), gamma=0.5)])
def test_training_continues_bit_for_bit_in_every_stage(config: SVSLConfig) -> None:
    assert_continues_bit_for_bit(lambda seed: learner(config, Twins(), seed), Twins())


def test_the_closing_stage_is_planned_and_shown() -> None:
    task, episodes = Unimodal(), 0
    made = learner(replace(CLOSING, closing_iterations=20), task)
    shares, stages = [made.progress.work], set()
    while not made.done:
        episodes += advance(made, task)
        stages.add(made.stage)
        shares.append(made.progress.work)
        assert made.progress.iteration <= made.progress.iterations
        if made.stage == "closing":
            assert made.progress.iterations == 20
    assert "closing" in stages
    assert episodes == made.config.planned_episodes(space_of(task))
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0


def test_frozen_components_stay_as_they_are_in_the_closing_stage() -> None:
    everywhere = LinearGaussian.unconditional(np.tile([0.0, 1.5], (2, 1)), np.tile(np.eye(2), (2, 1, 1)))
    base = replace(random_mixture(stream(5), 2, 2, 3), contexts=everywhere)  # the gating chooses it often
    config = replace(CLOSING, components=1)
    extended = trained(SVSL(config, space_of(Unimodal()), stream(6), base, freeze=True), Unimodal()).mixture()
    assert extended is not None
    assert_array_equal(extended.experts.bias[:2], base.experts.bias)
    assert_array_equal(extended.experts.chol[:2], base.experts.chol)


def test_contexts_of_the_closing_stage_are_valid() -> None:
    space = replace(space_of(Unimodal()), valid_contexts=lambda contexts: contexts[:, 0] > 0)
    made = SVSL(CLOSING, space, stream(0))
    while made.stage != "closing":
        advance(made, Unimodal())
    assert (made.ask().contexts[:, 0] > 0).all()
