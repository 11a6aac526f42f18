"""The API reference lists every public name, and each has an example that works as written."""

from __future__ import annotations

import doctest
import re
from pydoc import locate

import pytest

import svsl
from pages import PAGES

NAMES = re.findall(r"^::: ([\w.]+)$", PAGES["api.md"], re.MULTILINE)
# packages that an example needs
EXTRAS = {"WandbCallback": "wandb", "TrackioCallback": "trackio", "MovementPrimitiveTask": "imageio"}


def test_every_public_name_is_listed() -> None:
    assert {f"svsl.{name}" for name in svsl.__all__} - {"svsl.__version__"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_an_example_that_works(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(locate(name), name, globs={})
    assert test.examples, f"the docstring of {name} has no example"
    if (extra := EXTRAS.get(name.rpartition(".")[2])) is not None:
        pytest.importorskip(extra)
    assert doctest.DocTestRunner().run(test).failed == 0, capsys.readouterr().out
