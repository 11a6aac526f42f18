"""The notebooks run, their stored outputs belong to their code, and what their text says is true."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from notebooks import FOLDER, Notebook, main, on_page_markdown

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def kinds(notebook: Notebook) -> list[list[str]]:
    """What each cell shows: printed text, a value, figures."""
    return [[output["output_type"] for output in cell["outputs"]] for cell in notebook.code]


def run(name: str) -> dict[str, Any]:
    """Runs a notebook, which must show what the stored one shows; other processors find other numbers."""
    stored, fresh = (Notebook.load(FOLDER / f"{name}.ipynb") for _ in range(2))
    variables = fresh.run()
    assert kinds(fresh) == kinds(stored)
    return variables


def test_the_tutorial_runs() -> None:
    found = run("tutorial")
    assert found["success_rate"](found["library"], found["task"]) > 0.5
    assert found["success_rate"](found["throws"], found["Throw"]()) > 0.9
    angles = [skill.theta[1] for skill in found["throws"].skills([4.0])]
    assert min(angles) < 0.5 < 1.1 < max(angles), "a flat throw and a lob"
    sides = {found["task"].describe(found["goal"][None], s.theta[None], None).info["mode"][0] for s in found["skills"]}
    assert len(sides) > 1, "postures on different sides of the obstacles"


def test_the_three_prices_do_what_the_notebook_says() -> None:
    found = run("versatility")
    gamma = {
        g: [found["measure"](found["libraries"][g, s], "ways", "success_rate") for s in range(3)]
        for g in (0.01, 0.2, 1.0)
    }
    (few, precise), (many, still_precise), (_, imprecise) = (np.mean(rows, axis=0) for rows in gamma.values())
    assert many > few + 0.1
    assert still_precise > 0.95
    assert imprecise < precise - 0.05
    means, drawn, ways = found["table"].T  # over alpha
    assert drawn[-1] < 0.5 < means[-1]
    assert ways.max() < 1.6


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs_belong_to_the_code(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    notebook = Notebook.load(path)
    assert notebook.content["metadata"]["digest"] == notebook.digest, "python tools/notebooks.py run stores its outputs"
    assert path.stat().st_size < 300_000
    for cell, shown in zip(notebook.code, kinds(notebook), strict=True):
        assert ("display_data" in shown) == bool(cell["metadata"].get("alt")), "a figure needs a description"


SMALL = [
    ("markdown", "# Small"),
    ("code", "x = 2\nprint('two')\nx + 1"),
    ("code", "from matplotlib import pyplot as plt\nplt.plot([x])\nplt.title('x');"),
    ("code", "import pathlib\npathlib.Path('file').touch()"),
]


def small(sources: list[tuple[str, str]]) -> Notebook:
    cells = [
        {"cell_type": kind, "metadata": {"alt": "A dot"}, "source": [text], "outputs": []} for kind, text in sources
    ]
    return Notebook({"cells": cells, "metadata": {}})


def test_a_notebook_is_run_and_becomes_a_page(tmp_path: Path) -> None:
    notebook, path = small(SMALL), tmp_path / "small.ipynb"
    notebook.save(path)
    assert main(["run", str(path)]) == 0
    assert not (tmp_path / "file").exists(), "a notebook runs in a folder of its own"
    stored = Notebook.load(path)
    assert kinds(stored) == [["stream", "execute_result"], ["display_data"], []]
    text, pictures = stored.page("small")
    assert text.startswith("# Small\n\n```python\nx = 2\n")
    assert "```text\ntwo\n```\n\n```text\n3\n```" in text
    assert "![A dot](small-1.png)" in text
    assert '<a href="small.ipynb" download>' in text
    assert pictures["small-1.png"].startswith(b"\x89PNG")
    assert base64.b64decode(stored.code[1]["outputs"][0]["data"]["image/png"]) == pictures["small-1.png"]
    assert on_page_markdown("[a](../b/c.ipynb) `d.ipynb`") == "[a](../b/c.md) `d.ipynb`"
    digest = stored.digest
    stored.code[0]["source"] = ["x = 4"]
    assert stored.digest != digest


def test_errors_are_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        small([("code", "1 / 0")]).run()
    assert main(["run", "missing.ipynb"]) == 2
    assert "tools/notebooks.py run" in capsys.readouterr().err
