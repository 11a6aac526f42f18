"""Experts whose means are quadratic in the context: the fit, the learner, and libraries of both kinds together."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import helpers
from helpers import few_examples, kl_divergence, random_mixture, random_stack, space_of
from svsl import Outcome, SkillLibrary, SvslError, Task
from svsl.learners.surrogates import fit_quadratic
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import Schedule, SVSLConfig
from svsl.model.editing import merge
from svsl.model.gaussians import Array
from svsl.model.mixture import Mixture, monomials
from svsl.model.random import stream
from toys import Bimodal, Unimodal

TINY = SVSLConfig(components=3, iterations=6, finetune_every=3, weight_iterations=5, expert_degree=2)


class Curved(Unimodal):
    """One best way, quadratic in the context."""

    gain = np.array([[1.0, -0.5, 0.8, 0.0, 0.1], [0.0, 0.3, 0.0, -0.6, 0.0], [2.0, 1.0, -0.5, 0.4, 0.2]])

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        x, y = contexts.T
        error = parameters - np.stack([x, y, x * x, x * y, y * y], axis=1) @ self.gain.T - self.bias
        returns = -np.einsum("ni,ij,nj->n", error, self.curvature, error)
        return Outcome(returns, (error**2).sum(axis=1) < 0.01)


def trained(task: Task, config: SVSLConfig, base: Mixture | None = None) -> Mixture:
    mixture = helpers.trained(SVSL(config, space_of(task), stream(0), base), task).mixture()
    assert mixture is not None
    return mixture


def test_a_quadratic_way_is_found_exactly_and_a_linear_expert_misses_it() -> None:
    task = Curved()
    config = SVSLConfig(
        components=1, iterations=200, alpha=1e-6, kl_expert=0.1, kl_context=0.01, expert_degree=2, reject_outside=True
    )
    experts = trained(task, config).experts
    np.testing.assert_allclose(experts.gain[0], task.gain, atol=5e-3)
    np.testing.assert_allclose(experts.bias[0], task.bias, atol=5e-3)
    contexts = np.array([[-0.8, 0.2], [0.9, 2.8], [-0.5, 2.5]])
    linear = trained(task, replace(config, expert_degree=1))
    returns = task.evaluate(contexts, linear.component_means(contexts, np.zeros(3, np.intp)), stream(0)).returns
    assert returns.min() < -0.1


def test_experts_become_quadratic_in_the_closing_stage() -> None:
    """They are linear until then, do the same when it begins, and follow the curve at its end."""
    task = Curved()
    config = SVSLConfig(
        components=1, iterations=40, alpha=1e-3, kl_expert=0.1, kl_context=0.01, reject_outside=True,
        closing_iterations=200, closing_degree=2, kl_closing=0.5, closing_shrinkage=1.0, closing_entropy_loss=0.05,
    )  # fmt: skip
    learner, rng = SVSL(config, space_of(task), stream(0)), stream(1)
    contexts = np.array([[-0.8, 0.2], [0.9, 2.8], [-0.5, 2.5]])
    first = np.zeros(3, np.intp)
    while learner.stage != "closing":
        before = learner._current
        assert before.expert_degree == 1
        helpers.advance(learner, task)
    mixture = learner.mixture()
    assert mixture is not None
    assert mixture.expert_degree == 2
    assert not mixture.experts.gain[:, :, 2:].any()
    entropies = [float(mixture.experts.entropy[0])]
    while not learner.done:
        helpers.advance(learner, task)
        entropies.append(float(learner._current.experts.entropy[0]))
    experts = learner._current.experts
    np.testing.assert_allclose(experts.gain[0], task.gain, atol=0.05)
    assert np.diff(entropies).min() >= -0.05 * 3 - 1e-9
    means = learner._current.component_means(contexts, first)
    assert task.evaluate(contexts, means, rng).returns.min() > -0.02


def test_settings_of_the_closing_stage() -> None:
    config = SVSLConfig(kl_closing=0.3, shrinkage=5.0, entropy_loss=0.2, closing_iterations=1)
    same = config.closing
    assert (same.kl_expert, same.shrinkage, same.entropy_loss, same.expert_degree) == (0.3, 5.0, 0.2, 1)
    own = replace(config, closing_degree=2, closing_shrinkage=0.0, closing_entropy_loss=0.0).closing
    assert (own.kl_expert, own.shrinkage, own.entropy_loss, own.expert_degree) == (0.3, 0.0, 0.0, 2)
    space = space_of(Unimodal())  # 3 parameters, 2 context dimensions
    linear, quadratic = 1 + 5 + 15, 1 + 3 + 6 + 5 * (1 + 3)
    assert SVSLConfig(closing_iterations=1).resolved(space).buffer == int(1.5 * linear)
    assert SVSLConfig(closing_iterations=1, closing_degree=2).resolved(space).buffer == int(1.5 * quadratic)
    assert SVSLConfig(closing_degree=2).resolved(space).buffer == int(1.5 * linear), "there is no closing stage"
    with pytest.raises(SvslError, match=f"buffer: expected at least the {quadratic} features"):
        SVSLConfig(closing_iterations=1, closing_degree=2, buffer=quadratic - 1).resolved(space)
    with pytest.raises(SvslError, match="closing_degree: expected 2, like expert_degree, got 1"):
        SVSLConfig(expert_degree=2, closing_degree=1)
    with pytest.raises(SvslError, match=r"kl_closing_end: expected above 0, at most kl_closing \(0.02\), got 0.05"):
        SVSLConfig(kl_closing_end=0.05, closing_iterations=1)
    unused = SVSLConfig(closing_degree=2, closing_shrinkage=1.0).warning
    assert unused == "closing_degree, closing_shrinkage have no effect without a closing stage: set closing_iterations"


def test_the_bound_falls_after_the_last_split() -> None:
    config = SVSLConfig(
        components=4, splits=2, buffer=100, closing_iterations=10, kl_closing=0.08, kl_closing_end=0.01
    ).resolved(space_of(Unimodal()))
    schedule = Schedule(config)
    bounds = [schedule.closing_settings(iteration).kl_expert for iteration in range(1, 11)]
    last = next(n for n in range(10, 0, -1) if schedule.splits_after(n))
    assert last == 7
    np.testing.assert_allclose(bounds, [0.08] * 7 + [0.04, 0.02, 0.01])
    one = replace(schedule, config=replace(config, splits=0, closing_iterations=1))
    assert one.closing_settings(1).kl_expert == pytest.approx(0.01)
    constant = replace(config, kl_closing_end=None)
    assert replace(schedule, config=constant).closing_settings(10) == constant.closing


def test_late_steps_keep_the_falling_bound() -> None:
    """Measured on the experts of a run: early steps are as large as the first bound allows, the last as the last."""
    task = Curved()
    config = SVSLConfig(
        components=1, iterations=10, alpha=1e-3, kl_expert=0.1, reject_outside=True,
        closing_iterations=20, kl_closing=0.2, kl_closing_end=0.002,
    )  # fmt: skip
    learner, divergences = SVSL(config, space_of(task), stream(0)), []
    while not learner.done:
        before, stage = learner._current, learner.stage
        helpers.advance(learner, task)
        if stage == "closing":
            inputs = before.inputs(learner.expert_buffer.contexts)
            divergences.append(kl_divergence(learner._current.experts, before.experts, inputs)[0])
    bounds = [learner.schedule.closing_settings(n).kl_expert for n in range(1, 21)]
    assert (np.array(divergences) <= np.array(bounds) * (1 + 1e-6)).all()
    assert divergences[0] > 0.1
    assert bounds[-1] == pytest.approx(0.002)


@few_examples(8)
@given(seed=st.integers(0, 10**6), dim_y=st.integers(1, 4), dim_context=st.integers(1, 3))
def test_the_fit_to_monomials_recovers_curvature_and_slope(seed: int, dim_y: int, dim_context: int) -> None:
    """The target's own dependence on the context, a quadratic, is fitted as well and must not be mistaken for slope."""
    rng = np.random.default_rng(seed)
    x = monomials(rng.standard_normal((2, 200, dim_context)))
    stack = random_stack(rng, 2, dim_y, x.shape[2])
    y = stack.sample(x, rng)
    z = stack.whitened(x, y).transpose(0, 2, 1)
    curvature = np.stack([helpers.random_cov(rng, dim_y) for _ in range(2)])
    slope = rng.standard_normal((2, dim_y, x.shape[2] + 1))
    gradient = x @ slope[:, :, :-1].transpose(0, 2, 1) + slope[:, None, :, -1]
    targets = (z * gradient).sum(2) - 0.5 * np.einsum("kni,kij,knj->kn", z, curvature, z) + x @ np.arange(x.shape[2])
    model = fit_quadratic(stack, x, y, targets, input_products=False)
    np.testing.assert_allclose(model.curvature, curvature, atol=1e-5)
    np.testing.assert_allclose(model.slope, slope, atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        replace(TINY, shrinkage=10.0, entropy_loss=0.01, buffer=20, closing_iterations=2),
        replace(TINY, from_scratch=1, warm_start_iterations=4, gamma=0.5, distinguish_by="behaviour"),
        replace(TINY, expert_degree=1, closing_degree=2, closing_iterations=4, closing_shrinkage=10.0, splits=0),
    ],
)
def test_every_state_continues_bit_for_bit(config: SVSLConfig) -> None:
    task = Described()
    helpers.assert_continues_bit_for_bit(lambda seed: SVSL(config, space_of(task), stream(seed)), task)


class Described(Bimodal):
    """With what the skill looks like."""

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        outcome = super().evaluate(contexts, parameters, rng)
        return replace(outcome, info={**outcome.info, "path": 5 * parameters})


def test_the_buffer_holds_one_and_a_half_episodes_per_feature() -> None:
    """Three parameters and two context dimensions: 1 + 3 + 6 terms in the parameters, and 5 monomials times (1 + 3)."""
    assert TINY.resolved(space_of(Unimodal())).buffer == int(1.5 * 30)
    with pytest.raises(SvslError, match="buffer: expected at least the 9 linear terms"):
        replace(TINY, buffer=8, shrinkage=1.0).resolved(space_of(Unimodal()))
    with pytest.raises(SvslError, match="expert_degree: expected 1 or 2, got 3"):
        replace(TINY, expert_degree=3)  # type: ignore[arg-type]


def test_a_linear_library_is_extended_by_quadratic_experts_but_not_the_other_way_around() -> None:
    task, rng = Unimodal(), np.random.default_rng(1)
    base = random_mixture(rng, 2, 2, 3)
    learner = SVSL(TINY, space_of(task), stream(0), base)
    contexts, index = rng.standard_normal((5, 2)), np.array([0, 1, 1, 0, 1])
    started = learner.mixture()
    assert started is not None
    np.testing.assert_array_equal(started.component_means(contexts, index), base.component_means(contexts, index))
    assert trained(task, TINY, base).expert_degree == 2
    with pytest.raises(SvslError, match="expert_degree: expected 2, as in the library to extend, got 1"):
        SVSL(replace(TINY, expert_degree=1), space_of(task), stream(0), base.with_quadratic_experts())


def test_libraries_of_both_kinds_merge() -> None:
    rng = np.random.default_rng(2)
    linear, quadratic = (
        SkillLibrary(mixture, np.zeros(2), np.ones(2))
        for mixture in (random_mixture(rng, 2, 2, 3), random_mixture(rng, 3, 2, 3, degree=2))
    )
    for order in ([linear, quadratic], [quadratic, linear]):
        merged, context = merge(order), np.array([0.3, 0.6])
        means = [library.mean(context, o) for library in order for o in range(len(library))]
        np.testing.assert_allclose([merged.mean(context, o) for o in range(5)], means, rtol=1e-12)
