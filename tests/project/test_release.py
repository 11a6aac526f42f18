"""The version is defined in one place, and everything that mentions it agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from svsl import __version__

ROOT = Path(__file__).parents[2]


def test_the_version_is_defined_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/svsl/model/version.py"
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert newest == __version__


def test_the_workflow_runs_make_test_on_every_supported_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert "run: make test\n" in workflow
    assert re.findall(r'"(3\.\d+)", "(3\.\d+)", "(3\.\d+)"', workflow) == [("3.11", "3.12", "3.13")]
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == ">=3.11"
