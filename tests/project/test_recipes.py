"""A new learner and a new task are one file and one line each: the whole command line works on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from svsl.cli import main
from svsl.learners.registry import LEARNERS, LearnerEntry
from svsl.runs.folder import Run
from svsl.runs.training import Trainer
from svsl.tasks.registry import REGISTRY
from toy_learner import RandomSearch, RandomSearchConfig


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEARNERS, "random-search", LearnerEntry(RandomSearchConfig, RandomSearch))
    monkeypatch.setitem(REGISTRY, "toy", "toys:Bimodal")


def run(*words: str) -> None:
    assert main([*words]) == 0, words


def test_the_whole_command_line_works_on_a_new_learner_and_a_new_task(capsys: pytest.CaptureFixture[str]) -> None:
    run("tasks")
    assert "Two ways to solve every context" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", "toy", "--learner", "random-search", "--help"])
    assert "Candidates per iteration." in capsys.readouterr().out
    run("check-task", "toy")
    for seed in ("0", "1"):
        flags = ("--batch", "300", "--iterations", "3", "--seed", seed, "--out", f"run{seed}")
        run("train", "toy", "--learner", "random-search", *flags)
    capsys.readouterr()
    run("eval", "run0", "--json", "--contexts", "50")
    evaluation = json.loads(capsys.readouterr().out)
    assert (evaluation["learner"], evaluation["components"], evaluation["episodes"]) == ("random-search", 1, 900)
    assert 0 < evaluation["success_rate"] < 1, "one set of parameters solves a part of the contexts"
    run("plot", "run0")
    run("compare", "run0", "run1", "--contexts", "50")
    run("export", "run0", "--out", "table.csv")
    run("merge", "run0", "run1", "--out", "both.safetensors", "--contexts", "50")
    run("prune", "both.safetensors", "--max-components", "1", "--out", "one.safetensors", "--contexts", "50")
    run("extend", "run0", "--components", "1", "--iterations", "2", "--out", "extended", "--quiet")
    for path in ("run0/figures/learning.png", "run0/figures/success.png", "comparison.png", "table.csv"):
        assert Path(path).is_file(), path
    extended = Run.open(Path("extended"))
    assert (extended.finished, extended.config.learner, extended.config.extends) == (True, "svsl", "run0")


def test_an_interrupted_run_of_a_new_learner_ends_with_the_same_bytes() -> None:
    train = ("train", "toy", "--learner", "random-search", "--quiet", "--out")
    run(*train, "straight")
    config = Run.open(Path("straight")).config
    trainer = Trainer(Run.create(Path("stopped"), config))
    assert not trainer.train(lambda status: None, stop=lambda: True)
    run("resume", "stopped", "--quiet")
    libraries = [(Path(name) / "library.safetensors").read_bytes() for name in ("straight", "stopped")]
    assert libraries[0] == libraries[1]
