"""The trust-region steps against the dual minimised by scipy, brute force, and what a maximum must satisfy."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax

from helpers import few_examples, kl_divergence, random_stack, whitened_model
from svsl.bench import reference
from svsl.learners.surrogates import Quadratic
from svsl.learners.trust_region import categorical_step, gaussian_step
from svsl.model.gaussians import Array, LinearGaussian


@dataclass(frozen=True)
class Problem:
    """K trust-region problems in raw coordinates."""

    old: LinearGaussian
    q: Array
    a: Array
    b: Array
    x: Array

    @property
    def model(self) -> Quadratic:
        return whitened_model(self.old, self.q, self.a, self.b, self.x)

    def one(self, k: int) -> "Problem":
        chosen = slice(k, k + 1)
        return Problem(self.old.select(np.array([k])), self.q[chosen], self.a[chosen], self.b[chosen], self.x[chosen])

    def naive(self, k: int, entropy_coef: float, kl_bound: float) -> tuple[Array, Array, Array]:
        old = self.old
        return reference.gaussian_step_raw(
            old.gain[k], old.bias[k], old.cov[k], self.q[k], self.a[k], self.b[k], self.x[k], entropy_coef, kl_bound
        )

    def objective(self, new: LinearGaussian, entropy_coef: float) -> float:
        """Of the first problem: `E[model] + entropy_coef * H[new]`."""
        means = self.x[0] @ new.gain[0].T + new.bias[0]
        linear = self.x[0] @ self.a[0].T + self.b[0]
        expected = (-0.5 * (means @ self.q[0]) * means + means * linear).sum(axis=1).mean()
        return float(expected - 0.5 * np.trace(self.q[0] @ new.cov[0]) + entropy_coef * new.entropy[0])


def draw_problem(
    rng: np.random.Generator,
    count: int,
    dim_y: int,
    dim_x: int,
    *,
    condition: float = 20.0,
    curvatures: tuple[float, float] = (-2.0, 2.0),
    decades: float = 0.0,
) -> Problem:
    """Models whose curvatures in the old distribution's units lie in a range, then are spread over decades."""
    old = random_stack(rng, count, dim_y, dim_x, condition)
    lam = rng.uniform(*curvatures, (count, dim_y)) * 10 ** rng.uniform(-decades, decades, (count, dim_y))
    axes = np.linalg.qr(rng.standard_normal((count, dim_y, dim_y)))[0]
    unwhiten = np.linalg.inv(old.chol)
    q = unwhiten.transpose(0, 2, 1) @ ((axes * lam[:, None]) @ axes.transpose(0, 2, 1)) @ unwhiten
    q = 0.5 * (q + q.transpose(0, 2, 1))
    slope = rng.standard_normal((count, dim_y, dim_x + 1)) * 10 ** rng.uniform(-decades, decades, (count, 1, 1))
    gradient = unwhiten.transpose(0, 2, 1) @ slope
    x = 1 + rng.standard_normal((count, 12, dim_x))
    return Problem(
        old, q, gradient[:, :, :-1] + q @ old.gain, gradient[:, :, -1] + (q @ old.bias[:, :, None])[:, :, 0], x
    )


def assert_same_as_naive(problem: Problem, entropy_coef: float, kl_bound: float, tolerance: float = 1e-5) -> None:
    new, info = gaussian_step(problem.old, problem.model, entropy_coef, kl_bound)
    assert info.ok.all()
    measured = kl_divergence(new, problem.old, problem.x)
    binds = info.multiplier > 0
    np.testing.assert_allclose(measured[binds], kl_bound, rtol=1e-6)
    assert (measured <= kl_bound * (1 + 1e-6)).all()
    np.testing.assert_allclose(info.kl, measured, rtol=1e-5, atol=1e-12)
    for k in range(len(problem.old)):
        gain, bias, cov = problem.naive(k, entropy_coef, kl_bound)
        unit = np.linalg.inv(problem.old.chol[k])
        means, naive_means = problem.x[k] @ new.gain[k].T + new.bias[k], problem.x[k] @ gain.T + bias
        np.testing.assert_allclose(means @ unit.T, naive_means @ unit.T, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(unit @ new.cov[k] @ unit.T, unit @ cov @ unit.T, rtol=tolerance, atol=tolerance)
        assert (np.diagonal(new.chol[k]) > 0).all()
        np.testing.assert_array_equal(np.triu(new.chol[k], 1), 0)


@few_examples(20)
@given(
    seed=st.integers(0, 10**6),
    dim_y=st.integers(1, 6),
    dim_x=st.integers(0, 3),
    entropy_coef=st.sampled_from([0.0, 1e-3, 1.0]),
    kl_bound=st.sampled_from([1e-3, 0.01, 0.5]),
)
def test_the_step_is_the_naive_one(seed: int, dim_y: int, dim_x: int, entropy_coef: float, kl_bound: float) -> None:
    assert_same_as_naive(draw_problem(np.random.default_rng(seed), 2, dim_y, dim_x), entropy_coef, kl_bound)


@few_examples(12)
@given(seed=st.integers(0, 10**6), signs=st.sampled_from([(-1.0, 1.0), (0.5, 1.0), (-1.0, -0.5)]))
def test_the_step_on_ill_conditioned_problems_is_the_naive_one(seed: int, signs: tuple[float, float]) -> None:
    """Covariances of condition 1e8, curvatures over six decades of one or both signs."""
    rng = np.random.default_rng(seed)
    problem = draw_problem(rng, 2, 4, 2, condition=1e8, curvatures=signs, decades=3)
    assert_same_as_naive(problem, 0.1, 0.01, tolerance=1e-4)


def test_one_sharp_and_one_flat_rising_direction() -> None:
    """By hand: nothing is the same under a change of sign, of the axes or of the two ends of the KL."""
    old = LinearGaussian.unconditional([[1.0, -2.0]], np.diag([2.0, 0.1])[None])
    problem = Problem(old, np.diag([5.0, 0.0])[None], np.zeros((1, 2, 0)), np.array([[0.0, 3.0]]), np.empty((1, 1, 0)))
    new, info = gaussian_step(old, problem.model, 0.2, 0.05)
    eta = info.multiplier[0]
    # precision (eta P + Q) / (eta + alpha), mean moved by (eta P + Q)^-1 (b - Q mean)
    stiffness = eta / np.array([4.0, 0.01]) + [5.0, 0.0]
    np.testing.assert_allclose(np.diag(new.cov[0]), (eta + 0.2) / stiffness, rtol=1e-9)
    np.testing.assert_allclose(new.bias[0], [1 - 5.0 / stiffness[0], -2 + 3.0 / stiffness[1]], rtol=1e-9)
    assert new.bias[0, 0] < 1
    assert new.bias[0, 1] > -2
    assert_same_as_naive(problem, 0.2, 0.05)


def test_the_step_ends_at_the_optimum_if_the_bound_does_not_bind() -> None:
    rng = np.random.default_rng(1)
    old = random_stack(rng, 1, 3, 1)
    target = random_stack(rng, 1, 3, 1)
    near = LinearGaussian.build(
        old.gain + 1e-3 * target.gain, old.bias + 1e-3 * target.bias, old.chol @ (np.eye(3) * 1.01)
    )
    # log N(near) times 0.7 is a quadratic whose maximiser with entropy 0.7 is that Gaussian itself
    q = np.asarray(0.7 * np.linalg.inv(near.cov), dtype=np.float64)
    x = rng.standard_normal((1, 20, 1))
    problem = Problem(old, q, q @ near.gain, (q @ near.bias[:, :, None])[:, :, 0], x)
    new, info = gaussian_step(old, problem.model, 0.7, 0.1)
    assert info.multiplier[0] == 0
    np.testing.assert_allclose(new.gain, near.gain, atol=1e-9)
    np.testing.assert_allclose(new.bias, near.bias, atol=1e-9)
    np.testing.assert_allclose(new.cov, near.cov, atol=1e-9)
    assert info.kl[0] == pytest.approx(kl_divergence(near, old, x)[0], rel=1e-6)
    assert_same_as_naive(problem, 0.7, 0.1)


@pytest.mark.parametrize("curvatures", [(0.5, 2.0), (-2.0, 2.0), (3.0, 30.0)])
@pytest.mark.parametrize("least_change", [-0.2, -0.02, 0.0, 0.05, -5.0])
def test_a_bounded_entropy_is_the_optimum_of_a_general_optimiser(
    curvatures: tuple[float, float], least_change: float
) -> None:
    """Means and Cholesky factors in the units of the old distribution, with both bounds as constraints."""
    rng, kl_bound = np.random.default_rng(5), 0.1
    problem = draw_problem(rng, 1, 3, 0, curvatures=curvatures)
    model, rows = problem.model, np.tril_indices(3)

    def parts(x: Array) -> tuple[Array, Array]:
        chol = np.zeros((3, 3))
        chol[rows] = x[3:]
        return x[:3], chol

    def loss(x: Array) -> float:
        mean, chol = parts(x)
        return float(
            0.5 * np.trace(model.curvature[0] @ (chol @ chol.T + np.outer(mean, mean))) - model.slope[0, :, 0] @ mean
        )

    def change(x: Array) -> float:
        return float(np.log(np.abs(np.diagonal(parts(x)[1]))).sum())

    def kl(x: Array) -> float:
        mean, chol = parts(x)
        return float(0.5 * ((chol**2).sum() - 3 + mean @ mean) - change(x))

    optimum = minimize(
        loss,
        np.concatenate([np.zeros(3), np.eye(3)[rows]]),
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda x: kl_bound - kl(x)},
            {"type": "ineq", "fun": lambda x: change(x) - least_change},
        ],
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    new, info = gaussian_step(problem.old, model, 0.0, kl_bound, np.array([least_change]))
    unit = np.linalg.inv(problem.old.chol[0])
    mean, cov = unit @ (new.bias - problem.old.bias)[0], unit @ new.cov[0] @ unit.T
    ours = np.concatenate([mean, np.linalg.cholesky(cov)[rows]])
    assert info.ok.all()
    assert info.kl[0] == pytest.approx(kl(ours), rel=1e-6)
    assert kl(ours) <= kl_bound * (1 + 1e-9)
    assert change(ours) >= least_change - 1e-12
    assert loss(ours) == pytest.approx(optimum.fun, abs=1e-6)
    np.testing.assert_allclose(mean, optimum.x[:3], atol=2e-3)
    np.testing.assert_allclose(cov, parts(optimum.x)[1] @ parts(optimum.x)[1].T, atol=2e-3)
    free, _ = gaussian_step(problem.old, model, 0.0, kl_bound)
    if free.entropy[0] - problem.old.entropy[0] >= least_change:
        np.testing.assert_array_equal(new.chol, free.chol)  # a bound that does not bind changes nothing
        np.testing.assert_array_equal(new.bias, free.bias)
    else:
        assert change(ours) == pytest.approx(least_change, abs=1e-12)


@few_examples(60)
@given(
    seed=st.integers(0, 10**6),
    decades=st.sampled_from([0, 3, 16, 150]),
    kl_bound=st.sampled_from([1e-9, 0.01, 10.0]),
    change=st.sampled_from([-1e3, -1.0, -1e-3, 0.0, 1e-2, 1e3]),
)
def test_both_bounds_hold_whatever_the_model(seed: int, decades: int, kl_bound: float, change: float) -> None:
    rng = np.random.default_rng(seed)
    problem = draw_problem(rng, 4, 3, 1)
    model = problem.model
    model.curvature[:] *= 10 ** rng.uniform(-decades, decades, (4, 1, 1))
    model.slope[:] *= 10 ** rng.uniform(-decades, decades, (4, 1, 1))
    new, info = gaussian_step(problem.old, model, 0.0, kl_bound, np.full(4, change))
    assert (info.kl <= kl_bound).all()
    assert (kl_divergence(new, problem.old, problem.x) <= kl_bound * (1 + 1e-6) + 1e-12).all()
    gained = new.entropy - problem.old.entropy
    assert (gained[info.ok] >= change - 1e-9).all()
    for name in ("gain", "bias", "chol"):
        np.testing.assert_array_equal(getattr(new, name)[~info.ok], getattr(problem.old, name)[~info.ok])
    if decades == 0 and change <= 0:
        assert info.ok.all()


@few_examples(6)
@given(seed=st.integers(0, 10**6), entropy_coef=st.sampled_from([0.0, 0.3]))
def test_nothing_feasible_close_by_is_better(seed: int, entropy_coef: float) -> None:
    rng = np.random.default_rng(seed)
    problem = draw_problem(rng, 1, 3, 1)
    new, _ = gaussian_step(problem.old, problem.model, entropy_coef, 0.05)
    best = problem.objective(new, entropy_coef)
    feasible = 0
    for _ in range(60):
        size = 10 ** rng.uniform(-4, -1)
        noise = np.tril(np.eye(3) + size * rng.standard_normal((3, 3)))
        other = LinearGaussian.build(
            new.gain + size * new.chol @ rng.standard_normal(new.gain.shape),
            new.bias + size * (new.chol @ rng.standard_normal((1, 3, 1)))[:, :, 0],
            new.chol @ (noise * np.sign(np.diag(noise))),
        )
        if kl_divergence(other, problem.old, problem.x)[0] <= 0.05:
            feasible += 1
            assert problem.objective(other, entropy_coef) <= best + 1e-8
    assert feasible > 5
    assert best > problem.objective(problem.old, entropy_coef)


def test_a_stack_is_solved_like_one_by_one() -> None:
    problem = draw_problem(np.random.default_rng(2), 5, 3, 2, decades=2)
    new, info = gaussian_step(problem.old, problem.model, 0.01, 0.02)
    for k in range(5):
        single = problem.one(k)
        alone, alone_info = gaussian_step(single.old, single.model, 0.01, 0.02)
        np.testing.assert_allclose(alone_info.multiplier[0], info.multiplier[k], rtol=1e-7)
        np.testing.assert_allclose(alone.gain[0], new.gain[k], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(alone.bias[0], new.bias[k], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(alone.chol[0], new.chol[k], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("field", ["curvature", "slope"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_that_is_not_finite_leaves_its_component_alone(field: str, bad: float) -> None:
    problem = draw_problem(np.random.default_rng(3), 3, 3, 1)
    clean, _ = gaussian_step(problem.old, problem.model, 0.1, 0.01)
    model = problem.model
    getattr(model, field)[1, 0, 0] = bad
    new, info = gaussian_step(problem.old, model, 0.1, 0.01)
    np.testing.assert_array_equal(info.ok, [True, False, True])
    assert info.kl[1] == 0
    for name in ("gain", "bias", "chol"):
        np.testing.assert_array_equal(getattr(new, name)[1], getattr(problem.old, name)[1])
        for k in (0, 2):
            np.testing.assert_allclose(getattr(new, name)[k], getattr(clean, name)[k], rtol=1e-9)
            assert not np.allclose(getattr(new, name)[k], getattr(problem.old, name)[k], rtol=1e-4, atol=0)


def test_a_model_too_large_to_solve_leaves_its_component_alone() -> None:
    problem = draw_problem(np.random.default_rng(6), 2, 3, 1)
    model = problem.model
    model.slope[1] *= 1e200
    with np.errstate(over="ignore", invalid="ignore"):
        new, info = gaussian_step(problem.old, model, 0.1, 0.01)
    np.testing.assert_array_equal(info.ok, [True, False])
    for name in ("gain", "bias", "chol"):
        np.testing.assert_array_equal(getattr(new, name)[1], getattr(problem.old, name)[1])


def test_a_flat_model_without_entropy_moves_nothing() -> None:
    old = random_stack(np.random.default_rng(4), 2, 3, 1)
    flat = Quadratic(np.zeros((2, 3, 3)), np.zeros((2, 3, 2)), np.broadcast_to(np.eye(2), (2, 2, 2)), np.zeros(2))
    new, info = gaussian_step(old, flat, 0.0, 0.01)
    assert info.ok.all()
    np.testing.assert_allclose(new.bias, old.bias)
    np.testing.assert_allclose(new.chol, old.chol, rtol=1e-12, atol=1e-12)


def test_a_flat_model_with_entropy_widens_all_directions_equally() -> None:
    old = random_stack(np.random.default_rng(5), 1, 3, 0)
    flat = Quadratic(np.zeros((1, 3, 3)), np.zeros((1, 3, 1)), np.ones((1, 1, 1)), np.zeros(1))
    new, _ = gaussian_step(old, flat, 1.0, 0.01)
    ratio = new.cov[0, 0, 0] / old.cov[0, 0, 0]
    assert ratio > 1
    np.testing.assert_allclose(new.cov, ratio * old.cov, rtol=1e-9)
    assert 1.5 * (ratio - 1 - np.log(ratio)) == pytest.approx(0.01, rel=1e-6)


def categorical_kl(log_new: Array, log_old: Array) -> float:
    return float(np.exp(log_new) @ (log_new - log_old))


@few_examples(15)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 5),
    entropy_coef=st.sampled_from([0.0, 0.1, 2.0]),
    kl_bound=st.sampled_from([1e-3, 0.01, 0.5]),
)
def test_the_categorical_step_is_the_brute_force_optimum(
    seed: int, count: int, entropy_coef: float, kl_bound: float
) -> None:
    rng = np.random.default_rng(seed)
    log_old = np.log(rng.dirichlet(np.full(count, 3.0)))
    rewards = 3 * rng.standard_normal(count)

    def loss(logits: Array) -> float:
        log_p = log_softmax(logits)
        return float(-np.exp(log_p) @ (rewards - entropy_coef * log_p))

    constraint = {"type": "ineq", "fun": lambda logits: kl_bound - categorical_kl(log_softmax(logits), log_old)}
    optimum = minimize(loss, log_old, method="SLSQP", constraints=[constraint], options={"ftol": 1e-13, "maxiter": 500})
    log_new = categorical_step(log_old, rewards, entropy_coef, kl_bound)
    assert np.exp(log_new).sum() == pytest.approx(1, abs=1e-12)
    assert categorical_kl(log_new, log_old) <= kl_bound * (1 + 1e-6)
    assert loss(log_new) == pytest.approx(optimum.fun, abs=1e-6)
    np.testing.assert_allclose(np.exp(log_new), np.exp(log_softmax(optimum.x)), atol=1e-3)


def test_the_categorical_step_on_a_grid() -> None:
    log_old, rewards = np.log([0.2, 0.5, 0.3]), np.array([2.0, 0.5, -1.0])
    first, second = np.meshgrid(np.linspace(0.001, 0.998, 998), np.linspace(0.001, 0.998, 998))
    p = np.stack([first, second, 1 - first - second], axis=-1)[first + second < 0.9995]
    value = p @ rewards - 0.3 * (p * np.log(p)).sum(axis=1)
    value[(p * (np.log(p) - log_old)).sum(axis=1) > 0.05] = -np.inf
    new = np.exp(categorical_step(log_old, rewards, 0.3, 0.05))
    np.testing.assert_allclose(new, p[value.argmax()], atol=5e-3)
    best = new @ rewards - 0.3 * new @ np.log(new)
    assert 0 <= best - value.max() < 1e-2


def test_the_categorical_bound_binds_and_removed_components_stay_removed() -> None:
    log_old = np.array([np.log(0.25), -np.inf, np.log(0.75)])
    log_new = categorical_step(log_old, np.array([5.0, 1e6, 0.0]), 0.1, 0.02)
    assert log_new[1] == -np.inf
    kept = [0, 2]
    assert np.exp(log_new[0]) > 0.25
    assert categorical_kl(log_new[kept], log_old[kept]) == pytest.approx(0.02, rel=1e-6)
    np.testing.assert_allclose(log_new[kept], categorical_step(log_old[kept], np.array([5.0, 0.0]), 0.1, 0.02))


def test_the_categorical_step_is_a_softmax_if_the_bound_does_not_bind() -> None:
    rewards = np.array([1.0, -2.0, 0.5])
    new = categorical_step(np.log([0.3, 0.3, 0.4]), rewards, 2.0, 50.0)
    np.testing.assert_allclose(new, log_softmax(rewards / 2.0), atol=1e-12)


@pytest.mark.parametrize("rewards", [[3.0, 3.0, 3.0], [-1e6, -1e6, -1e6 + 1e-3]])
def test_categorical_steps_without_entropy_stay_distributions(rewards: list[float]) -> None:
    log_weights = np.log(np.full(3, 1 / 3))
    for _ in range(30):
        log_weights = categorical_step(log_weights, np.array(rewards), 0.0, 0.5)
        assert np.exp(log_weights).sum() == pytest.approx(1, abs=1e-9)


@few_examples(60)
@given(
    seed=st.integers(0, 10**6),
    decades=st.sampled_from([0, 8, 16, 150]),
    entropy_coef=st.sampled_from([0.0, 1e-300, 1e-15, 1e-3, 1e12]),
    kl_bound=st.sampled_from([1e-9, 0.01, 10.0]),
)
def test_no_model_is_fatal(seed: int, decades: int, entropy_coef: float, kl_bound: float) -> None:
    """Whatever one return out of all proportion makes of a model: a step within the bound, or none."""
    rng = np.random.default_rng(seed)
    problem = draw_problem(rng, 4, 3, 1, decades=0)
    model = problem.model
    model.curvature[:] *= 10 ** rng.uniform(-decades, decades, (4, 1, 1))
    model.slope[:] *= 10 ** rng.uniform(-decades, decades, (4, 1, 1))
    with np.errstate(all="ignore"):
        new, info = gaussian_step(problem.old, model, entropy_coef, kl_bound)
    assert (info.kl <= kl_bound * (1 + 1e-6)).all()
    for name in ("gain", "bias", "chol"):
        assert np.isfinite(getattr(new, name)).all()
        np.testing.assert_array_equal(getattr(new, name)[~info.ok], getattr(problem.old, name)[~info.ok])


@few_examples(40)
@given(seed=st.integers(0, 10**6), entropy_coef=st.sampled_from([0.0, 1e-9, 1.0]))
def test_no_weights_are_fatal(seed: int, entropy_coef: float) -> None:
    rng = np.random.default_rng(seed)
    log_weights = log_softmax(rng.uniform(-700, 0, 4) * rng.integers(0, 2, 4))
    for _ in range(5):
        log_weights = categorical_step(log_weights, 10 ** rng.uniform(-15, 15) * rng.random(4), entropy_coef, 0.01)
        assert np.exp(log_weights).sum() == pytest.approx(1, abs=1e-9)
