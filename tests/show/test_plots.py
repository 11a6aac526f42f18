"""Figures: what is drawn where, read back from the axes."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Ellipse
from matplotlib.text import Annotation

from helpers import small_library
from svsl import Outcome, SkillLibrary, SvslError, load_pretrained, make_task
from svsl.cli import main
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.mixture import Mixture
from svsl.model.random import stream
from svsl.runs.folder import Run
from svsl.runs.sources import task_of, with_regions
from svsl.show.plots.contexts import contexts_figure, draw_context_ellipses, draw_contexts, success_figure
from svsl.show.plots.files import FIGURES, plot_library, plot_side_by_side
from svsl.show.plots.learning import learning_figure
from svsl.show.plots.skills import MOMENTS_S, draw_ball_heights, draw_postures, postures_figure, snapshots_figure
from svsl.show.plots.style import component_color, pixels
from svsl.tasks.beer_pong import BeerPong
from svsl.tasks.planar_reacher import PlanarReacher
from toys import Bimodal


@pytest.fixture
def library() -> SkillLibrary:
    task = PlanarReacher()
    chol = np.array([[[0.3, 0.0], [0.2, 0.5]], [[0.6, 0.0], [0.0, 2.0]]])
    contexts = LinearGaussian.unconditional(np.array([[5.0, 2.0], [6.0, -3.0]]), chol)
    experts = LinearGaussian.build(np.zeros((2, 10, 2)), np.zeros((2, 10)) + 0.1, np.stack([np.eye(10)] * 2))
    mixture = Mixture(np.log(np.array([0.25, 0.75])), contexts, experts)
    return SkillLibrary(mixture, task.context_low, task.context_high)


def numbers_at(axes: Axes) -> dict[str, tuple[float, float]]:
    return {text.get_text(): text.xy for text in axes.texts if isinstance(text, Annotation)}


def test_ellipses_are_one_standard_deviation(library: SkillLibrary) -> None:
    axes = Figure().subplots()
    draw_context_ellipses(axes, library)
    ellipses = [patch for patch in axes.patches if isinstance(patch, Ellipse)]
    assert len(ellipses) == 2
    for ellipse, mean, cov in zip(ellipses, [[5, 2], [6, -3]], library.mixture.contexts.cov, strict=True):
        # a point of the unit circle mapped by the patch is at Mahalanobis distance 1
        points = ellipse.get_patch_transform().transform(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
        offset = points - np.array(mean)
        distance = np.einsum("ni,ij,nj->n", offset, np.linalg.inv(cov), offset)
        np.testing.assert_allclose(distance, 1, rtol=1e-9)
    assert numbers_at(axes) == {"0": (5.0, 2.0), "1": (6.0, -3.0)}


def test_the_heaviest_component_is_opaque_also_when_rounded(library: SkillLibrary) -> None:
    weights = np.array([0.92, 0.08])  # 0.45 + 0.55 * 0.92 / 0.92 is above 1
    mixture = Mixture(np.log(weights), library.mixture.contexts, library.mixture.experts)
    axes = Figure().subplots()
    draw_context_ellipses(axes, SkillLibrary(mixture, library.context_low, library.context_high))
    assert to_rgba(axes.patches[0].get_edgecolor())[3] == 1


def test_no_number_hides_another() -> None:
    library = with_regions(load_pretrained("planar-reacher"), PlanarReacher())
    figure = Figure(figsize=(6, 5.6), layout="constrained")
    draw_context_ellipses(figure.subplots(), library)
    pixels(figure)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == len(library)
    middles = np.array([[0.5 * (box.x0 + box.x1), 0.5 * (box.y0 + box.y1)] for box in boxes])
    apart = np.linalg.norm(middles[:, None] - middles, axis=2) + 100 * np.eye(len(boxes))
    assert apart.min() > 6, "pixels at 100 per inch: digits are 10 high and 6 wide"


def test_maps_are_labelled_with_the_names_of_the_context(library: SkillLibrary) -> None:
    axes = Figure().subplots()
    draw_contexts(axes, library, PlanarReacher())
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("goal x", "goal y")


def test_postures_end_at_the_tips_of_the_means(library: SkillLibrary) -> None:
    axes = Figure().subplots()
    task = PlanarReacher()
    context = np.array([5.2, 1.0])
    assert draw_postures(axes, library, task, context, stream(0)) == 2
    for component in range(2):
        x, y = axes.lines[component].get_data()
        tip = task.joints(library.mean(context, component)[None])[0, -1]
        np.testing.assert_allclose([np.asarray(x)[-1], np.asarray(y)[-1]], tip)
        assert axes.lines[component].get_color() == component_color(component)


def test_ball_heights_start_at_the_release_and_end_where_the_ball_does() -> None:
    task = BeerPong()
    contexts = LinearGaussian.unconditional(np.tile([0.0, -1.7], (2, 1)), np.stack([np.eye(2)] * 2))
    bias = np.array([[*np.full(14, 0.2), 0.6], [*np.full(14, -0.1), 0.4]])
    experts = LinearGaussian.build(np.zeros((2, 15, 2)), bias, np.stack([np.eye(15)] * 2))
    library = SkillLibrary(Mixture(np.log([0.5, 0.5]), contexts, experts), task.context_low, task.context_high)
    axes, context = Figure().subplots(), np.array([0.1, -1.6])
    draw_ball_heights(axes, library, task, context)
    assert len(axes.lines) == 2
    for component, line in enumerate(axes.lines):
        motion = task.motion(context, bias[component])
        time, height = (np.asarray(values) for values in line.get_data())
        assert (height[0], height[-1]) == (motion.trail[motion.moments["release"], 2], motion.trail[-1, 2])
        assert time[-1] == pytest.approx(0.005 * (len(motion.trail) - 1))


def test_snapshots_show_skills_in_rows_and_moments_in_columns() -> None:
    throws = np.array([[*np.full(14, 0.2), 0.6], [*np.full(14, -0.1), 0.4]])
    library = small_library("beer-pong", np.tile([0.0, -1.7], (2, 1)), 1.0, throws)
    try:
        figure = snapshots_figure(library, BeerPong(), rows=2)
    except SvslError as error:
        pytest.skip(str(error))
    assert len(figure.axes) == 10
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert sorted(title.split(" · ")[0] for title in titles if title) == ["component 0", "component 1"]
    pictures = np.stack([np.asarray(axes.images[0].get_array(), dtype=np.float64) for axes in figure.axes])
    assert (np.abs(np.diff(pictures[:5], axis=0)).mean(axis=(1, 2, 3)) > 0.1).all(), "each moment looks different"
    assert np.abs(pictures[4] - pictures[9]).mean() > 0.1, "and each skill"
    np.testing.assert_allclose(np.diff(moments(figure)), np.diff(MOMENTS_S), atol=0.011)


def moments(figure: Figure) -> list[float]:
    return [float(axes.get_xlabel().removesuffix(" s")) for axes in figure.axes[:5]]


def test_without_a_release_snapshots_are_spread_over_the_motion_and_there_is_no_ball() -> None:
    parameters = np.random.default_rng(0).normal(0, 0.5, (2, 9))
    library = small_library("swing:Swing", np.array([[0.0, 1.0], [0.5, 2.0]]), 0.5, parameters)
    task = make_task("swing:Swing")
    try:
        figure = snapshots_figure(library, task)
    except SvslError as error:
        pytest.skip(str(error))
    np.testing.assert_allclose(moments(figure), np.linspace(0, 0.39, 5), atol=0.006)
    drawn = [path.name for path in plot_library(library, Path("figures"), task)]
    assert drawn == ["contexts.png", "success.png", "snapshots.png"]


def test_colours_repeat_only_after_27_components() -> None:
    colours = [component_color(k) for k in range(54)]
    assert len(set(colours[:27])) == 27
    assert colours[:27] == colours[27:]
    assert all(0 <= value <= 1 for colour in colours for value in colour)


def test_one_dimensional_contexts_are_curves_with_the_weights_as_area() -> None:
    task = Bimodal()
    contexts = LinearGaussian.unconditional(np.array([[-0.3], [0.4]]), np.array([[[0.05]], [[0.1]]]))
    experts = LinearGaussian.build(np.zeros((2, 2, 1)), np.array([[0, 0], [1, 0]]), np.stack([np.eye(2)] * 2))
    library = SkillLibrary(
        Mixture(np.log(np.array([0.2, 0.8])), contexts, experts), task.context_low, task.context_high
    )
    axes = Figure().subplots()
    draw_contexts(axes, library, task)
    assert axes.get_xlabel() == "context 0"  # the task has no name for it
    *curves, failures = axes.lines
    for line, weight in zip(curves, (0.2, 0.8), strict=True):
        x, y = (np.asarray(values) for values in line.get_data())
        assert np.trapezoid(y, x) == pytest.approx(weight, abs=1e-3)
    assert {k: x for k, (x, _) in numbers_at(axes).items()} == {"0": -0.3, "1": 0.4}
    # only the second component succeeds anywhere: where (c/2)^2 + c^2 < 0.05
    x, y = (np.asarray(values) for values in failures.get_data())
    assert not y.any()
    fails = (np.abs(x) > 0.2) | (library.gating(x[:, None]).argmax(axis=1) == 0)
    assert fails.all()
    assert (x.min(), x.max()) == pytest.approx((-1, 1), abs=0.01)
    assert axes.get_title() == f"2 components; the most probable solves {(2000 - len(x)) / 2000:.1%}"


def test_success_over_one_dimension_and_its_components() -> None:
    task = Bimodal()
    library = small_library("toys:Bimodal", np.array([[-0.5], [0.5]]), 0.4, np.array([[1.0, 0.0], [-1.0, 0.0]]))
    above, below = success_figure(library, task).axes
    x, rate = (np.asarray(values) for values in above.lines[0].get_data())
    gating = library.gating(x[:, None])
    gating = np.where(gating >= 0.01, gating, 0.0)
    gating /= gating.sum(axis=1, keepdims=True)
    solved = np.abs(x) < 0.2  # both, where (c/2)^2 + c^2 < 0.05
    np.testing.assert_allclose(rate, solved, atol=1e-12)
    assert above.get_title() == f"mean success {solved.mean():.1%}"
    for k, row in enumerate(below.images):
        colors = np.asarray(row.get_array(), dtype=np.float64)[0]
        np.testing.assert_array_equal(colors[:, 3] > 0, solved & (gating[:, k] > 0))
        np.testing.assert_allclose(colors[:, :3], np.tile(component_color(k), (len(x), 1)))
        assert tuple(row.get_extent())[2:] == (k - 0.4, k + 0.4)
    places, components = np.nonzero((gating > 0) & ~solved[:, None])
    np.testing.assert_allclose(np.asarray(below.lines[0].get_data(), dtype=np.float64), [x[places], components])


def test_titles_use_the_singular_for_one_component() -> None:
    axes = Figure().subplots()
    library = small_library("planar-reacher", np.array([[5.0, 0.0]]), 1.0, np.zeros((1, 10)))
    draw_contexts(axes, library, PlanarReacher())
    assert axes.get_title().startswith("1 component;")
    assert all(axes.get_title().endswith(": 1 component") for axes in postures_figure(library, PlanarReacher()).axes)


def test_files_of_a_run_and_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("0", "1"):
        flags = ["--components", "2", "--iterations", "5", "--seed", seed, "--quiet"]
        assert main(["train", "planar-reacher", *flags]) == 0
    folders = ["runs/planar-reacher-seed0", "runs/planar-reacher-seed1"]
    assert main(["plot", folders[0]]) == 0
    assert main(["plot", *folders, "--out", "both.png"]) == 0
    names = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert len(names) == 5
    for name in names:
        picture = imread(Path(name))
        assert picture[..., :3].std() > 0.05, "not blank"
    assert main(["train", "toys:Bimodal", "--components", "1", "--iterations", "3"]) == 0
    assert {p.name for p in Run.open(Path("runs/toys.Bimodal-seed0")).figures.iterdir()} == {
        "contexts.png",
        "learning.png",
        "success.png",
    }


def rows(means: list[float | None], drawn: list[float | None], every: int = 1000) -> list[dict[str, float | None]]:
    return [
        {"episodes_simulated": every * (i + 1), "return_mean": m, "return_sampled": d, "success_rate": 0.5}
        for i, (m, d) in enumerate(zip(means, drawn, strict=True))
    ]


def test_learning_curves_are_visible_except_for_bad_first_tests() -> None:
    # the means are far above the draws: if a fifth of all tests were cut off, it would be two fifths of the draws
    left = learning_figure(rows([-1.0] * 10, [-10.0 - 0.5 * (i % 3) for i in range(10)])).axes[0]
    assert left.get_ylim()[0] < -11
    assert left.get_ylim()[1] > -1
    assert len(left.lines) == 2
    # bad first tests would flatten the rest
    left = learning_figure(rows([-500.0, *[-2.0 + 0.01 * i for i in range(19)]], [-600.0, *[-3.0] * 19])).axes[0]
    assert -3.5 < left.get_ylim()[0] < -3
    for line, marks in zip(left.lines[:2], left.lines[2:], strict=True):
        assert marks.get_marker() == "v"
        assert marks.get_color() == line.get_color()
        np.testing.assert_array_equal(np.asarray(marks.get_xdata()), np.asarray(line.get_xdata())[:1])
        assert marks.get_transform().transform((0, 0.02))[1] > left.transAxes.transform((0, 0))[1]
    # a slow rise: most of both curves
    rise = [-1 - 100 * 0.6**i for i in range(20)]
    left = learning_figure(rows(list(rise), [value - 5 for value in rise])).axes[0]
    for line in left.lines[:2]:
        assert 0.8 <= (np.asarray(line.get_ydata()) > left.get_ylim()[0]).mean() < 1


def test_learning_curves_of_non_finite_returns() -> None:
    figure = learning_figure(rows([None] * 4, [-3.0, None, -1.0, -2.0]))
    figure.canvas.draw()
    assert figure.axes[0].get_ylim()[0] < -3
    figure = learning_figure(rows([None] * 3, [None] * 3))
    figure.canvas.draw()
    assert [text.get_text() for text in figure.axes[0].texts] == ["no finite return"]
    assert np.asarray(figure.axes[1].lines[0].get_ydata()).tolist() == [0.5] * 3


@pytest.mark.parametrize(
    ("every", "last", "unit"), [(100, 1000, ""), (2500, 25, " [thousand]"), (4e5, 4, " [million]")]
)
def test_episodes_are_labelled_in_a_suitable_unit(every: int, last: float, unit: str) -> None:
    for axes in learning_figure(rows([-1.0] * 10, [-2.0] * 10, every)).axes:
        assert axes.get_xlabel() == f"simulated episodes{unit}"
        assert np.asarray(axes.lines[0].get_xdata())[-1] == last


def test_the_legend_does_not_cover_the_learning_curves() -> None:
    figure = learning_figure(rows([-1.0] * 10, [-2.0] * 10))
    figure.canvas.draw()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["component means", "sampled parameters"]
    assert not any(legend.get_window_extent().overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_the_others_are_drawn_if_one_figure_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--components", "1", "--iterations", "3", "--quiet"]
    assert main(["train", "planar-reacher", *flags, "--out", "run"]) == 0

    def broken(*args: object) -> Figure:
        raise ValueError("Axis limits cannot be NaN or Inf")

    monkeypatch.setitem(FIGURES, "contexts", broken)
    monkeypatch.setattr("svsl.show.progress._LINE_EVERY_S", np.inf)  # also on a slow machine
    capsys.readouterr()
    assert main(["plot", "run"]) == 0
    out, err = capsys.readouterr()
    assert [Path(line.split()[-1]).name for line in out.splitlines()] == ["learning.png", "success.png", "postures.png"]
    assert err.startswith("no contexts.png: ValueError: Axis limits cannot be NaN or Inf (test_plots.py line")
    assert err.count("\n") == 1
    Path("run/library.safetensors").unlink()
    Path("run/checkpoint.safetensors").unlink()
    assert main(["plot", "run"]) == 0
    out, err = capsys.readouterr()
    assert out == "figure   run/figures/learning.png\n"
    assert err.startswith("no figures of the library: run has no trained component yet")


def test_libraries_without_a_run_are_drawn_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("svsl.show.progress._LINE_EVERY_S", np.inf)  # also on a slow machine
    small_library("toys:Bimodal", np.zeros((2, 1)), 0.5, np.zeros((2, 2))).save("both.safetensors")
    assert main(["plot", "both.safetensors", "--trust-task"]) == 0
    assert main(["plot", "planar-reacher", "--out", "here"]) == 0
    assert main(["plot", "both.safetensors", "planar-reacher", "--trust-task"]) == 0
    out, err = capsys.readouterr()
    names = ["both-figures/contexts.png", "both-figures/success.png"]
    names += [f"here/{name}.png" for name in ("contexts", "success", "postures")]
    assert out == "".join(f"figure   {name}\n" for name in [*names, "comparison.png"])
    assert err == ""
    assert all(Path(name).is_file() for name in names)
    for args, message in (
        (["nowhere"], "nowhere is not a run folder, a library file or a shipped library"),
        (["both.safetensors", "--out", "x.png"], "expected a folder for them, got 'x.png'"),
        (["both.safetensors", "nowhere", "--out", "x.foo"], "ends in .png, .pdf, .svg,"),
        (["both.safetensors", "planar-reacher", "--out", "here"], "got the folder 'here'"),
        ([], "plot what?"),
    ):
        assert main(["plot", *args]) == 2
        assert message in capsys.readouterr().err


def test_libraries_of_different_tasks_side_by_side(library: SkillLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr("svsl.show.plots.files.save_figure", lambda figure, path: figures.append(figure))
    planar = SkillLibrary(library.mixture, library.context_low, library.context_high, {"task": "planar-reacher"})
    toy = small_library("toys:Bimodal", np.zeros((1, 1)), 0.5, np.zeros((1, 2)))
    plot_side_by_side([("arm", planar, task_of(planar)), ("toy", toy, Bimodal())], Path("x.png"))
    plot_side_by_side([("arm", planar, task_of(planar)), ("again", planar, task_of(planar))], Path("x.png"))
    left, right = figures[0].axes
    assert left.get_title().startswith("arm\n2 components; ")
    assert right.get_title().startswith("toy\n1 component; ")
    assert left.get_xlim() == pytest.approx((4.2, 7.3)), "the box, not the arm"
    assert len(left.lines) == 3, "the means of both components and the failures, no posture"
    assert [axes.get_title() for axes in figures[1].axes[:2]] == ["arm", "again"]
    assert len(figures[1].axes) == 4


class Three:
    """Three context dimensions; succeeds where the last one is below a half."""

    context_low, context_high = np.zeros(3), np.ones(3)
    context_names = ("a", "b", "c")
    parameter_dim, initial_mean, initial_cov = 1, np.zeros(1), np.eye(1)

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        return Outcome(-contexts[:, 2], contexts[:, 2] < 0.5)


def test_success_maps_show_every_dimension_and_say_what_happens_to_the_others() -> None:
    contexts = LinearGaussian.unconditional(np.full((1, 3), 0.5), np.eye(3)[None])
    experts = LinearGaussian.build(np.zeros((1, 1, 3)), np.zeros((1, 1)), np.ones((1, 1, 1)))
    library = SkillLibrary(Mixture(np.zeros(1), contexts, experts), np.zeros(3), np.ones(3))
    figure = success_figure(library, Three())
    panels = [axes for axes in figure.axes if axes.get_images()]
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in panels] == [("a", "b"), ("b", "c")]
    assert all("over uniform values of the other dimensions" in axes.get_title() for axes in panels)
    image = np.asarray(panels[1].get_images()[0].get_array())
    assert (image[:10] == 1).all(), "the rows are the second dimension of the panel"
    assert (image[10:] == 0).all()

    class Chosen(Three):
        context_maps = ((2, 0),)

    chosen = Chosen()
    (panel,) = (axes for axes in success_figure(library, chosen).axes if axes.get_images())
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("c", "a")
    assert (np.asarray(panel.get_images()[0].get_array())[:, 10:] == 0).all()
    (panel,) = contexts_figure(library, chosen).axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("c", "a")
    crosses = next(line for line in panel.lines if line.get_label() == "fails here")
    assert np.asarray(crosses.get_xdata()).min() > 0.5


def test_postures_that_fail_are_dashed(library: SkillLibrary) -> None:
    axes = Figure().subplots()
    count = draw_postures(axes, library, PlanarReacher(), np.array([5.0, 2.0]), stream(0))
    styles = [line.get_linestyle() for line in axes.lines]
    assert styles[:count] == ["--"] * count, "both components end far from the goal"
    shipped = load_pretrained("planar-reacher")
    axes = Figure().subplots()
    count = draw_postures(axes, shipped, PlanarReacher(), np.array([5.2, 4.8]), stream(0))
    assert "-" in [line.get_linestyle() for line in axes.lines[:count]]
