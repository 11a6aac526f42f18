"""The README's Python and shell lines work as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from svsl.cli import COMMANDS, main

README = (Path(__file__).parents[1] / "README.md").read_text()
SHELL = [line.split("#")[0].strip() for line in README.splitlines() if line.startswith("    svsl ")]


def test_the_example_task_trains_and_its_library_answers(capfd: pytest.CaptureFixture[str]) -> None:
    task, use = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    Path("my_task.py").write_text(task)
    for line in (line for line in SHELL if "my_task:" in line):
        assert main(shlex.split(line)[1:]) == 0, line
    printing = use + "\nprint(len(skill.theta), library.gating([4.0]).sum().round(6))"
    output = subprocess.run([sys.executable, "-c", printing], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["2", "1.0"]
    assert "error" not in capfd.readouterr().out


def test_every_command_shown_exists() -> None:
    assert {shlex.split(line)[1] for line in SHELL} <= set(COMMANDS)
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
