"""The results pages are what the data say, and the tool that fills both works."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import results
from pages import ROOT
from results_data import collect, data_of, describe_missing, missing
from results_pages import disagreements, make
from results_tables import SENTENCE
from svsl import SvslError, load_pretrained
from svsl.cli import main
from svsl.experiments.behaviour import stored_behaviour
from svsl.experiments.catalogue import EXPERIMENTS, Arm, Experiment, arm_config
from svsl.runs.comparison import learning_curve, run_numbers, summarise
from svsl.runs.folder import Record, Run
from svsl.runs.training import Trainer

DATA_FILES = {"config.json", "metrics.jsonl", "evaluation.json", "behaviour.json", "record.json"}
TINY = {"components": 2, "iterations": 12, "finetune_every": 4, "weight_iterations": 3}
OURS, THEIRS = (
    Arm("ours", "toys:Bimodal", "svsl", settings=TINY),
    Arm("theirs", "toys:Bimodal", "hireps", settings={"components": 3, "iterations": 4, "batch": 200}),
)
TOY = Experiment("Toys", (OURS, THEIRS), 2, (), ("front", "learning"), ("return_mean",))
PAGE = """# Toys

<!-- results: table toy success_rate return_mean episodes -->
<!-- end of results -->

Words.

<!-- results: figure toy learning -->
<!-- end of results -->

<!-- results: figure toy front -->
<!-- end of results -->
"""


def test_the_pages_are_what_the_data_say() -> None:
    assert disagreements(ROOT / "docs") == [], "run `make results`"


def test_the_data_are_small_and_belong_to_experiments() -> None:
    folder = ROOT / "docs" / "results" / "data"
    for path in folder.glob("*/published.json"):
        published = data_of(path.parent.name, ROOT / "docs").published
        assert published is not None
        assert "digitised" in published.caption
        labels = {arm.label for arm in EXPERIMENTS[path.parent.name].arms}
        assert {label for panel in published.panels for label in panel.arms} <= labels
    for path in (path for path in folder.glob("*/*/*") if path.is_file()):
        name, run, file = path.relative_to(folder).parts
        assert file in DATA_FILES, path
        assert path.stat().st_size < 300_000, path
        assert run.rpartition("-seed")[0] in {arm.label for arm in EXPERIMENTS[name].arms}, path
        assert Run.open(path.parent).record is not None, path


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page about a toy experiment, without data."""
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    Path("docs").mkdir()
    Path("docs/toys.md").write_text(PAGE)
    return Path("docs")


def train(arm: Arm, seed: int, folder: str, until: float = np.inf) -> Run:
    """Trains a run of the toy experiment, to its end or until it has this many tests."""
    run = Run.create(Path(folder), replace(arm_config(arm), seed=seed))
    Trainer(run).train(lambda status: None, lambda: len(run.read_metrics()) >= until)
    return run


def unknown(run: Run) -> None:
    """Nobody knows with which commit it was trained."""


def fill(docs: Path) -> None:
    """Collects three of the four runs, trained in this process."""
    for arm, seed in ((OURS, 0), (OURS, 1), (THEIRS, 0)):
        train(arm, seed, f"runs/{arm.label}-{seed}")
    collect(Path("runs"), "toy", lambda run: "abc", docs)


def test_pages_follow_the_data_and_nothing_else_passes(docs: Path) -> None:
    fill(docs)
    assert len(disagreements(docs)) == 5, "an empty table; two figures without link and file"
    page, front = docs / "toys.md", docs / "figures" / "results-toy-front.png"
    assert make(docs) == [docs / "figures" / "results-toy-learning.png", front, page]
    assert disagreements(docs) == []
    text, picture = page.read_text(), front.read_bytes()
    ours, theirs = (line.split(" | ") for line in text.splitlines() if line.startswith(("| ours", "| theirs")))
    returns = summarise([run_numbers(run)["return_mean"] for run in data_of("toy", docs).runs(OURS)])
    assert ours[1:3] == ["2 of 2", "2 ± 0"]
    assert re.fullmatch(r"-?[\d.]+ ± [\d.]+", ours[4])
    mean, half_width = (float(word) for word in ours[4].split(" ± "))
    assert abs(half_width / returns.half_width - 1) < 0.25, "to one digit"
    assert abs(mean - returns.mean) < half_width / 2
    assert (theirs[1], theirs[-1]) == ("1 of 2", "0.1.0 (abc) |")
    assert "±" not in "".join(theirs), "one seed has no interval"
    assert SENTENCE in text
    assert "Words." in text

    assert make(docs) == [], "the same bytes again"
    page.write_text(text.replace("| ours | 2 of 2 |", "| ours | 3 of 2 |"))
    words = "table toy success_rate return_mean episodes"
    assert disagreements(docs) == [f"toys.md: {words}: the page is not what the data say"]
    page.write_text(text)
    shutil.copy(docs / "figures" / "results-toy-learning.png", front)
    assert disagreements(docs) == ["toys.md: figure toy front: results-toy-front.png is of other data"]
    front.write_bytes(picture)
    stored = docs / "results" / "data" / "toy" / "ours-seed1" / "evaluation.json"
    content = json.loads(stored.read_text())
    content["evaluation"]["return_mean"] -= 1.0
    stored.write_text(json.dumps(content))
    assert len(disagreements(docs)) == 3, "the table and both figures"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("toy learning", "toy postures"), "or figure EXPERIMENT {learning,entropy,"),
        (("table toy success_rate", "table toy speed"), "unknown metric 'speed'"),
        (("figure toy learning", "figure toy published"), "or figure EXPERIMENT {learning,entropy,"),
        (("figure toy learning", "published toy"), "expected table EXPERIMENT METRIC"),
        (("figure toy learning", "seeds toy others episodes"), "toy has no arm others"),
        (("Words.", "<!-- number: toy others episodes --><!-- / -->"), "toy has no arm others"),
        (("Words.", "<!-- number: toy ours --><!-- / -->"), "expected EXPERIMENT ARM METRIC"),
        (("Words.", "<!-- number: shipped golf ways --><!-- / -->"), "no library is shipped for 'golf'"),
        (("Words.", "<!-- number: shipped beer-pong speed --><!-- / -->"), "the library of beer-pong has no speed"),
        (("figure toy learning", "figure golf learning"), "unknown experiment 'golf'"),
        (("<!-- end of results -->\n\nWords.", "Words."), "every results block must end with"),
    ],
)
def test_a_wrong_block_is_explained(change: tuple[str, str], message: str, docs: Path) -> None:
    train(OURS, 0, "runs/ours-0")
    collect(Path("runs"), "toy", unknown, docs)
    Path("docs/toys.md").write_text(PAGE.replace(*change))
    with pytest.raises(SvslError, match=re.escape(message)):
        make(docs)


def test_what_is_missing_is_trained_and_collected(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(OURS, 1, "elsewhere/a")
    assert results.main(["collect", "elsewhere", "--experiment", "toy", "--docs", "docs"]) == 0
    assert capsys.readouterr().out.startswith("a: collected as ours-seed1, finished, ")
    assert [(m.arm.label, m.seed, m.done) for m in missing("toy", docs)] == [
        ("ours", 0, 0), ("theirs", 0, 0), ("theirs", 1, 0)
    ]  # fmt: skip
    assert describe_missing(missing("toy", docs))[1] == "    theirs: seeds 0-1: 0 of 800 episodes"
    assert results.main(["missing", "--start", "toy", "--workers", "2", "--docs", "docs"]) == 0
    assert missing("toy", docs) == []
    assert not Path("runs/toy/ours-seed1/metrics.jsonl").exists(), "the data have it"
    commits = [run.record.commit for run in data_of("toy", docs).runs(OURS) if run.record]
    assert commits == [results.current_commit(), "unknown"]
    for arm in TOY.arms:
        for run in data_of("toy", docs).runs(arm):
            assert {path.name for path in run.folder.iterdir()} == DATA_FILES
    capsys.readouterr()
    assert results.main(["collect", "runs/toy", "--docs", "docs"]) == 0
    shown = capsys.readouterr().out
    assert "ours-seed0: collected" in shown
    assert "ours-seed1" not in shown, "never begun there"
    assert commits == [run.record.commit for run in data_of("toy", docs).runs(OURS) if run.record], "kept"


def test_only_what_is_trained_here_has_this_commit(docs: Path) -> None:
    """The other runs of the folder may be of any: a finished one, and one that is resumed."""
    shutil.copytree(train(OURS, 0, "before").folder, "runs/toy/ours-seed0")
    shutil.copytree(train(OURS, 1, "half", until=1).folder, "runs/toy/ours-seed1")
    Path("runs/toy/experiment.json").write_text('{"experiment": "toy", "scale": 1.0}')
    assert results.main(["missing", "--start", "toy", "--workers", "2", "--docs", "docs"]) == 0
    commits = {
        arm.label: [run.record.commit for run in data_of("toy", docs).runs(arm) if run.record] for arm in TOY.arms
    }
    assert commits == {"ours": ["unknown", "unknown"], "theirs": 2 * [results.current_commit()]}


def test_the_data_keep_the_longest_run(docs: Path) -> None:
    short, long = (train(OURS, 0, f"{tests}/run", until=tests) for tests in (1, 2))
    assert not short.finished
    assert not long.finished
    for folder, words in (("2", "collected as ours-seed0, unfinished"), ("1", "left out, the data have more of it")):
        (line,) = collect(Path(folder), "toy", unknown, docs)
        assert words in line
    (first, *_) = missing("toy", docs)
    (run,) = data_of("toy", docs).runs(OURS)
    assert run.record == Record("0.1.0", "unknown", first.done, False)
    assert 0 < first.done < first.planned
    (group,) = data_of("toy", docs).groups
    assert not group.runs[0].finished
    train(OURS, 1, "whole/run")
    collect(Path("whole"), "toy", unknown, docs)
    assert [run.config.seed for run in data_of("toy", docs).groups[0].runs] == [1], "finished runs only, if any"
    train(OURS, 0, "rest/run")
    collect(Path("rest"), "toy", unknown, docs)
    assert [run.config.seed for run in data_of("toy", docs).groups[0].runs] == [0, 1]


def test_runs_with_other_settings_do_not_belong(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(OURS, 0, "runs/first")
    other = replace(OURS, settings=TINY | {"alpha": 0.5})
    train(other, 0, "runs/second")
    lines = collect(Path("runs"), "toy", unknown, docs)
    assert "collected as ours-seed0" in lines[0]
    assert lines[1] == "second: left out, it is no ours of toy (settings.alpha 0.5 instead of 0.001)"
    (docs / "toys.md").write_text(PAGE.partition("Words")[0])
    make(docs)
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, arms=(other, THEIRS)))
    assert missing("toy", docs)[0].other_settings
    assert "(the data have other settings)" in describe_missing(missing("toy", docs))[0]
    assert len(disagreements(docs)) == 1
    make(docs)
    assert "0.1.0 (commit unknown), settings changed since |" in (docs / "toys.md").read_text()
    assert "collected" in collect(Path("runs"), "toy", unknown, docs)[1], "replaces it"
    assert not missing("toy", docs)[0].other_settings


def test_the_numbers_of_a_run_can_be_compared_but_not_used(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(OURS, 0, "runs/ours")
    half = train(OURS, 1, "runs/half", until=1)
    original = run_numbers(Run.open(Path("runs/ours")))
    collect(Path("runs"), "toy", unknown, docs)
    finished, unfinished = data_of("toy", docs).runs(OURS)
    assert run_numbers(finished) == original
    assert np.isfinite(run_numbers(unfinished)["return_mean"] or np.nan)
    before = {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()}
    assert main(["compare", str(finished.folder), str(unfinished.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"][0]["unfinished"] == 1
    for args in (
        ["resume", str(unfinished.folder)],
        ["eval", str(finished.folder)],
        ["plot", str(unfinished.folder), str(finished.folder)],
    ):
        assert main(args) == 2
        assert "holds the numbers of a run, not what it learned" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()} == before
    assert half.record is None


def test_mistakes_get_one_line(docs: Path) -> None:
    Path("empty").mkdir()
    for args, message in (
        ([], "expected one of collect, missing, make"),
        (["collect", "nowhere"], "nowhere is not a folder"),
        (["collect", "empty"], "say what its runs belong to with --experiment NAME"),
        (["missing", "--start", "golf"], "unknown experiment 'golf'"),
        (["missing", "--workers", "0"], "workers: expected at least 1, got 0"),
    ):
        with pytest.raises(SvslError, match=message):
            results.main(args)


# ---- the other kinds of blocks --------------------------------------------------------------------------------------

MORE = """# More

<!-- results: seeds toy ours success_rate episodes -->
<!-- end of results -->

<!-- results: modes toy -->
<!-- end of results -->

<!-- results: published toy -->
<!-- end of results -->

<!-- results: figure toy published -->
<!-- end of results -->

Ours took <!-- number: toy ours episodes --><!-- / --> episodes, theirs <!-- number: toy theirs episodes --><!-- / -->,
with <!-- number: toy theirs seeds --><!-- / --> seeds.
"""
PUBLISHED = {
    "metric": "return_mean",
    "caption": "Read off a figure.",
    "panels": [{"title": "toys", "arms": ["ours"], "curves": {"Theirs": {"1": -3.0, "MIDDLE": -2.0, "100000": -1.0}}}],
}


def test_without_data_the_page_says_so(docs: Path) -> None:
    (docs / "toys.md").write_text(PAGE.replace("Words.", "<!-- number: toy ours episodes -->5 thousand<!-- / -->"))
    assert make(docs) == [docs / "toys.md"]
    text = (docs / "toys.md").read_text()
    assert text.count("*Not run yet: `svsl reproduce toy`.*") == 3
    assert "<!-- number: toy ours episodes -->not run<!-- / -->" in text
    assert disagreements(docs) == []
    train(OURS, 0, "runs/ours-0")
    collect(Path("runs"), "toy", unknown, docs)
    assert len(disagreements(docs)) == 6, "a table, two figures without link and file, and a number"
    make(docs)
    assert "Not run yet: theirs." in (docs / "toys.md").read_text()


def test_seeds_modes_published_results_and_numbers(docs: Path) -> None:
    fill(docs)
    data = data_of("toy", docs)
    curve = learning_curve(data.groups[0], "return_mean")
    assert curve is not None
    middle = round(curve.episodes.mean())
    data.published_path.write_text(json.dumps(PUBLISHED).replace("MIDDLE", str(middle)))
    page, figure = docs / "more.md", docs / "figures" / "results-toy-published.png"
    page.write_text(MORE)
    make(docs)
    assert disagreements(docs) == []
    text = page.read_text()
    runs = data.runs(OURS)
    for run in runs:
        rate, episodes = (run_numbers(run)[name] for name in ("success_rate", "episodes"))
        assert rate is not None
        assert episodes is not None
        assert f"| {run.config.seed} | 2 | {100 * rate:.1f} | {episodes / 1e3:.3g} | 0.1.0 (abc) |" in text
    behaviour = stored_behaviour(runs[0])
    assert behaviour is not None
    assert text.count("\n| -0.92 |") == 1, "the first of twelve contexts"
    for kind, count in behaviour.modes[0].items():
        assert f"{kind} {count}" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| toys: **svsl, ours** (2) |"))
    before, at, after, end = row.removesuffix(" |").split(" | ")[1:]
    assert (before, after) == ("", ""), "ours has no value there"
    final = summarise([run_numbers(run)["return_mean"] for run in runs])
    assert abs(float(end.split(" ± ")[0]) - final.mean) < final.half_width / 2
    assert end.endswith(f" ({curve.episodes[-1]:,.0f})")
    shown, half_width = (float(word) for word in at.split(" ± "))
    assert abs(shown - np.interp(middle, curve.episodes, curve.mean)) < half_width / 2
    assert "| toys: Theirs | -3 | -2 | -1 |  |" in text
    assert f"Ours took <!-- number: toy ours episodes -->{curve.episodes[-1] / 1e3:.3g} ± 0 thousand<!-- / -->" in text
    assert "<!-- number: toy theirs seeds -->1<!-- / --> seeds" in text

    page.write_text(text.replace(" thousand<", " million<", 1))
    (wrong,) = disagreements(docs)
    assert "thousand in the data" in wrong
    page.write_text(text)
    data.published_path.write_text(data.published_path.read_text().replace("-3.0", "-4.0"))
    assert len(disagreements(docs)) == 2, "the table and the figure"
    assert figure.exists()


def test_shipped_libraries_are_shown_as_their_files_say(docs: Path) -> None:
    text = """<!-- results: shipped success_rate ways -->
<!-- end of results -->
It succeeds in <!-- number: shipped beer-pong success_rate --><!-- / -->.
"""
    (docs / "toys.md").write_text(text)
    make(docs)
    text = (docs / "toys.md").read_text()
    found = json.loads(load_pretrained("beer-pong").metadata["results"])
    low, high = found["intervals"]["success_rate"]
    assert f"| {100 * found['success_rate']:.1f} [{100 * low:.1f}, {100 * high:.1f}] | {found['ways']:.3g} [" in text
    assert f"-->{100 * found['success_rate']:.1f} %<!-- / -->." in text
    assert disagreements(docs) == []


def test_runs_of_svsl_train_are_collected_however_they_were_tested(docs: Path) -> None:
    """Also unfinished ones, of which the table says how far they got."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    command = ["train", "toys:Bimodal", *flags, "--test-contexts", "30", "--quiet", "--no-figures", "--out", "all/a"]
    assert main(command) == 0
    half = train(OURS, 1, "all/b", until=1)
    lines = collect(Path("all"), "toy", unknown, docs)
    assert [line.split(", ")[:2] for line in lines] == [
        ["a: collected as ours-seed0", "finished"], ["b: collected as ours-seed1", "unfinished"]
    ]  # fmt: skip
    assert [(m.arm.label, m.seed) for m in missing("toy", docs)] == [("ours", 1), ("theirs", 0), ("theirs", 1)]
    (docs / "toys.md").write_text(MORE.partition("<!-- results: modes")[0])
    make(docs)
    share = half.read_metrics()[-1]["episodes"] / half.config.planned_episodes()
    assert f"unfinished: {share:.0%} of the episodes |" in (docs / "toys.md").read_text()
    assert "settings changed since" not in (docs / "toys.md").read_text()


@pytest.mark.parametrize(("flag", "number", "left"), [("--seeds", "1", 1), ("--seed", "1", 0)])
def test_some_arms_and_seeds_can_be_trained(docs: Path, flag: str, number: str, left: int) -> None:
    assert results.main(["missing", "--start", "toy", flag, number, "--arms", "theirs", "--docs", "docs"]) == 0
    assert [(m.arm.label, m.seed) for m in missing("toy", docs)] == [("ours", 0), ("ours", 1), ("theirs", left)]
    with pytest.raises(SvslError, match="toy has no arm 'others'; its arms: ours, theirs"):
        results.main(["missing", "--start", "toy", "--arms", "others", "--docs", "docs"])
    with pytest.raises(SvslError, match="toy has seeds 0 to 1 of these arms, got --seed 2"):
        results.main(["missing", "--start", "toy", "--seed", "2", "--docs", "docs"])
    with pytest.raises(SvslError, match="belong to --start EXPERIMENT"):
        results.main(["missing", "--seed", "1", "--docs", "docs"])
