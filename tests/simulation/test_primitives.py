"""Movement primitives compared with explicit formulas, finite differences and their boundary conditions."""

from math import exp

import numpy as np
import pytest

from svsl.model.random import stream
from svsl.simulation.primitives import radial_bases, reach, strike, throw

DT_S = 0.005
REST_S = 2.0


def test_bases_at_a_hand_computed_point() -> None:
    value, derivative = radial_bases(np.array(0.25), np.array([0.0, 1.0]), 0.5)
    first, second = exp(-(0.25**2)), exp(-(0.75**2))  # exp(-offset^2 / (2 * 0.5))
    total = first + second
    np.testing.assert_allclose(value, [first / total, second / total], rtol=1e-14)
    # of two bases the first is a logistic function of the phase, with slope -(1 - 0) / 0.5 in its exponent
    slope = -first * second / total**2 / 0.5
    np.testing.assert_allclose(derivative, [slope, -slope], rtol=1e-13)


def test_bases_sum_to_one_even_far_away() -> None:
    phase = np.concatenate([stream(0).uniform(-0.5, 1.5, (5, 4)), np.full((1, 4), 100.0)])  # exp(-5e5) is 0
    value, derivative = radial_bases(phase, np.linspace(-0.01, 1.01, 4), 0.01)
    assert value.shape == derivative.shape == (6, 4, 4)
    assert (value >= 0).all()
    np.testing.assert_allclose(value.sum(axis=-1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(derivative.sum(axis=-1), 0.0, atol=1e-12)
    np.testing.assert_allclose(value[-1], [[0, 0, 0, 1]] * 4, atol=1e-300)


def test_derivatives_of_bases_match_finite_differences() -> None:
    phase, centres, h = np.linspace(-0.2, 1.2, 57), np.array([-0.1, 0.2, 0.9]), 1e-6
    _, derivative = radial_bases(phase, centres, 0.03)
    ahead, behind = radial_bases(phase + h, centres, 0.03)[0], radial_bases(phase - h, centres, 0.03)[0]
    np.testing.assert_allclose(derivative, (ahead - behind) / (2 * h), atol=1e-8)
    assert np.abs(derivative).max() > 1


def test_throw_matches_its_formula() -> None:
    """`int(3.5 (T / 0.0175 + 1))` points over the phases 0 to 1, four bases, of which two have weights."""
    weights, steps = stream(1).standard_normal((1, 7, 2)), 103
    position, _ = throw(weights, np.array([steps]), steps, DT_S)
    for k in (0, 1, 30, 71, 102):
        activation = [exp(-((k / 102 - c) ** 2) / (2 * 0.01)) for c in (-0.01, 0.33, 0.67, 1.01)]
        for joint in range(7):
            expected_end = sum(activation[2 + b] * weights[0, joint, b] for b in range(2)) / sum(activation)
            assert position[0, k, joint] == pytest.approx(expected_end, abs=1e-14)


def test_throw_starts_at_rest_in_the_start_posture_and_ends_in_a_swing() -> None:
    weights = np.broadcast_to(np.eye(2), (3, 2, 2))  # each joint has one of the two bases
    position, velocity = throw(weights, np.array([23, 103, 263]), 263, DT_S)
    assert np.abs(position[:, 0]).max() < 1e-6
    assert np.abs(velocity[:, 0]).max() < 1e-3
    last = np.array([22, 102, 262])
    assert (position[range(3), last, 1] > 0.95).all()
    assert (velocity[range(3), last, 1] * last * DT_S > 0.1).all()


def test_throw_velocities_match_finite_differences() -> None:
    weights, steps = stream(2).normal(0, 0.5, (3, 7, 2)), np.array([101, 263, 150])
    position, velocity = throw(weights, steps, 263, DT_S)
    for row, count in enumerate(steps):
        x, v = position[row, :count], velocity[row, :count]
        np.testing.assert_allclose(v[1:-1], (x[2:] - x[:-2]) / (2 * DT_S), atol=0.02 * np.abs(v).max())
        # with many small steps of the same movement the error vanishes
        fine = (count - 1) * 100 + 1
        x, v_fine = (a[0] for a in throw(weights[row : row + 1], np.array([fine]), fine, DT_S / 100))
        np.testing.assert_allclose(v_fine[::100], v, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(v_fine[1:-1], (x[2:] - x[:-2]) / (2 * DT_S / 100), atol=1e-5 * np.abs(v).max())


def test_throw_holds_its_last_position() -> None:
    weights, steps = stream(3).standard_normal((2, 7, 2)), np.array([40, 60])
    position, velocity = throw(weights, steps, 90, DT_S)
    for row, count in enumerate(steps):
        assert np.abs(velocity[row, count - 1]).max() > 0.1
        np.testing.assert_array_equal(velocity[row, count:], 0.0)
        np.testing.assert_array_equal(position[row, count:], np.tile(position[row, count - 1], (90 - count, 1)))
        assert (position[row, count - 1] != position[row, count - 2]).all()


def test_throw_does_not_depend_on_its_batch() -> None:
    weights, steps = stream(4).standard_normal((5, 7, 2)), np.array([23, 263, 2, 103, 77])
    together = throw(weights, steps, 264, DT_S)
    for row, count in enumerate(steps):
        for length in (int(count) + 1, 333):
            alone = throw(weights[row : row + 1], steps[row : row + 1], length, DT_S)
            shared = min(length, 264)
            for a, b in zip(together, alone, strict=True):
                np.testing.assert_array_equal(a[row, :shared], b[0, :shared])


def strike_bases(t: float, duration: float) -> list[float]:
    """The published formula, term by term, up to the end of the strike."""
    width = duration / 2
    activation = [exp(-((t - c) ** 2) / (2 * width**2)) for c in (0.0, duration / 2, duration)]
    fade = 1 / (1 + exp(-(12 * t / duration - 6)))
    return [a / sum(activation) * fade for a in activation]


def naive_strike(weights: list[float], duration: float, t: float) -> float:
    """One joint: the strike, then a constant deceleration from the speed at T (a finite difference) to rest."""

    def moving(t: float) -> float:
        return sum(b * w for b, w in zip(strike_bases(t, duration), weights, strict=True))

    if t <= duration:
        return moving(t)
    speed = (moving(duration + 1e-6) - moving(duration - 1e-6)) / 2e-6
    after = min(t - duration, REST_S)
    return moving(duration) + speed * after - speed / REST_S * after**2 / 2


def test_strike_matches_its_formula() -> None:
    weights, durations = stream(5).standard_normal((3, 7, 3)), np.array([0.1, 0.733, 1.5])
    position = strike(weights, durations, 1800, 0.002)
    assert position.shape == (3, 1800, 7)
    for row, duration in enumerate(durations):
        for step in (0, 1, 49, 50, 51, 200, 366, 367, 700, 749, 750, 751, 1400, 1799):
            for joint in range(7):
                expected_end = naive_strike(list(weights[row, joint]), duration, step * 0.002)
                assert position[row, step, joint] == pytest.approx(expected_end, abs=1e-8)


def test_strike_is_smooth_at_its_end_and_decelerates_uniformly() -> None:
    duration, dt_s = 0.5, 1e-4
    end, rest = 5000, 25000
    x = strike(stream(6).standard_normal((1, 7, 3)), np.array([duration]), rest + 500, dt_s)[0]
    v = np.diff(x, axis=0) / dt_s
    assert np.abs(v[end]).max() > 0.1
    np.testing.assert_allclose(x[end + 1], x[end], atol=1e-3)
    np.testing.assert_allclose(v[end], v[end - 1], atol=2e-3)
    acceleration = np.diff(v[end:rest], axis=0) / dt_s
    np.testing.assert_allclose(acceleration, np.broadcast_to(-v[end] / REST_S, acceleration.shape), atol=1e-3)
    np.testing.assert_array_equal(x[rest + 1 :], np.tile(x[rest + 1], (499, 1)))
    np.testing.assert_allclose(x[rest], x[rest + 1], atol=1e-7)


def test_strike_does_not_depend_on_its_batch() -> None:
    weights, durations = stream(7).standard_normal((3, 7, 3)), np.array([0.1, 2.0, 0.7])
    together = strike(weights, durations, 600, 0.002)
    for row in range(3):
        for length in (100, 600, 777):
            alone = strike(weights[row : row + 1], durations[row : row + 1], length, 0.002)[0]
            np.testing.assert_array_equal(together[row, :length], alone[:600])


def test_reach_matches_its_formula() -> None:
    weights = stream(8).standard_normal((2, 5, 3))
    position, _ = reach(weights, 200, 0.02)
    for k in (0, 1, 9, 60, 199):
        activation = [exp(-((k / 200 - c) ** 2) / (2 * 0.25**2)) for c in (0.0, 0.5, 1.0)]
        fade = 1 - exp(-0.5 * (0.02 * k / 0.2) ** 2)
        for row in range(2):
            for joint in range(5):
                mix = sum(activation[b] * weights[row, joint, b] for b in range(3)) / sum(activation)
                assert position[row, k, joint] == pytest.approx(fade * mix, abs=1e-14)


def test_reach_starts_at_rest_and_slows_down_to_its_last_weight() -> None:
    weights = stream(9).standard_normal((4, 5, 5))
    position, velocity = reach(weights, 4000, 0.001)
    np.testing.assert_array_equal(position[:, 0], 0)
    np.testing.assert_array_equal(velocity[:, 0], 0)
    np.testing.assert_allclose(velocity[:, 1:-1], (position[:, 2:] - position[:, :-2]) / 0.002, atol=1e-4)
    assert np.abs(velocity).max() > 1
    expected_end = 0.8805 * weights[..., -1] + 0.1192 * weights[..., -2]  # exp(-2) of the previous basis remains
    np.testing.assert_allclose(position[:, -1], expected_end, atol=0.01)
