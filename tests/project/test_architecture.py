"""The rooms of the package: few, small, and with doors that open one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import svsl

PACKAGE = Path(svsl.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.name not in ("__pycache__", "py.typed"))


def test_the_top_of_the_package_fits_on_one_screen() -> None:
    assert len(ROOMS) <= 16, ROOMS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, node.name


def test_no_import_cycle_even_among_lazy_imports() -> None:
    graph = grimp.build_graph("svsl")
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    order = list(TopologicalSorter(imports).static_order())  # raises CycleError
    assert (
        order.index("svsl.model.mixture") < order.index("svsl.learners.svsl") < order.index("svsl.cli.commands.train")
    )
    assert not graph.find_modules_that_directly_import("svsl"), "the root is for users; import from the module itself"


def test_design_names_every_room() -> None:
    design = (PACKAGE.parents[1] / "docs" / "design.md").read_text()
    picture = (PACKAGE.parents[1] / "docs" / "figures" / "rooms.svg").read_text()
    for room in (room for room in ROOMS if (PACKAGE / room).is_dir()):
        assert f"| `{room}` |" in design, room
        assert f">{room}<" in picture, room


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("svsl", ("scipy", "matplotlib", "mujoco", "gymnasium", "tyro", "rich", "huggingface_hub")),
        ("svsl.tasks.registry", ("scipy", "matplotlib", "mujoco", "gymnasium", "tyro", "rich")),
        ("svsl.runs.training", ("matplotlib", "tyro", "rich", "torch", "ray")),
        ("svsl.show.plots.files", ("tyro", "viser", "torch", "ray")),
        ("svsl.cli.training", ("matplotlib", "mujoco", "viser", "torch", "ray")),
        ("svsl.experiments.worker", ("matplotlib", "tyro", "torch", "ray", "submitit")),
        ("svsl.cli.commands.push", ("huggingface_hub", "torch")),
    ],
)
def test_a_room_does_not_load_what_it_does_not_need(module: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*sorted({set(unwanted)} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
