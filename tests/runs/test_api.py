"""Training from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svsl
from svsl import SkillLibrary, SvslError
from svsl.cli import main
from svsl.runs.training import Trainer
from toys import Crashes, Unimodal

SMALL: dict[str, Any] = {"components": 2, "iterations": 8, "weight_iterations": 3}
FLAGS = ["--components", "2", "--iterations", "8", "--weight-iterations", "3", "--quiet"]


def same(first: SkillLibrary, second: SkillLibrary) -> bool:
    pairs = zip(first.mixture.to_arrays().values(), second.mixture.to_arrays().values(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_it_is_what_the_command_trains() -> None:
    assert main(["train", "toys:Unimodal", "--seed", "3", *FLAGS, "--out", "run"]) == 0
    wanted = SkillLibrary.load("run/library.safetensors")
    assert same(svsl.train("toys:Unimodal", seed=3, **SMALL), wanted)
    library = svsl.train(Unimodal(), seed=3, **SMALL)
    assert same(library, wanted)
    assert library.metadata["task"] == "toys:Unimodal"
    assert not same(svsl.train(Unimodal(), seed=4, **SMALL), wanted)
    assert same(svsl.train("toys:Unimodal", seed=3, out="run", **SMALL), wanted), "a finished run is loaded"


def test_a_stopped_run_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = svsl.train(Unimodal(), **SMALL)

    class Impatient(Unimodal):
        calls = 0

        def evaluate(self, *args: Any) -> svsl.Outcome:
            self.calls += 1
            if self.calls == 9:
                raise RuntimeError("enough")
            return super().evaluate(*args)

    Impatient.__module__, Impatient.__qualname__ = "toys", "Unimodal"
    monkeypatch.setattr("svsl.runs.training.Trainer._one_batch", _saving(Trainer._one_batch))
    with pytest.raises(SvslError, match="RuntimeError: enough"):
        svsl.train(Impatient(), out="stopped", **SMALL)
    assert Path("stopped/checkpoint.safetensors").exists()
    assert not Path("stopped/library.safetensors").exists()
    task = Unimodal()
    assert same(svsl.train(task, out="stopped", progress=True, **SMALL), wanted)
    assert "component 2/2" in capsys.readouterr().err
    assert main(["eval", "stopped", "--contexts", "20"]) == 0


def _saving(one_batch: Any) -> Any:
    def wrapped(trainer: Any) -> None:
        one_batch(trainer)
        trainer._save()

    return wrapped


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"component": 3}, "svsl has no setting 'component'; did you mean components"),
        ({"components": 0}, "components: expected at least 1"),
        ({"learner": "ppo"}, "ppo has no setting 'components'|makes no skill library"),
        ({"learner": "nobody"}, "unknown learner 'nobody'"),
        ({"preset": "fast"}, "unknown preset 'fast'"),
        ({"task_options": {"size": 2}}, "a task object has its options already"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SvslError, match=message):
        svsl.train(Unimodal(), **(SMALL | change))


def test_another_run_is_never_overwritten() -> None:
    svsl.train(Unimodal(), out="run", **SMALL)
    with pytest.raises(SvslError, match="run holds a run that differs in settings and seed; choose another folder"):
        svsl.train(Unimodal(), out="run", seed=1, **(SMALL | {"iterations": 9}))
    task = Unimodal()
    task.context_low = np.array([5.0, 5.0])
    with pytest.raises(SvslError, match="expected finite low < high"):
        svsl.train(task, out="never", **SMALL)
    assert not Path("never").exists()


def test_without_a_folder_nobody_is_told_to_resume() -> None:
    with pytest.raises(SvslError, match="ZeroDivisionError: the robot is on fire") as caught:
        svsl.train(Crashes(), **SMALL)
    assert "resume" not in str(caught.value)
