"""The site builds without warnings, and every command in the README and in `docs/` works as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pages import PAGES, ROOT, inline, parse_only, run, shell, write_modules
from svsl import SvslError
from svsl.runs.folder import Run
from svsl.runs.sources import open_source

# results.md shows the commands of full-size runs; the others have separate tests below
IN_ORDER = sorted(
    set(PAGES) - {"results.md", "library.md", "own-task.md", "python.md", "tutorial.md", "reliability.md"}
)
PREPARATION = {
    "reproduce.md": [
        f"    svsl train planar-reacher --beta {beta} --seed {seed} --out runs/{name}-seed{seed}"
        for name, beta in (("a", 1), ("b", 2))
        for seed in (0, 1)
    ]
}


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    # not --quiet, which would also hide the warnings from --strict
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    pages = {path.name: path.read_text() for path in (tmp_path / "site").glob("*.html")}
    notebook = (tmp_path / "site" / "notebooks" / "tutorial.html").read_text()
    for shown in ("components reach", 'src="tutorial-1.png"', 'href="versatility.html"'):
        assert shown in notebook
    assert {path.removesuffix(".md") + ".html" for path in PAGES if path != "README.md"} <= set(pages)
    fetched = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="?(?:https?:)?//[^>]*>', "".join(pages.values()))
    assert not fetched, "pages must open from disk without network access"
    for name in (
        "svsl.SkillLibrary.sample",
        "svsl.tasks.mujoco_task.MujocoTask",
        "svsl.learners.svsl_config.SVSLConfig.alpha",
    ):
        assert f'id="{name}"' in pages["api.html"]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_parses(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_modules(PAGES[page], monkeypatch)
    for words in [*shell(PAGES[page]), *inline(PAGES[page])]:
        parse_only(words, monkeypatch)


def test_unknown_flags_and_names_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in (
        "svsl train planar-reacher --alfa 1",
        "svsl reproduce golf",
        "svsl train golf",
        "python examples/06.py",
    ):
        with pytest.raises((AssertionError, SvslError)):
            parse_only(line.split(), monkeypatch)
    assert shell("    svsl eval A; svsl plot $s  # words\n    X=1 svsl tasks\nsvsl tasks\n") == [
        ["svsl", "eval", "A"], ["svsl", "plot", "0"], ["svsl", "tasks"]
    ]  # fmt: skip


@pytest.mark.parametrize("page", [page for page in IN_ORDER if shell(PAGES[page])])
def test_the_commands_of_a_page_run_in_order(
    page: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_modules(PAGES[page], monkeypatch)
    for words in shell("\n".join(PREPARATION.get(page, [])) + "\n" + PAGES[page]):
        run(words, monkeypatch)
    assert not re.search("^error", capfd.readouterr().out, re.MULTILINE)


def test_the_tutorial_works_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    (use,) = write_modules(PAGES["tutorial.md"], monkeypatch)
    assert Path("my_task.py").read_text() in PAGES["README.md"]
    for words in shell(PAGES["tutorial.md"]):
        run(words, monkeypatch, fully=True)
    for name in ("contexts", "postures"):
        assert Path(f"runs/first/figures/{name}.png").is_file()
    assert use in PAGES["README.md"], "the same first steps with a library"
    *skills, drawn = _python(use)
    angles = [float(line.rstrip("]").split()[-1]) for line in skills]
    assert min(angles) < 0.5 < 1.1 < max(angles), "a flat throw and a lob"
    assert len(drawn.strip("[]").split()) == 2
    throws = np.array([line.partition("[")[2].rstrip("]").split() for line in skills], dtype=float)
    hits = np.abs(throws[:, 0] ** 2 * np.sin(2 * throws[:, 1]) / 9.81 - 4.0) < 0.1
    assert hits.all(), "the first thing a user runs works"


def test_the_readme_works_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    train, use = write_modules(PAGES["README.md"], monkeypatch)
    assert int(_python(train + "\nprint(len(library))")[0]) > 1
    for words in (words for words in shell(PAGES["README.md"]) if "my_task:Throw" in words):
        run(words, monkeypatch)
    assert _python(use + "\nprint(library.contains([7.0]))")[-1] == "False"
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make ([\w-]+)", PAGES["README.md"] + (ROOT / "CONTRIBUTING.md").read_text(), re.M):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_reliability_page_names_checks_that_exist() -> None:
    commands = [words for words in shell(PAGES["reliability.md"]) if words[1] == "tools/reliability.py"]
    checks = set(re.findall(r"^def check_(\w+)", (ROOT / "tools" / "reliability.py").read_text(), re.MULTILINE))
    assert {words[2] for words in commands} == checks
    small = [sys.executable, str(ROOT / "tools" / "reliability.py"), "mutations", "--count", "100"]
    done = subprocess.run(small, capture_output=True, text=True, check=True)
    assert "100 mutated files" in done.stdout
    assert "WRONG" not in done.stdout


def test_the_python_page_works_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    write_modules(PAGES["tutorial.md"], monkeypatch)
    *callbacks, ask_tell = write_modules(PAGES["python.md"], monkeypatch)
    assert len(ask_tell.splitlines()) <= 25, "a loop that fits on a screen"
    *_, (components, success) = [line.split() for line in _python("\n".join(callbacks))]
    assert float(success) >= 0.95
    stopped = Run.open(Path("runs/enough"))
    assert not stopped.finished
    assert stopped.checkpoint_path.exists()
    assert stopped.read_metrics()[-1]["components"] == int(components)
    hits = "theta = library.skills([4.0])[0].theta\nprint(abs(theta[0]**2 * np.sin(2 * theta[1]) / 9.81 - 4.0) < 0.1)"
    assert _python(f"{ask_tell}\n{hits}") == ["True"]
    assert Path("throws.safetensors").exists()


def test_the_library_page_works_as_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (use,) = write_modules(PAGES["library.md"], monkeypatch)
    # beer pong would take a quarter of an hour: the same flags with the smallest numbers
    for words in shell(PAGES["library.md"]):
        run(words, monkeypatch, fully="beer-pong" not in words)
    out = capsys.readouterr().out
    assert "before" in out
    assert "table    both.csv" in out
    first, grown = Run.open(Path("runs/first")).load_library(), Run.open(Path("runs/first-extended")).load_library()
    changed = Run.open(Path("runs/changed"))
    assert len(first) <= len(grown) <= len(first) + 2
    assert changed.config.task_options == {"free_first_joint": False}
    assert len(open_source("both.safetensors").library) == len(grown) + len(changed.load_library())
    assert len(open_source("few.safetensors").library) <= len(open_source("heavy.safetensors").library) <= len(grown)
    assert Run.open(Path("runs/narrow")).config.task_options["cup_radius"] == 0.04
    assert len(_python(use)) >= 2


def test_the_own_task_page_works_as_written(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("imageio", reason="Gymnasium's MuJoCo environments need it")
    (script,) = write_modules(PAGES["own-task.md"], monkeypatch)
    for words in shell(PAGES["own-task.md"]):
        run(words, monkeypatch)
        assert not re.search("^error", capfd.readouterr().out, re.MULTILINE)
    Path("script.py").write_text(script)  # worker processes import it
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True)
    assert len(done.stdout.strip("[]\n").split()) == 8


def test_the_gallery_is_light() -> None:
    shown = re.findall(r"\((figures/[\w-]+\.gif)\)", PAGES["gallery.md"])
    assert sorted(shown) == sorted(f"figures/{path.name}" for path in (ROOT / "docs/figures").glob("gallery-*"))
    assert max((ROOT / "docs" / path).stat().st_size for path in shown) < 1_500_000


def test_every_example_is_listed() -> None:
    numbered = sorted(path.name for path in (ROOT / "examples").glob("[0-9]*.py"))
    assert re.findall(r"^\| `(\d\d_\w+\.py)`", PAGES["examples.md"], re.MULTILINE) == numbered
    assert set(re.findall(r"`(\d\d_\w+\.py)`", PAGES["own-task.md"])) <= set(numbered)


def test_the_documented_settings_match_the_presets() -> None:
    from svsl.learners.registry import find_preset

    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGES["settings.md"], re.MULTILINE)
    names = ("", "planar-reacher", "beer-pong", "table-tennis")

    def value(settings: Any, setting: str) -> float:
        own = getattr(settings, setting)
        return float(settings.beta if own is None else own)  # of the weights

    for setting, cells in rows:
        for name, cell in zip(names, cells.split(" | "), strict=False):
            settings: Any = find_preset(name).settings
            expected = settings.beta if cell == "`beta`" else float(cell)
            assert expected == value(settings, setting), (setting, name)
        documented = [float(value) for value in cells.split(" | ")[-1].split(", ")]
        kinds = [find_preset("reacher5", name=kind).settings for kind in ("dense", "last10", "last2")]
        actual = [value(kind, setting) for kind in kinds]
        assert documented * (len(actual) // len(documented)) == actual, setting
    assert len(rows) == 7


def _python(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
