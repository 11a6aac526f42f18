"""The version stands in one place, and what speaks of it agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from svsl import __version__

ROOT = Path(__file__).parents[2]


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/svsl/model/version.py"
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert newest == __version__


def test_the_workflow_runs_make_test_on_every_python_we_promise() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert "run: make test\n" in workflow
    assert re.findall(r'"(3\.\d+)", "(3\.\d+)", "(3\.\d+)"', workflow) == [("3.11", "3.12", "3.13")]
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == ">=3.11"
