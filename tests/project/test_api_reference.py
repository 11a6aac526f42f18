"""The API reference lists every public name, and each has an example that works as written."""

from __future__ import annotations

import doctest
import re
import sys
from pydoc import locate
from unittest.mock import MagicMock

import pytest

import svsl
from pages import PAGES

NAMES = re.findall(r"^::: ([\w.]+)$", PAGES["api.md"], re.MULTILINE)


def test_every_public_name_is_listed() -> None:
    assert {f"svsl.{name}" for name in svsl.__all__} - {"svsl.__version__"} <= set(NAMES)


@pytest.fixture(autouse=True)
def _quiet_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trackers that keep nothing; `tests/runs/test_callbacks.py` has the real ones."""
    for package in ("trackio", "wandb"):
        monkeypatch.setitem(sys.modules, package, MagicMock())


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_an_example_that_works(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(locate(name), name, globs={})
    assert test.examples, f"the docstring of {name} has no example"
    if any("Reacher-v5" in example.source for example in test.examples):
        pytest.importorskip("imageio", reason="Gymnasium's MuJoCo environments need it")
    assert doctest.DocTestRunner().run(test).failed == 0, capsys.readouterr().out
