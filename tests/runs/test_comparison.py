"""Groups of seeds: who belongs together, and statistics with known answers."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.table import Table as RichTable
from scipy.stats import trim_mean

from svsl import SvslError
from svsl.cli import main
from svsl.evaluation.result import Evaluation
from svsl.learners.hireps import HiREPSConfig
from svsl.learners.registry import find_preset
from svsl.learners.svsl_config import SVSLConfig
from svsl.runs import comparison
from svsl.runs import evaluation as run_evaluation
from svsl.runs.comparison import Group, group_runs, iqm_interval, learning_curve, run_numbers, summarise
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from svsl.runs.training import Trainer
from svsl.show.plots.front import FrontPoint, draw_front
from svsl.show.plots.learning import draw_learning, draw_legend
from svsl.show.plots.style import pixels
from svsl.show.tables import print_table

CONFIG = RunConfig("toys:Unimodal", {}, "svsl", SVSLConfig(components=2, iterations=4), 0)


def run_with(folder: str, rows: list[tuple[int, float | None]], finished: bool = True, seed: int = 0) -> Run:
    """A run folder with these episodes and returns, and a mark that it is finished."""
    run = Run.create(Path(folder), replace(CONFIG, seed=seed))
    lines = [json.dumps({"episodes_simulated": episodes, "return_mean": value}) + "\n" for episodes, value in rows]
    run.metrics_path.write_text("".join(lines))
    if finished:
        run.library_path.write_bytes(b"")
    return run


def make(folder: str, config: RunConfig) -> Run:
    return Run.create(Path(folder), config)


def trained(folder: str, config: RunConfig) -> Run:
    run = make(folder, config)
    assert Trainer(run).train(lambda status: None)
    return run


def test_runs_of_different_presets_are_named_by_their_preset() -> None:
    kinds = {name: find_preset("beer-pong", name=name).settings for name in ("paper", "efficient")}
    assert isinstance(kinds["efficient"], SVSLConfig)
    kinds["more"] = replace(kinds["efficient"], components=10)
    runs = [make(name, RunConfig("beer-pong", {}, "svsl", kind, 0)) for name, kind in kinds.items()]
    labels = [group.label for group in group_runs(runs)]
    assert labels == ["svsl paper", "svsl efficient", "svsl efficient components=10"]


def test_intervals_stay_in_the_range_of_the_quantity() -> None:
    runs = []
    for seed, share in enumerate((0.01, 0.02, 0.98)):
        run = make(f"r{seed}", replace(CONFIG, seed=seed))
        rows = [{"episodes_simulated": 100.0 * n, "success_rate": share, "return_mean": -share} for n in (1, 2)]
        run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        runs.append(run)
    for metric, bounded in (("success_rate", True), ("return_mean", False)):
        axes = Figure().subplots()
        draw_learning(axes, [Group("g", tuple(runs))], metric, robust=False)
        (band,) = axes.collections
        ends = np.asarray(band.get_paths()[0].vertices)[:, 1]
        assert (ends.min() >= 0 and ends.max() <= 1) == bounded
        assert (axes.get_ylim() == pytest.approx((-0.02, 1.02))) == bounded, "all of the range, also for equal values"


def test_bars_of_a_front_stay_in_the_range_of_the_quantity() -> None:
    numbers = {"ways": np.array([0.1, 0.9]), "success_rate": np.array([0.2, 1.0])}
    draw_front(axes := Figure().subplots(), [FrontPoint("svsl", "0.1", numbers)], "ways", "success_rate")
    bars = np.concatenate([line for bars in axes.collections for line in bars.get_segments()])  # type: ignore[attr-defined]
    assert bars.min() == 0
    assert bars[:, 0].max() > 5, "there is no most"
    assert bars[:, 1].max() == 1


def test_seeds_of_one_configuration_form_a_group_named_by_what_differs() -> None:
    other = replace(CONFIG, settings=SVSLConfig(components=2, iterations=4, alpha=0.5))
    hireps = replace(CONFIG, learner="hireps", settings=HiREPSConfig(components=2))
    runs = [
        make("a0", CONFIG),
        make("b0", other),
        make("a1", replace(CONFIG, seed=1)),
        make("h0", hireps),
        make("b7", replace(other, seed=7)),
    ]
    groups = group_runs(runs)
    assert [group.label for group in groups] == ["svsl alpha=0.001", "svsl alpha=0.5", "hireps"]
    assert [[run.folder.name for run in group.runs] for group in groups] == [["a0", "a1"], ["b0", "b7"], ["h0"]]
    assert [g.label for g in group_runs(runs[:1])] == ["svsl"]
    stretched = replace(CONFIG, task="toys:with_options", task_options={"scale": 2.0})
    options = group_runs([make("s", stretched), make("t", replace(stretched, task_options={"scale": 3.0}))])
    assert [g.label for g in options] == ["svsl scale=2", "svsl scale=3"]
    older = make("v", replace(stretched, task_options={}))  # before the task had options
    newer = make("w", replace(stretched, task_options={"scale": 1.0, "kind": "plain"}, seed=1))
    assert len(group_runs([older, newer])) == 1
    with pytest.raises(SvslError, match=r"different tasks \(toys:Unimodal, toys:with_options\).*one task at a time"):
        group_runs([make("u", stretched), runs[0]])
    with pytest.raises(SvslError, match="a0 and again are the same run twice"):
        group_runs([runs[0], make("again", CONFIG)])


def test_summary_of_known_numbers() -> None:
    # 1 and 100 are outside the middle half: IQM (2 + 3 + 4) / 3, mean 22, standard deviation by hand
    values = [3.0, 100.0, 1.0, 4.0, 2.0]
    summary = summarise(values)
    assert (summary.seeds, summary.mean, summary.iqm) == (5, 22.0, 3.0)
    deviation = np.sqrt(sum((v - 22) ** 2 for v in values) / 4)
    assert summary.half_width == pytest.approx(2.776445 * deviation / 5**0.5), "Student's t from a printed table"
    assert summary.iqm_low < 3 < summary.iqm_high
    assert summarise(values) == summary, "the bootstrap repeats itself"
    assert summarise([*values, None, float("nan")]) == summary
    numbers = np.random.default_rng(0).normal(size=23)
    assert (
        summarise(numbers).iqm
        == pytest.approx(np.sort(numbers)[5:-5].mean())
        == pytest.approx(trim_mean(numbers, 0.25))
    )
    one = summarise([5.0])
    assert (one.mean, one.iqm) == (5.0, 5.0)
    assert np.isnan([one.half_width, one.iqm_low, one.iqm_high]).all()
    assert comparison.format_summary(one) == ("5 ± n/a", "5 [n/a]")
    assert comparison.format_summary(summarise([])) == ("n/a", "n/a")
    assert comparison.format_summary(summarise([20_000.0, 20_400.0])) == ("20,200 ± 2,541", "20,200 [20,000, 20,400]")


def test_the_interval_of_the_mean_is_right_for_few_seeds() -> None:
    """Two standard errors would cover the mean of three seeds in 82 % of the cases."""
    for seeds in (2, 3, 5, 15):
        summaries = [summarise(draws) for draws in np.random.default_rng(2).normal(3.0, 2.0, (400, seeds))]
        assert 0.93 <= np.mean([abs(s.mean - 3.0) <= s.half_width for s in summaries]) <= 0.97, seeds


def test_the_interval_covers_the_true_middle_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(3.0, 2.0, (400, 20))
    inside = np.mean([low <= 3.0 <= high for low, high in map(iqm_interval, draws)])
    assert 0.90 <= inside <= 0.98
    narrow = np.mean([low <= 3.0 <= high for low, high in (iqm_interval(d, level=0.5) for d in draws)])
    assert 0.42 <= narrow <= 0.58


def test_curves_meet_on_one_grid(tmp_path: Path) -> None:
    # two straight lines, y = x / 100 and y = x / 100 + 2, tested at different episodes
    first = run_with("first", [(0, 0.0), (400, 4.0), (1000, 10.0)])
    second = run_with("second", [(0, 2.0), (1000, 12.0)], seed=1)
    curve = learning_curve(Group("both", (first, second)), "return_mean")
    assert curve is not None
    np.testing.assert_allclose(curve.mean, curve.episodes / 100 + 1)
    np.testing.assert_allclose(curve.half_width, 12.7062, rtol=1e-5)
    np.testing.assert_allclose(curve.iqm, curve.episodes / 100 + 1)
    np.testing.assert_allclose(curve.iqm_high - curve.iqm_low, 2.0)
    assert (curve.episodes[0], curve.episodes[-1]) == (0, 1000)


def test_a_finished_run_keeps_its_last_value_an_unfinished_one_has_none() -> None:
    short = run_with("short", [(0, 0.0), (500, 5.0)])
    long = run_with("long", [(0, 0.0), (1000, 10.0)], seed=1)
    open_end = run_with("open", [(0, 100.0), (400, 100.0), (450, None)], finished=False, seed=2)
    curve = learning_curve(Group("g", (short, long, open_end)), "return_mean")
    assert curve is not None
    early, late = curve.episodes < 400, curve.episodes > 500
    np.testing.assert_allclose(curve.mean[early], (2 * curve.episodes[early] / 100 + 100) / 3)
    np.testing.assert_allclose(curve.mean[late], (5 + curve.episodes[late] / 100) / 2)
    assert set(curve.seeds[early]) == {3}
    assert set(curve.seeds[late]) == {2}
    alone = learning_curve(Group("g", (long, open_end, run_with("none", [], False, 3))), "return_mean")
    assert alone is not None
    assert np.isnan(alone.mean[alone.episodes > 400]).all(), "one of three seeds is not a curve"
    assert learning_curve(Group("g", (short,)), "no_such_metric") is None
    few = Group("g", (long, run_with("none1", [], False, 4), run_with("none2", [], False, 5)))
    assert learning_curve(few, "return_mean") is None
    draw_learning(Figure().subplots(), [few], "return_mean", robust=True)


def test_the_drawing_shows_the_curve_and_its_band() -> None:
    runs = tuple(run_with(f"r{s}", [(0, s), (2_000_000, s + 1.0)], seed=s) for s in range(4))
    axes = Figure().subplots()
    draw_learning(axes, [Group("g", runs)], "return_mean", robust=False)
    x, y = (np.asarray(values) for values in axes.lines[0].get_data())
    assert (x[-1], y[-1]) == (2.0, 2.5)
    band = np.asarray(axes.collections[0].get_paths()[0].vertices)
    assert band[:, 1].max() == pytest.approx(2.5 + 3.182446 * np.std(range(4), ddof=1) / 2)


@pytest.mark.parametrize("count", [1, 13])
def test_one_legend_below_all_axes_names_each_group_once(count: int) -> None:
    figure = Figure(figsize=(10.4, 7.4), layout="constrained")
    draw_legend(figure)
    assert not figure.legends, "there is nothing to name"
    groups = [Group(f"alpha-{k}", (run_with(f"r{k}", [(0, 0.0), (1000, 1.0 * k)]),)) for k in range(count)]
    for run in (run for group in groups for run in group.runs):
        rows = [row | {"return_sampled": row["return_mean"] - 7} for row in run.read_metrics()]
        run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for axes, metric in zip(figure.subplots(2, 2).ravel(), ["return_mean", "return_sampled"] * 2, strict=True):
        draw_learning(axes, groups, metric, robust=False)
    draw_legend(figure)
    pixels(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"alpha-{k} (1)" for k in range(count)]
    assert legend.get_title().get_text() == "seeds in brackets; dashed: drawn parameters"
    place = legend.get_window_extent()
    assert 0 <= place.y0 < place.y1 < min(np.asarray(axes.get_tightbbox())[0, 1] for axes in figure.axes)
    assert 0 <= place.x0 < place.x1 <= 1040


@pytest.mark.parametrize("apart", [1.0, 1000.0])
def test_bands_are_in_the_picture_if_they_leave_a_third_to_the_curves(apart: float) -> None:
    runs = tuple(run_with(f"r{s}", [(0, apart * s), (1000, apart * s + 20)], seed=s) for s in range(2))
    figure = Figure(figsize=(5, 5), layout="constrained")
    draw_learning(axes := figure.subplots(), [Group("g", runs)], "return_mean", robust=False)
    band = np.asarray(axes.collections[0].get_paths()[0].vertices)[:, 1]
    bottom, top = axes.get_ylim()
    assert (bottom < band.min() and band.max() < top) == (apart == 1)
    assert top - bottom < 3.2 * 20
    assert not axes.get_legend(), "it would cover curves"


def test_the_return_of_drawn_parameters_is_drawn_beside_that_of_means() -> None:
    run = run_with("run", [(0, 1.0), (1000, 3.0)])
    axes = Figure().subplots()
    draw_learning(axes, [Group("g", (run,))], "return_mean", robust=False)
    assert len(axes.lines) == 1, "an old run without that column"
    rows = [row | {"return_sampled": row["return_mean"] - 7} for row in run.read_metrics()]
    run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for robust in (False, True):
        axes = Figure().subplots()
        draw_learning(axes, [Group("g", (run,))], "return_mean", robust)
        means, drawn = axes.lines
        assert (drawn.get_linestyle(), drawn.get_color()) == ("--", means.get_color())
        np.testing.assert_allclose(np.asarray(drawn.get_ydata()), np.asarray(means.get_ydata()) - 7)
        assert axes.get_ylim()[0] < -4
        assert axes.get_ylim()[1] > 3
    draw_learning(other := Figure().subplots(), [Group("g", (run,))], "return_sampled", robust=False)
    assert len(other.lines) == 1


def test_each_library_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained("run", CONFIG)
    numbers = run_numbers(run, 50)
    assert numbers["return_mean"] != run.read_metrics()[-1]["return_mean"], "the evaluation's, not the last test's"
    assert numbers["nonfinite_returns"] == 0
    calls = []
    real = run_evaluation.evaluate_run

    def counted(*args: Any) -> Evaluation:
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(run_evaluation, "evaluate_run", counted)
    assert run_numbers(run, 50) == numbers
    assert calls == []
    run_numbers(run, 60)
    assert len(calls) == 1, "other contexts"
    run.library_path.write_bytes(trained("other", replace(CONFIG, seed=1)).library_path.read_bytes())
    assert run_numbers(run, 60)["return_mean"] != numbers["return_mean"]
    assert len(calls) == 2, "another library"
    (run.folder / "evaluation.json").write_text("{")
    run_numbers(run, 60)
    assert len(calls) == 3, "a broken file"
    (run.folder / "evaluation.json").unlink()
    (run.folder / "evaluation.json").mkdir()  # cannot be written, as in a folder that may only be read
    assert run_numbers(run, 60) == run_numbers(run, 60)
    assert len(calls) == 5


def test_compare_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(3):
        trained(f"a{seed}", replace(CONFIG, seed=seed))
    half = make("half", replace(CONFIG, seed=3))
    Trainer(half).train(lambda status: None, stop=lambda: True)
    half.append_metrics({"episodes": 10, "recent_return": -1.0})  # tested after the checkpoint, then killed
    trained("h0", replace(CONFIG, learner="hireps", settings=HiREPSConfig(components=2, iterations=3, batch=200)))
    folders = ["a0", "a1", "a2", "half", "h0"]
    command = ["compare", *folders, "--contexts", "50", "--csv", "table.csv", "--out", "curves.png"]
    assert main([*command, "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [(g["label"], len(g["runs"]), g["unfinished"]) for g in groups] == [("svsl", 4, 1), ("hireps", 1, 0)]
    ours = [run_numbers(Run.open(Path(f"a{seed}")), 50)["return_mean"] for seed in range(3)]
    summary = groups[0]["metrics"]["return_mean"]
    assert summary["mean"] == pytest.approx(np.mean(np.array(ours, dtype=float)))
    assert summary["seeds"] == 3, "the unfinished run has no trained component"
    assert groups[1]["metrics"]["return_mean"]["half_width"] is None
    table = list(csv.DictReader(io.StringIO(Path("table.csv").read_text())))
    assert float(table[0]["mean"]) == summary["mean"]
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "4 seeds, 1 unfinished" in " ".join(printed.split())
    assert "[n/a]" in printed
    assert main([*command, "--panels", "reward"]) == 2
    assert "has no option 'reward'; its options: none" in capsys.readouterr().err
    assert main([*command, "--metrics", "speed"]) == 2
    assert "unknown metric 'speed'; these runs have" in capsys.readouterr().err
    for out, message in (("x.foo", "ends in .png, .pdf, .svg,"), ("x", "got 'x'"), ("a0", "got the folder 'a0'")):
        assert main(["compare", "a0", "a1", "--contexts", "51", "--out", out]) == 2
        assert message in capsys.readouterr().err
    stored = json.loads(Path("a0/evaluation.json").read_text())
    assert stored["made_for"]["contexts"] == 50, "rejected before anything was evaluated"
    assert main(["compare"]) == 2
    assert "compare what?" in capsys.readouterr().err


def test_an_evaluation_with_other_metrics_is_repeated() -> None:
    run = trained("run", replace(CONFIG, task="toys:Bimodal"))
    current = run_numbers(run, 50)
    assert current["ways"] is not None
    stored = json.loads(run.evaluation_path.read_text())
    # as version 0.1.0 first wrote it: other metrics, no names of them, no intervals
    old = {"made_for": dict(stored["made_for"]), "evaluation": dict(stored["evaluation"])}
    del old["made_for"]["metrics"]
    for name in ("ways", "two_kinds", "intervals", "evaluation_seed"):
        del old["evaluation"][name]
    run.evaluation_path.write_text(json.dumps(old))
    assert run_numbers(run, 50) == current
    assert json.loads(run.evaluation_path.read_text()) == stored
    # the names decide, even if the file could be read
    stored["made_for"]["metrics"].remove("ways")
    stored["evaluation"]["success_rate"] = 7.0
    run.evaluation_path.write_text(json.dumps(stored))
    assert run_numbers(run, 50) == current


def test_tables_are_not_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    table = RichTable()
    for heading in ("metric", "a" * 70, "b" * 70):
        table.add_column(heading)
    print_table(table)
    printed = capsys.readouterr().out
    assert "a" * 70 in printed
    assert "b" * 70 in printed
