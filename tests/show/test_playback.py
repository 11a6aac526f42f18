"""Playback agrees with the task itself: returns, postures and paths."""

import numpy as np
import pytest

from helpers import small_library
from svsl import SkillLibrary, SvslError, make_task
from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.show.playback import draws_around, outline, skills_at, trimmed_motion, versatile_context
from svsl.tasks.beer_pong import BeerPong
from svsl.tasks.planar_reacher import PlanarReacher
from svsl.tasks.presentation import Motion, Showable
from svsl.tasks.registry import REGISTRY
from svsl.tasks.table_tennis import TableTennis
from toys import Bimodal, SometimesNan

THROW = np.array([*np.full(14, 0.2), 0.6])


@pytest.fixture
def reacher() -> SkillLibrary:
    parameters = np.random.default_rng(0).normal(0, 0.2, (4, 10))
    means = np.array([[5.0, -4.0], [5.5, 2.0], [5.0, 4.0], [6.0, 3.0]])
    return small_library("planar-reacher", means, 1.0, parameters)


def test_skills_are_the_active_components_with_the_outcome_of_their_means(reacher: SkillLibrary) -> None:
    task, context = PlanarReacher(), np.array([5.2, 2.9])
    skills = skills_at(reacher, task, context, stream(0))
    gating = reacher.gating(context)
    assert gating[0] < 0.01 < gating[1:].min()
    assert [skill.component for skill in skills] == list(1 + np.argsort(-gating[1:]))
    for skill in skills:
        outcome = task.describe(context[None], reacher.mean(context, skill.component)[None], stream(0))
        assert skill.probability == gating[skill.component]
        assert (skill.returned, skill.success) == (outcome.returns[0], outcome.success[0])
        assert skill.mode == outcome.info["mode"][0]
        assert f"component {skill.component} · {skill.mode} · return {skill.returned:.2f}" in skill.caption
    chosen = skills_at(reacher, task, context, stream(0), components=[0])
    assert [skill.component for skill in chosen] == [0]
    with pytest.raises(SvslError, match="component: expected whole numbers from 0 to 3"):
        skills_at(reacher, task, context, stream(0), components=[4])


def test_every_context_has_a_skill() -> None:
    crowd = small_library("planar-reacher", np.tile([5.0, 0.0], (120, 1)), 1.0, np.zeros((120, 10)))
    assert len(skills_at(crowd, PlanarReacher(), np.array([5.0, 0.0]), stream(0))) == 120


def test_a_task_without_modes_and_with_broken_returns_is_listed_too() -> None:
    library = small_library("toys:SometimesNan", np.zeros((6, 2)), 1.0, np.zeros((6, 3)))
    skills = skills_at(library, SometimesNan(), np.zeros(2), stream(0))
    assert len(skills) == 6
    assert skills[5].returned == SometimesNan.penalty
    assert not skills[5].success
    assert skills[5].caption.endswith("return -20.00 · fails")


def test_the_planar_arm_goes_from_straight_to_its_posture() -> None:
    task, angles = PlanarReacher(), np.linspace(-1, 1.5, 10)
    motion = trimmed_motion(task, np.array([5.0, 0.0]), angles)
    np.testing.assert_array_equal(motion.poses[0], np.column_stack([np.arange(11), np.zeros(11)]))
    # forward kinematics, link by link
    x = y = heading = 0.0
    points = [(x, y)]
    for angle in angles:
        heading += angle
        x, y = x + np.cos(heading), y + np.sin(heading)
        points.append((x, y))
    np.testing.assert_allclose(motion.poses[-1], points, atol=1e-12)
    np.testing.assert_allclose(outline(task.scene, motion)[:, :2], points, atol=1e-12)
    np.testing.assert_array_equal(motion.trail[:, :2], motion.poses[:, -1])
    links = np.linalg.norm(np.diff(motion.poses, axis=1), axis=2)
    np.testing.assert_allclose(links, 1, atol=1e-12)
    jumps = np.linalg.norm(np.diff(motion.trail, axis=0), axis=1)
    assert max(jumps[0], jumps[-1]) < 0.1 * jumps.max(), "slow at both ends"


def ball_rests(ball: Array, end: int) -> bool:
    return bool((np.linalg.norm(ball[end:] - ball[-1], axis=1) <= 0.01).all())


def test_a_throw_is_shown_until_the_ball_rests() -> None:
    task, context = BeerPong(), np.array([0.1, -1.6])
    motion, whole = trimmed_motion(task, context, THROW), task.motion(context, THROW)
    end = len(motion.poses)
    np.testing.assert_array_equal(motion.poses, whole.poses[:end])
    np.testing.assert_array_equal(motion.trail, whole.trail[:end])
    assert end == len(whole.poses) or ball_rests(whole.trail, end)
    assert motion.moments["release"] == motion.trail_start
    np.testing.assert_array_equal(outline(task.scene, motion), whole.trail[motion.trail_start : end])
    invalid = trimmed_motion(task, context, np.full(15, 9.0))
    assert (len(invalid.poses), invalid.duration_s, invalid.step_at(3.0)) == (1, 0.0, 0)


def test_a_strike_is_shown_until_it_is_decided() -> None:
    task, context = TableTennis(), np.array([-0.7, 0.0, -0.7, 0.0])
    parameters = np.array([*np.full(21, 0.1), 3.0])
    motion, whole = trimmed_motion(task, context, parameters), task.motion(context, parameters)
    decided = int(task.evaluate_batch(context[None], parameters[None]).info["steps"][0])
    assert 0 < decided < len(whole.poses), "the ball falls before the arm rests"
    assert len(motion.poses) == min(decided + 250, len(whole.poses))


def test_duration_and_steps_of_a_motion() -> None:
    motion = Motion(0.1, np.zeros((7, 1)), np.zeros((7, 3)), np.zeros((0, 3)))
    assert motion.duration_s == pytest.approx(0.6)
    assert [motion.step_at(t) for t in (-1.0, 0.0, 0.26, 0.34, 7.0)] == [0, 0, 3, 3, 6]


def test_draws_scatter_around_the_mean_and_are_scored() -> None:
    library = small_library("toys:Bimodal", np.array([[0.0], [0.5]]), 0.5, np.array([[1.0, 0.0], [3.0, 3.0]]))
    task, context = Bimodal(), np.array([0.0])
    parameters, returns, success = draws_around(library, task, context, 0, 400, stream(1))
    assert parameters.shape == (400, 2)
    np.testing.assert_allclose(parameters.mean(axis=0), [1.0, 0.0], atol=0.003)
    np.testing.assert_allclose(parameters.std(axis=0), 0.01, rtol=0.2)
    expected = task.evaluate(np.zeros((400, 1)), parameters, stream(0))
    np.testing.assert_array_equal(returns, expected.returns)
    assert success.all()
    assert not draws_around(library, task, context, 1, 5, stream(1))[2].any()


def test_a_versatile_context_shows_each_mode_before_repeating_one() -> None:
    first, second, bad = [1.0, 0.0], [-1.0, 0.0], [9.0, 9.0]
    parameters = np.array([bad, first, first, second])
    library = small_library("toys:Bimodal", np.zeros((4, 1)), 0.1, parameters)
    context, skills = versatile_context(library, Bimodal(), stream(0))
    # the means do not follow the context: both modes work only near 0
    assert abs(context[0]) < 0.25
    assert [skill.component for skill in skills] == [1, 3, 2, 0]


def test_only_some_tasks_can_be_shown() -> None:
    assert all(isinstance(make_task(name), Showable) for name in REGISTRY)
    assert not isinstance(Bimodal(), Showable)
    with pytest.raises(SvslError, match="a Bimodal has no motion to show"):
        trimmed_motion(Bimodal(), np.zeros(1), np.zeros(2))
