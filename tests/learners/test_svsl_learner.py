"""The SVSL learner on tasks with known optima, its bookkeeping, and its exact continuation."""

from dataclasses import replace

import numpy as np
import pytest

import helpers
from helpers import advance, space_of
from svsl import SvslError, Task
from svsl.learners.base import SearchSpace
from svsl.learners.behaviours import BehaviourModels
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.learners.svsl_steps import newest_is_stuck
from svsl.model.gaussians import Array
from svsl.model.random import stream
from toys import Bimodal, Unimodal

TINY = SVSLConfig(components=3, iterations=6, finetune_every=3, weight_iterations=5)


def trained(task: Task, config: SVSLConfig, seed: int = 0) -> SVSL:
    return helpers.trained(SVSL(config, space_of(task), stream(seed)), task)


def test_unimodal_task_is_solved_exactly() -> None:
    task = Unimodal()
    config = SVSLConfig(components=1, iterations=300, alpha=1e-6, kl_expert=0.1, kl_context=0.01)
    mixture = trained(task, config).mixture()
    assert mixture is not None
    np.testing.assert_allclose(mixture.experts.gain[0], task.gain, atol=5e-3)
    np.testing.assert_allclose(mixture.experts.bias[0], task.bias, atol=5e-3)


def test_expert_settles_at_the_maximum_entropy_optimum() -> None:
    """Without a bound that binds, the covariance of the optimum is alpha / 2 times the inverse curvature."""
    task = Unimodal()
    config = SVSLConfig(components=1, iterations=200, alpha=0.2, kl_expert=0.2, reject_outside=True)
    mixture = trained(task, config).mixture()
    assert mixture is not None
    np.testing.assert_allclose(mixture.experts.cov[0], 0.1 * np.linalg.inv(task.curvature), rtol=1e-6, atol=1e-8)


def test_an_expert_loses_no_more_entropy_than_allowed() -> None:
    task = Unimodal()
    config = replace(TINY, components=1, iterations=20, alpha=1e-6, kl_expert=0.5, kl_closing=0.5, closing_iterations=5)

    def largest_loss(bound: float | None) -> float:
        learner, losses = SVSL(replace(config, entropy_loss=bound), space_of(task), stream(0)), list[float]()
        while not learner.done:
            before = float(learner._current.experts.entropy[0])
            advance(learner, task)
            losses.append(before - float(learner._current.experts.entropy[0]))
        return max(losses)

    assert largest_loss(0.02) == pytest.approx(0.02 * len(task.initial_mean))
    assert largest_loss(None) > 0.2 * len(task.initial_mean)


@pytest.mark.parametrize("auxiliary", [True, False])
def test_both_modes_are_found_with_the_auxiliary_rewards_and_not_without(auxiliary: bool) -> None:
    task = Bimodal()
    contexts = np.linspace(-0.8, 0.8, 9)[:, None]
    config = SVSLConfig(
        components=6, iterations=150, finetune_every=25, alpha=3.0, beta=2.0,
        beta_weight=3.0, kl_expert=0.05, kl_context=0.02,
        auxiliary=auxiliary,
    )  # fmt: skip
    shares = []
    for seed in (1, 2, 3):
        mixture = trained(task, config, seed).mixture()
        assert mixture is not None
        likely = np.exp(mixture.log_gating(contexts)) > 0.05
        modes = np.stack(
            [
                task.evaluate(contexts, mixture.component_means(contexts, np.full(9, k)), stream(0)).info["mode"]
                for k in range(len(mixture))
            ],
            axis=1,
        )
        both = (likely & (modes == 0)).any(axis=1) & (likely & (modes == 1)).any(axis=1)
        shares.append(float(both.mean()))
    assert (min(shares) > 0.85) if auxiliary else (max(shares) == 0)


def test_only_the_newest_component_moves_between_the_updates_of_all() -> None:
    task = Unimodal()
    learner = SVSL(TINY, space_of(task), stream(0))
    while not (len(learner._current) == 3 and learner.stage == "context"):
        advance(learner, task)
    moved = []
    for _ in range(3):
        old = learner._current.experts.bias.copy()
        advance(learner, task)
        advance(learner, task)
        moved.append([not np.array_equal(a, b) for a, b in zip(old, learner._current.experts.bias, strict=True)])
    assert moved == [[False, False, True], [False, False, True], [True, True, True]]


def test_episode_counts_are_those_of_the_paper() -> None:
    """2.88 million: per component 136 to fill, 86 an iteration, every 50th for all, and 136 each for the weights."""
    from svsl.learners.registry import find_preset

    task = Unimodal()
    space = SearchSpace(np.zeros(2), np.ones(2), np.zeros(10), np.eye(10))
    paper = find_preset("planar-reacher").settings
    assert isinstance(paper, SVSLConfig)
    assert (paper.resolved(space).context_batch, paper.resolved(space).expert_batch) == (5, 81)
    assert paper.planned_episodes(space) == 2_887_860

    learner = SVSL(TINY, space_of(task), stream(0))
    asked, total = 0, TINY.planned_episodes(space_of(task))
    while not learner.done:
        assert learner.progress.work < 1
        assert learner.progress.work == pytest.approx(asked / total, abs=0.05)  # a context step may be under way
        asked += advance(learner, task)
    assert asked == total
    assert learner.progress.work == 1


def test_progress_leaves_room_for_the_weight_stage() -> None:
    task = Unimodal()
    learner = SVSL(TINY, space_of(task), stream(0))
    while learner.stage != "weights":
        advance(learner, task)
    left = 3 * learner.schedule.batch_sizes["weights"]
    assert learner.progress.work == pytest.approx(1 - left / learner.schedule.total)
    assert learner.progress.work < 0.95
    assert advance(learner, task) == left
    assert learner.progress.work == 1


@pytest.mark.parametrize("from_scratch", [0, 1, 2])
def test_planned_episodes_with_shorter_training_from_stored_episodes(from_scratch: int) -> None:
    task = Unimodal()
    learner = SVSL(replace(TINY, from_scratch=from_scratch, warm_start_iterations=3), space_of(task), stream(0))
    asked = 0
    while learner.stage != "weights":
        asked += advance(learner, task)
    assert asked == learner.schedule.episodes_until(3, 3)
    each = learner.schedule.batch_sizes["context"] + learner.schedule.batch_sizes["expert"]
    iterations = [6, 3, 3] if from_scratch < 2 else [6, 6, 3]
    together = sum(number * (count // 3) for number, count in enumerate(iterations))
    assert asked == 3 * learner.schedule.batch_sizes["fill"] + each * (sum(iterations) + together)


def test_a_warm_start_is_at_a_good_episode_near_sparsely_covered_contexts() -> None:
    """Against a brute-force search, on buffers filled by hand."""
    task = Unimodal()
    learner = SVSL(replace(TINY, from_scratch=2), space_of(task), stream(0))
    while not (len(learner._current) == 2 and learner.stage == "expert"):
        advance(learner, task)
    rng, buffer = stream(7), learner.expert_buffer
    buffer.contexts[:] = rng.uniform(task.context_low, task.context_high, buffer.contexts.shape)
    buffer.contexts[1] *= 0.5
    buffer.parameters[:], buffer.returns[:] = rng.random(buffer.parameters.shape), rng.random(buffer.returns.shape)
    buffer.filled[1] = buffer.size - 5
    buffer.contexts[1, -5:], buffer.returns[1, -5:] = 0.0, 99.0  # empty slots are not episodes
    same_draws = stream(0)
    same_draws.bit_generator.state = learner.rng.bit_generator.state
    width = task.context_high - task.context_low
    goals = [task.context_low + width * same_draws.random(2) for _ in range(3)]
    mixture = learner._current
    densities = [np.exp(mixture.log_context_joint(goal[None])).sum() for goal in goals]
    goal = goals[int(np.argmin(densities))]
    episodes = [(k, i) for k in range(2) for i in range(buffer.size) if i < buffer.filled[k]]
    episodes.sort(key=lambda place: float((((buffer.contexts[place] - goal) / width) ** 2).sum()))
    owner, slot = max(episodes[:10], key=lambda place: float(buffer.returns[place]))

    learner.component = 3
    learner._add_component()
    new = learner._current.select(np.array([2]))
    context = buffer.contexts[owner, slot]
    np.testing.assert_array_equal(new.contexts.bias[0], context)
    np.testing.assert_array_equal(new.contexts.chol[0], mixture.contexts.chol[owner])
    np.testing.assert_array_equal(new.experts.gain[0], mixture.experts.gain[owner])
    np.testing.assert_allclose(new.component_means(context[None], np.array([0]))[0], buffer.parameters[owner, slot])
    np.testing.assert_allclose(new.experts.cov[0], mixture.experts.cov[owner] + 0.01 * task.initial_cov, rtol=1e-9)

    learner.config = replace(learner.config, warm_start_std=(0.1, 0.2))
    learner._add_component()
    np.testing.assert_array_equal(learner._current.contexts.chol[3], np.diag([0.1, 0.2]))


def test_a_warm_start_by_behaviour_is_where_the_library_does_something_good_that_it_rarely_does() -> None:
    """Against the objective's gain, written out episode by episode, on buffers filled by hand."""
    task = Unimodal()
    config = replace(TINY, from_scratch=2, gamma=0.4, distinguish_by="behaviour")
    learner = SVSL(config, space_of(task), stream(0))
    while not (len(learner._current) == 2 and learner.stage == "expert"):
        advance(learner, task)
    rng, buffer, mixture = stream(7), learner.expert_buffer, learner._current
    buffer.contexts[:] = rng.uniform(task.context_low, task.context_high, buffer.contexts.shape)
    buffer.parameters[:], buffer.returns[:] = rng.random(buffer.parameters.shape), rng.random(buffer.returns.shape)
    # component 0 does 0 and component 1 does 3, but some of component 1's episodes do something of their own
    behaviours = rng.normal(0.0, 0.3, (*buffer.returns.shape, 2)) + np.array([0.0, 3.0])[:, None, None]
    behaviours[1, ::5] -= 6.0
    buffer.behaviours = behaviours
    buffer.filled[1] = buffer.size - 5
    buffer.returns[1, -5:] = 99.0  # empty slots are not episodes
    learner._behaviour_models = BehaviourModels()
    target, width = 0.5 * (task.context_low + task.context_high), task.context_high - task.context_low

    def gain(owner: int, slot: int) -> float:
        context, behaviour = buffer.contexts[owner, slot], behaviours[owner, slot]
        of_contexts = np.exp(mixture.log_context_joint(context[None])[0])
        likelihood = np.empty(2)
        for k in range(2):
            rows = slice(0, buffer.filled[k])
            inputs = np.column_stack([buffer.contexts[k, rows], np.ones(buffer.filled[k])])
            weights, *_ = np.linalg.lstsq(inputs, behaviours[k, rows], rcond=None)
            variance = ((behaviours[k, rows] - inputs @ weights) ** 2).mean() + 1 / 8
            off = ((behaviour - np.append(context, 1.0) @ weights) ** 2).mean()
            likelihood[k] = np.exp(-off / (2 * variance)) / np.sqrt(variance)
        p_context = of_contexts.sum()
        p_behaviour = (of_contexts * likelihood).sum() / p_context
        return float(buffer.returns[owner, slot] - 0.4 * np.log(p_behaviour) - config.beta * np.log(p_context))

    candidates = []
    for k in range(2):
        filled = range(int(buffer.filled[k]))
        near = sorted(filled, key=lambda i: float((((buffer.contexts[k, i] - target) / width) ** 2).sum()))
        candidates += [(k, i) for i in near[:10]]
    owner, slot = max(candidates, key=lambda place: gain(*place))
    assert owner == 1
    assert slot % 5 == 0

    learner.component = 3
    learner._add_component(target)
    new = learner._current.select(np.array([2]))
    np.testing.assert_array_equal(new.contexts.bias[0], buffer.contexts[owner, slot])
    np.testing.assert_array_equal(new.experts.gain[0], mixture.experts.gain[owner])


def test_weights_are_uniform_until_the_end_and_then_prefer_better_components() -> None:
    task = Unimodal()
    config = SVSLConfig(components=2, iterations=40, alpha=1e-3, kl_expert=0.05, weight_iterations=50, min_weight=0)
    learner = SVSL(config, space_of(task), stream(3))
    while learner.stage != "weights":
        advance(learner, task)
        np.testing.assert_allclose(np.exp(learner._current.log_weights), 1 / len(learner._current))
    # spoil one component: its skills are now far off
    mixture = learner._current
    spoiled = mixture.experts.bias.copy()
    spoiled[0] += 5.0
    experts = type(mixture.experts).build(mixture.experts.gain, spoiled, mixture.experts.chol)
    learner._mixture = replace(mixture, experts=experts)
    advance(learner, task)
    assert learner.done
    weights = np.exp(learner._current.log_weights)
    assert weights.sum() == pytest.approx(1)
    assert weights[1] > 0.95


def test_light_components_are_removed() -> None:
    task = Unimodal()
    config = replace(TINY, min_weight=0.2, iterations=20, weight_iterations=200, kl_weight=0.5, beta_weight=0.01)
    learner = trained(task, config)
    assert 1 <= len(learner._current) < 3
    assert np.exp(learner._current.log_weights).sum() == pytest.approx(1)
    assert len(learner.expert_buffer.returns) == len(learner._current)


@pytest.mark.parametrize(
    ("factor", "others", "newest", "deleted"),
    [(5.0, -1.0, -100.0, 1), (5.0, -1.0, -4.9, 0), (5.0, -1.0, -5.1, 1), (1.5, 6.0, 3.1, 0), (1.5, 6.0, 2.9, 1)],
)
def test_a_component_in_a_local_optimum_is_deleted(factor: float, others: float, newest: float, deleted: int) -> None:
    task = Unimodal()
    learner = SVSL(replace(TINY, delete_factor=factor), space_of(task), stream(0))
    while not (len(learner._current) == 2 and learner.iteration == 6 and learner.stage == "expert"):
        advance(learner, task)
    kept = learner._current.experts.bias[0]
    learner.ask()
    assert learner._asked is not None
    learner.expert_buffer.returns[:] = [[others], [newest]]
    learner.tell(np.where(learner._asked.owners == 0, others, newest))
    assert learner.deleted == deleted
    assert learner.milestone == 2
    mixture = learner.mixture()
    assert mixture is not None
    assert len(mixture) == 2 - deleted
    assert not np.array_equal(mixture.experts.bias[0], learner.space.initial_mean)
    np.testing.assert_allclose(mixture.experts.bias[0], kept, atol=0.5)


def test_a_component_without_episodes_in_the_box_is_deleted_and_does_not_hide_others() -> None:
    nothing = np.nan
    assert newest_is_stuck(np.array([-1.0, nothing, -5.0]), 2.0)
    assert not newest_is_stuck(np.array([-1.0, nothing, -1.5]), 2.0)
    assert newest_is_stuck(np.array([-1.0, -9.0, nothing]), 2.0)
    assert not newest_is_stuck(np.array([nothing, nothing, -1.5]), 2.0)


def test_the_heaviest_component_stays() -> None:
    mixture = trained(Unimodal(), replace(TINY, min_weight=0.99, beta_weight=1e3)).mixture()
    assert mixture is not None
    assert len(mixture) == 1


def test_the_unfinished_component_is_left_out() -> None:
    task = Unimodal()
    learner = SVSL(TINY, space_of(task), stream(0))
    assert learner.mixture() is None
    while learner.milestone == 0:
        assert learner.mixture() is None
        advance(learner, task)
    mixture = learner.mixture()
    assert mixture is not None
    assert (len(mixture), len(learner._current)) == (1, 2)
    np.testing.assert_allclose(np.exp(mixture.log_weights), [1.0])


def test_rejection_gives_experts_contexts_inside_the_box_only() -> None:
    task = Unimodal()
    config = replace(TINY, reject_outside=True, context_std=(1.5, 2.0))
    learner = SVSL(config, space_of(task), stream(2))
    outside = 0
    while not learner.done:
        advance(learner, task)
        buffer, space = learner.expert_buffer, learner.space
        used = np.arange(buffer.size) < buffer.filled[:, None]
        assert space.inside(buffer.contexts[used]).all()
        outside += int((~space.inside(learner.context_buffer.contexts)).sum())
    assert outside > 0


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        replace(TINY, reject_outside=True, delete_factor=1.0),
        replace(TINY, from_scratch=1, warm_start_iterations=4),
        replace(TINY, shrinkage=10.0, entropy_loss=0.01, buffer=10),
    ],
)
def test_every_state_continues_bit_for_bit(config: SVSLConfig) -> None:
    task = Bimodal()
    helpers.assert_continues_bit_for_bit(lambda seed: SVSL(config, space_of(task), stream(seed)), task)


def test_uninformative_targets_leave_the_component_unchanged() -> None:
    """A surrogate without information (equal targets) must not move the mean; overflowing targets must not move it."""
    task = Unimodal()
    learner = SVSL(replace(TINY, auxiliary=False, alpha=0.0), space_of(task), stream(0))
    advance(learner, task)

    def step(value: float) -> tuple[Array, Array, int]:
        bias, failed = learner._current.experts.bias.copy(), learner.failed_steps
        learner.expert_buffer.returns[:] = value
        learner._update_experts(np.array([0]))
        return bias, learner._current.experts.bias, learner.failed_steps - failed

    old, new, failed = step(-3.0)
    np.testing.assert_allclose(new, old, atol=1e-6)
    assert failed == 0
    learner.expert_buffer.returns[:, ::2] = 1e308
    with np.errstate(all="ignore"):
        failed_before = learner.failed_steps
        old = learner._current.experts.bias.copy()
        learner.expert_buffer.returns[0, ::2], learner.expert_buffer.returns[0, 1::2] = 1e308, -1e308
        learner._update_experts(np.array([0]))
    assert learner.failed_steps == failed_before + 1
    np.testing.assert_array_equal(learner._current.experts.bias, old)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"components": 0}, "components: expected at least 1, got 0"),
        ({"kl_expert": 0.0}, "kl_expert: expected above 0"),
        ({"alpha": -1.0}, "alpha: expected at least 0"),
        ({"delete_factor": 0.5}, "delete_factor"),
        ({"from_scratch": -1}, "from_scratch"),
        ({"warm_start_iterations": 0}, "warm_start_iterations"),
        ({"min_weight": 1.0}, "min_weight: expected at least 0 and below 1"),
        ({"shrinkage": -1.0}, "shrinkage: expected at least 0"),
        ({"entropy_loss": -0.1}, "entropy_loss: expected at least 0"),
    ],
)
def test_impossible_settings_are_rejected(change: dict[str, float], message: str) -> None:
    with pytest.raises(SvslError, match=message):
        replace(TINY, **change)  # type: ignore[arg-type]


def test_settings_that_do_not_fit_the_task_are_rejected() -> None:
    space = space_of(Unimodal())
    with pytest.raises(SvslError, match="buffer: expected at least the 21 features"):
        replace(TINY, buffer=20).resolved(space)
    with pytest.raises(SvslError, match="buffer: expected at least the 6 linear terms"):
        replace(TINY, buffer=5, shrinkage=1.0).resolved(space)
    with pytest.raises(SvslError, match="context_std: expected 2 numbers above 0"):
        replace(TINY, context_std=(1.0,)).resolved(space)
