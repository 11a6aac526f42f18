"""The learner from Python: ask for episodes, run them, tell their returns."""

from typing import Any

import numpy as np
import pytest

import svsl
from svsl import SearchSpace, SvslError
from svsl.runs.evaluation import evaluate_source
from svsl.runs.sources import Source
from toys import Bimodal, Unimodal

SMALL: dict[str, Any] = {"components": 2, "iterations": 8, "weight_iterations": 3}


def learned(learner: Any, task: Any) -> svsl.SkillLibrary:
    rng = np.random.default_rng(0)
    while not learner.done:
        episodes = learner.ask()
        learner.tell(task.evaluate(episodes.contexts, episodes.parameters, rng).returns)
    library = learner.library()
    assert library is not None
    return library


@pytest.mark.parametrize("name", ["svsl", "hireps", "ladips"])
def test_the_loop_learns_what_train_learns(name: str) -> None:
    settings = SMALL if name == "svsl" else {"components": 2, "iterations": 8}
    expected = svsl.train(Unimodal(), seed=3, learner=name, **settings)
    learned(svsl.make_learner(Unimodal(), seed=3, learner=name, **settings), Unimodal()).save("own.safetensors")
    library = svsl.SkillLibrary.load("own.safetensors")  # as the other was loaded
    for key, array in expected.mixture.to_arrays().items():
        np.testing.assert_array_equal(library.mixture.to_arrays()[key], array)
    assert library.metadata == expected.metadata


def test_a_search_space_is_enough() -> None:
    task = Bimodal()
    space = SearchSpace(task.context_low, task.context_high, task.initial_mean, task.initial_cov, scores_outside=True)
    library = learned(svsl.make_learner(space, **SMALL), task)
    expected = svsl.train(task, **SMALL)
    np.testing.assert_array_equal(library.mixture.experts.bias, expected.mixture.experts.bias)
    assert "task" not in library.metadata
    lists: Any = SearchSpace([-1.0], [1.0], [0.7, 0.0], [[0.3, 0.0], [0.0, 0.3]])  # type: ignore[arg-type]
    assert svsl.make_learner(lists, **SMALL).ask().parameters.shape[1] == 2


def test_a_named_task_is_evaluated_as_usual() -> None:
    library = learned(svsl.make_learner("toys:Unimodal", **SMALL), Unimodal())
    assert evaluate_source(Source("own", loaded=library), 50, task=Unimodal()).task == "toys:Unimodal"


def test_what_is_told_is_checked() -> None:
    learner = svsl.make_learner(Unimodal(), **SMALL)
    assert learner.library() is None
    with pytest.raises(SvslError, match="tell: there are no episodes"):
        learner.tell([1.0])
    count = len(learner.ask().contexts)
    with pytest.raises(SvslError, match=f"ask: first tell the returns of the {count} episodes"):
        learner.ask()
    for returns, message in (
        (np.zeros(count - 1), rf"returns: expected shape \({count},\), one number per episode, got \({count - 1},\)"),
        (np.zeros((count, 1)), rf"got \({count}, 1\)"),
        (np.full(count, np.nan), f"returns: {count} of {count} are NaN or infinite; replace them"),
        (["good"] * count, "returns: expected numbers, got "),
    ):
        with pytest.raises(SvslError, match=message):
            learner.tell(returns)
    with pytest.raises(SvslError, match=rf"behaviours: expected shape \({count}, d\), got \(2,\)"):
        learner.tell(np.zeros(count), [1.0, 2.0])
    assert learner.episodes == 0
    learner.tell([0.0] * count)
    assert learner.episodes == count, "a refused tell can be repeated"


def test_a_finished_learner_asks_for_nothing() -> None:
    learner = svsl.make_learner(Unimodal(), **SMALL)
    learned(learner, Unimodal())
    with pytest.raises(SvslError, match="ask: learning is over"):
        learner.ask()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": SearchSpace(np.ones(1), np.ones(1), np.zeros(1), np.eye(1))}, "expected finite low < high"),
        ({"task": SearchSpace(np.zeros(1), np.ones(1), np.zeros(1), -np.eye(1))}, "symmetric, positive definite"),
        ({"task": Unimodal}, "got the class Unimodal"),
        ({"learner": "ppo"}, "ppo does not learn a skill library"),
        ({"iterations": "many"}, "setting iterations: expected a whole number, got 'many'"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    arguments = {"task": Unimodal(), **change}
    with pytest.raises(SvslError, match=message):
        svsl.make_learner(arguments.pop("task"), **arguments)
