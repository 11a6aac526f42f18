"""Figures: what is drawn where, read back from the axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Ellipse

from helpers import small_library
from svsl import SkillLibrary, SvslError
from svsl.cli import main
from svsl.gaussians import LinearGaussian
from svsl.mixture import Mixture
from svsl.plots.contexts import draw_context_ellipses, draw_contexts
from svsl.plots.skills import MOMENTS_S, draw_ball_heights, draw_postures, snapshots_figure
from svsl.plots.style import component_color
from svsl.random import stream
from svsl.runs import Run
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


def test_ellipses_are_one_standard_deviation(library: SkillLibrary) -> None:
    axes = Figure().subplots()
    draw_context_ellipses(axes, library)
    outlines = [patch for patch in axes.patches if isinstance(patch, Ellipse) and not patch.get_fill()]
    assert len(outlines) == 2
    for ellipse, mean, cov in zip(outlines, [[5, 2], [6, -3]], library.mixture.contexts.cov, strict=True):
        # a point of the unit circle mapped by the patch lies at Mahalanobis distance 1
        points = ellipse.get_patch_transform().transform(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
        offset = points - np.array(mean)
        distance = np.einsum("ni,ij,nj->n", offset, np.linalg.inv(cov), offset)
        np.testing.assert_allclose(distance, 1, rtol=1e-9)


def test_maps_are_labelled_with_the_names_of_the_context(library: SkillLibrary) -> None:
    axes = Figure().subplots()
    draw_contexts(axes, library, PlanarReacher())
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("goal x", "goal y")


def test_postures_end_at_the_tips_of_the_means(library: SkillLibrary) -> None:
    axes = Figure().subplots()
    task = PlanarReacher()
    context = np.array([5.2, 1.0])
    shown = draw_postures(axes, library, task, context, stream(0))
    assert shown == 2
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
        path = task.trajectory(context, bias[component])
        time, height = (np.asarray(values) for values in line.get_data())
        assert (height[0], height[-1]) == (path.ball[path.release - 1, 2], path.ball[-1, 2])
        assert time[-1] == pytest.approx(0.005 * (len(path.ball) - 1))


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
    moments = [float(axes.get_xlabel().removesuffix(" s")) for axes in figure.axes[:5]]
    np.testing.assert_allclose(np.diff(moments), np.diff(MOMENTS_S), atol=0.011)


def test_colours_repeat_only_after_27_components() -> None:
    colours = [component_color(k) for k in range(54)]
    assert len(set(colours[:27])) == 27
    assert colours[:27] == colours[27:]
    assert all(0 <= value <= 1 for colour in colours for value in colour)


def test_one_dimensional_contexts_are_curves_with_the_weights_as_area() -> None:
    task = Bimodal()
    contexts = LinearGaussian.unconditional(np.array([[-0.3], [0.4]]), np.array([[[0.05]], [[0.1]]]))
    experts = LinearGaussian.build(np.zeros((2, 2, 1)), np.zeros((2, 2)), np.stack([np.eye(2)] * 2))
    library = SkillLibrary(
        Mixture(np.log(np.array([0.2, 0.8])), contexts, experts), task.context_low, task.context_high
    )
    axes = Figure().subplots()
    draw_contexts(axes, library, task)
    assert axes.get_xlabel() == "context 0"  # the task has no name for it
    for line, weight in zip(axes.lines, (0.2, 0.8), strict=True):
        x, y = (np.asarray(values) for values in line.get_data())
        assert np.trapezoid(y, x) == pytest.approx(weight, abs=1e-3)


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
    }
