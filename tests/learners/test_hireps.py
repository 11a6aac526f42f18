"""HiREPS: its dual against a general optimiser, its constraints, toy tasks, exact continuation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import helpers
from helpers import advance, space_of
from svsl import SvslError, Task
from svsl.cli import main
from svsl.learners.hireps import HiREPS, HiREPSConfig, reweight
from svsl.model.gaussians import Array
from svsl.model.mixture import log_normalised
from svsl.model.random import stream
from svsl.runs.folder import Run
from toys import Bimodal, Unimodal


def trained(task: Task, config: HiREPSConfig, seed: int = 0) -> HiREPS:
    return helpers.trained(HiREPS(config, space_of(task), stream(seed)), task)


def problem(n: int, options: int, seed: int) -> tuple[Array, Array, Array, float]:
    """Returns, features, log responsibilities and their mean entropy."""
    rng = stream(seed)
    log_rho = log_normalised(2 * rng.standard_normal((n, options)))
    entropy = -float((np.exp(log_rho) * log_rho).sum(axis=1).mean())
    return 3 * rng.standard_normal(n) - 5, rng.standard_normal((n, 2)), log_rho, entropy


@pytest.mark.parametrize(("kl_bound", "kappa"), [(0.1, 1.0), (0.1, 0.9), (0.5, 1.0), (0.5, 0.9), (0.5, 0.6)])
def test_the_constraints_hold(kl_bound: float, kappa: float) -> None:
    returns, features, log_rho, entropy = problem(300, 5, seed=1)
    solution = reweight(returns, features, log_rho, kl_bound, kappa * entropy)
    p = solution.weights
    assert p.sum() == pytest.approx(1)
    measured = float((p * np.log(p / (np.exp(log_rho) / 300))).sum())
    assert measured == pytest.approx(solution.kl, abs=1e-9)
    assert measured == pytest.approx(kl_bound, rel=1e-3)
    assert -float((p * log_rho).sum()) <= kappa * entropy * (1 + 1e-3)
    np.testing.assert_allclose(p.sum(axis=1) @ features, features.mean(axis=0), atol=2e-3)
    assert p.sum(axis=1) @ returns > returns.mean() + 0.5


def test_the_dual_finds_the_optimum_of_a_general_optimiser() -> None:
    n, options, kl_bound = 6, 2, 0.2
    returns, features, log_rho, entropy = problem(n, options, seed=3)
    features = features[:, :1]
    q, bound = np.exp(log_rho).ravel() / n, 0.9 * entropy

    def kl(p: Array) -> float:
        return float((p * np.log(np.maximum(p, 1e-12) / q)).sum())

    per_episode = np.repeat(np.eye(n), options, axis=1)
    constraints = [
        {"type": "eq", "fun": lambda p: p.sum() - 1},
        {"type": "eq", "fun": lambda p: features[:, 0] @ (per_episode @ p) - features.mean()},
        {"type": "ineq", "fun": lambda p: bound + float(p @ log_rho.ravel())},
        {"type": "ineq", "fun": lambda p: kl_bound - kl(p)},
    ]
    best = minimize(
        lambda p: -float(returns @ (per_episode @ p)),
        q,
        method="SLSQP",
        bounds=[(1e-9, 1)] * (n * options),
        constraints=constraints,
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert best.success
    solution = reweight(returns, features, log_rho, kl_bound, bound)
    assert solution.weights.sum(axis=1) @ returns == pytest.approx(-best.fun, abs=2e-3)
    np.testing.assert_allclose(solution.weights.ravel(), best.x, atol=3e-3)


def test_an_entropy_bound_out_of_reach_is_dropped_in_favour_of_the_return() -> None:
    returns, features, log_rho, entropy = problem(300, 5, seed=1)
    strict = reweight(returns, features, log_rho, 0.05, 0.05 * entropy)
    assert strict.entropy > 0.06 * entropy
    assert strict.kl <= 0.0501
    free = reweight(returns, features, log_rho, 0.05, np.inf)
    assert free.kl == pytest.approx(0.05, rel=1e-3)
    assert free.weights.sum(axis=1) @ returns > strict.weights.sum(axis=1) @ returns + 0.5
    # a learner with such a bound still learns
    task = Unimodal()
    config = HiREPSConfig(components=4, iterations=60, kl=0.3, kappa=0.01, batch=300)
    learner = trained(task, config)
    assert learner.progress.recent_return > -0.1


def test_a_unimodal_task_is_solved_exactly() -> None:
    task = Unimodal()
    config = HiREPSConfig(components=1, iterations=100, kl=0.5, kappa=1.0, batch=200, history=2)
    mixture = trained(task, config).mixture()
    assert mixture is not None
    np.testing.assert_allclose(mixture.experts.gain[0], task.gain, atol=1e-3)
    np.testing.assert_allclose(mixture.experts.bias[0], task.bias, atol=1e-3)


def test_long_after_convergence_the_options_stay_distributions() -> None:
    """Nothing in the method keeps the covariances from vanishing."""
    task = Unimodal()
    learner = trained(task, HiREPSConfig(components=2, iterations=900, kl=1.0, kappa=0.9, batch=60))
    mixture = learner.mixture()
    assert mixture is not None
    std = np.sqrt(np.linalg.eigvalsh(mixture.experts.cov))
    assert 0.9e-5 < std.min() < 1e-4
    assert learner.progress.recent_return > -1e-3


def test_the_bimodal_task_is_solved_in_every_context() -> None:
    """It need not find both ways: nothing in its objective asks for them."""
    task = Bimodal()
    config = HiREPSConfig(components=6, iterations=80, kl=0.5, kappa=0.99, batch=300)
    contexts = np.linspace(-0.9, 0.9, 50)[:, None]
    for seed in range(3):
        mixture = trained(task, config, seed).mixture()
        assert mixture is not None
        means = mixture.component_means(contexts, mixture.sample_components(contexts, stream(0)))
        assert task.evaluate(contexts, means, stream(0)).success.mean() > 0.9


def test_options_without_weight_are_dropped_and_counted() -> None:
    task = Unimodal()
    learner = trained(task, HiREPSConfig(components=8, iterations=40, kl=0.5, batch=200, min_weight=0.01))
    mixture = learner.mixture()
    assert mixture is not None
    assert len(mixture) == 8 - learner.dropped < 8
    assert np.exp(mixture.log_weights).sum() == pytest.approx(1)


@pytest.mark.parametrize("components", [2, 5])
def test_the_heaviest_option_stays_whatever_min_weight_is(components: int) -> None:
    task = Unimodal()
    config = HiREPSConfig(components=components, iterations=5, kl=0.5, batch=200, min_weight=0.99)
    learner = HiREPS(config, space_of(task), stream(0))
    while not learner.done:
        advance(learner, task)
        assert len(learner.options) == 1
        assert np.isfinite(learner.options.experts.bias).all()
    assert learner.dropped == components - 1


def test_contexts_stay_those_of_the_task() -> None:
    task = Unimodal()
    learner = HiREPS(HiREPSConfig(components=3, iterations=2, batch=4000), space_of(task), stream(0))
    advance(learner, task)
    contexts = learner.ask().contexts
    np.testing.assert_allclose(contexts.mean(axis=0), [0.0, 1.5], atol=0.05)
    assert learner.space.inside(contexts).all()


def test_every_state_continues_bit_for_bit() -> None:
    task, config = Bimodal(), HiREPSConfig(components=4, iterations=6, batch=50, history=3)
    helpers.assert_continues_bit_for_bit(lambda seed: HiREPS(config, space_of(task), stream(seed)), task)


def test_it_trains_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--learner", "hireps", "--components", "5", "--iterations", "12", "--batch", "200"]
    assert main(["train", "planar-reacher", *flags, "--out", "run", "--quiet"]) == 0
    run = Run.open(Path("run"))
    assert run.config.settings == replace(HiREPSConfig(), components=5, iterations=12, batch=200, kl=0.5, kappa=0.99)
    assert [row["episodes"] for row in run.read_metrics()] == [2000, 2400]
    assert main(["eval", "run", "--json"]) == 0
    assert '"learner": "hireps"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"), [({"kl": 0.0}, "kl: expected above 0"), ({"kappa": 1.5}, "kappa"), ({"batch": 0}, "batch")]
)
def test_impossible_settings_are_rejected(change: dict[str, float], message: str) -> None:
    with pytest.raises(SvslError, match=message):
        replace(HiREPSConfig(), **change)  # type: ignore[arg-type]
