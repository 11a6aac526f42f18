"""LaDiPS: the gating's problem against a general optimiser, its bounds after an update, toy tasks, continuation."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import helpers
from helpers import advance, kl_divergence, space_of
from svsl import SvslError, Task
from svsl.cli import main
from svsl.learners.gating import gating_step
from svsl.learners.ladips import LaDiPS, LaDiPSConfig
from svsl.learners.surrogates import fit_quadratic
from svsl.model.gaussians import Array
from svsl.model.mixture import Mixture, log_normalised
from svsl.model.random import stream
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from toys import Bimodal, Unimodal


def trained(task: Task, config: LaDiPSConfig, seed: int = 0) -> LaDiPS:
    return helpers.trained(LaDiPS(config, space_of(task), stream(seed)), task)


def entropy_of(log_gating: Array) -> float:
    return -float((np.exp(log_gating) * log_gating).sum(axis=1).mean())


def divergence(log_new: Array, log_old: Array) -> float:
    return float((np.exp(log_new) * (log_new - log_old)).sum(axis=1).mean())


def expert_divergences(learner: LaDiPS, before: Mixture, after: Mixture) -> Array:
    """KL of each expert's last step, averaged over the weighted episodes of its model: `(K,)`."""
    contexts, parameters = learner.episodes.contexts, learner.episodes.parameters
    rows, importance = learner._share(before.experts.log_prob(contexts, parameters).T - learner._log_drawn)
    pairs = [kl_divergence(after.experts, before.experts, contexts[rows[:, [i]]]) for i in range(rows.shape[1])]
    return np.asarray((importance * np.stack(pairs, axis=1)).mean(axis=1))


@pytest.mark.parametrize(("kl_bound", "least"), [(0.05, 0.5), (0.05, 1.3), (0.5, 1.0), (5.0, 1.2)])
def test_the_bounds_of_the_gating_hold(kl_bound: float, least: float) -> None:
    rng = stream(1)
    log_q, expected = log_normalised(rng.standard_normal((200, 5))), 7 * rng.standard_normal((200, 5)) - 100
    step = gating_step(log_q, expected, kl_bound, least)
    log_pi = log_normalised(step.keep * log_q + step.gain * expected)
    kl, entropy = divergence(log_pi, log_q), entropy_of(log_pi)
    np.testing.assert_allclose([kl, entropy], [step.kl, step.entropy])
    assert kl <= kl_bound * 1.01
    assert entropy >= least - 0.005
    assert kl == pytest.approx(kl_bound, rel=0.01) or entropy == pytest.approx(least, abs=0.005), "one of them binds"
    assert (np.exp(log_pi) * expected).sum(axis=1).mean() > (np.exp(log_q) * expected).sum(axis=1).mean() + 0.3


def test_the_gating_step_finds_the_optimum_of_a_general_optimiser() -> None:
    rng = stream(2)
    log_q, expected = log_normalised(rng.standard_normal((2, 3))), rng.standard_normal((2, 3))
    kl_bound, least = 0.3, 0.85

    def log_pi(x: Array) -> Array:
        return log_normalised(x.reshape(2, 3))

    best = minimize(
        lambda x: -float((np.exp(log_pi(x)) * expected).sum(axis=1).mean()),
        log_q.ravel(),
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda x: kl_bound - divergence(log_pi(x), log_q)},
            {"type": "ineq", "fun": lambda x: entropy_of(log_pi(x)) - least},
        ],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert best.success
    step = gating_step(log_q, expected, kl_bound, least)
    ours = log_normalised(step.keep * log_q + step.gain * expected)
    np.testing.assert_allclose(np.exp(ours), np.exp(log_pi(best.x)), atol=2e-3)


def test_an_entropy_out_of_reach_is_approached_inside_the_trust_region() -> None:
    log_q = np.log(np.tile([0.97, 0.01, 0.01, 0.01], (50, 1)))
    step = gating_step(log_q, stream(3).standard_normal((50, 4)), 0.02, np.log(4))
    assert step.kl <= 0.0202
    assert step.entropy > 1.2 * entropy_of(log_q)


def test_an_update_satisfies_the_bounds_of_the_settings() -> None:
    """Measured on the distributions themselves; the gating's contexts are a sample, so its bounds hold nearly."""
    task = Bimodal()
    config = LaDiPSConfig(
        components=6, iterations=30, batch=100, history=3, kl_expert=0.02, kl_gating=0.03, gating_entropy=np.log(3),
        entropy_rate=None,
    )  # fmt: skip
    learner = LaDiPS(config, space_of(task), stream(0))
    contexts = np.linspace(-1, 1, 400)[:, None]
    largest_expert = largest_gating = 0.0
    for _ in range(30):
        before = learner.options
        advance(learner, task)
        after = learner.options
        assert len(after) == len(before)
        expert = expert_divergences(learner, before, after)
        assert (expert <= 0.02 * 1.001).all(), "every expert, over the episodes it learned from"
        largest_expert = max(largest_expert, expert.max())
        largest_gating = max(largest_gating, divergence(after.log_gating(contexts), before.log_gating(contexts)))
        assert entropy_of(after.log_gating(contexts)) > np.log(3) - 0.05
    assert 0.015 < largest_gating < 0.036
    assert largest_expert > 0.019


def test_the_entropy_of_an_expert_never_falls_below_its_bound() -> None:
    task = Bimodal()
    config = LaDiPSConfig(
        components=3, iterations=40, batch=100, history=3, kl_expert=0.5, entropy_rate=0.9, min_entropy=-3.0
    )
    learner = LaDiPS(config, space_of(task), stream(0))
    # by hand: a search of this covariance, every parameter e^-3 times as wide
    least = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * np.exp(-6) * space_of(task).initial_cov)[1]
    binding = 0
    for _ in range(40):
        before = learner.options.experts.entropy
        advance(learner, task)
        after = learner.options.experts.entropy
        bound = 0.9 * (before - least) + least
        assert (after >= bound - 1e-6).all()
        binding += int((after < bound + 1e-6).sum())
    assert binding > 20
    assert (after < least + 0.3).all(), "it has come close to the least entropy"
    free = trained(task, replace(config, entropy_rate=None)).options.experts.entropy
    assert (free < least - 3).all()


def test_without_a_rate_the_step_is_the_one_before_there_was_a_bound() -> None:
    """A configuration written before the setting existed has no bound; a bound that never binds changes nothing."""
    config = LaDiPSConfig(components=3, iterations=6, batch=100, history=3, entropy_rate=None)
    old = json.loads(RunConfig("toys:Bimodal", {}, "ladips", config, 0).to_json())
    del old["settings"]["entropy_rate"], old["settings"]["min_entropy"]
    read = RunConfig.from_json(json.dumps(old)).settings
    assert read == config
    assert isinstance(read, LaDiPSConfig)
    assert LaDiPSConfig().entropy_rate == 0.99
    free, loose = (trained(Bimodal(), replace(read, entropy_rate=rate)).options for rate in (None, 0.0))
    np.testing.assert_array_equal(free.experts.chol, loose.experts.chol)


def test_the_new_gating_is_the_old_one_times_the_exponential_of_the_values() -> None:
    task = Unimodal()
    config = LaDiPSConfig(components=4, iterations=3, batch=300, history=1, kl_gating=0.2, gating_entropy=0.1)
    learner = trained(task, config)
    rng = stream(5)
    contexts = rng.uniform(task.context_low, task.context_high, (50, 2))
    rows, importance = rng.integers(0, 300, (4, 200)), np.ones((4, 200))
    units = learner._unit.select(np.zeros(4, dtype=np.intp))
    own = learner.episodes.contexts[rows]
    number = np.arange(4.0)[:, None]
    targets = np.sin(own[:, :, 0]) * number - own[:, :, 1] ** 2 + number
    values = fit_quadratic(units, own[:, :, :0], own, targets, importance)
    before = learner.options
    after = learner._gated(before, values)
    z = (contexts - [0.0, 1.5]) / [0.5, 0.75]
    expected = np.stack(
        [
            values.level[k] + z @ values.slope[k, :, 0] - 0.5 * ((z @ values.curvature[k]) * z).sum(axis=1)
            for k in range(4)
        ],
        axis=1,
    )
    change = after.log_gating(contexts)
    # two unknown numbers, the same for all contexts and options, explain the new gating
    old = before.log_gating(contexts)
    centred = [v - v.mean(axis=1, keepdims=True) for v in (change, old, expected)]
    design = np.stack([centred[1].ravel(), centred[2].ravel()], axis=1)
    factors, residual, *_ = np.linalg.lstsq(design, centred[0].ravel(), rcond=None)
    assert residual[0] < 1e-16
    assert 0 < factors[0] <= 1
    assert factors[1] > 0


def test_experience_is_shared_by_truncated_importance() -> None:
    task = Unimodal()
    learner = LaDiPS(LaDiPSConfig(components=3, batch=400, history=1), space_of(task), stream(0))
    log_importance = 3 * stream(1).standard_normal((3, 400))
    rows, importance = learner._share(log_importance)
    count = 3 * 21  # three for each feature of five variables
    assert rows.shape == importance.shape == (3, count)
    for k in range(3):
        best = np.argsort(log_importance[k])[-count:]
        assert set(rows[k]) == set(best)
        weights = np.minimum(np.exp(log_importance[k, rows[k]]), np.median(np.exp(log_importance[k, rows[k]])))
        np.testing.assert_allclose(importance[k], weights / weights.mean())
        assert 1 / ((importance[k] / count) ** 2).sum() >= count / 2


def test_an_option_that_was_hardly_drawn_learns_from_the_episodes_of_the_others() -> None:
    task = Unimodal()
    learner = LaDiPS(LaDiPSConfig(components=2, batch=500, history=1, kl_expert=0.05), space_of(task), stream(0))
    start = learner.options
    shared = start.experts.select(np.array([0, 0]))
    learner.options = Mixture(np.log([1 - 1e-5, 1e-5]), start.contexts.select(np.array([0, 0])), shared)
    advance(learner, task)
    np.testing.assert_allclose(learner.options.experts.bias[1], learner.options.experts.bias[0], atol=1e-9)
    assert np.abs(learner.options.experts.bias[1] - start.experts.bias[0]).max() > 0.05


def test_a_unimodal_task_is_solved_exactly() -> None:
    task = Unimodal()
    config = LaDiPSConfig(components=2, iterations=120, batch=200, history=2, kl_expert=0.3, gating_entropy=0.5)
    mixture = trained(task, config).mixture()
    assert mixture is not None
    for k in range(len(mixture)):
        np.testing.assert_allclose(mixture.experts.gain[k], task.gain, atol=1e-3)
        np.testing.assert_allclose(mixture.experts.bias[k], task.bias, atol=1e-3)


def test_the_bimodal_task_is_solved_in_every_context() -> None:
    """Nothing in its objective asks an option for another way than its neighbour's."""
    task = Bimodal()
    config = LaDiPSConfig(components=6, iterations=80, batch=100, history=3, kl_expert=0.2, kl_gating=0.05)
    contexts = np.linspace(-0.9, 0.9, 50)[:, None]
    for seed in range(3):
        mixture = trained(task, config, seed).mixture()
        assert mixture is not None
        means = mixture.component_means(contexts, mixture.sample_components(contexts, stream(0)))
        assert task.evaluate(contexts, means, stream(0)).success.mean() > 0.9
        assert entropy_of(mixture.log_gating(contexts)) > np.log(3) - 0.1


def test_every_state_continues_bit_for_bit() -> None:
    task, config = Bimodal(), LaDiPSConfig(components=4, iterations=6, batch=50, history=3)
    helpers.assert_continues_bit_for_bit(lambda seed: LaDiPS(config, space_of(task), stream(seed)), task)


def test_it_trains_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--learner", "ladips", "--components", "40", "--iterations", "12", "--batch", "200"]
    assert main(["train", "planar-reacher", *flags, "--out", "run", "--quiet"]) == 0
    run = Run.open(Path("run"))
    tuned = LaDiPSConfig(components=40, iterations=12, batch=200, kl_expert=0.01, gating_entropy=np.log(5))
    assert run.config.settings == tuned
    assert [row["episodes"] for row in run.read_metrics()] == [2000, 2400]
    assert main(["eval", "run", "--json"]) == 0
    assert '"learner": "ladips"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kl_expert": 0.0}, "kl_expert: expected above 0"),
        ({"kl_gating": -1.0}, "kl_gating"),
        ({"entropy_rate": 1.5}, "entropy_rate: expected 0 to 1, or None"),
        ({"min_entropy": 1.0}, "min_entropy: expected a number of at most 0"),
        ({"gating_entropy": 4.0}, "gating_entropy: expected at most log"),
    ],
)
def test_impossible_settings_are_rejected(change: dict[str, float], message: str) -> None:
    with pytest.raises(SvslError, match=message):
        replace(LaDiPSConfig(), **change)  # type: ignore[arg-type]


def test_too_few_episodes_for_the_model_are_rejected() -> None:
    with pytest.raises(SvslError, match="batch and history: expected at least 63 episodes together"):
        LaDiPS(LaDiPSConfig(components=3, batch=10, history=6), space_of(Unimodal()), stream(0))


@pytest.mark.parametrize("least_entropy", [0.0, 0.01])
def test_options_that_are_equal_but_for_rounding_have_no_advantage(least_entropy: float) -> None:
    """The rounding errors of equal returns must not become advantages, which the gain would blow up."""
    log_gating = np.broadcast_to(np.log([1 - 1e-5, 1e-5]), (200, 2))
    expected = np.repeat(-5 - stream(0).random((200, 1)), 2, axis=1)
    step = gating_step(log_gating, expected, 0.05, least_entropy)
    assert step.gain * np.finfo(float).eps * np.abs(expected).max() < 0.01
