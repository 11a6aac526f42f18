"""A task defines how it is shown; nothing outside the tasks tests for a particular task."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from PIL import Image

import svsl
import svsl.tasks
from helpers import small_library
from svsl import Outcome, SkillLibrary, make_task
from svsl.cli import main
from svsl.model.gaussians import Array
from svsl.model.mixture import is_active
from svsl.show.playback import trimmed_motion
from svsl.show.plots.contexts import draw_context_ellipses, draw_contexts, draw_success_map
from svsl.show.plots.files import FIGURES, plot_library
from svsl.show.plots.skills import draw_ball_heights, draw_reaches
from svsl.show.plots.style import pixels
from svsl.tasks.presentation import Motion, PlanarScene
from svsl.tasks.simulated import SimulatedTask

PACKAGE = Path(svsl.__file__).parent


def task_classes() -> set[str]:
    modules = [
        importlib.import_module(f"svsl.tasks.{module.name}") for module in pkgutil.iter_modules(svsl.tasks.__path__)
    ]
    classes = {cls for module in modules for cls in vars(module).values() if inspect.isclass(cls)}
    return {cls.__name__ for cls in classes if hasattr(cls, "evaluate") and not getattr(cls, "_is_protocol", False)}


def names_in(node: ast.AST) -> set[str]:
    return {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}


def type_tests(tree: ast.AST) -> set[str]:
    """Names that occur where a module tests for a type: isinstance, issubclass, comparisons of types, patterns."""
    tested = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and names_in(node.func) & {"isinstance", "issubclass"}:
            tested |= names_in(node.args[1])
        elif isinstance(node, ast.Compare):
            tested |= names_in(node)
        elif isinstance(node, ast.MatchClass):
            tested |= names_in(node.cls)
    return tested


def test_no_module_outside_the_tasks_tests_for_a_task_class() -> None:
    classes = task_classes()
    assert {"PlanarReacher", "BeerPong", "TableTennis", "Reacher5", "MujocoTask", "SimulatedTask"} <= classes
    assert "Task" not in classes
    assert type_tests(ast.parse("isinstance(task, (int, tasks.Reacher5))")) & classes == {"Reacher5"}
    assert type_tests(ast.parse("type(task) is BeerPong")) & classes == {"BeerPong"}
    offenders = {
        str(path.relative_to(PACKAGE)): names
        for path in PACKAGE.rglob("*.py")
        if PACKAGE / "tasks" not in path.parents and (names := type_tests(ast.parse(path.read_text())) & classes)
    }
    assert offenders == {}


class Pendulum:
    """A user's task with one link in the plane and no MuJoCo; its parameter is the angle."""

    context_low, context_high = np.array([-1.0, -1.0]), np.array([1.0, 1.0])
    parameter_dim, initial_mean, initial_cov = 1, np.zeros(1), np.eye(1)
    scene = PlanarScene(np.array([[0.2, 0.4, 0.2, 0.4]]), context_low, context_high, (-2, 2), (-2, 2), (-2, 2))
    figures: tuple[str, ...] = ("postures", "snapshots", "portrait")

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        tips = np.column_stack([np.cos(parameters), np.sin(parameters)])
        distance = np.linalg.norm(tips - contexts, axis=1)
        return Outcome(-distance, distance < 0.5)

    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        angles = np.linspace(0, 0.0 if parameters is None else parameters[0], 1 if parameters is None else 11)
        tips = np.column_stack([np.cos(angles), np.sin(angles)])
        poses = np.stack([np.zeros_like(tips), tips], axis=1)
        return Motion(0.1, poses, np.pad(tips, ((0, 0), (0, 1))), np.array([[*context, 0.0]]))


def pendulums() -> SkillLibrary:
    return small_library("test_presentation:Pendulum", np.zeros((2, 2)), 0.5, np.array([[0.5], [-2.0]]))


def test_a_users_task_is_drawn_and_filmed(capsys: pytest.CaptureFixture[str]) -> None:
    pendulums().save("pendulum.safetensors")
    assert main(["plot", "pendulum.safetensors", "--out", "figures", "--trust-task"]) == 0
    out, err = capsys.readouterr()
    drawn = [Path(line.split()[-1]).name for line in out.splitlines()]
    assert drawn == ["contexts.png", "success.png", "postures.png", "snapshots.png"]
    messages = [line for line in err.splitlines() if not line.startswith("figures:")]  # progress, on a slow machine
    assert messages == [f"no portrait.png: the task names an unknown figure; known figures: {', '.join(FIGURES)}"]
    flags = ["--component", "0", "--width", "80", "--fps", "10", "--out", "film.gif"]
    assert main(["video", "pendulum.safetensors", *flags, "--trust-task"]) == 0
    with Image.open("film.gif") as film:
        assert getattr(film, "n_frames", 1) == 11
        first = np.asarray(film.convert("RGB"), dtype=np.int64)
        film.seek(10)
        assert np.abs(first - np.asarray(film.convert("RGB"))).max() > 100, "it moves"


def test_an_environment_is_filmed_with_its_own_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("Filmed", "Toss"):
        library = small_library(f"gym:toy_environments:toy/{name}-v0", np.zeros((1, 1)), 1.0, np.zeros((1, 2)))
        library.save(f"{name}.safetensors")
    flags = ["--trust-task", "--context", "0.5", "--width", "120", "--fps", "1"]
    assert main(["video", "Filmed.safetensors", *flags, "--out", "film.gif"]) == 0
    with Image.open("film.gif") as film:
        assert getattr(film, "n_frames", 1) == 2
        shown = []
        for frame in range(2):
            film.seek(frame)
            shown.append(np.asarray(film.convert("RGB"))[45, 60])
    np.testing.assert_allclose(shown[1], (100, 200, 0), atol=8)
    assert shown[0][1] < 100, "the colours are those of the last frame, in which red alone does not occur"
    capsys.readouterr()
    assert main(["video", "Toss.safetensors", *flags, "--out", "none.gif"]) == 2
    assert "gives no pictures: expected the render mode rgb_array, got []" in capsys.readouterr().err
    assert not Path("none.gif").exists()


def test_a_figure_of_postures_needs_a_planar_scene(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pendulum, "figures", ("postures",))
    monkeypatch.setattr(Pendulum, "scene", None)
    plot_library(pendulums(), Path("figures"), Pendulum())
    assert capsys.readouterr().err == "no postures.png: postures need a planar scene, and a Pendulum has none\n"


def test_a_given_task_is_not_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    library, task = pendulums(), Pendulum()
    monkeypatch.setattr(Pendulum, "figures", ())
    monkeypatch.setattr("svsl.show.plots.files.task_of", lambda library: pytest.fail("the task is created again"))
    assert [path.name for path in plot_library(library, Path("figures"), task)] == ["contexts.png", "success.png"]


PLAYED = {
    "beer-pong": (np.array([0.1, -1.6]), np.array([*np.full(14, 0.2), 0.6]), 623),
    "table-tennis": (np.array([-0.7, 0.0, -0.7, 0.0]), np.array([*np.full(21, 0.1), 3.0]), 2500),
    "reacher5": (np.array([0.3, 0.1]), np.full(15, 0.1), 200),
    "hopper-jump": (np.array([0.8, -0.2, -0.1, 0.3]), np.full(12, 0.3), 1000),
    "swing:Swing": (np.array([0.5, 1.0]), np.full(9, 0.3), 41),
}


@pytest.mark.parametrize("name", PLAYED)
def test_a_motion_is_simulated_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(name)
    assert isinstance(task, SimulatedTask)
    context, parameters, steps = PLAYED[name]
    simulated, run = list[int](), task.simulator.run

    def recording(states: Array, controls: Array) -> tuple[Array, Array]:
        simulated.append(len(states) * controls.shape[1])
        return run(states, controls)

    monkeypatch.setattr(task.simulator, "run", recording)
    assert len(trimmed_motion(task, context, parameters).poses) > 30
    assert steps <= sum(simulated) <= steps + 1, "one more for the sensors of the last state"


@pytest.mark.parametrize(
    ("name", "draw", "parameters"),
    [("beer-pong", draw_ball_heights, [*np.zeros(14), 0.3]), ("reacher5", draw_reaches, np.zeros(15))],
)
def test_a_crowded_context_is_drawn_too(name: str, draw: object, parameters: list[float]) -> None:
    task = make_task(name)
    middle = 0.5 * (np.asarray(task.context_low) + task.context_high)
    crowd = small_library(name, np.tile(middle, (150, 1)), 1.0, np.tile(parameters, (150, 1)))
    few = np.argsort(crowd.mixture.log_weights)[:1]  # one is a little more probable than the others
    crowd.mixture.log_weights[few] += 0.01
    assert crowd.gating(middle).max() < 0.01
    axes = Figure().subplots()
    draw(axes, crowd, task, middle)  # type: ignore[operator]
    assert len(axes.lines) > (0 if name == "beer-pong" else 2), "the most probable component, besides goal and base"


def test_active_components_have_at_least_one_percent_or_are_the_most_probable() -> None:
    np.testing.assert_array_equal(is_active(np.array([0.9, 0.01, 0.09, 0.0])), [True, True, True, False])
    crowd = np.full(200, 0.00499)
    crowd[7] = 1 - crowd[1:].sum()
    np.testing.assert_array_equal(np.flatnonzero(is_active(np.stack([crowd, crowd]))), [7, 207])


def test_episodes_without_a_finite_return_are_failures_on_the_map() -> None:
    class Broken(Pendulum):
        def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
            return Outcome(np.where(contexts[:, 0] < 0, np.nan, -1.0), np.ones(len(contexts), dtype=bool))

    axes = Figure().subplots()
    draw_contexts(axes, pendulums(), Broken())
    failures = np.asarray(axes.lines[-1].get_xdata())
    assert 900 < len(failures) < 1100
    assert (failures < 0).all()


def test_figures_can_be_imported_without_the_command_line() -> None:
    source = ast.parse((PACKAGE / "show" / "plots" / "__init__.py").read_text())
    assert [type(node) for node in source.body] == [ast.Expr], "only a docstring"
    code = "import sys, svsl.show.plots.files; sys.exit('tyro' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reaches_that_fail_are_dashed() -> None:
    task = make_task("reacher5")
    library = small_library("reacher5", np.array([[0.2, 0.1]]), 1.0, np.zeros((1, 15)))
    axes = Figure().subplots()
    draw_reaches(axes, library, task, np.array([0.2, 0.1]))
    assert axes.lines[1].get_linestyle() == "--", "without a movement, the tip stays far from the goal"
    task.evaluate = lambda contexts, parameters, rng: Outcome(np.zeros(1), np.ones(1, bool))  # type: ignore[method-assign]
    draw_reaches(axes := Figure().subplots(), library, task, np.array([0.2, 0.1]))
    assert axes.lines[1].get_linestyle() == "-"


def test_the_number_of_a_component_outside_the_picture_is_at_its_edge() -> None:
    means = np.array([[5.0, 2.0], [9.0, 2.0], [5.0, -90.0]])
    axes = (figure := Figure()).subplots()
    draw_context_ellipses(axes, small_library("planar-reacher", means, 0.3, np.zeros((3, 10))))
    pixels(figure)
    frame = axes.get_window_extent()
    for text in axes.texts:
        box = text.get_window_extent()
        assert frame.x0 < box.x0 < box.x1 < frame.x1
        assert frame.y0 < box.y0 < box.y1 < frame.y1
    places = {text.get_text(): text.xy for text in axes.texts if isinstance(text, Annotation)}
    assert places["0"] == (5.0, 2.0)
    assert (places["1"][0] > 7.0, places["1"][1]) == (True, 2.0)
    assert (places["2"][0], places["2"][1] < -6.0) == (5.0, True)


def test_labels_of_a_success_map_do_not_touch() -> None:
    axes = (figure := Figure(figsize=(6, 5.2), layout="constrained")).subplots()
    draw_success_map(axes, np.ones((4, 4)), np.array([-0.2, 0.0]), np.array([0.0, 1.0]))
    pixels(figure)
    labels = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    inside = [box for box in labels if axes.bbox.x0 - 1 < 0.5 * (box.x0 + box.x1) < axes.bbox.x1 + 1]
    assert len(inside) > 3
    assert all(a.x1 + 6 < b.x0 for a, b in pairwise(inside))
