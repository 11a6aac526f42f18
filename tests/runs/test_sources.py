"""Sources of libraries, what is evaluated of them, and locks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from svsl import SvslError, load_pretrained
from svsl.cli import main
from svsl.evaluation.metrics import METRICS
from svsl.evaluation.result import Evaluation
from svsl.learners.svsl_config import SVSLConfig
from svsl.runs.config import RunConfig
from svsl.runs.evaluation import evaluate_run, evaluate_source
from svsl.runs.folder import Run, folder_lock
from svsl.runs.sources import config_of, open_source, seed_of
from svsl.runs.training import Trainer
from toys import Bimodal

CONFIG = RunConfig("toys:Bimodal", {}, "svsl", SVSLConfig(components=2, iterations=4), 3)


def trained(folder: str) -> Run:
    run = Run.create(Path(folder), CONFIG)
    assert Trainer(run).train(lambda status: None)
    return run


def test_a_run_a_file_and_a_shipped_name_are_sources() -> None:
    run = trained("run")
    by_folder, by_file = open_source("run"), open_source("run/library.safetensors")
    assert by_folder.run is not None
    assert by_folder.run.folder == run.folder
    assert by_file.run is None
    assert seed_of(by_folder.library) == seed_of(by_file.library) == 3
    assert config_of(by_folder.library, by_folder.run) == config_of(by_file.library) == CONFIG
    assert isinstance(by_file.make_task(), Bimodal)
    assert open_source("beer-pong").library.metadata == load_pretrained("beer-pong").metadata


def test_only_a_run_folder_hides_a_shipped_library_of_the_same_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("beer-pong").mkdir()
    assert open_source("beer-pong").library.metadata["task"] == "beer-pong"
    assert main(["export", "beer-pong", "--out", "table.csv"]) == 0
    Run.create(Path("beer-pong"), CONFIG)
    opened = open_source("beer-pong").run
    assert opened is not None
    assert opened.config.task == "toys:Bimodal"
    Path("empty").mkdir()
    with pytest.raises(SvslError, match=r"empty is not a run folder \(it has no config.json\)"):
        open_source("empty")
    with pytest.raises(SvslError, match=r"x is not a run folder, a library file or a shipped library \(beer-pong, "):
        open_source("x")


def test_an_evaluation_keeps_its_json_and_can_be_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained("run")
    evaluation = evaluate_run(run, 50)
    values = evaluation.to_json()
    head = ["task", "learner", "seed", "evaluation_seed", "finished", "components", "episodes"]
    head += ["episodes_simulated", "wall_s"]
    assert list(values) == [*head, *METRICS, "intervals", "diagnostics"]
    assert Evaluation.from_json(json.loads(json.dumps(values))) == evaluation
    assert evaluation.numbers["mode"] == values["diagnostics"]["mode"]  # type: ignore[index]
    assert evaluate_source(open_source("run"), 50) == evaluation
    policy = {name: value for name, value in values.items() if name not in ("components", "diagnostics")}
    assert list(Evaluation.from_json(policy).to_json()) == list(policy), "a policy has neither"

    monkeypatch.setattr("svsl.runs.trust.make_task", None)
    assert evaluate_run(run, 50, task=Bimodal()) == evaluation, "the given task is used"


def test_a_killed_process_releases_its_lock() -> None:
    code = """
from pathlib import Path
from svsl.runs.folder import folder_lock
with folder_lock(Path(), "busy"):
    print("locked", flush=True)
    input()
"""
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(SvslError, match="held by another"), folder_lock(Path(), "held by another"):
        pass
    process.kill()
    process.communicate()
    with folder_lock(Path(), "busy"), pytest.raises(SvslError, match="busy"), folder_lock(Path(), "busy"):
        pass


def test_a_file_system_without_locks_can_still_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with folder_lock(Path(), "busy"), folder_lock(Path(), "busy"):
        pass
    Path("file").touch()
    with pytest.raises(OSError, match="Not a directory"), folder_lock(Path("file"), "busy"):
        pass
