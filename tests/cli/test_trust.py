"""Files from anywhere: no command imports or calls what the user did not name."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import svsl
from helpers import small_library
from svsl import SkillLibrary, SvslError
from svsl.cli import main
from svsl.experiments.catalogue import EXPERIMENTS, plan
from svsl.learners.svsl_config import SVSLConfig
from svsl.runs.config import RunConfig
from svsl.runs.evaluation import evaluate_source
from svsl.runs.folder import Run
from svsl.runs.sources import open_source, task_of
from svsl.runs.training import Trainer
from svsl.runs.trust import TaskChoice

SMALL = ["--components", "1", "--iterations", "2", "--quiet"]
HOSTILE = {
    "subprocess:getoutput": {"cmd": "touch called"},
    "shutil:rmtree": {"path": "precious"},
    "builtins:eval": {},
    "os:mkdir": {"path": "called"},
    "evil:Task": {},
    "gym:evil:Env-v0": {},
}


@pytest.fixture(autouse=True)
def _traps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module in the current folder that leaves a trace, and something to lose."""
    Path("evil.py").write_text("open('imported', 'w').close()\n")
    Path("precious").mkdir()
    yield
    assert not Path("imported").exists()
    assert not Path("called").exists()
    assert Path("precious").is_dir()
    assert "evil" not in sys.modules


def library_of(task: str, options: dict[str, str] | None = None) -> SkillLibrary:
    library = small_library("toys:Unimodal", np.zeros((1, 2)), 0.5, np.zeros((1, 3)))
    return replace(library, metadata={"task": task, "task_options": json.dumps(options or {})})


def downloaded(folder: str, task: str, finished: bool = True) -> Path:
    """A run folder as it comes from somebody else, with a library or a checkpoint of that task."""
    own = Run.create(Path("own"), RunConfig("toys:Unimodal", {}, "svsl", SVSLConfig(2, 2), 0), overwrite=True)
    trainer = Trainer(own)
    trainer.train(lambda status: None, stop=lambda: not finished and trainer.training.milestone > 0)
    shutil.copytree("own", folder)
    for path in Path(folder).glob("*.safetensors"):
        path.write_bytes(path.read_bytes())
    config = replace(own.config, task=task, task_options=HOSTILE.get(task, {}))
    Run.config_path(Path(folder)).write_text(config.to_json())
    if finished:
        library_of(task, HOSTILE.get(task)).save(Path(folder) / "library.safetensors")
    return Path(folder)


@pytest.mark.parametrize("task", HOSTILE)
def test_no_command_creates_the_task_of_a_library_from_somewhere_else(
    task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    library_of(task, HOSTILE[task]).save("a.safetensors")
    library_of(task, HOSTILE[task]).save("b.safetensors")
    for command in (
        ["eval", "a.safetensors"],
        ["plot", "a.safetensors"],
        ["plot", "a.safetensors", "b.safetensors"],
        ["view", "a.safetensors", "--port", "0"],
        ["video", "a.safetensors", "--out", "x.gif"],
        ["extend", "a.safetensors", *SMALL],
        ["merge", "a.safetensors", "b.safetensors", "--out", "c.safetensors"],
        ["prune", "a.safetensors", "--redundant", "--out", "c.safetensors"],
        ["push", "a.safetensors", "me/a", "--out", "card"],
    ):
        assert main(command) == 2, command
        error = capsys.readouterr().err
        assert error.count("\n") == 1, command
        assert f"its task {task!r} does not come with svsl and was not trained here" in error, command
        assert "--trust-task" in error
    assert not Path("c.safetensors").exists()
    with pytest.raises(SvslError, match="is not imported"):
        task_of(SkillLibrary.load("a.safetensors"))
    with pytest.raises(SvslError, match="is not imported"):
        evaluate_source(open_source("a.safetensors"))
    assert main(["export", "a.safetensors", "--out", "a.csv"]) == 0, "a table needs no task"


@pytest.mark.parametrize("task", HOSTILE)
def test_no_command_creates_the_task_of_a_run_from_somewhere_else(
    task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, half = str(downloaded("run", task)), str(downloaded("half", task, finished=False))
    commands = [
        [name, source, *flags]
        for source in (run, half)
        for name, *flags in (
            ["eval"],
            ["plot"],
            ["video", "--out", "x.gif"],
            ["view", "--port", "0"],
        )
    ]
    commands.append(["push", run, "me/a", "--out", "card"])
    extra = (["resume", half], ["extend", run, *SMALL], ["extend", half], ["compare", run], ["export", half, "--out=x"])
    for command in (*commands, *extra, ["merge", run, half, "--out=x"], ["prune", half, "--redundant", "--out=x"]):
        assert main(command) == 2, command
        error = capsys.readouterr().err
        assert f"its task {task!r} does not come with svsl" in error, command
        assert error.count("\n") == 1, command
    assert not Path("half/library.safetensors").exists()


@pytest.mark.parametrize("task", HOSTILE)
def test_reproduce_refuses_a_folder_with_another_task(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    arm, configs = next(iter(plan(EXPERIMENTS["ablation"], 1, 0.05).items()))
    folder = Path("there") / f"{arm.label}-seed0"
    folder.mkdir(parents=True)
    Path("there/experiment.json").write_text(json.dumps({"experiment": "ablation", "scale": 0.05}))
    hostile = replace(configs[0], task=task, task_options=HOSTILE[task])
    Run.config_path(folder).write_text(hostile.to_json())
    assert main(["reproduce", "ablation", "--scale", "0.05", "--seeds", "1", "--out", "there"]) == 2
    assert "was created with other settings" in capsys.readouterr().err


def test_a_configuration_in_the_metadata_cannot_bring_another_task(capsys: pytest.CaptureFixture[str]) -> None:
    config = RunConfig("evil:Task", {}, "svsl", SVSLConfig(1, 2), 0).to_json()
    library = library_of("toys:Unimodal")
    replace(library, metadata={**library.metadata, "config": config}).save("a.safetensors")
    assert main(["extend", "a.safetensors", *SMALL, "--trust-task", "--out", "run"]) == 0
    assert Run.open(Path("run")).config.task == "toys:Unimodal"
    pytest.importorskip("huggingface_hub")
    assert main(["push", "a.safetensors", "me/a", "--out", "card", "--contexts", "5", "--trust-task"]) == 0
    assert "svsl train toys:Unimodal" in Path("card/README.md").read_text()


def test_what_was_trained_here_needs_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toys:with_options", "--scale", "2", *SMALL, "--out", "run"]) == 0
    assert main(["eval", "run", "--contexts", "5"]) == 0
    assert main(["eval", "run/library.safetensors", "--contexts", "5"]) == 0
    assert main(["extend", "run", *SMALL]) == 0
    pruned = ["prune", "run", "--max-components", "1", "--out", "small.safetensors", "--contexts", "5"]
    assert main(pruned) == 0
    assert main(["eval", "small.safetensors", "--contexts", "5"]) == 0
    merged = ["merge", "run", "run-extended", "--out", "both.safetensors", "--contexts", "5"]
    assert main(merged) == 0
    assert main(["plot", "both.safetensors"]) == 0
    capsys.readouterr()

    Path("run").rename("elsewhere")
    assert main(["eval", "elsewhere", "--contexts", "5"]) == 2, "another folder"
    assert main(["eval", "elsewhere", "--contexts", "5", "--trust-task"]) == 0
    assert main(["eval", "elsewhere", "--contexts", "5", "--task", "toys:with_options"]) == 0
    Path("elsewhere").rename("run")
    for change in ({"task": "evil:Task"}, {"task_options": {"scale": 3.0, "kind": "plain"}}):
        config = json.loads(Path("run/config.json").read_text())
        Path("run/config.json").write_text(json.dumps(config | change))
        assert main(["eval", "run", "--contexts", "5"]) == 2, "another task in the same folder"
        Path("run/config.json").write_text(json.dumps(config))


def test_without_a_place_for_records_the_user_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("no folder")
    monkeypatch.setenv("SVSL_STATE_DIR", str(Path("file/state").absolute()))
    assert main(["train", "toys:Unimodal", *SMALL, "--out", "run"]) == 0
    assert main(["eval", "run"]) == 2
    monkeypatch.delenv("SVSL_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("state").absolute()))
    assert main(["train", "toys:Unimodal", *SMALL, "--out", "other"]) == 0
    assert len(list(Path("state/svsl/trusted").iterdir())) == 1
    assert main(["eval", "other", "--contexts", "5"]) == 0
    assert list(Path("other").glob("*trust*")) == [], "the record is not part of what is shared"


def test_a_library_is_evaluated_on_a_changed_task(capsys: pytest.CaptureFixture[str]) -> None:
    library_of("toys:moved", {}).save("a.safetensors")

    def returned(*flags: str) -> float:
        assert main(["eval", "a.safetensors", "--json", "--contexts", "50", *flags]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["task"] == "toys:moved"
        return float(result["return_mean"])

    plain, far = returned("--task", "toys:moved"), returned("--trust-task", "--task-option", "shift=3.5")
    assert far < plain
    assert returned("--task", "toys:moved", "--task-option", "shift=3.5") == far
    for flags, message in (
        (["--task-option", "shift"], "task_option: expected NAME=VALUE, got 'shift'"),
        (["--task", "toys:moved", "--task-option", "height=1"], "has no option 'height'; options: shift"),
        (["--task", "toys:Bimodal"], "has 1 and 2 now"),
    ):
        assert main(["eval", "a.safetensors", *flags]) == 2
        assert message in capsys.readouterr().err


def test_values_of_options_are_json_or_text() -> None:
    from svsl.cli.task_choice import TaskFlags

    flags = TaskFlags(task_option=("a=1", "b-c=2.5", "d=True", "e=[1, 2]", "f=fancy", "g=x=y", "h=null"))
    expected = {"a": 1, "b_c": 2.5, "d": True, "e": [1, 2], "f": "fancy", "g": "x=y", "h": None}
    assert flags.choice == TaskChoice(options=expected)


def test_shipped_tasks_import_nothing_from_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("evil_twin.py").write_text("")
    assert main(["eval", "planar-reacher", "--contexts", "2"]) == 0
    assert os.getcwd() not in sys.path
    assert main(["check-task", "toys:Unimodal"]) == 0
    assert os.getcwd() in sys.path


def test_the_terminal_obeys_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    escape = "\x1b]0;title\x07\x1b[31m\u202e"
    library = library_of("toys:Unimodal")
    replace(library, metadata={**library.metadata, "learner": escape}).save("a.safetensors")
    assert main(["eval", "a.safetensors", "--contexts", "5", "--trust-task"]) == 0
    library_of(escape).save("b.safetensors")
    assert main(["eval", "b.safetensors"]) == 2
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert repr(escape)[1:-1] in text.replace("\\\\", "\\")
        assert not set(escape) & set(text) - set("title]0;[31m")


@pytest.mark.parametrize("seed", ["-5", "1.5", "", "9" * 5000])
def test_a_seed_in_the_metadata_is_checked(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    library = library_of("toys:Unimodal")
    replace(library, metadata={**library.metadata, "seed": seed}).save("a.safetensors")
    for command in ("eval", "plot"):
        assert main([command, "a.safetensors", "--trust-task"]) == 2
        error = capsys.readouterr().err
        assert "expected a number of at least 0" in error
        assert len(error) < 300


def test_another_context_box_is_mentioned_once(capsys: pytest.CaptureFixture[str]) -> None:
    library = library_of("toys:Unimodal")
    replace(library, context_high=library.context_high - 0.25).save("a.safetensors")
    assert main(["eval", "a.safetensors", "--contexts", "5", "--trust-task"]) == 0
    line = "the context box of toys:Unimodal is (-1, 0) to (1, 3), the library was trained for (-1, 0) to (0.75, 2.75)"
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_names_in_files_become_tasks_in_one_place() -> None:
    package = Path(svsl.__file__).parent
    calls = re.compile(r"(?<!def )(?<![.\w])(make_task|task_factory)\(\w|\bconfig\.make_task\(")
    callers = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if calls.search(path.read_text())}
    named_by_the_user = {"api.py", "cli/commands/train.py", "cli/commands/check_task.py"}
    named_by_the_user |= {"environments/skills.py", "environments/steps.py"}
    named_by_svsl = {"cli/commands/tasks.py", "bench/suite.py", "bench/rollouts.py"}
    called_with_checked_names = {"cli/commands/extend.py", "cli/task_flags.py", "tasks/remote.py"}
    machinery = {"tasks/registry.py", "runs/config.py"}
    allowed = named_by_the_user | named_by_svsl | called_with_checked_names | machinery
    assert callers - allowed == {"runs/trust.py"}
