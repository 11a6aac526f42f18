"""The numbered examples and the how-to page on own tasks, run small."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from svsl.cli import main
from svsl.runs import Run

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("0[1-4]_*.py"))
SMALL = ["--components", "1", "--iterations", "4", "--test-contexts", "5", "--quiet", "--out", "run"]
PAGE = (ROOT / "docs/own-task.md").read_text()


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if request.param.startswith("03"):
        pytest.importorskip("imageio", reason="Gymnasium's MuJoCo environments need it")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module(request.param)


@pytest.mark.parametrize("example", EXAMPLES, indirect=True)
def test_an_example_checks_and_trains_as_its_docstring_says(
    example: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    commands = [shlex.split(line, comments=True)[1:] for line in _shell_lines(example.__doc__ or "")]
    check, train = commands
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
    assert Path("run/library.safetensors").read_bytes() == library, "the script has the settings of its docstring"
    assert Run.open(Path("run")).config == settings


def test_the_page_on_own_tasks_works_as_it_stands(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("imageio", reason="Gymnasium's MuJoCo environments need it")
    for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", text)
        if name:
            Path(name[1]).write_text(text)
        else:
            Path("script.py").write_text(text)
            output = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True).stdout
            assert len(output.strip("[]\n").split()) == 8
    for number, line in enumerate(_shell_lines(PAGE)):
        command = shlex.split(line, comments=True)[1:]
        small = [] if command[0] == "check-task" else ["--workers", "1", *SMALL[2:-1], f"run{number}"]
        assert main([*command, *small]) == 0, line
        assert "error" not in capfd.readouterr().out


def test_the_page_names_every_example() -> None:
    assert re.findall(r"`(\d\d_\w+)\.py`", PAGE) == EXAMPLES
    assert len(EXAMPLES) == 4


def _shell_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("    svsl ")]
