"""The version is defined in one place, and everything that mentions it agrees."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from svsl import __version__

ROOT = Path(__file__).parents[2]


def test_the_version_is_defined_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/svsl/model/version.py"
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert newest == __version__


def test_the_workflows_check_every_supported_python() -> None:
    workflows = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").iterdir()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={supported[0]}"
    test, wheels, release = (workflows[name]["jobs"] for name in ("test", "wheels", "release"))
    assert {"run": "make test"} in test["test"]["steps"]
    assert {"run": "make test-lowest"} in test["lowest"]["steps"]
    assert {"run": "make test-foreign"} in test["foreign"]["steps"]
    assert test["test"]["strategy"]["matrix"]["python"] == supported
    assert wheels["check"]["strategy"]["matrix"] == {"os": ["ubuntu-latest", "macos-latest"], "python": supported}
    assert release["publish"]["permissions"] == {"id-token": "write"}, "trusted publishing, and no other right"
    assert release["publish"]["needs"] == "wheels"
    assert release["wheels"]["needs"] == "version"
    assert workflows["release"][True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true


@pytest.mark.parametrize(
    ("tag", "heading", "accepted"),
    [
        ("v1.2.3", "1.2.3 (2030-01-31)", True),
        ("v1.2.4", "1.2.3 (2030-01-31)", False),
        ("v1.2.3", "1.2.3 (unreleased)", False),
    ],
)
def test_only_the_tag_of_a_dated_version_is_released(tag: str, heading: str, accepted: bool) -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["version"]["steps"]
    Path("src/svsl/model").mkdir(parents=True)
    Path("src/svsl/model/version.py").write_text(
        (ROOT / "src/svsl/model/version.py").read_text().replace(__version__, "1.2.3")
    )
    Path("CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")
    shell = ["bash", "-e", "-c", steps[-1]["run"]]
    done = subprocess.run(shell, env=os.environ | {"GITHUB_REF_NAME": tag}, check=False)
    assert (done.returncode == 0) == accepted
