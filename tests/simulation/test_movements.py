"""Movement primitives compared with published trajectories, explicit formulas and the DMP's differential equation."""

from math import exp

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp

from svsl import SvslError
from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.simulation.movements import Movement, Primitive, ProDMP, ProMP, Throw
from svsl.simulation.primitives import throw

PANDA = np.array([0.38706806, 0.17620842, 0.24989142, -2.39914377, -0.07986905, 2.56857367, 1.47951693])
JOINT = np.arange(1, 8)[:, None]
BENCHMARK_PRODMP = ProDMP(8, "absolute", weight_scale=0.3, goal_scale=0.3)
HOPPER_WEIGHTS = np.array([[-1.95, 2.33, 1.72, -1.12], [2.92, -1.04, 0.46, 0.47], [1.25, -4.96, -1.02, 1.49]])


def test_promp_follows_the_published_trajectory() -> None:
    weights = 0.4 * np.sin(1.7 * JOINT + 0.9 * np.arange(1, 6) + 0.4)
    position, velocity = ProMP()(weights[None], PANDA, np.array([2.0]), 101, 0.02)
    published = [
        [0.3988, 0.0585, 0.2685, -2.2862, -0.1276, 2.4679, 1.5532],
        [0.0815, 0.1010, 0.5749, -2.4077, -0.4026, 2.6603, 1.7786],
        [0.4132, 0.5330, 0.1318, -2.7255, 0.1223, 2.8429, 1.2066],
    ]
    assert_allclose(position[0, [1, 50, 100]], published, atol=6e-5)
    assert_array_equal(velocity[0, :100], np.diff(position[0], axis=0) / 0.02)
    assert_array_equal(velocity[0, 100], velocity[0, 99])


def test_promp_matches_its_formula() -> None:
    primitive = ProMP(2, zero_start=2, zero_goal=1, bandwidth=3.0, scale=0.5)
    weights, start = stream(1).standard_normal((2, 3, 2)), stream(2).standard_normal((2, 3))
    position, _ = primitive(weights, start, np.array([0.5, 1.0]), 11, 0.1)
    for row, duration in enumerate((0.5, 1.0)):
        for k in (0, 3, 5, 8, 10):
            activation = [exp(-3 * 16 * (min(0.1 * k / duration, 1) - c) ** 2 / 2) for c in (0, 0.25, 0.5, 0.75, 1)]
            for joint in range(3):
                mix = sum(a * w for a, w in zip(activation[2:4], weights[row, joint], strict=True)) / sum(activation)
                assert position[row, k, joint] == pytest.approx(start[row, joint] + 0.5 * mix, abs=1e-14)


def test_promp_starts_beside_the_start_posture() -> None:
    """The published share of the first weighted basis at the start; its neighbour without weight has the rest."""
    first = np.array([[[1.0, 0, 0, 0, 0]]])
    for bandwidth, share in ((2.0, 0.265), (3.0, 0.182)):
        position, _ = ProMP(bandwidth=bandwidth)(first, np.zeros(1), np.ones(1), 2, 0.1)
        assert position[0, 0, 0] == pytest.approx(share, abs=5e-4)


def test_prodmp_follows_the_published_trajectory() -> None:
    weights = np.sin(1.3 * JOINT + 0.7 * np.arange(1, 10))
    position, velocity = BENCHMARK_PRODMP(weights[None], PANDA, np.array([2.0]), 101, 0.02)
    published = [
        [0.3893, 0.1757, 0.2467, -2.3975, -0.0776, 2.5679, 1.4768],
        [0.3805, -0.5150, -0.5001, -0.4296, 0.6879, 0.8586, -0.2212],
        [-0.2196, 0.2903, 0.3968, -0.1733, -0.4307, -0.0486, 0.4057],
    ]
    assert_allclose(position[0, [1, 50, 100]], published, atol=6e-5)
    middle = [-1.2449, -0.4614, 0.7197, 2.0554, -0.3658, -2.3600, -0.9099]
    assert_allclose(velocity[0, 50], middle, atol=6e-5)


def test_prodmp_continues_after_its_duration_as_published() -> None:
    start = np.array([-0.2, -0.1, 0.3])
    position, _ = ProDMP(3, "absolute")(HOPPER_WEIGHTS[None], start, np.array([0.8]), 251, 0.008)
    published = [[-1.4205, 2.4401, -0.3131], [1.1175, 0.6065, -2.6229], [-0.9973, 0.4965, 1.3849]]
    assert_allclose(position[0, [50, 100, 250]], published, atol=6e-5)


def test_scales_of_the_benchmarks() -> None:
    box = [55.83, 48.09, 75.35, 115.89, 177.95, 273.18, 417.96, 373.03]
    assert_allclose(BENCHMARK_PRODMP.scales, box, atol=6e-3)
    assert_allclose(ProDMP(3).scales, [74.398, 219.216, 1092.317], atol=1e-3)
    smaller = [28.30, 47.19, 136.47, 357.99]
    assert_allclose(ProDMP(4, weight_scale=0.3).scales, smaller, atol=6e-3)
    assert_array_equal(ProDMP(3, weight_scale=0.5, auto_scale=False).scales, 0.5)


def spring(primitive: ProDMP, weights: Array, goal: float, start: float, u: Array) -> Array:
    """Integrates the differential equation of one joint; returns positions and slopes at the times u: `(2, times)`."""
    centres = np.exp(-primitive.alpha_x * np.arange(primitive.bases + 1) / (primitive.bases - 1))
    precisions, a = primitive.bandwidth / np.diff(centres) ** 2, primitive.alpha / 2

    def rate(u: float, state: Array) -> list[float]:
        x = exp(-primitive.alpha_x * u)
        activation = np.exp(-precisions * (x - centres[:-1]) ** 2 / 2)
        force = x * float(weights @ activation) / float(activation.sum())
        return [state[1], a**2 * (goal - state[0]) - 2 * a * state[1] + force]

    solution = solve_ivp(rate, (0.0, u[-1]), [start, 0.0], "DOP853", t_eval=u, rtol=1e-12, atol=1e-13, max_step=0.02)
    return np.asarray(solution.y)


@pytest.mark.parametrize(
    "primitive",
    [
        ProDMP(3, "absolute"),
        ProDMP(8, weight_scale=0.3, goal_scale=0.5),
        ProDMP(4, "start", alpha=25.0, alpha_x=2.0, bandwidth=1.5, auto_scale=False, weight_scale=40.0),
    ],
)
def test_prodmp_solves_its_differential_equation(primitive: ProDMP) -> None:
    weights, start = stream(3).standard_normal((2, 2, primitive.size)), np.array([0.4, -1.0])
    durations = np.array([0.7, 0.33])  # up to 3 and 6 durations, in steps that are no part of the table's
    position, velocity = primitive(weights, start, durations, 212, 0.01)
    for row in range(2):
        u = 0.01 * np.arange(212) / durations[row]
        for joint in range(2):
            goal = {"absolute": 0.0, "relative": start[joint], "start": start[joint]}[primitive.goal]
            if primitive.goal != "start":
                goal += primitive.goal_scale * weights[row, joint, -1]
            pushed = primitive.scales * weights[row, joint, : primitive.bases]
            expected = spring(primitive, pushed, goal, start[joint], u)
            assert_allclose(position[row, :, joint], expected[0], atol=2e-9)
            assert_allclose(velocity[row, :, joint], expected[1] / durations[row], atol=1e-7)


def test_a_scaled_weight_moves_by_one() -> None:
    position, _ = ProDMP(4)(np.eye(5)[:4, None], np.zeros(1), np.ones(4), 60001, 1e-4)
    assert_allclose(position[:, :, 0].max(axis=1), 1.0, atol=1e-6)


def test_no_parameters_are_no_movement_unless_the_goal_is_absolute() -> None:
    start = np.array([[1.0, -2.0], [0.5, 0.0]])
    primitives: list[Primitive] = [Throw(2), ProMP(2), ProDMP(2), ProDMP(2, "start")]
    for primitive in primitives:
        position, velocity = primitive(np.zeros((2, 2, primitive.size)), start, np.ones(2), 30, 0.1)
        assert_allclose(position, np.repeat(start[:, None], 30, axis=1), atol=1e-15)
        assert_allclose(velocity, 0, atol=1e-14)
    position, _ = ProDMP(2, "absolute")(np.zeros((2, 2, 3)), start, np.ones(2), 30, 0.1)
    assert_array_equal(position[:, 0], start)
    assert_allclose(position[:, -1], 0, atol=1e-4)


@pytest.mark.parametrize("primitive", [Throw(2), ProMP(3), ProDMP(3), ProDMP(3, "absolute")])
def test_a_movement_does_not_depend_on_its_batch(primitive: Primitive) -> None:
    weights, start = stream(4).standard_normal((4, 7, primitive.size)), stream(5).standard_normal((4, 7))
    durations = np.array([0.5, 1.1, 0.5, 0.3])
    together = primitive(weights, start, durations, 200, 0.01)
    for row in range(4):
        alone = primitive(weights[row : row + 1], start[row], durations[row : row + 1], 200, 0.01)
        for a, b in zip(together, alone, strict=True):
            assert_array_equal(a[row], b[0])


def test_throw_is_a_primitive() -> None:
    weights, start = stream(6).standard_normal((2, 7, 2)), stream(7).standard_normal(7)
    position, velocity = Throw(2)(weights, start, np.array([0.5, 0.001]), 90, 0.01)
    offset, speed = throw(weights, np.array([50, 2]), 90, 0.01)
    assert_array_equal(position, start + offset)
    assert_array_equal(velocity, speed)


def test_a_learned_duration_is_the_last_parameter_and_limited_to_its_range() -> None:
    movement, fixed = Movement(ProDMP(3), 2, (0.5, 1.5)), Movement(ProDMP(3), 2, 1.5)
    assert (movement.size, fixed.size, movement.longest_s) == (9, 8, 1.5)
    weights, start = stream(8).standard_normal((3, 8)), np.array([0.1, 0.2])
    parameters = np.column_stack([weights, [0.8, 0.1, 7.0]])
    position, velocity = movement.trajectories(parameters, start, 100, 0.02)
    expected = movement.primitive(weights.reshape(3, 2, 4), start, np.array([0.8, 0.5, 1.5]), 100, 0.02)
    assert_array_equal(position, expected[0])
    assert_array_equal(velocity, expected[1])
    assert_array_equal(fixed.trajectories(weights, start, 100, 0.02)[0][2], position[2])
    mean, cov = movement.search(0.0, np.array([0.5, 2.0]))
    assert_array_equal(mean, [0] * 8 + [1.0])
    assert_array_equal(cov, np.diag([0.25] * 4 + [4.0] * 4 + [0.0625]))
    assert_array_equal(fixed.search(0.0, np.array([0.5, 2.0]))[1], cov[:8, :8])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Throw(0), "Throw: bases: expected 1 or more, got 0"),
        (lambda: ProMP(1, zero_start=0), "expected two bases or more"),
        (lambda: ProMP(zero_goal=-1), "zero_goal: expected 0 or more, got -1"),
        (lambda: ProDMP(1), "ProDMP: bases: expected 2 or more, got 1"),
        (lambda: ProDMP(goal="end"), "goal: expected relative, absolute or start, got 'end'"),  # type: ignore[arg-type]
        (lambda: ProDMP(alpha=0.0), "expected alpha, alpha_x and bandwidth > 0"),
        (lambda: Movement(Throw(), 2, (1.0, 0.5)), r"duration_s: expected .* got \(1.0, 0.5\)"),
        (lambda: Movement(Throw(), 2, 0.0), "duration_s: expected a positive number"),
    ],
)
def test_wrong_settings_are_named(make: object, message: str) -> None:
    with pytest.raises(SvslError, match=message):
        make()  # type: ignore[operator]
