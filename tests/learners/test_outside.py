"""The context box belongs to the library: contexts outside it never reach a task that does not score them itself."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import helpers
from helpers import advance, random_mixture, space_of
from svsl import Outcome
from svsl.learners.base import SearchSpace
from svsl.learners.buffer import ReplayBuffer
from svsl.learners.episodic import EpisodicTraining
from svsl.learners.outside import score_outside
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.learners.svsl_steps import start_at_episode
from svsl.learners.weighting import WeightRewards
from svsl.model.gaussians import Array, BoolArray, LinearGaussian
from svsl.model.random import stream
from svsl.tasks.base import Task
from toys import Bimodal, Unimodal

CONFIG = SVSLConfig(
    components=3, iterations=60, finetune_every=15, alpha=0.05, beta=1.0, kl_expert=0.05, kl_context=0.05
)


class Carefree:
    """As good outside its box as inside: theta = c is best everywhere. Remembers the contexts it has seen."""

    context_low, context_high = np.array([-1.0]), np.array([1.0])
    parameter_dim, initial_mean, initial_cov = 1, np.zeros(1), np.eye(1)

    def __init__(self) -> None:
        self.seen: list[Array] = []

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        self.seen.append(contexts)
        error = parameters[:, 0] - contexts[:, 0]
        return Outcome(-(error**2), np.abs(error) < 0.1)


class Shameless(Carefree):
    """As `Carefree`, but declares that it scores contexts outside, without doing so."""

    scores_outside = True


def _means(task: Carefree, config: SVSLConfig, seed: int) -> Array:
    mixture = helpers.trained(SVSL(config, space_of(task), stream(seed)), task).mixture()
    assert mixture is not None
    return mixture.contexts.bias[:, 0]


@pytest.mark.parametrize("seed", range(3))
def test_a_task_that_never_thought_of_the_outside_keeps_its_components_in_the_box(seed: int) -> None:
    config, task = replace(CONFIG, components=6), Carefree()
    assert np.abs(_means(task, config, seed)).max() < 1.05
    assert np.abs(np.concatenate(task.seen)).max() <= 1
    assert np.abs(_means(Shameless(), config, seed)).max() > 2  # what happens otherwise
    assert np.abs(_means(Shameless(), replace(config, reject_outside=True), seed)).max() < 1.05


def test_invalid_contexts_of_the_box_do_not_reach_the_task_either() -> None:
    class Half(Carefree):
        def valid_contexts(self, contexts: Array) -> BoolArray:
            return np.asarray(contexts[:, 0] > 0)

    task = Half()
    assert (_means(task, CONFIG, 0) > -0.1).all()
    seen = np.concatenate(task.seen)
    assert ((seen > 0) & (seen <= 1)).all()


def test_scores_are_below_all_inside_and_fall_with_the_distance() -> None:
    space = replace(space_of(Carefree()), context_low=np.array([0.0, -10.0]), context_high=np.array([1.0, 10.0]))
    contexts = np.array([[[0.5, 0.0], [0.2, 9.0], [1.125, 0.0], [0.5, 12.5], [-0.0625, 11.25]]] * 2)
    targets = np.array([[3.0, 7.0, np.nan, np.nan, np.nan]] * 2)
    outside = np.isnan(targets)
    scored = score_outside(contexts, targets, outside, space, beta=0.5)
    # lowest inside 3, standard deviation 2; distances 1, 1, and 0.5 in both directions, in eighths of the width
    assert_allclose(scored, [[3.0, 7.0, 3 - 2 * 2, 3 - 2 * 2, 3 - 2 * 1.5]] * 2)
    equal = score_outside(contexts, np.where(outside, np.nan, 3.0), outside, space, beta=0.5)
    assert_allclose(equal[:, 2:], [[3 - 0.5 * 2, 3 - 0.5 * 2, 3 - 0.5 * 1.5]] * 2)  # the scale is beta at least
    nothing = score_outside(contexts, targets, np.ones_like(outside), space, beta=0.0)
    assert_allclose(nothing[0], [-1, -1, -2, -2, -1.5])


def test_weights_are_learned_from_contexts_inside() -> None:
    for task, reject, all_inside in ((Carefree(), False, True), (Shameless(), True, True), (Shameless(), False, False)):
        learner = SVSL(replace(CONFIG, iterations=5, reject_outside=reject), space_of(task), stream(0))
        while learner.stage != "weights":
            advance(learner, task)
        learner.ask()
        assert learner._asked is not None
        assert bool(learner.space.inside(learner._asked.contexts).all()) == all_inside


def test_a_component_without_episodes_is_rewarded_as_the_worst() -> None:
    rng = np.random.default_rng(0)
    mixture, owners = random_mixture(rng, 3, 2, 2), np.repeat([0, 2], 20)
    contexts = mixture.contexts.bias[owners] + rng.standard_normal((40, 2))
    config = SVSLConfig(context_scale=(1.0, 1.0))
    rewards = WeightRewards(config, mixture, owners, contexts, rng.standard_normal(40), np.zeros((40, 3)))
    values = rewards(mixture.log_weights)
    assert np.isfinite(values).all()
    assert values[1] == min(values[0], values[2])


def test_training_goes_on_without_a_context_inside() -> None:
    task = Carefree()
    far = LinearGaussian.unconditional(np.full((1, 1), 50.0), np.full((1, 1, 1), 0.01))
    base = replace(random_mixture(stream(1), 1, 1, 1), contexts=far)
    learner = SVSL(replace(CONFIG, components=1, iterations=3), space_of(task), stream(0), base, freeze=True)
    while not learner.done:
        episodes = learner.ask()
        if len(episodes.contexts) or not learner.done:
            learner.tell(task.evaluate(episodes.contexts, episodes.parameters, stream(0)).returns)
    assert all(len(seen) for seen in task.seen)
    alone = SVSL(replace(CONFIG, components=1, iterations=3), space_of(task), stream(0))
    assert alone._mixture is not None
    alone._mixture = replace(alone._mixture, contexts=far)
    training = EpisodicTraining(alone, task, 0)
    training.advance()
    assert training.done


def test_episodes_without_a_behaviour_do_not_keep_that_of_the_episode_they_replace() -> None:
    buffer, one = ReplayBuffer(2, 1, 1, 1), np.zeros((1, 1))
    owner = np.zeros(1, dtype=np.intp)
    buffer.append(owner, one, one, np.zeros(1), np.full((1, 3), 7.0))
    for _ in range(2):
        buffer.append(owner, one, one, np.zeros(1), None)
    assert buffer.behaviours is not None
    assert np.isnan(buffer.behaviours).all()


class OneSided(Unimodal):
    """As `Unimodal`, but contexts whose first entry is above 0.5 fail whatever is done."""

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        outcome = super().evaluate(contexts, parameters, rng)
        return replace(outcome, returns=outcome.returns - 1000.0 * (contexts[:, 0] > 0.5))


def test_new_components_start_where_the_library_fails() -> None:
    task, config = OneSided(), replace(CONFIG, start_tests=40, iterations=4)
    learner = SVSL(config, space_of(task), stream(3))
    starts, counted = [], 0
    while not learner.done:
        before = learner.stage
        counted += advance(learner, task)
        if before == "start":
            starts.append(float(learner._current.contexts.bias[-1, 0]))
    assert len(starts) == config.components - 1
    assert min(starts) > 0.5
    assert counted == config.planned_episodes(learner.space)


def test_a_warm_start_is_the_best_of_the_stored_episodes_nearest_to_the_failure() -> None:
    task = OneSided()
    learner = SVSL(replace(CONFIG, start_tests=40, iterations=4, from_scratch=1), space_of(task), stream(3))
    while learner.stage != "start":
        advance(learner, task)
    target, buffer = np.array([0.9, 2.5]), learner.expert_buffer
    known = learner._current, buffer, learner.config, learner._likelihood
    contexts, experts = start_at_episode(*known, learner.space, stream(0), target)
    nearest = np.argsort((((buffer.contexts[0] - target) / [2.0, 3.0]) ** 2).sum(axis=1))[:10]
    best = nearest[buffer.returns[0, nearest].argmax()]
    assert_array_equal(contexts.bias[0], buffer.contexts[0, best])
    assert_allclose(experts.gain[0] @ contexts.bias[0] + experts.bias[0], buffer.parameters[0, best])


def test_an_extended_library_is_tested_before_its_first_new_component() -> None:
    task, base = OneSided(), random_mixture(stream(5), 2, 2, 3)
    learner = SVSL(replace(CONFIG, components=1, start_tests=40, iterations=4), space_of(task), stream(0), base)
    stages = []
    while not learner.done:
        stages.append(learner.stage)
        advance(learner, task)
    assert stages[:3] == ["fill", "start", "fill"]


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, start_tests=10, from_scratch=1)])
def test_runs_continue_bit_for_bit(config: SVSLConfig) -> None:
    tasks: list[Task] = [Carefree(), Bimodal()]
    for task in tasks:
        space, brief = space_of(task), replace(config, iterations=6)
        helpers.assert_continues_bit_for_bit(partial(_learner, brief, space), task)


def _learner(config: SVSLConfig, space: SearchSpace, seed: int) -> SVSL:
    return SVSL(config, space, stream(seed))


def test_the_weights_cost_beta_by_default_and_less_is_worth_a_warning() -> None:
    space = space_of(Unimodal())
    assert SVSLConfig(beta=0.7).resolved(space).beta_weight == 0.7
    assert SVSLConfig(beta=0.7, beta_weight=0.2).resolved(space).beta_weight == 0.2
    assert SVSLConfig(beta=0.7).warning is None
    assert SVSLConfig(beta=0.7, beta_weight=0.7).warning is None
    assert SVSLConfig(beta=0.7, beta_weight=0.2, weight_iterations=0).warning is None
    warning = SVSLConfig(beta=0.7, beta_weight=0.2).warning
    assert warning is not None
    assert "beta_weight 0.2 is below beta 0.7" in warning


def test_contexts_outside_are_not_scored_by_the_learner_if_the_task_does() -> None:
    task = Unimodal()
    learner = SVSL(replace(CONFIG, iterations=3), space_of(task), stream(0))
    while not learner.done:
        advance(learner, task)
        assert_array_equal(np.isnan(learner.context_buffer.returns), False)


@pytest.mark.parametrize("task", [Unimodal(), Carefree()])
def test_lost_episodes_are_not_learned_from(task: Task) -> None:
    """A learner that is told NaN for some episodes stores and learns from exactly the others."""
    config = replace(CONFIG, iterations=10, start_tests=8, closing_iterations=3, closing_batch=8)
    learner, rng = SVSL(config, space_of(task), stream(0)), stream(1)
    stored = 0
    while not learner.done:
        before, stage = learner.expert_buffer.filled.sum(), learner.stage
        episodes = learner.ask()
        returns = task.evaluate(episodes.contexts, episodes.parameters, rng).returns
        lost = rng.random(len(returns)) < 0.3
        learner.tell(np.where(lost, np.nan, returns))
        if stage == "fill" and isinstance(task, Unimodal):
            stored += 1
            assert learner.expert_buffer.filled.sum() - before == (~lost).sum()
        used = np.arange(learner.expert_buffer.size) < learner.expert_buffer.filled[:, None]
        assert np.isfinite(learner.expert_buffer.returns[used]).all()
    assert stored == (config.components if isinstance(task, Unimodal) else 0)
    mixture = learner.mixture()
    assert mixture is not None
    assert np.isfinite(mixture.experts.bias).all()
