"""The Hugging Face Hub: what is pushed, what is loaded, and mistakes, against a server on this machine."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("huggingface_hub")

from helpers import small_library
from hub_server import TOKEN, Hub, running_hub
from svsl import SkillLibrary, SvslError, load_pretrained
from svsl.cli import main
from svsl.cli.train_command import train_command
from svsl.learners.registry import PRESETS
from svsl.model.shipped import FOLDER
from svsl.runs.config import RunConfig, make_config
from svsl.runs.folder import Run
from svsl.runs.sources import config_of, open_source

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # huggingface_hub's own, about its own calls
SMALL = ["--components", "2", "--iterations", "4", "--quiet"]
FEW = ["--contexts", "20"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A server, and a user who has a token, an empty cache and no other settings."""
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
        monkeypatch.delenv(name)
    with running_hub() as server:
        monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("cache")))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")  # its protocol is that of another server
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        environment(monkeypatch, HF_ENDPOINT=server.address)
        yield server


def environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Sets variables; huggingface_hub, which reads them once, is imported again."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        monkeypatch.delitem(sys.modules, name)


def arm() -> bytes:
    """A tiny library of the planar reacher."""
    library = small_library("planar-reacher", np.array([[5.0, -2.0], [6.0, 2.0]]), 2.0, np.zeros((2, 10)))
    library.save("arm.safetensors")
    return Path("arm.safetensors").read_bytes()


def one_line(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    assert main([*command]) == 2, command
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


def test_a_pushed_run_comes_back_bit_for_bit_with_a_card(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "planar-reacher", *SMALL, "--seed", "3", "--out", "run"]) == 0
    assert main(["push", "run", "me/arm", *FEW, "--license", "mit"]) == 0
    assert f"commit   {hub.address}/me/arm/commit/" in capsys.readouterr().out
    repository = hub.repositories["me/arm"]
    files = repository.commits[repository.branches["main"]]
    figures = {f"figures/{name}.png" for name in ("contexts", "learning", "postures", "success")}
    assert (
        set(files) - {"replay.mp4", ".gitattributes"} == {"library.safetensors", "config.json", "README.md"} | figures
    )
    assert files["library.safetensors"] == Path("run/library.safetensors").read_bytes()
    assert RunConfig.from_json(files["config.json"].decode()) == Run.open(Path("run")).config
    assert all(files[name].startswith(b"\x89PNG") for name in figures)

    from huggingface_hub import ModelCard

    stored = json.loads(Path("run/evaluation.json").read_text())["evaluation"]
    card: Any = ModelCard(files["README.md"].decode())
    assert (card.data.library_name, card.data.license, card.data.model_name) == ("svsl", "mit", "arm")
    results = {result.metric_name: result for result in card.data.eval_results or []}
    assert {name: result.metric_value for name, result in results.items()} == {name: stored[name] for name in results}
    assert {result.dataset_name for result in results.values()} == {"planar-reacher"}
    assert results["return_mean"].metric_type == "mean_reward"
    low, high = stored["intervals"]["return_mean"]
    assert f"| `return_mean` | {stored['return_mean']:.4g} | {low:.4g} to {high:.4g} |" in card.text
    command = "svsl train planar-reacher --components 2 --iterations 4 --seed 3"
    assert f"```\n{command}\n```" in card.text
    assert "| goal x | 4.5 | 7 |" in card.text

    code = card.text.partition("```python\n")[2].partition("```")[0]
    used = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert used.stdout, "the code in the card works"
    assert main([*command.split()[1:], "--quiet", "--out", "again"]) == 0
    assert Path("again/library.safetensors").read_bytes() == files["library.safetensors"]


def test_every_command_takes_a_library_from_the_hub(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.publish("me/arm", library_safetensors=arm())
    for words in (
        ["eval", "hf:me/arm", *FEW],
        ["plot", "hf:me/arm"],
        ["plot", "hf:me/arm", "arm.safetensors"],
        ["video", "hf:me/arm", "--out", "x.gif", "--width", "64", "--fps", "2"],
        ["extend", "hf:me/arm", "--components", "1", "--iterations", "1", "--weight-iterations", "1", "--quiet"],
        ["merge", "hf:me/arm", "arm.safetensors", "--out", "both.safetensors", *FEW],
        ["prune", "hf:me/arm", "--max-components", "1", "--out", "few.safetensors", *FEW],
        ["export", "hf:me/arm", "--out", "table.csv"],
        ["push", "hf:me/arm", "me/copy", *FEW, "--out", "card"],
    ):
        assert main(words) == 0, (words, capsys.readouterr().err)
    assert Path("card/library.safetensors").read_bytes() == arm()
    assert Run.open(Path("runs/arm-extended")).config.extends == "hf:me/arm"
    assert Path("arm-figures/contexts.png").is_file()
    assert len(open_source("both.safetensors").library) == 4


def test_a_second_push_leaves_nothing_of_the_first_but_history(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    arm()
    first = hub.publish(
        "me/arm",
        library_safetensors=(FOLDER / "beer-pong.safetensors").read_bytes(),
        replay_mp4=b"old",
        LICENSE=b"mine",
    )
    hub.repositories["me/arm"].commits[first]["figures/snapshots.png"] = b"old"
    assert main(["push", "arm.safetensors", "me/arm", *FEW]) == 0
    newest = hub.repositories["me/arm"].commits[hub.repositories["me/arm"].branches["main"]]
    assert "figures/snapshots.png" not in newest
    assert newest.get("replay.mp4") != b"old"
    assert newest["LICENSE"] == b"mine", "files of the user stay"
    assert SkillLibrary.from_pretrained("me/arm").metadata["task"] == "planar-reacher"
    assert SkillLibrary.from_pretrained("me/arm", revision=first).metadata["task"] == "beer-pong"
    hub.repositories["me/arm"].branches["v1"] = first
    assert open_source("hf:me/arm@v1").library.metadata["task"] == "beer-pong"
    error = one_line(capsys, "eval", "hf:me/arm@v2")
    assert error.startswith("svsl: hf:me/arm@v2: the repository has no such branch, tag or commit")
    assert main(["push", "arm.safetensors", "me/hidden", *FEW, "--private"]) == 0
    assert hub.repositories["me/hidden"].private


def test_a_cached_library_needs_no_network(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = hub.publish("me/arm", library_safetensors=arm())
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between attempts to connect
    for variables in ({"HF_HUB_OFFLINE": "1"}, {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": closed_address()}):
        with monkeypatch.context() as patch:
            environment(patch)
            before = SkillLibrary.from_pretrained("me/arm", commit).metadata
            environment(patch, **variables)
            asked = len(hub.requests)
            error = one_line(capsys, "eval", "hf:me/other")  # the first call after the import, which sets up logging
            assert "cannot be reached; check the network and HF_HUB_OFFLINE; no copy is in the cache either" in error
            assert SkillLibrary.from_pretrained("me/arm", commit).metadata == before
            error = one_line(capsys, "push", "arm.safetensors", "me/arm", *FEW)
            assert error.startswith("svsl: hf:me/arm: ")
            assert "cannot be reached; check the network and HF_HUB_OFFLINE" in error
            assert len(hub.requests) == asked


def closed_address() -> str:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


def test_mistakes_are_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arm()
    error = one_line(capsys, "eval", "hf:me/nothing")
    assert f"hf:me/nothing: {hub.address} has no such repository, or it is private; check the name, or log in" in error
    hub.publish("me/arm", library_safetensors=b"not a library", config_json=b"{}")
    hub.publish("me/text", README_md=b"# A language model")
    error = one_line(capsys, "view", "hf:me/arm")
    assert error.startswith("svsl: hf:me/arm/library.safetensors: not a readable skill library")
    error = one_line(capsys, "eval", "hf:me/text")
    assert "hf:me/text: the repository has no library.safetensors, so it is not a skill library" in error
    for name in ("hf:arm", "hf:", "hf:a/b/c", "hf:me/arm@"):
        assert f"svsl: {name}: expected user/name" in one_line(capsys, "eval", name)
    assert "hf:../arm: not a name of a repository" in one_line(capsys, "eval", "hf:../arm")
    with pytest.raises(SvslError, match="planar-reacher: expected user/name"):
        SkillLibrary.from_pretrained("planar-reacher")
    error = one_line(capsys, "push", "arm.safetensors", "me/arm@v1")
    assert "name: expected user/name, got 'me/arm@v1'" in error
    error = one_line(capsys, "push", "arm.safetensors", "somebody/arm", *FEW)
    assert "hf:somebody/arm: your token may not do this" in error
    hub.publish("me/hidden", library_safetensors=arm())
    hub.repositories["me/hidden"].private = True
    environment(monkeypatch, HF_TOKEN="")
    assert "or it is private" in one_line(capsys, "eval", "hf:me/hidden")
    asked = len(hub.requests)
    error = one_line(capsys, "push", "arm.safetensors", "me/arm", *FEW)
    assert "pushing needs a token of the Hub with write access: log in with `hf auth login`, or set HF_TOKEN" in error
    environment(monkeypatch, HF_TOKEN="hf_wrong")
    assert len(hub.requests) == asked
    assert "your token may not do this" in one_line(capsys, "push", "arm.safetensors", "me/arm", *FEW)


def test_an_unfinished_run_is_not_pushed(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    Run.create(Path("half"), make_config("planar-reacher"))
    assert "half is not finished; resume it with svsl resume half" in one_line(capsys, "push", "half", "me/arm")
    assert not hub.repositories


@pytest.mark.parametrize("task", ["evil:Task", "gym:evil:Env-v0", "os:mkdir"])
def test_no_task_of_a_library_from_the_hub_is_imported(task: str, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    Path("evil.py").write_text("open('imported', 'w').close()\n")
    library = small_library("toys:Unimodal", np.zeros((1, 2)), 0.5, np.zeros((1, 3)))
    options = json.dumps({"path": "called"} if task == "os:mkdir" else {})
    config = replace(make_config("toys:Unimodal"), task=task).to_json()
    replace(library, metadata={"task": task, "task_options": options, "config": config}).save("a.safetensors")
    hub.publish("me/evil", library_safetensors=Path("a.safetensors").read_bytes(), evil_py=Path("evil.py").read_bytes())
    for command in (
        ["eval"],
        ["plot"],
        ["video", "--out=x.gif"],
        ["extend", *SMALL],
        ["merge", "hf:me/evil", "--out=c"],
        ["prune", "--redundant", "--out=c"],
        ["push", "me/evil"],
    ):
        error = one_line(capsys, command[0], "hf:me/evil", *command[1:])
        assert f"hf:me/evil: its task {task!r} does not come with svsl and was not trained here" in error, command
        assert "--trust-task" in error
    with pytest.raises(SvslError, match="is not imported"):
        open_source("hf:me/evil").make_task()
    assert main(["export", "hf:me/evil", "--out", "a.csv"]) == 0, "a table needs no task"
    assert main(["eval", "hf:me/evil", "--task", "toys:Unimodal", *FEW]) == 0, "the user names a task"
    assert not Path("imported").exists()
    assert not Path("called").exists()


def test_a_library_of_ones_own_task_says_what_its_user_needs(hub: Hub) -> None:
    assert main(["train", "toys:Unimodal", *SMALL, "--out", "run"]) == 0
    assert main(["push", "run", "me/toy", *FEW]) == 0
    repository = hub.repositories["me/toy"]
    card = repository.commits[repository.branches["main"]]["README.md"].decode()
    assert "svsl eval hf:me/toy --task toys:Unimodal\n" in card
    assert "The task `toys:Unimodal` does not come with svsl" in card


@pytest.mark.parametrize(("task", "learner"), [*PRESETS, ("toys:with_options", "svsl")])
def test_the_command_in_a_card_gives_the_same_configuration(
    task: str, learner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = list[RunConfig]()

    def take(run: object, config: RunConfig, *rest: object) -> int:
        trained.append(config)
        return 0

    monkeypatch.setattr("svsl.cli.commands.train.train_run", take)
    options: dict[str, dict[str, object]] = {
        "planar-reacher": {"free_first_joint": False},
        "reacher5": {"reward": "last2"},
        "toys:with_options": {"scale": 2.5},
    }
    for preset in [*PRESETS.get((task, learner), {}), None]:
        config = make_config(task, learner, preset, seed=4)
        changed = make_config(task, learner, preset, None, {"iterations": 3}, 0, 7)
        for expected in (config, changed, make_config(task, learner, None, options.get(task))):
            command = train_command(expected)
            assert command is not None
            assert main(command.split()[1:]) == 0, command
            assert trained.pop() == expected, command


def test_the_command_of_a_shipped_library_is_short() -> None:
    assert train_command(config_of(load_pretrained("planar-reacher"))) == (
        "svsl train planar-reacher --preset versatile --seed 0"
    )
    assert train_command(replace(make_config("planar-reacher"), extends="beer-pong")) is None


def test_without_huggingface_hub_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    expected = "svsl: the Hugging Face Hub needs huggingface_hub: pip install 'svsl[hub]'\n"
    arm()
    assert one_line(capsys, "eval", "hf:me/arm") == expected
    assert one_line(capsys, "push", "arm.safetensors", "me/arm") == expected
    assert one_line(capsys, "push", "arm.safetensors", "me/arm", "--out", "card") == expected
