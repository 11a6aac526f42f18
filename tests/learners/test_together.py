"""Components without a curriculum: where they start, what they learn, and their exact continuation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.cluster.vq import kmeans2

import helpers
from helpers import advance, assert_continues_bit_for_bit, space_of
from svsl import Outcome, SvslError
from svsl.learners.base import SearchSpace
from svsl.learners.spreading import k_means, split_contexts, start_spread
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.gaussians import Array, BoolArray
from svsl.model.mixture import Mixture
from svsl.model.random import stream
from toys import Twins, Unimodal

TOGETHER = SVSLConfig(
    components=2, curriculum=False, closing_iterations=60, closing_batch=20, kl_closing=0.2, alpha=1e-6,
    weight_iterations=0, buffer=60,
)  # fmt: skip


class TwoSides(Unimodal):
    """What is best on the left is the opposite of what is best on the right, and nothing in between is valid."""

    scores_outside = False

    def valid_contexts(self, contexts: Array) -> BoolArray:
        return np.asarray(np.abs(contexts[:, 0]) > 0.5)

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        return super().evaluate(contexts, parameters * np.sign(contexts[:, :1]), rng)


class Bent(TwoSides):
    """The best way bends at a second coordinate of 1.5."""

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        bend = 1.5 * np.abs(contexts[:, 1:] - 1.5)
        return super().evaluate(contexts, parameters + bend * np.sign(contexts[:, :1]), rng)


def test_components_start_in_the_parts_of_the_box() -> None:
    contexts, experts = start_spread(2, TOGETHER, space_of(TwoSides()), stream(0))
    order = np.argsort(contexts.bias[:, 0])
    # of uniform contexts: variances of intervals of length 1/2 and 3
    np.testing.assert_allclose(contexts.bias[order], [[-0.75, 1.5], [0.75, 1.5]], atol=0.08)
    np.testing.assert_allclose(contexts.cov[order], [np.diag([1 / 48, 9 / 12])] * 2, atol=0.08)
    np.testing.assert_array_equal(experts.gain, 0)
    np.testing.assert_allclose(experts.cov, [Unimodal.initial_cov] * 2)


def test_clusters_are_as_tight_as_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    points = rng.random((400, 3))
    ours = min(k_means(points, 5, rng)[0] for _ in range(10))
    centres = [kmeans2(points, points[rng.choice(400, 5, replace=False)], iter=30, minit="matrix") for _ in range(10)]
    theirs = min(float(((points - centre[label]) ** 2).sum(axis=1).mean()) for centre, label in centres)
    assert ours == pytest.approx(theirs, rel=0.02)


def test_every_cluster_has_a_point() -> None:
    points = np.repeat(np.arange(3.0), 10)[:, None]  # starts that fall on the same point leave clusters empty
    for seed in range(20):
        distance, labels = k_means(points, 3, np.random.default_rng(seed))
        assert set(labels) == {0, 1, 2}
        assert distance == pytest.approx(0)


def test_each_component_learns_its_part_on_uniform_contexts() -> None:
    task = TwoSides()
    learner = SVSL(TOGETHER, space_of(task), stream(0))
    asked = []
    while not learner.done:
        episodes = learner.ask()
        asked.append(episodes.contexts)
        learner.tell(task.evaluate(episodes.contexts, episodes.parameters, stream(0)).returns)
    mixture, contexts = learner.mixture(), np.concatenate(asked)
    assert mixture is not None
    for side in (-1, 1):
        expert = int(np.argmax(side * mixture.contexts.bias[:, 0]))
        np.testing.assert_allclose(mixture.experts.gain[expert], side * task.gain, atol=5e-3)
        np.testing.assert_allclose(mixture.experts.bias[expert], side * task.bias, atol=5e-3)
    assert task.valid_contexts(contexts).all()
    np.testing.assert_allclose(contexts.mean(axis=0), [0, 1.5], atol=0.1)
    np.testing.assert_allclose(contexts.var(axis=0), [7 / 12, 9 / 12], atol=0.05)  # of uniform valid contexts


def test_steps_begin_when_the_buffers_are_full_and_episodes_are_as_planned() -> None:
    task, config = TwoSides(), replace(TOGETHER, closing_iterations=8)
    learner, asked, moved = SVSL(config, space_of(task), stream(0)), 0, []
    while not learner.done:
        before = learner._current.experts.bias.copy()
        assert learner.progress.work == pytest.approx(asked / config.planned_episodes(space_of(task)))
        asked += advance(learner, task)
        moved.append(bool((learner._current.experts.bias != before).any()))
    assert asked == config.planned_episodes(space_of(task)) == 8 * 2 * 20
    assert moved[:2] == [False, False]  # 60 episodes per component take about three batches of 20
    assert all(moved[4:])
    assert learner.failed_steps == 0
    assert learner.progress.work == 1


def test_interruption_at_any_point_changes_nothing() -> None:
    task = TwoSides()
    config = replace(TOGETHER, components=4, splits=1, closing_iterations=7, weight_iterations=3)
    assert_continues_bit_for_bit(lambda seed: SVSL(config, space_of(task), stream(seed)), task)


def test_splits_gating_steps_and_behaviours_together_continue_bit_for_bit() -> None:
    task = Twins()
    config = replace(
        TOGETHER, components=4, splits=1, closing_iterations=7, kl_gating=0.02, gamma=0.2, distinguish_by="behaviour"
    )
    assert_continues_bit_for_bit(lambda seed: SVSL(config, space_of(task), stream(seed)), task)


def test_every_split_happens_however_short_the_closing_stage() -> None:
    task = TwoSides()
    config = replace(TOGETHER, components=8, splits=3, closing_iterations=4)
    learner, counts = SVSL(config, space_of(task), stream(0)), []
    while not learner.done:
        counts.append(len(learner._current))
        advance(learner, task)
    assert counts == [1, 2, 4, 8]
    assert config.scaled(0.001, 1.0).closing_iterations == 4


def test_deleted_components_are_missing_in_the_progress() -> None:
    task = TwoSides()
    config = replace(TOGETHER, curriculum=True, components=6, splits=1, iterations=2, closing_iterations=4)
    learner, shown = SVSL(config, space_of(task), stream(0)), []
    while not learner.done:
        if learner.stage == "fill" and learner.component == 3 and not learner.deleted:
            learner.deleted = 1  # as if the second one had been stuck
            learner._keep(np.array([0, 2]))
        advance(learner, task)
        if learner.stage == "closing":
            shown.append((len(learner._current), learner.progress.components))
    assert shown == [(2, 2), (2, 2), (4, 4), (4, 4)]


def test_components_are_split_in_the_middle_of_their_contexts() -> None:
    space = space_of(TwoSides())
    mixture = Mixture(np.log([0.5, 0.5]), *start_spread(2, TOGETHER, space, stream(0)))
    halves, log_shares = split_contexts(mixture, space, stream(1))
    left = int(mixture.contexts.bias[1, 0] < 0)  # the component on the left
    for component, x in ((left, -0.75), (1 - left, 0.75)):
        means = halves.bias[2 * component : 2 * component + 2]
        np.testing.assert_allclose(means[np.argsort(means[:, 1])], [[x, 0.75], [x, 2.25]], atol=0.08)
    np.testing.assert_allclose(halves.cov, [np.diag([1 / 48, 1.5**2 / 12])] * 4, atol=0.05)
    np.testing.assert_allclose(np.exp(log_shares), 1 / 4, atol=0.03)


def test_a_component_without_contexts_is_doubled_where_its_gating_is_highest() -> None:
    space = space_of(TwoSides())
    contexts, experts = start_spread(2, TOGETHER, space, stream(0))
    halves, log_shares = split_contexts(Mixture(np.array([0.0, -200.0]), contexts, experts), space, stream(1))
    assert (halves.bias[2:, 0] * np.sign(contexts.bias[1, 0]) > 0.5).all(), "on its own side"
    np.testing.assert_array_equal(halves.bias[2], halves.bias[3])
    np.testing.assert_array_equal(halves.chol[2], halves.chol[3])
    np.testing.assert_allclose(np.exp(log_shares[2:]), 0.5 / 4001)  # two halves of one context, and all the others


def test_halves_continue_from_the_expert_and_the_episodes_and_become_different() -> None:
    """The best way bends in the middle of each part: two linear experts per part find it, one cannot."""
    task, config = Bent(), replace(TOGETHER, components=4, splits=1, closing_iterations=200, entropy_loss=0.03)
    learner, asked = SVSL(config, space_of(task), stream(0)), 0
    while len(learner._current) == 2:
        before = learner._current.experts, learner.expert_buffer.returns.copy()
        asked += advance(learner, task)
    assert learner.iteration == 100
    pairs = np.repeat([0, 1], 2)
    np.testing.assert_array_equal(learner._current.experts.bias, learner._current.experts.bias[[0, 0, 2, 2]])
    np.testing.assert_array_equal(learner.expert_buffer.contexts, learner.expert_buffer.contexts[[0, 0, 2, 2]])
    assert not np.array_equal(learner.expert_buffer.returns, before[1][pairs])  # the last batch is in it
    while not learner.done:
        asked += advance(learner, task)
    assert asked == config.planned_episodes(space_of(task)) == 100 * 2 * 20 + 100 * 4 * 20
    mixture = learner.mixture()
    assert mixture is not None
    contexts = np.array([[-0.8, 0.4], [-0.8, 2.6], [0.8, 0.4], [0.8, 2.6]])

    def worst(mixture: Mixture) -> float:
        chosen = mixture.log_gating(contexts).argmax(axis=1)
        return float(task.evaluate(contexts, mixture.component_means(contexts, chosen), stream(0)).returns.min())

    whole = helpers.trained(SVSL(replace(config, components=2, splits=0), space_of(task), stream(0)), task).mixture()
    assert whole is not None
    assert worst(mixture) > -0.05
    assert worst(whole) < -0.2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"splits": 2, "components": 4, "closing_iterations": 2},
         r"splits: expected below closing_iterations \(2\), got 2"),
        ({"splits": 1}, "splits: expected 0 without a closing stage, got 1"),
        ({"splits": 2, "curriculum": False, "closing_iterations": 9, "components": 6},
         "components: expected a multiple of 4, or splits 0, got 6"),
        ({"splits": 10**7, "closing_iterations": 10**8}, "components: expected a multiple of"),
        ({"splits": -1}, "splits: expected at least 0, got -1"),
    ],
)  # fmt: skip
def test_wrong_splits_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SvslError, match=message):
        SVSLConfig(**settings)


def test_a_library_is_not_extended_without_a_curriculum() -> None:
    task = TwoSides()
    base = helpers.trained(SVSL(TOGETHER, space_of(task), stream(0)), task).mixture()
    with pytest.raises(SvslError, match="curriculum: expected True, to extend a library, got False"):
        SVSL(TOGETHER, space_of(task), stream(1), base)


def test_a_library_is_not_extended_with_splits() -> None:
    task = TwoSides()
    base = helpers.trained(SVSL(TOGETHER, space_of(task), stream(0)), task).mixture()
    config = replace(TOGETHER, curriculum=True, splits=1)
    with pytest.raises(SvslError, match="splits: expected 0, to extend a library, got 1"):
        SVSL(config, space_of(task), stream(1), base)


def test_components_of_a_curriculum_are_split_as_well() -> None:
    """Components are added one by one, and each is split in the middle of the closing stage."""
    task = Bent()
    config = replace(
        TOGETHER, curriculum=True, components=6, splits=1, iterations=3, finetune_every=2, expert_batch=20,
        context_batch=10, closing_iterations=8,
    )  # fmt: skip
    learner, asked, counts, shown = SVSL(config, space_of(task), stream(0)), 0, [], []
    while not learner.done:
        asked += advance(learner, task)
        counts.append(len(learner._current))
        progress = learner.progress
        shown.append((progress.component, progress.components))
    assert sorted(set(counts)) == [1, 2, 3, 6]
    assert counts.count(6) == 4 + 1  # half of the closing stage, and from the split on
    assert sorted(set(shown)) == [(1, 3), (2, 3), (3, 3), (6, 6)]
    closing = 20 * (4 * 3 + 4 * 6)
    steps = 3 * (60 + 3 * (20 + 10)) + 30 + 2 * 30  # fills and steps; one look back at one and one at two components
    assert config.planned_episodes(space_of(task)) == closing + steps
    assert asked < closing + steps  # some contexts are not valid


def test_halves_share_the_contexts_that_a_learned_gating_gave_them() -> None:
    """Gating steps leave the weights no meaning of their own, so halves need the shares of their contexts."""
    task = TwoSides()
    config = replace(TOGETHER, components=4, splits=1, closing_iterations=12, kl_gating=0.01)
    learner = SVSL(config, space_of(task), stream(0))
    while len(learner._current) == 2:
        before = learner._current
        advance(learner, task)
    weights = np.exp(learner._current.log_weights)
    assert not np.allclose(np.exp(before.log_weights), 0.5, atol=1e-3)
    np.testing.assert_allclose(weights[:2].sum(), 0.5, atol=0.05)  # each side is half of the valid contexts
    np.testing.assert_allclose(weights.sum(), 1)
    points = np.random.default_rng(0).uniform([-1, 0], [1, 3], (500, 2))
    points = points[task.valid_contexts(points)]
    pairs = np.exp(learner._current.log_gating(points)).reshape(len(points), 2, 2).sum(axis=2)
    np.testing.assert_allclose(pairs, np.exp(before.log_gating(points)), atol=0.1)


def test_a_closing_stage_that_cannot_fill_the_buffers_is_refused() -> None:
    short = replace(TOGETHER, closing_iterations=2)
    with pytest.raises(SvslError, match=r"closing_iterations: expected at least 3 .* to fill the buffer \(60\) by 20"):
        short.resolved(space_of(Unimodal()))
    assert replace(TOGETHER, closing_iterations=3).resolved(space_of(Unimodal())).buffer == 60
    assert TOGETHER.scaled(1e-6, 1.0).resolved(space_of(Unimodal())).closing_iterations == 8


def test_the_recent_return_is_that_of_the_middle_component() -> None:
    learner = SVSL(replace(TOGETHER, components=3), space_of(Unimodal()), stream(0))
    advance(learner, Unimodal())
    learner.expert_buffer.returns[:] = np.array([[-1.0], [-100.0], [-3.0]])
    assert learner.progress.recent_return == -3.0


def test_a_closing_stage_is_required() -> None:
    with pytest.raises(SvslError, match="closing_iterations: expected at least 1 without a curriculum, got 0"):
        SVSLConfig(curriculum=False)


def test_one_component_has_the_whole_box() -> None:
    space = SearchSpace(np.array([0.0]), np.array([2.0]), np.zeros(1), np.eye(1))
    contexts, _ = start_spread(1, TOGETHER, space, stream(0))
    np.testing.assert_allclose([contexts.bias[0, 0], contexts.cov[0, 0, 0]], [1, 1 / 3], atol=0.05)
