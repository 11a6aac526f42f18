"""Runs the training examples at a small size; `test_robot_example.py` tests the other example."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from pages import ROOT, shell
from svsl.cli import main
from svsl.runs.folder import Run

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("0[1-46-9]_*.py"))
NEEDS = {"03": "imageio", "06": "gymnasium_robotics", "07": "imageio", "08": "gymnasium_robotics"}
SMALL = ["--components", "1", "--iterations", "4", "--test-contexts", "5", "--quiet", "--out", "run"]


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package = NEEDS.get(request.param[:2])
    if package is not None and find_spec(package) is None:
        pytest.skip(f"example {request.param} needs {package}")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module(request.param)


@pytest.mark.parametrize("example", EXAMPLES, indirect=True)
def test_an_example_trains_as_documented(example: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    check, train = [words[1:] for words in shell(example.__doc__ or "")]
    assert check[0] == "check-task"
    assert main(check) == 0
    findings = capfd.readouterr().out
    assert "error" not in findings
    assert "warning" not in findings
    workers = [] if example.__name__.startswith("01") else ["--workers", "0"]
    assert main([*train, *SMALL, *workers]) == 0
    library = Path("run/library.safetensors").read_bytes()
    settings = Run.open(Path("run")).config
    assert example.main([*SMALL, *workers, "--overwrite"]) == 0
    assert Path("run/library.safetensors").read_bytes() == library, "the script must use the settings in its docstring"
    assert Run.open(Path("run")).config == settings


@pytest.mark.skipif(find_spec("gymnasium_robotics") is not None, reason="gymnasium-robotics is installed")
@pytest.mark.parametrize("task", ["06_fetch_reach:fetch_reach", "08_fetch_push:fetch_push"])
def test_a_missing_package_is_named(
    task: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    assert main(["check-task", task]) == 2
    error = capfd.readouterr().err
    assert "this example needs pip install gymnasium-robotics" in error
    assert error.count("\n") == 1
