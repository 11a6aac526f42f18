"""The quadratic fit against known quadratics and the naive regression, and on degenerate samples."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import few_examples, kl_divergence, random_stack, whitened_model
from svsl.bench import reference
from svsl.learners.surrogates import Quadratic, feature_count, fit_quadratic
from svsl.learners.trust_region import gaussian_step
from svsl.model.gaussians import Array, LinearGaussian


@dataclass(frozen=True)
class RandomQuadratic:
    """`-1/2 y^T Q y + y^T (A x + b)` plus a quadratic in `x`, one for each of K components."""

    q: Array
    a: Array
    b: Array
    x_part: Array

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int, dim_y: int, dim_x: int) -> "RandomQuadratic":
        q = rng.standard_normal((count, dim_y, dim_y))
        return cls(
            q + q.transpose(0, 2, 1),  # indefinite
            rng.standard_normal((count, dim_y, dim_x)),
            rng.standard_normal((count, dim_y)),
            rng.standard_normal((count, dim_x, dim_x)),
        )

    def __call__(self, x: Array, y: Array) -> Array:
        targets = np.empty(x.shape[:2])
        for k, n in np.ndindex(*targets.shape):
            linear = self.a[k] @ x[k, n] + self.b[k]
            targets[k, n] = -0.5 * y[k, n] @ self.q[k] @ y[k, n] + y[k, n] @ linear + 3.0
            targets[k, n] += x[k, n] @ self.x_part[k] @ x[k, n] - x[k, n].sum()
        return targets


def draw_samples(
    rng: np.random.Generator, stack: LinearGaussian, n: int, spread: float = 1.0, centre: float = 2.0
) -> tuple[Array, Array]:
    count, _, dim_x = stack.gain.shape
    mixing = np.linalg.qr(rng.standard_normal((count, dim_x, dim_x)))[0] * np.linspace(0.3, 2, dim_x)
    x = centre + spread * rng.standard_normal((count, n, dim_x)) @ mixing
    return x, stack.sample(x, rng)


def assert_model(model: Quadratic, expected: Quadratic, tolerance: float) -> None:
    np.testing.assert_allclose(model.curvature, expected.curvature, atol=tolerance)
    np.testing.assert_allclose(model.slope, expected.slope, atol=tolerance)
    np.testing.assert_allclose(model.moment, expected.moment, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dim", [0, 1, 2, 5])
def test_feature_count_counts_the_monomials(dim: int) -> None:
    monomials = [p for p in itertools.product(range(3), repeat=dim) if sum(p) <= 2]
    assert feature_count(dim) == len(monomials)


@few_examples(12)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 3), dim_y=st.integers(1, 5), dim_x=st.integers(0, 3))
def test_a_quadratic_is_recovered(seed: int, count: int, dim_y: int, dim_x: int) -> None:
    rng = np.random.default_rng(seed)
    stack = random_stack(rng, count, dim_y, dim_x)
    truth = RandomQuadratic.draw(rng, count, dim_y, dim_x)
    x, y = draw_samples(rng, stack, 2 * feature_count(dim_y + dim_x) + 5)
    model = fit_quadratic(stack, x, y, truth(x, y))
    assert_model(model, whitened_model(stack, truth.q, truth.a, truth.b, x), 1e-5)


def test_the_sign_of_the_curvature_and_the_slope() -> None:
    """The peak at y = 3 x - 1 of a narrow parabola, seen from y = 0: uphill is where the peak is, unlike for -x."""
    stack = LinearGaussian.build(np.zeros((1, 1, 1)), np.zeros((1, 1)), 0.5 * np.ones((1, 1, 1)))
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, (1, 30, 1))
    y = stack.sample(x, rng)
    model = fit_quadratic(stack, x, y, -4 * (y - 3 * x + 1)[:, :, 0] ** 2)
    np.testing.assert_allclose(model.curvature, [[[8 * 0.25]]], rtol=1e-6)
    np.testing.assert_allclose(model.slope, [[[8 * 3 * 0.5, -8 * 0.5]]], rtol=1e-6)


@few_examples(8)
@given(seed=st.integers(0, 10**6), dim_y=st.integers(1, 4), dim_x=st.integers(0, 2))
def test_the_fit_to_other_functions_matches_the_naive_one(seed: int, dim_y: int, dim_x: int) -> None:
    rng = np.random.default_rng(seed)
    stack = random_stack(rng, 2, dim_y, dim_x, condition=100)
    x, y = draw_samples(rng, stack, 2 * feature_count(dim_y + dim_x))
    targets = np.sin(3 * y).sum(axis=2) - np.exp(0.5 * y[:, :, 0]) + x.sum(axis=2) * np.abs(y[:, :, -1])
    model = fit_quadratic(stack, x, y, targets)
    naive = [
        reference.fit_quadratic_raw(x[k], y[k], targets[k], stack.gain[k], stack.bias[k], stack.cov[k])
        for k in range(2)
    ]
    q, a, b = (np.stack(parts) for parts in zip(*naive, strict=True))
    assert_model(model, whitened_model(stack, q, a, b, x), 1e-5)


def test_the_naive_fit_recovers_a_quadratic_in_raw_coordinates() -> None:
    rng = np.random.default_rng(3)
    stack = random_stack(rng, 1, 3, 2)
    truth = RandomQuadratic.draw(rng, 1, 3, 2)
    x, y = draw_samples(rng, stack, 60)
    targets = truth(x, y)
    q, a, b = reference.fit_quadratic_raw(x[0], y[0], targets[0], stack.gain[0], stack.bias[0], stack.cov[0])
    np.testing.assert_allclose(q, truth.q[0], atol=1e-5)
    np.testing.assert_allclose(a, truth.a[0], atol=1e-5)
    np.testing.assert_allclose(b, truth.b[0], atol=1e-5)


def test_units_do_not_matter() -> None:
    """Contexts far from the origin in tiny units and targets in huge ones change the fit by their units only."""
    rng = np.random.default_rng(4)
    stack = random_stack(rng, 1, 2, 2)
    truth = RandomQuadratic.draw(rng, 1, 2, 2)
    x, y = draw_samples(rng, stack, 40)
    targets = truth(x, y)
    plain = fit_quadratic(stack, x, y, targets)
    unit = 1e-3
    moved = LinearGaussian.build(stack.gain / unit, stack.bias - 5.0 * stack.gain.sum(axis=2), stack.chol)
    scaled = fit_quadratic(moved, (x + 5.0) * unit, y, 1e6 * targets)
    np.testing.assert_allclose(scaled.curvature, 1e6 * plain.curvature, rtol=1e-5)
    np.testing.assert_allclose(scaled.slope[:, :, :-1] * unit, 1e6 * plain.slope[:, :, :-1], rtol=1e-5)


def step_obeys_the_bound(stack: LinearGaussian, model: Quadratic, x: Array) -> bool:
    new, info = gaussian_step(stack, model, 1e-3, 0.01)
    measured = kl_divergence(new, stack, x)
    return bool(info.ok.all() and np.allclose(measured, info.kl, atol=1e-6) and (measured <= 0.01 + 1e-6).all())


@pytest.mark.parametrize("value", [0.0, 0.3, 6.1, 123.456])
@pytest.mark.parametrize("n", [37, 136])
def test_constant_contexts_give_no_slope_in_the_context(value: float, n: int) -> None:
    rng = np.random.default_rng(5)
    stack = random_stack(rng, 1, 2, 1)
    x = np.full((1, n, 1), value)
    y = stack.sample(x, rng)
    model = fit_quadratic(stack, x, y, -(y**2).sum(axis=2) + y[:, :, 0])
    mean = stack.gain[0, :, 0] * value + stack.bias[0]
    np.testing.assert_allclose(model.slope[0] @ [value, 1], stack.chol[0].T @ (np.array([1, 0]) - 2 * mean), atol=1e-4)
    np.testing.assert_allclose(model.slope[0, :, 0], 0, atol=1e-3)
    assert step_obeys_the_bound(stack, model, x)


def test_collinear_contexts() -> None:
    rng = np.random.default_rng(6)
    stack = random_stack(rng, 1, 2, 2)
    first = rng.standard_normal((1, 60, 1))
    x = np.concatenate([first, 0.3 * first + 1], axis=2)
    y = stack.sample(x, rng)
    model = fit_quadratic(stack, x, y, -(y**2).sum(axis=2) + y[:, :, 0] * x[:, :, 0])
    means = x[0] @ stack.gain[0].T + stack.bias[0]
    expected = (x[0, :, :1] * [1, 0] - 2 * means) @ stack.chol[0]
    np.testing.assert_allclose(np.c_[x[0], np.ones(60)] @ model.slope[0].T, expected, atol=1e-3)
    assert np.abs(model.slope).max() < 1e3
    assert step_obeys_the_bound(stack, model, x)


def test_collinear_parameters() -> None:
    """Samples on a line: along it the model is right, across it there is none, and all of it is finite."""
    rng = np.random.default_rng(7)
    stack = LinearGaussian.unconditional(np.zeros((1, 2)), np.eye(2)[None])
    along = rng.standard_normal((1, 30, 1))
    y = along * [1.0, 1.0]
    x = np.empty((1, 30, 0))
    model = fit_quadratic(stack, x, y, -3 * along[:, :, 0] ** 2 + along[:, :, 0])
    diagonal = np.ones(2)
    np.testing.assert_allclose(diagonal @ model.curvature[0] @ diagonal, 6, rtol=1e-5)
    np.testing.assert_allclose(diagonal @ model.slope[0, :, 0], 1, rtol=1e-5)
    assert np.abs(model.curvature).max() < 10
    assert step_obeys_the_bound(stack, model, x)


def test_a_single_repeated_sample_teaches_nothing() -> None:
    stack = random_stack(np.random.default_rng(8), 1, 2, 1)
    x, y = np.full((1, 20, 1), 0.7), np.broadcast_to([0.1, -0.4], (1, 20, 2))
    model = fit_quadratic(stack, x, y, np.full((1, 20), -3.7))
    np.testing.assert_allclose(model.curvature, 0, atol=1e-4)
    np.testing.assert_allclose(model.slope, 0, atol=1e-4)


def test_fewer_samples_than_features_still_give_a_bounded_model() -> None:
    rng = np.random.default_rng(9)
    stack = random_stack(rng, 1, 4, 2)
    x, y = draw_samples(rng, stack, feature_count(6) // 2)
    targets = rng.standard_normal((1, feature_count(6) // 2))
    model = fit_quadratic(stack, x, y, targets)
    assert np.abs(model.curvature).max() < 10
    assert step_obeys_the_bound(stack, model, x)


def test_a_nan_spoils_its_own_component_only() -> None:
    rng = np.random.default_rng(10)
    stack = random_stack(rng, 3, 2, 1)
    truth = RandomQuadratic.draw(rng, 3, 2, 1)
    x, y = draw_samples(rng, stack, 30)
    targets = truth(x, y)
    clean = fit_quadratic(stack, x, y, targets)
    targets[1, 4] = np.nan
    model = fit_quadratic(stack, x, y, targets)
    assert np.isnan(model.slope[1]).any()
    for k in (0, 2):
        np.testing.assert_allclose(model.curvature[k], clean.curvature[k], rtol=1e-9)
        np.testing.assert_allclose(model.slope[k], clean.slope[k], rtol=1e-9)


def test_importance_counts_like_repeated_samples() -> None:
    rng = np.random.default_rng(8)
    gaussian = random_stack(rng, 2, 2, 1)
    x, y, targets = rng.standard_normal((2, 40, 1)), rng.standard_normal((2, 40, 2)), rng.standard_normal((2, 40))
    times = np.array([rng.permutation(np.repeat([1, 2, 3, 0], 10)) for _ in range(2)])
    repeated = [np.stack([np.repeat(values[k], times[k], axis=0) for k in range(2)]) for values in (x, y, targets)]
    weighted = fit_quadratic(gaussian, x, y, targets, times * 40 / 60)
    plain = fit_quadratic(gaussian, *repeated)
    for name in ("curvature", "slope", "moment", "level"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(plain, name), atol=1e-8, err_msg=name)


def test_the_level_is_the_value_at_the_mean() -> None:
    rng = np.random.default_rng(9)
    gaussian = random_stack(rng, 1, 2, 0)
    y = rng.standard_normal((1, 30, 2))
    at_mean = float(3 - 2 * gaussian.bias[0, 0] + gaussian.bias[0, 1] ** 2)
    model = fit_quadratic(gaussian, y[:, :, :0], y, 3 - 2 * y[:, :, 0] + y[:, :, 1] ** 2)
    assert model.level[0] == pytest.approx(at_mean, abs=1e-7)


@few_examples(8)
@given(seed=st.integers(0, 10**6), dim_y=st.integers(1, 4), dim_x=st.integers(0, 2), shrinkage=st.floats(0.1, 100))
def test_a_shrunk_fit_matches_least_squares_with_a_row_for_each_penalty(
    seed: int, dim_y: int, dim_x: int, shrinkage: float
) -> None:
    """The terms are written out one by one; a penalty is an observation that the coefficient of its term is 0."""
    rng = np.random.default_rng(seed)
    stack, count = random_stack(rng, 1, dim_y, dim_x), 25
    x, y = draw_samples(rng, stack, count)
    targets = np.sin(3 * y).sum(axis=2) + x.sum(axis=2) * np.abs(y[:, :, -1]) - (y**2).sum(axis=2)
    model = fit_quadratic(stack, x, y, targets, shrinkage=shrinkage)

    z = np.linalg.solve(stack.chol[0], (y[0] - x[0] @ stack.gain[0].T - stack.bias[0]).T).T
    centred = x[0] - x[0].mean(axis=0)
    unit = np.linalg.cholesky(np.cov(centred.T, bias=True).reshape(dim_x, dim_x)) if dim_x else np.zeros((0, 0))
    white = np.linalg.solve(unit, centred.T).T
    terms: dict[tuple[str, int, int], tuple[Array, float]] = {("common", 0, 0): ((z**2).sum(axis=1), 1.0)}
    for i in range(dim_y):
        terms["linear", i, 0] = z[:, i], dim_y
        terms |= {("zz", i, j): (z[:, i] * z[:, j], dim_y * (dim_y + 1) / 2) for j in range(i, dim_y)}
        terms |= {("zx", i, j): (z[:, i] * white[:, j], dim_y * dim_x) for j in range(dim_x)}
    penalised = np.column_stack([term for term, _ in terms.values()])
    rows = np.diag(np.sqrt([shrinkage * penalty for _, penalty in terms.values()]) * penalised.std(axis=0))
    in_x = [white[:, i] * white[:, j] for i in range(dim_x) for j in range(i + 1)]
    free = np.column_stack([np.ones(count), white, *in_x])
    system = np.block([[penalised, free], [rows, np.zeros((len(rows), free.shape[1]))]])
    solution = np.linalg.lstsq(system, np.append(targets[0], np.zeros(len(rows))), rcond=None)[0]

    curvature, slope, by_white = np.zeros((dim_y, dim_y)), np.zeros((dim_y, dim_x + 1)), np.zeros((dim_y, dim_x))
    for (kind, i, j), weight in zip(terms, solution[: len(terms)], strict=True):
        if kind == "common":
            curvature -= 2 * weight * np.eye(dim_y)
        elif kind == "linear":
            slope[i, -1] += weight
        elif kind == "zz":
            curvature[[i, j], [j, i]] -= weight if i != j else 2 * weight
        else:
            by_white[i, j] = weight
    slope[:, :-1] = by_white @ np.linalg.inv(unit)
    slope[:, -1] -= slope[:, :-1] @ x[0].mean(axis=0)
    np.testing.assert_allclose(model.curvature[0], curvature, atol=1e-6 * np.abs(curvature).max())
    np.testing.assert_allclose(model.slope[0], slope, atol=1e-6 * np.abs(slope).max())


def test_a_shrunk_fit_finds_a_round_hill_with_fewer_episodes_than_features() -> None:
    rng = np.random.default_rng(0)
    stack = LinearGaussian.build(np.zeros((1, 20, 0)), np.zeros((1, 20)), np.eye(20)[None])
    y = stack.sample(np.empty((1, 100, 0)), rng)
    peak = np.zeros(20)
    peak[0] = 3.0
    model = fit_quadratic(stack, y[:, :, :0], y, -((y - peak) ** 2).sum(axis=2), shrinkage=1.0)
    assert y.shape[1] < feature_count(20)
    curvature = np.linalg.eigvalsh(model.curvature[0])
    assert 1.5 < curvature.min() <= curvature.max() < 2.5
    newton_step = np.linalg.solve(model.curvature[0], model.slope[0, :, 0])
    np.testing.assert_allclose(newton_step, peak, atol=1.0)
