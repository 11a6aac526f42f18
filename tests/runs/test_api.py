"""Training from Python."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svsl
from svsl import SkillLibrary, SvslError
from svsl.cli import main
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from svsl.runs.training import Trainer
from toys import Crashes, Unimodal

SMALL: dict[str, Any] = {"components": 2, "iterations": 8, "weight_iterations": 3}
FLAGS = ["--components", "2", "--iterations", "8", "--weight-iterations", "3", "--quiet"]


def same(first: SkillLibrary, second: SkillLibrary) -> bool:
    pairs = zip(first.mixture.to_arrays().values(), second.mixture.to_arrays().values(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_python_and_the_command_train_the_same_library() -> None:
    assert main(["train", "toys:Unimodal", "--seed", "3", *FLAGS, "--out", "run"]) == 0
    expected = SkillLibrary.load("run/library.safetensors")
    assert same(svsl.train("toys:Unimodal", seed=3, **SMALL), expected)
    library = svsl.train(Unimodal(), seed=3, **SMALL)
    assert same(library, expected)
    assert library.metadata["task"] == "toys:Unimodal"
    assert not same(svsl.train(Unimodal(), seed=4, **SMALL), expected)
    assert same(svsl.train("toys:Unimodal", seed=3, out="run", **SMALL), expected), "a finished run is loaded"


def test_a_stopped_run_is_resumed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    expected = svsl.train(Unimodal(), **SMALL)

    class Impatient(Unimodal):
        calls = 0

        def evaluate(self, *args: Any) -> svsl.Outcome:
            self.calls += 1
            if self.calls == 9:
                raise RuntimeError("enough")
            return super().evaluate(*args)

    Impatient.__module__, Impatient.__qualname__ = "toys", "Unimodal"
    monkeypatch.setattr(Trainer, "train", _saving_every_batch(Trainer.train))
    with pytest.raises(SvslError, match="RuntimeError: enough"):
        svsl.train(Impatient(), out="stopped", **SMALL)
    assert Path("stopped/checkpoint.safetensors").exists()
    assert not Path("stopped/library.safetensors").exists()
    task = Unimodal()
    assert same(svsl.train(task, out="stopped", progress=True, **SMALL), expected)
    assert "component 2/2" in capsys.readouterr().err
    assert main(["eval", "stopped", "--contexts", "20"]) == 0


def _saving_every_batch(train: Any) -> Any:
    def wrapped(trainer: Any, *args: Any) -> Any:
        trainer.checkpoint_s = 0.0
        return train(trainer, *args)

    return wrapped


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"component": 3}, "svsl has no setting 'component'; did you mean components"),
        ({"components": 0}, "components: expected at least 1"),
        ({"learner": "ppo"}, "ppo has no setting 'components'"),
        ({"learner": "nobody"}, "unknown learner 'nobody'"),
        ({"preset": "fast"}, "unknown preset 'fast'"),
        ({"task_options": {"size": 2}}, "a task object already has its options"),
        ({"task_options": "size=2"}, "task_options: expected a dictionary of options by name, got 'size=2'"),
        ({"components": "ten"}, "setting components: expected a whole number, got 'ten'"),
        ({"components": 2.0}, "setting components: expected a whole number, got 2.0"),
        ({"components": True}, "setting components: expected a whole number, got True"),
        ({"alpha": "low"}, "setting alpha: expected a number, got 'low'"),
        ({"buffer": "big"}, "setting buffer: expected a whole number or None, got 'big'"),
        ({"auxiliary": 1}, "setting auxiliary: expected True or False, got 1"),
        ({"distinguish_by": "mood"}, "setting distinguish_by: expected one of 'parameters', 'behaviour', got 'mood'"),
        ({"context_std": 0.5}, "setting context_std: expected a tuple of numbers or None, got 0.5"),
        ({"context_std": ["a", "b"]}, "setting context_std: expected a tuple of numbers or None"),
        ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
        ({"seed": 1.5}, "seed: expected a whole number of at least 0, got 1.5"),
        ({"seed": None}, "seed: expected a whole number of at least 0, got None"),
        ({"workers": -1}, "workers: expected a whole number of at least 0, got -1"),
        ({"workers": "all"}, "workers: expected a whole number of at least 0, got 'all'"),
        ({"learner": ["svsl"]}, "learner: expected a name, got "),
        ({"out": 3}, "out: expected a path, got 3"),
        ({"out": "file.txt"}, "file.txt exists and is not a run folder"),
        (
            {"task": Unimodal},
            r"task: expected a name or a task object, got the class Unimodal; create one: Unimodal\(\)",
        ),
        ({"task": 3}, "task: expected a name or a task object, but int has no context_low"),
        ({"task": None}, "task: expected a name or a task object, but NoneType has no context_low"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    Path("file.txt").write_text("mine")
    arguments = {"task": Unimodal(), **SMALL, **change}
    with pytest.raises(SvslError, match=message):
        svsl.train(arguments.pop("task"), **arguments)
    assert Path("file.txt").read_text() == "mine"


def test_numbers_of_numpy_are_numbers() -> None:
    changed = {"seed": np.uint8(3), "components": np.int64(2), "alpha": np.float32(0.5)}
    library = svsl.train(Unimodal(), **(SMALL | changed | {"context_std": np.array([1.0, 2.0])}))
    plain = {"components": 2, "alpha": 0.5, "context_std": (1.0, 2.0)}
    assert library.metadata == svsl.train(Unimodal(), seed=3, **(SMALL | plain)).metadata


def test_another_run_is_never_overwritten() -> None:
    svsl.train(Unimodal(), out="run", **SMALL)
    difference = r"run holds another run \(settings.iterations 8 instead of 9; seed 0 instead of 1\); choose another"
    with pytest.raises(SvslError, match=difference):
        svsl.train(Unimodal(), out="run", seed=1, **(SMALL | {"iterations": 9}))
    task = Unimodal()
    task.context_low = np.array([5.0, 5.0])
    with pytest.raises(SvslError, match="expected finite low < high"):
        svsl.train(task, out="never", **SMALL)
    assert not Path("never").exists()


def test_a_learner_of_policies_is_rejected() -> None:
    with pytest.raises(SvslError, match="ppo does not learn a skill library"):
        svsl.train("reacher5", learner="ppo")


def test_a_run_with_options_of_any_json_type_recognises_itself() -> None:
    options = {"place": (0.5, 1), "nested": {"low": [1.0, (2, 3)]}}
    library = svsl.train("toys:with_sequences", task_options=options, out="run", **SMALL)
    assert same(svsl.train("toys:with_sequences", task_options=options, out="run", **SMALL), library)
    lists = {"place": [0.5, 1], "nested": {"low": [1.0, [2, 3]]}}
    assert same(svsl.train("toys:with_sequences", task_options=lists, out="run", **SMALL), library)
    assert Run.open(Path("run")).config.task_options["place"] == (0.5, 1), "a resumed task gets what the first one got"
    with pytest.raises(SvslError, match=r"task_options.place \(0.5, 1\) instead of \(0.5, 2\)"):
        svsl.train("toys:with_sequences", task_options=options | {"place": (0.5, 2)}, out="run", **SMALL)
    with pytest.raises(SvslError, match=r"task option place: expected a JSON value, got a .*Path"):
        svsl.train("toys:with_sequences", task_options={"place": Path("here")}, **SMALL)


def test_renamed_settings_are_still_accepted() -> None:
    old = svsl.train(Unimodal(), fresh=1, seeded_iterations=3, **SMALL)
    new = svsl.train(Unimodal(), from_scratch=1, warm_start_iterations=3, **SMALL)
    assert same(old, new)
    assert old.metadata["config"] == new.metadata["config"]
    assert '"warm_start_iterations": 3' in new.metadata["config"]
    flags = ["--fresh", "1", "--seeded-iterations=3"]
    assert main(["train", "toys:Unimodal", *FLAGS, *flags, "--out", "run"]) == 0
    assert same(SkillLibrary.load("run"), new)
    # folders and libraries of an older version
    path = Run.config_path(Path("run"))
    path.write_text(path.read_text().replace("from_scratch", "fresh").replace("warm_start_it", "seeded_it"))
    config = Run.open(Path("run")).config
    assert config.to_json() == new.metadata["config"]
    assert not config.differences(RunConfig.from_json(path.read_text()))


def test_errors_without_a_folder_do_not_suggest_resuming() -> None:
    with pytest.raises(SvslError, match="ZeroDivisionError: the robot is on fire") as caught:
        svsl.train(Crashes(), **SMALL)
    assert "resume" not in str(caught.value)
