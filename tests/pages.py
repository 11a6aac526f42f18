"""The commands and the Python of the README and of `docs/`, and how they are run small."""

import glob
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tyro

from svsl import load_pretrained
from svsl.cli import main
from svsl.cli.dispatch import COMMANDS
from svsl.evaluation.result import Evaluation
from svsl.experiments.catalogue import find_experiment
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.shipped import pretrained_names
from svsl.runs.evaluation import evaluate_run
from svsl.runs.folder import Run
from svsl.runs.sources import Source, config_of
from svsl.runs.training import Trainer

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
Words = list[str]

SMALL = ["--components", "1", "--iterations", "2", "--test-contexts", "3", "--workers", "1", "--quiet"]
# the smallest buffers of their surrogates, and no weight stage: simulated episodes take milliseconds each
SIMULATED = {"beer-pong": "171", "reacher5": "171", "table-tennis": "378", "box-pushing": "780", "hopper-jump": "153"}
PLACEHOLDERS = {
    "DIR": "runs/planar-reacher-seed0",
    "TASK": "planar-reacher",
    "NAME": "planar-reacher",
    "S": "0",
    "gym:ENV_ID": "gym:svsl.environments:svsl/PlanarReacher-v0",
}


class Parsed(BaseException):
    """All flags of a command have been parsed."""


def shell(text: str) -> list[Words]:
    """The `svsl` and `python` commands of a text's indented lines, without settings of the environment and comments."""
    found: list[Words] = []
    for line in re.findall(r"^ {4,}((?:[A-Z_]+=\S+ )?(?:svsl|python) .*)", text, re.MULTILINE):
        words = shlex.split(re.sub(r"\$s\b", "0", line).replace(";", " ; "), comments=True)
        commands = " ".join(shlex.quote(word) if word != ";" else "\n" for word in words).splitlines()
        found += [[word for word in shlex.split(c) if not re.match(r"[A-Z_]+=", word)] for c in commands]
    return [[PLACEHOLDERS.get(word, word) for word in words] for words in found]


def inline(text: str) -> list[Words]:
    """The `svsl` commands within sentences that say more than a command's name."""
    spans = re.findall(r"`svsl\s([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    commands = [["svsl", *shlex.split(span)] for span in spans]
    for words in commands:
        assert words[1] in COMMANDS, words
    named = [[PLACEHOLDERS.get(word, word) for word in words] for words in commands if len(words) > 2]
    return [[{"--learner": "svsl"}.get(a, b) for a, b in zip(["", *w], w, strict=False)] for w in named]


def write_modules(text: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Saves a page's Python files, which say their names in their first lines; returns its other Python."""
    scripts: list[str] = []
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        name = re.match(r"# (\w+)\.py\n", code)
        if name:
            Path(f"{name[1]}.py").write_text(code)
            monkeypatch.delitem(sys.modules, name[1], raising=False)
        else:
            scripts.append(code)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return scripts


def parse_only(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a command to the real command line, which is stopped once it has parsed its flags."""
    if words[0] == "python":
        assert (ROOT / words[1]).is_file(), words
        return
    if words[1] == "reproduce" and not words[2].startswith("-"):
        find_experiment(words[2])
    real = tyro.cli

    def cli(*args: object, **options: object) -> object:
        result = real(*args, **options)  # type: ignore[call-overload]
        if options.get("return_unknown_args"):  # some of the flags; a second call will parse them all
            return result
        raise Parsed

    shipped = "beer-pong" if "beer-pong" in words else "planar-reacher"
    with monkeypatch.context() as patch:
        patch.setattr(tyro, "cli", cli)
        patch.setattr(
            "svsl.cli.commands.extend.open_source", lambda where, _: Source(where, loaded=load_pretrained(shipped))
        )
        try:
            code = main(words[1:])
        except Parsed:
            return
        except SystemExit as stop:  # --help
            code = int(stop.code or 0)
    assert code == 0, words


def run(words: Words, monkeypatch: pytest.MonkeyPatch, fully: bool = False) -> None:
    """Runs a command of a page, small by default; a missing run that it starts from is created."""
    if words[0] == "python":
        subprocess.run([sys.executable, str(ROOT / words[1]), *words[2:]], capture_output=True, check=True)
        return
    if _too_large(words):
        parse_only(words, monkeypatch)
        return
    words = [path for word in words for path in (sorted(glob.glob(word)) if "*" in word else [word])]
    _provide(words)
    if words[1] == "view":
        words = [*words, "--port", "0", *([] if "--open" in words else ["--open"])]
    if words[1] == "bench":
        quick_bench(monkeypatch)
    monkeypatch.setattr("webbrowser.open", look_and_leave)
    if not fully:
        monkeypatch.setattr("svsl.cli.training.evaluate_run", _small_evaluation)
    assert main([*words[1:], *([] if fully else _smaller(words))]) == 0, words


def _small_evaluation(run: Run, contexts: int, **options: Any) -> Evaluation:
    return evaluate_run(run, min(contexts, 20), **options)


def _too_large(words: Words) -> bool:
    """What other tests run small (Ray, the Hub, simulated reproductions), and what cannot run here: PPO, pictures."""
    if any(word.startswith("hf:") for word in words) or (words[1] == "push" and "--out" not in words):
        return True
    if "ppo" in words and find_spec("stable_baselines3") is None:
        return True
    if words[1] == "video" and "planar-reacher" not in words[2] and os.environ.get("MUJOCO_GL") == "disable":
        return True
    simulated = words[1] == "reproduce" and not {"--list", "ablation", "baselines"} & set(words)
    return simulated or "ray" in words or "--full" in words


def _smaller(words: Words) -> Words:
    together = "efficient-random" in words  # all components start in the closing stage, with few features
    simulated = "70" if together else next((SIMULATED[name] for name in SIMULATED if name in words[2:3]), None)
    fewer = ["--buffer", simulated, "--weight-iterations", "0"] if simulated else []
    fewer += (
        ["--no-figures"] if {"box-pushing", "hopper-jump"} & set(words) else []
    )  # a figure takes thousands of episodes
    if not {"hireps", "ladips"} & set(words):
        fewer += ["--closing-iterations", "2" if together else "0", "--splits", "0"]
        fewer += ["--closing-batch", "35"] if together else []
    return {
        "train": [*(["--episodes", "100"] if "ppo" in words else [*SMALL, *fewer]), "--overwrite"],
        "reproduce": [] if "--list" in words else ["--scale", "0.01", "--seeds", "1"],
        "extend": [*SMALL, *fewer],
        "resume": ["--quiet"],
        "eval": ["--contexts", "10"],
        "compare": ["--contexts", "10"],
        "push": ["--contexts", "10"],
        "video": ["--width", "64", "--fps", "2"],
    }.get(words[1], [])


def _provide(words: Words) -> None:
    """Makes the run a command starts from: a shipped library as a finished run, an interrupted run to resume."""
    for word in words[2:]:
        name = re.fullmatch(r"runs/(\S+)-seed0", word)
        if name and name[1] in pretrained_names() and not Path(word).exists():
            library = load_pretrained(name[1])
            library.save(Run.create(Path(word), config_of(library)).library_path)
    if words[1] == "resume" and Run.open(Path(words[2])).finished:
        config = Run.open(Path(words[2])).config
        assert isinstance(config.settings, SVSLConfig)
        few = replace(config, settings=replace(config.settings, components=1, iterations=2, closing_iterations=0))
        again = Run.create(Path(words[2]), few, overwrite=True)
        assert not Trainer(again).train(lambda status: None, lambda: True)


def look_and_leave(address: str) -> None:
    """A visitor of the page of `svsl view` who then presses Ctrl-C."""
    with urllib.request.urlopen(address) as answer:
        assert answer.status == 200
    signal.raise_signal(signal.SIGINT)


def quick_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `svsl bench` measure few components, every time once, and no simulated task."""
    from svsl.bench import clock, suite

    best_ms = clock.best_ms
    monkeypatch.setattr(suite, "COMPONENT_COUNTS", (1, 2))
    monkeypatch.setattr(suite, "SIMULATED_TASKS", ())
    monkeypatch.setattr(clock, "best_ms", lambda work, calls, repeats=1: best_ms(work, 1, 1))
