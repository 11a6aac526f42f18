"""Stacks of linear Gaussians compared with SciPy, naive loops and Monte Carlo."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from helpers import few_examples, kl_divergence, random_cov, random_stack
from svsl.bench import reference
from svsl.model.gaussians import LinearGaussian, clip_std


def assert_same(one: LinearGaussian, other: LinearGaussian) -> None:
    for name in ("gain", "bias", "chol", "whitener", "log_norm"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-13, atol=1e-13, err_msg=name)


@few_examples(12)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 4), dim_y=st.integers(1, 6), dim_x=st.integers(0, 3))
def test_log_prob_matches_scipy_and_naive_loops(seed: int, count: int, dim_y: int, dim_x: int) -> None:
    rng = np.random.default_rng(seed)
    stack = random_stack(rng, count, dim_y, dim_x)
    x, y = rng.standard_normal((7, dim_x)), 2 * rng.standard_normal((7, dim_y))
    log_prob = stack.log_prob(x, y)
    assert log_prob.shape == (7, count)
    for k in range(count):
        means = x @ stack.gain[k].T + stack.bias[k]
        expected = [multivariate_normal(mean, stack.cov[k]).logpdf(row) for mean, row in zip(means, y, strict=True)]
        np.testing.assert_allclose(log_prob[:, k], expected, rtol=1e-9)
        np.testing.assert_allclose(reference.log_density(y, means, stack.cov[k]), expected, rtol=1e-9)


def test_log_prob_of_many_rows_matches_single_rows() -> None:
    rng = np.random.default_rng(1)
    stack = random_stack(rng, 3, 2, 1)
    x, y = rng.standard_normal((1301, 1)), rng.standard_normal((1301, 2))
    together = stack.log_prob(x, y)
    for row in (0, 511, 512, 513, 1023, 1024, 1300):
        np.testing.assert_allclose(together[row], stack.log_prob(x[row : row + 1], y[row : row + 1])[0], rtol=1e-12)
    parts = [stack.log_prob(x[i : i + 100], y[i : i + 100]) for i in range(0, 1301, 100)]
    np.testing.assert_allclose(together, np.concatenate(parts), rtol=1e-12)


def test_empty_input() -> None:
    stack = random_stack(np.random.default_rng(2), 3, 2, 1)
    assert stack.log_prob(np.empty((0, 1)), np.empty((0, 2))).shape == (0, 3)


def test_unconditional_matches_a_stack_without_input() -> None:
    rng = np.random.default_rng(3)
    mean, chol = rng.standard_normal((2, 3)), np.linalg.cholesky(np.stack([random_cov(rng, 3) for _ in range(2)]))
    stack = LinearGaussian.unconditional(mean, chol)
    y = rng.standard_normal((5, 3))
    expected = [multivariate_normal(m, c @ c.T).logpdf(y) for m, c in zip(mean, chol, strict=True)]
    np.testing.assert_allclose(stack.log_prob(np.empty((5, 0)), y), np.transpose(expected), rtol=1e-10)


def test_whitened_residuals_match_naive_loops() -> None:
    rng = np.random.default_rng(4)
    stack = random_stack(rng, 3, 4, 2)
    x, y = rng.standard_normal((3, 6, 2)), rng.standard_normal((3, 6, 4))
    whitened = stack.whitened(x, y)
    for k in range(3):
        for n in range(6):
            mean = stack.gain[k] @ x[k, n] + stack.bias[k]
            np.testing.assert_allclose(whitened[k, :, n], np.linalg.solve(stack.chol[k], y[k, n] - mean), atol=1e-11)


def test_samples_have_the_mean_and_covariance_of_their_component() -> None:
    rng = np.random.default_rng(5)
    n = 40_000
    stack = random_stack(rng, 2, 3, 1)
    x = np.broadcast_to(np.array([[[0.7]], [[-2.0]]]), (2, n, 1))
    y = stack.sample(x, rng)
    for k in range(2):
        mean = stack.gain[k] @ x[k, 0] + stack.bias[k]
        np.testing.assert_allclose(y[k].mean(axis=0), mean, atol=5 / np.sqrt(n))  # variances are at most 1
        np.testing.assert_allclose(np.cov(y[k].T), stack.cov[k], atol=5 * np.sqrt(2 / n))


def test_entropy_matches_the_closed_form_and_monte_carlo() -> None:
    rng = np.random.default_rng(6)
    stack = random_stack(rng, 2, 5, 2)
    x = rng.standard_normal((2, 40_000, 2))
    y = stack.sample(x, rng)
    for k in range(2):
        assert stack.entropy[k] == pytest.approx(multivariate_normal(np.zeros(5), stack.cov[k]).entropy(), rel=1e-10)
        # -log p has variance dim / 2
        estimate = -stack.log_prob(x[k], y[k])[:, k].mean()
        assert stack.entropy[k] == pytest.approx(estimate, abs=5 * np.sqrt(2.5 / 40_000))


@few_examples(10)
@given(seed=st.integers(0, 10**6), dim_y=st.integers(1, 5), dim_x=st.integers(0, 3))
def test_kl_divergence_matches_the_textbook_formula(seed: int, dim_y: int, dim_x: int) -> None:
    rng = np.random.default_rng(seed)
    new, old = random_stack(rng, 2, dim_y, dim_x), random_stack(rng, 2, dim_y, dim_x)
    x = rng.standard_normal((2, 6, dim_x))
    expected = np.zeros(2)
    for k in range(2):
        precision = np.linalg.inv(old.cov[k])
        log_ratio = np.log(np.linalg.det(old.cov[k]) / np.linalg.det(new.cov[k]))
        for row in x[k]:
            shift = (new.gain[k] - old.gain[k]) @ row + new.bias[k] - old.bias[k]
            distance = shift @ precision @ shift
            expected[k] += 0.5 * (np.trace(precision @ new.cov[k]) + distance - dim_y + log_ratio) / 6
    np.testing.assert_allclose(kl_divergence(new, old, x), expected, rtol=1e-9)


def test_kl_divergence_matches_monte_carlo_and_is_zero_to_itself() -> None:
    rng = np.random.default_rng(7)
    new, old = random_stack(rng, 1, 3, 1, condition=3), random_stack(rng, 1, 3, 1, condition=2)
    x = rng.standard_normal((1, 40_000, 1))
    y = new.sample(x, rng)
    ratio = (new.log_prob(x[0], y[0]) - old.log_prob(x[0], y[0]))[:, 0]
    assert kl_divergence(new, old, x)[0] == pytest.approx(ratio.mean(), abs=5 * ratio.std() / 200)
    assert kl_divergence(new, new, x)[0] == pytest.approx(0, abs=1e-12)


def test_select_append_and_replace_match_a_new_build() -> None:
    rng = np.random.default_rng(8)
    stack, other = random_stack(rng, 4, 3, 2), random_stack(rng, 2, 3, 2)

    def fresh(parts: list[tuple[LinearGaussian, int]]) -> LinearGaussian:
        return LinearGaussian.build(
            np.stack([part.gain[k] for part, k in parts]),
            np.stack([part.bias[k] for part, k in parts]),
            np.stack([part.chol[k] for part, k in parts]),
        )

    kept = fresh([(stack, k) for k in range(4)])
    assert_same(stack.select(np.array([2, 0])), fresh([(stack, 2), (stack, 0)]))
    assert_same(stack.append(other), fresh([*((stack, k) for k in range(4)), (other, 0), (other, 1)]))
    replaced = stack.replace(np.array([3, 1]), other)
    assert_same(replaced, fresh([(stack, 0), (other, 1), (stack, 2), (other, 0)]))
    everything = random_stack(rng, 4, 3, 2)
    assert_same(stack.replace(np.arange(4), everything), everything)
    assert_same(stack.replace(np.array([2, 0, 3, 1]), everything), everything.select(np.array([1, 3, 0, 2])))
    assert_same(stack, kept)  # none of them modified it


@few_examples(8)
@given(seed=st.integers(0, 10**6), dim=st.integers(1, 4))
def test_clip_std_limits_the_axes_and_keeps_the_others(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.5, 4, dim)
    variances = np.array([np.geomspace(1e-4, 9.0, dim + 1)[:dim], np.full(dim, 0.25), np.full(dim, 16.0)])
    axes = np.linalg.qr(rng.standard_normal((3, dim, dim)))[0]
    cov = (axes * variances[:, None]) @ axes.transpose(0, 2, 1) * np.outer(scale, scale)
    stack = LinearGaussian.unconditional(rng.standard_normal((3, dim)), np.linalg.cholesky(cov))
    clipped = clip_std(stack, scale, 0.1, 2.0)
    expected = (axes * np.clip(variances, 0.01, 4.0)[:, None]) @ axes.transpose(0, 2, 1) * np.outer(scale, scale)
    np.testing.assert_allclose(clipped.cov, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(clipped.chol[1], stack.chol[1])
    np.testing.assert_array_equal(clipped.bias, stack.bias)
    for k in range(3):
        np.testing.assert_allclose(reference.clip_std_raw(cov[k], scale, 0.1, 2.0), expected[k], rtol=1e-9, atol=1e-12)
