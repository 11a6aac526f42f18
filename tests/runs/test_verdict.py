"""Remarks about a finished run."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svsl
from svsl import Outcome
from svsl.cli import main
from svsl.learners.base import Episodes, SearchSpace
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.editing import select
from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from svsl.runs.verdict import missing_components, nothing_learned
from toys import Unimodal

SMALL = SVSLConfig(components=10)
FLAGS = ["--components", "2", "--iterations", "8", "--weight-iterations", "3", "--eval-contexts", "50", "--no-figures"]


class Hopeless(Unimodal):
    """No episode succeeds, and all have the same return."""

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        return Outcome(np.zeros(len(contexts)), np.zeros(len(contexts), dtype=bool))


def finished(deleted: int, settings: SVSLConfig = SMALL, extends: svsl.SkillLibrary | None = None) -> Run:
    config = RunConfig("toys:Unimodal", {}, "svsl", settings, 0, extends=None if extends is None else "base")
    run = Run.create(Path("run"), config, overwrite=True, base=extends)
    run.append_metrics({"components": 10 - deleted, "deleted": deleted})
    return run


@pytest.mark.parametrize(
    ("deleted", "kept", "expected"),
    [
        (0, 10, None),
        (3, 5, "kept     5 of 10 components: 3 deleted as stuck, 2 too light"),
        (0, 5, "kept     5 of 10 components: 5 too light"),
        (5, 5, "kept     5 of 10 components: 5 deleted as stuck"),
    ],
)
def test_missing_components_are_explained(deleted: int, kept: int, expected: str | None) -> None:
    assert missing_components(finished(deleted), {"components": kept}) == expected


def test_a_deleted_component_is_missing_as_often_as_it_would_have_been_split() -> None:
    settings = SVSLConfig(components=12, splits=2, closing_iterations=9)
    expected = "kept     8 of 12 components: 4 deleted as stuck"
    assert missing_components(finished(1, settings), {"components": 8}) == expected


def test_an_extended_library_counts_its_new_components() -> None:
    base = svsl.train(Unimodal(), components=4, iterations=3, weight_iterations=0)
    run = finished(0, extends=base)
    expected = "kept     3 of 10 new components: 7 too light"
    assert missing_components(run, {"components": 7}) == expected
    run = finished(0, extends=select(base, np.array([0])))
    assert missing_components(run, {"components": 11}) is None


def test_policies_have_no_components() -> None:
    assert missing_components(finished(0), {"success_rate": 0.5}) is None


def test_nothing_learned_is_said() -> None:
    run, task = finished(0), Unimodal()
    assert nothing_learned(run, {"success_rate": 0.5, "return_mean": -0.1}, task) is None
    line = nothing_learned(run, {"success_rate": 0.0, "return_mean": -0.1}, task)
    assert line == "verdict  no episode succeeded: docs/not-learning.md says what to try"
    line = nothing_learned(run, {"success_rate": 0.01, "return_mean": -1e3}, task)
    assert line is not None
    assert line.startswith("verdict  the return -1000 is no better than that of the initial search, -")


@pytest.mark.parametrize("contexts", ["50", "0"])
def test_the_command_says_so(contexts: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*FLAGS, "--eval-contexts", contexts]
    assert main(["train", "test_verdict:Hopeless", *flags, "--out", "run"]) == 0
    assert "no episode succeeded: docs/not-learning.md" in capsys.readouterr().out


def test_evaluation_and_figures_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated: list[Any] = []
    monkeypatch.setattr("svsl.cli.training.evaluate_run", lambda *args, **kwargs: evaluated.append(args))
    base = ["train", "toys:Unimodal", "--components", "2", "--iterations", "8", "--weight-iterations", "3"]
    assert main([*base, "--eval-contexts", "0", "--no-figures", "--out", "run"]) == 0
    assert evaluated == []
    assert not Path("run/figures").exists()
    assert "library  run/library.safetensors" in capsys.readouterr().out
    assert main(["extend", "run", *base[2:], "--eval-contexts", "0", "--out", "more"]) == 0
    assert Path("more/figures/contexts.png").exists(), "the figures are drawn without an evaluation"
    Path("more/library.safetensors").unlink()
    assert main(["resume", "more", "--eval-contexts", "0", "--no-figures"]) == 0
    assert main([*base, "--eval-contexts", "-1", "--out", "never"]) == 2
    assert "eval_contexts: expected at least 0, got -1" in capsys.readouterr().err


def test_one_component_needs_no_episodes_for_its_weight() -> None:
    library = svsl.train(Unimodal(), components=1, iterations=8)
    config = RunConfig("toys:Unimodal", {}, "svsl", replace(SMALL, components=1, iterations=8), 0)
    assert int(library.metadata["episodes"]) == config.planned_episodes()
    none = svsl.train(Unimodal(), components=1, iterations=8, weight_iterations=0)
    assert library.metadata["episodes"] == none.metadata["episodes"]
    two = svsl.train(Unimodal(), components=2, iterations=8)
    assert int(two.metadata["episodes"]) > 2 * int(library.metadata["episodes"])


def test_a_checkpoint_of_one_component_in_the_weight_stage_is_still_continued() -> None:
    settings, space = replace(SMALL, components=1, iterations=3), SearchSpace.of(Unimodal())

    def weighed(learner: SVSL) -> None:
        learner.stage = "weights"

    old = SVSL(settings, space, stream(0))
    old._start_weights = partial(weighed, old)  # type: ignore[method-assign]
    while old.stage != "weights":
        old.tell(Unimodal().evaluate(*_pair(old.ask()), stream(1)).returns)
    new = SVSL(settings, space, stream(0))
    new.restore(old.state())
    new.tell(Unimodal().evaluate(*_pair(new.ask()), stream(1)).returns)
    assert new.done
    mixture = new.mixture()
    assert mixture is not None
    assert mixture.log_weights.tolist() == [0.0]


def _pair(episodes: Episodes) -> tuple[Array, Array]:
    return episodes.contexts, episodes.parameters
