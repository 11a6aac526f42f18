"""Intervals over contexts, with known truth; the same numbers during training."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import svsl
from svsl import Outcome
from svsl.cli import main
from svsl.evaluation.intervals import bootstrap_interval, summarise_contexts
from svsl.evaluation.metrics import METRICS, execute, mixture_entropy, repertoire, several_kinds, ways
from svsl.evaluation.result import Evaluation
from svsl.learners.episodic import EpisodicTraining
from svsl.learners.registry import make_training
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.gaussians import Array
from svsl.model.random import TEST_STREAM, stream
from svsl.runs.evaluation import evaluate_source
from svsl.runs.sources import Source
from toys import Unimodal


def test_the_interval_of_successes_is_close_to_the_binomial_one() -> None:
    successes = np.arange(400) < 320
    exact = stats.binomtest(320, 400).proportion_ci(0.95, method="wilson")
    assert bootstrap_interval(successes) == pytest.approx((exact.low, exact.high), abs=0.006)
    narrow = stats.binomtest(320, 400).proportion_ci(0.5, method="wilson")
    assert bootstrap_interval(successes, level=0.5) == pytest.approx((narrow.low, narrow.high), abs=0.006)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    successes = rng.random((400, 200)) < 0.7
    inside = np.mean([low <= 0.7 <= high for low, high in map(bootstrap_interval, successes)])
    assert 0.91 <= inside <= 0.98
    returns = rng.normal(-3.0, 2.0, 2000)
    half_width = 1.96 * returns.std() / np.sqrt(2000)
    mean = returns.mean()
    assert bootstrap_interval(returns) == pytest.approx((mean - half_width, mean + half_width), abs=0.1 * half_width)


def test_intervals_repeat_and_do_not_depend_on_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).exponential(size=301)
    low, high = bootstrap_interval(values)
    assert low < values.mean() < high
    assert bootstrap_interval(values) == (low, high)
    monkeypatch.setattr("svsl.evaluation.intervals._BLOCK", 100)
    assert bootstrap_interval(values) == pytest.approx((low, high), rel=0.02)


def test_means_and_intervals_of_metrics() -> None:
    values = {"same": np.ones(50, dtype=bool), "one": np.array([0.25]), "undefined": None, "two": np.array([0, 1])}
    means, intervals = summarise_contexts(values)
    assert means == {"same": 1.0, "one": 0.25, "undefined": None, "two": 0.5}
    assert intervals == {"same": (1.0, 1.0), "two": (0.0, 1.0)}, "one context says nothing about others"


class Noisy(Unimodal):
    """Returns and modes are random numbers of the passed generator."""

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        return Outcome(
            rng.random(len(contexts)), rng.random(len(contexts)) < 0.5, {"mode": rng.integers(3, size=len(contexts))}
        )


def started(task: Unimodal) -> EpisodicTraining:
    training = make_training("svsl", SVSLConfig(components=2, iterations=2), task, 5)
    assert isinstance(training, EpisodicTraining)
    while training.milestone == 0:
        training.advance()
    return training


def test_progress_counts_ways_without_touching_other_random_numbers() -> None:
    training, untested = started(Noisy()), started(Noisy())
    row = training.measure(80)
    mixture, rng = training.learner.mixture(), stream(5, TEST_STREAM, training.milestone)
    assert row is not None
    assert mixture is not None
    result = execute(mixture, training.task, 80, rng)
    assert row["return_mean"] == result.mean.returns.mean()
    assert row["return_sampled"] == result.sampled.returns.mean()
    assert row["mixture_entropy"] == mixture_entropy(mixture, result.contexts[:50], 100, rng).mean()
    behaviours = repertoire(
        mixture, training.task, result.contexts[:50], stream(5, TEST_STREAM, training.milestone, 1), 1e-4
    )
    found, kinds = ways(behaviours), several_kinds(behaviours, 2)
    assert found is not None
    assert kinds is not None
    assert (row["ways"], row["two_kinds"]) == (found.mean(), kinds.mean())
    assert 0 < row["ways"] <= 3
    for each in (training, untested):
        each.advance()
    (tested_arrays, _), (arrays, _) = training.state(), untested.state()
    for name in arrays:
        np.testing.assert_array_equal(tested_arrays[name], arrays[name], err_msg=name)
    plain = started(Unimodal()).measure(20)
    assert plain is not None
    assert not {"ways", "two_kinds"} & set(plain), "the task names no modes"


def evaluated(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, object]:
    assert main(["eval", "run", "--json", *flags]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


def test_an_evaluation_is_json_whatever_its_numbers() -> None:
    library = svsl.train(Unimodal(), components=1, iterations=3)
    seed: Any = np.int64(5)
    evaluation = evaluate_source(Source("own", loaded=library), 30, task=Unimodal(), seed=seed)
    bad = {"return_mean": (math.nan, 1.0)}
    odd = replace(evaluation, metrics={"return_mean": math.nan, "ways": None}, intervals=bad)
    for result in (evaluation, odd):
        text = json.dumps(result.to_json(), allow_nan=False)
        assert json.loads(text)["evaluation_seed"] == 5
        assert Evaluation.from_json(json.loads(text)).to_json() == json.loads(text)
    assert odd.to_json()["return_mean"] is None
    assert odd.to_json()["intervals"] == {}


def test_eval_takes_a_seed_and_prints_intervals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = [
        "train",
        "toys:Bimodal",
        "--components",
        "2",
        "--iterations",
        "2",
        "--seed",
        "3",
        "--quiet",
        "--out",
        "run",
    ]
    assert main(train) == 0
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert all({"ways", "two_kinds"} <= set(row) for row in rows)
    capsys.readouterr()
    few = ("--contexts", "60")
    own, other = evaluated(capsys, *few), evaluated(capsys, *few, "--seed", "4")
    assert evaluated(capsys, *few, "--seed", "3") == own
    assert (own["seed"], own["evaluation_seed"]) == (3, 3)
    assert (other["seed"], other["evaluation_seed"]) == (3, 4)
    assert own["return_mean"] != other["return_mean"]
    intervals = own["intervals"]
    assert isinstance(intervals, dict)
    low, high = intervals["return_mean"]
    assert low < own["return_mean"] < high
    assert main(["eval", "run", *few]) == 0
    assert f"{own['return_mean']:.4g} [{low:.4g}, {high:.4g}]" in capsys.readouterr().out
    monkeypatch.setitem(METRICS, "distance_to_origin", lambda trial: np.abs(trial.execution.contexts[:, 0]))
    added = evaluated(capsys, *few)
    assert added["distance_to_origin"] == pytest.approx(0.5, abs=0.15), "a new metric is one line"
    assert {**added, "intervals": 0} == {**own, "intervals": 0, "distance_to_origin": added["distance_to_origin"]}
    assert "distance_to_origin" in added["intervals"]  # type: ignore[operator]
    one = evaluated(capsys, "--contexts", "1")
    assert one["intervals"] == {}
    assert main(["eval", "run", "--contexts", "1"]) == 0
    assert "[low, high]" not in capsys.readouterr().out
    assert main(["eval", "run", "--seed", "-1"]) == 2
    assert "seed" in capsys.readouterr().err
