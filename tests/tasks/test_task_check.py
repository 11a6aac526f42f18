"""The task checker finds the mistakes that the author of a task can make."""

from typing import Any, cast

import numpy as np
import pytest

from svsl import Outcome, Task, make_task
from svsl.learners.base import SearchSpace
from svsl.learners.surrogates import feature_count
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.gaussians import Array, BoolArray
from svsl.tasks.check import check_cost, check_task
from svsl.tasks.registry import REGISTRY
from toys import AlwaysNan, Bimodal, Crashes, SometimesNan, Unimodal


def verdicts(task: Task) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {"ok": [], "warning": [], "error": []}
    for finding in check_task(task):
        result[finding.verdict].append(finding.text)
    return result


@pytest.mark.parametrize("name", REGISTRY)
def test_built_in_tasks_have_no_problems(name: str) -> None:
    texts = verdicts(make_task(name))
    assert (texts["error"], texts["warning"]) == ([], [])


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("parameter_dim", 2.5, "expected a whole number"),
        ("context_low", np.array([2.0, 0.0]), "expected finite low < high"),
        ("context_high", np.array([np.inf, 3.0]), "expected finite low < high"),
        ("context_high", np.array([1.0]), "expected two vectors of the same length"),
        ("context_low", 0.5, "expected two vectors of the same length"),
        ("initial_mean", np.zeros(4), r"expected shape (3,), got (4,)"),
        ("initial_cov", np.zeros((3, 3)), "positive definite"),
        ("initial_cov", np.ones(3), r"expected shape (3, 3)"),
        ("context_names", ("x",), "expected 2 (one per dimension), got ['x']"),
        ("penalty", float("nan"), "expected a finite number"),
    ],
)
def test_invalid_attributes_are_errors(attribute: str, value: object, message: str) -> None:
    task = Unimodal()
    setattr(task, attribute, value)
    assert any(message in text for text in verdicts(task)["error"])


def outcome_task(make: object) -> Task:
    class Wrong(Unimodal):
        def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
            assert callable(make)
            result: Outcome = make(len(contexts), rng)
            return result

    return Wrong()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n, rng: Outcome(np.zeros(3), np.zeros(n, dtype=bool)), "returns: expected 64 numbers"),
        (lambda n, rng: Outcome(rng.random(n), cast("Any", np.zeros(n))), "success: expected 64 booleans"),
        (lambda n, rng: Outcome(rng.random(n), np.zeros(n, dtype=bool), {"x": np.zeros(2)}), "info['x']"),
        (lambda n, rng: np.zeros(n), "returned a ndarray; return svsl.Outcome"),
        (lambda n, rng: Outcome(np.ones(n), np.zeros(n, dtype=bool)), "all returns are equal"),
    ],
)
def test_invalid_outcomes_are_errors(make: object, message: str) -> None:
    assert any(message in text for text in verdicts(outcome_task(make))["error"])


def test_exceptions_of_a_task_are_errors() -> None:
    class Nowhere(Unimodal):
        def valid_contexts(self, contexts: Array) -> BoolArray:
            return np.zeros(len(contexts), dtype=bool)

    assert any("evaluate raised ZeroDivisionError" in text for text in verdicts(Crashes())["error"])
    assert any("hardly any context of the box is valid" in text for text in verdicts(Nowhere())["error"])


def test_numpy_integers_are_accepted() -> None:
    task = Unimodal()
    task.parameter_dim = cast("Any", np.int64(3))
    assert verdicts(task)["error"] == []


def test_nan_returns_are_reported() -> None:
    assert any("NaN, infinite or beyond 1e100; they count as" in text for text in verdicts(SometimesNan())["warning"])
    assert any("all returns are NaN" in text for text in verdicts(AlwaysNan())["error"])


def test_only_a_task_that_scores_contexts_outside_the_box_is_asked_for_them() -> None:
    class Refuses(Unimodal):
        def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
            if not ((contexts >= self.context_low) & (contexts <= self.context_high)).all():
                raise ValueError("out of reach")
            return super().evaluate(contexts, parameters, rng)

    class Silent(Refuses):
        scores_outside = False

    assert any("outside the box: evaluate raised ValueError: out of reach" in t for t in verdicts(Refuses())["error"])
    texts = verdicts(Silent())
    assert (texts["error"], texts["warning"]) == ([], [])


def test_no_penalty_outside_the_box_is_a_warning_if_the_task_scores_there() -> None:
    class Free(Bimodal):
        def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
            return Outcome(-((parameters - 1) ** 2).sum(axis=1), np.zeros(len(contexts), dtype=bool))

    assert any("outside the box score no worse" in text for text in verdicts(Free())["warning"])
    assert not verdicts(Bimodal())["warning"]


def test_the_cost_of_many_parameters_is_estimated() -> None:
    assert feature_count(122) == 7626
    few, many = check_cost(26), check_cost(122)
    assert (few.verdict, many.verdict) == ("ok", "warning")
    settings = SVSLConfig().resolved(SearchSpace(np.zeros(4), np.ones(4), np.zeros(22), np.eye(22)))
    assert f"{settings.expert_batch} episodes for each step" in few.text
    assert few.text.endswith(f"{feature_count(26)} coefficients")
    assert "6,863 episodes for each step of a component, whose model has 7,626 coefficients and takes" in many.text
    assert "use fewer" in many.text
