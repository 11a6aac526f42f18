"""The commands and the Python of docs/library.md work as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from svsl.cli import main
from svsl.runs import Run, open_library

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "library.md").read_text()
SHELL = [line.strip() for line in PAGE.splitlines() if line.startswith("    svsl ")]
# a quarter of an hour of simulation: the same flags with the smallest numbers
SMALLER = {"--components": "1", "--iterations": "1"}
FASTER = ["--buffer", "171", "--test-contexts", "2", "--weight-iterations", "0", "--quiet"]


def test_the_commands_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    used = [line.split()[1] for line in SHELL]
    assert used == ["train", "extend", "extend", "extend", "prune", "prune", "merge", "export"]
    for line in SHELL:
        words = shlex.split(line)[1:]
        if "beer-pong" in words:
            words = [SMALLER.get(before, word) for before, word in pairwise(["", *words])] + FASTER
        assert main(words) == 0, line
    out = capsys.readouterr().out
    assert "before" in out
    assert "table    both.csv" in out
    first, grown = Run.open(Path("runs/first")).load_library(), Run.open(Path("runs/first-extended")).load_library()
    changed = Run.open(Path("runs/changed"))
    assert len(first) <= len(grown) <= len(first) + 2
    assert changed.config.task_options == {"free_first_joint": False}
    assert len(open_library("both.safetensors")[0]) == len(grown) + len(changed.load_library())
    assert len(open_library("few.safetensors")[0]) <= len(open_library("heavy.safetensors")[0]) <= len(grown)
    assert Run.open(Path("runs/narrow")).config.task_options["cup_radius"] == 0.04


def test_the_python() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) >= 2


def test_the_example_named_is_there() -> None:
    (script,) = re.findall(r"^    python (\S+)$", PAGE, re.MULTILINE)
    assert (ROOT / script).is_file()  # tests/test_robot_example.py runs it
