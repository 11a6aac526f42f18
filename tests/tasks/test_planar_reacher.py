"""The planar reacher against its formula, written out by hand."""

import numpy as np
import pytest

from svsl import make_task
from svsl.model.random import stream
from svsl.tasks.planar_reacher import OBSTACLES, PlanarReacher, links_cross_boxes


def naive_return(angles: list[float], goal: tuple[float, float], free_first_joint: bool) -> tuple[float, bool]:
    """The return and success of one posture by the formula, with collisions by dense points along the links."""
    x = y = heading = 0.0
    collision = False
    for angle in angles:
        heading += angle
        for t in np.linspace(0, 1, 2001):
            px, py = x + t * np.cos(heading), y + t * np.sin(heading)
            collision |= any(a <= px <= b and c <= py <= d for a, b, c, d in OBSTACLES)
        x, y = x + np.cos(heading), y + np.sin(heading)
    wrapped = [np.arctan2(np.sin(a), np.cos(a)) for a in angles]
    effort = sum(a**2 for a in wrapped[1 if free_first_joint else 0 :])
    distance_sq = (x - goal[0]) ** 2 + (y - goal[1]) ** 2
    outside = not (4.5 <= goal[0] <= 7 and -6 <= goal[1] <= 6)
    value = -effort - 2 * distance_sq - 3 * collision - 10 * outside
    return float(value), bool(distance_sq <= 0.25**2 and not collision and not outside)


@pytest.mark.parametrize("free_first_joint", [True, False])
def test_returns_equal_the_formula(free_first_joint: bool) -> None:
    rng = stream(0)
    angles = np.concatenate([rng.normal(0, 0.5, (40, 10)), rng.normal(0, 3, (10, 10))])
    goals = rng.uniform([4, -7], [7.5, 7], (50, 2))
    task = make_task("planar-reacher", free_first_joint=free_first_joint)
    tips = PlanarReacher().joints(angles)[:, -1]
    goals[:10] = np.clip(tips[:10] + 0.1, [4.5, -6], [7, 6])  # some close to the tip
    outcome = task.evaluate(goals, angles, rng)
    for row in range(50):
        value, success = naive_return(list(angles[row]), (goals[row, 0], goals[row, 1]), free_first_joint)
        assert outcome.returns[row] == pytest.approx(value, abs=1e-9)
        assert outcome.success[row] == success
    assert outcome.info["collision"].any()
    assert not outcome.info["collision"].all()


def test_success_needs_the_tip_at_the_goal_and_a_goal_in_the_box() -> None:
    task = PlanarReacher()
    angles = np.zeros((4, 10))
    angles[:, 0] = 1.3  # up, then to the right above all obstacles
    angles[:, 5] = -1.3
    tip = task.joints(angles)[0, -1]
    assert (tip > task.context_low).all()
    assert (tip < task.context_high).all()
    goals = tip + np.array([[0.0, 0.0], [0.24, 0.0], [0.26, 0.0], [5.0, 0.0]])
    np.testing.assert_array_equal(task.evaluate(goals, angles, stream(0)).success, [True, True, False, False])


@pytest.mark.parametrize(
    ("start", "end", "hit"),
    [
        ((0.0, 0.0), (4.0, 0.0), True),  # through
        ((2.9, 0.0), (3.0, 0.1), True),  # inside
        ((0.0, 0.6), (4.0, 0.6), False),  # parallel beside
        ((2.9, -2.0), (2.9, 2.0), True),  # vertical through
        ((2.4, -2.0), (2.4, 2.0), False),  # vertical beside
        ((0.0, 0.0), (2.4, 0.0), False),  # stops before
        ((2.0, 0.3), (2.7, 1.0), False),  # cuts the corner outside
        ((2.0, -0.3), (2.9, 0.6), True),  # cuts the corner inside
    ],
)
def test_segments_and_boxes(start: tuple[float, float], end: tuple[float, float], hit: bool) -> None:
    box = np.array([[2.5, 3.3, -0.5, 0.5]])
    for points in ([start, end], [end, start]):
        assert links_cross_boxes(np.array([points]), box)[0] == hit


def test_a_batch_is_its_episodes_one_by_one() -> None:
    rng = stream(1)
    task = PlanarReacher()
    goals, angles = rng.uniform(task.context_low, task.context_high, (30, 2)), rng.normal(0, 1, (30, 10))
    together = task.evaluate(goals, angles, rng).returns
    alone = [task.evaluate(goals[i : i + 1], angles[i : i + 1], rng).returns[0] for i in range(30)]
    np.testing.assert_array_equal(together, alone)


def test_modes_say_on_which_side_each_obstacle_is_passed() -> None:
    task = PlanarReacher()
    angles = np.zeros((4, 10))
    angles[0, 0], angles[0, 5] = 1.3, -1.3  # up, then right: above all three
    angles[1, 0], angles[1, 5] = -1.3, 1.3  # down, then right: below all three
    angles[2, 0], angles[2, 7] = 0.3, -0.9  # above the middle one, below the upper one
    angles[3, 0], angles[3, 7] = -0.3, 0.9  # below the middle one, above the lower one
    outcome = task.describe(np.tile([5.5, 0.0], (4, 1)), angles, stream(0))
    # in the order of the obstacles: middle, lower, upper
    expected = ["over-over-over", "under-under-under", "under-over-over", "under-under-over"]
    np.testing.assert_array_equal(outcome.info["mode"], expected)
    np.testing.assert_allclose(np.asarray(outcome.info["path"], dtype=float) * 0.5, task.joints(angles).reshape(4, -1))
