"""Progress: a live display on a terminal, few plain lines elsewhere."""

import io
import itertools
import json
import os
import pty
import re
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from svsl import load_pretrained
from svsl.cli import main
from svsl.cli.training import TrainingOptions, _after_s
from svsl.learners.base import Progress
from svsl.learners.svsl_config import SVSLConfig
from svsl.runs.config import RunConfig
from svsl.runs.training import Status
from svsl.show.progress import ProgressDisplay, StageDisplay, describe
from toys import Unimodal

ROW = {"milestone": 6, "return_mean": -1.25, "success_rate": 0.5, "components": 6}
STATUS = Status(
    Progress(7, 60, 120, 350, 0.1, -2.5, {"failed_steps": 0, "deleted": 2}),
    1_234_567,
    3,
    4,
    61.0,
    45_600.0,
    3725.0,
    ROW,
)


def test_a_line_has_all_numbers() -> None:
    assert describe(STATUS) == (
        "component 7/60, iteration 120/350, 1.23 M episodes (45.6 k/s), recent return -2.5, "
        "test return -1.250 (success 50%, 6 components), elapsed 0:01:01, remaining 1:02:05, "
        "deleted 2, diverged simulations 4, NaN or infinite returns 3"
    )


def test_unknown_numbers_are_left_out_or_marked() -> None:
    nan = float("nan")
    start = Status(Progress(0, 0, 1, 9, 0.0, nan, {}), 0, 0, 0, 0.4, nan, nan, None)
    assert describe(start) == "iteration 1/9, 0 episodes (?/s), elapsed 0:00:00, remaining ?"


def test_lines_are_few_and_quiet_prints_none() -> None:
    for quiet, lines in ((False, 1), (True, 0)):
        file = io.StringIO()
        with ProgressDisplay("reacher", quiet, file) as display:
            for _ in range(20):
                display(STATUS)
        assert file.getvalue().count("\n") == lines


def test_lines_are_spaced_in_time_but_the_last_is_always_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, file = itertools.count(0.0, 2.0), io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with ProgressDisplay("reacher", file=file) as display:
        for milestone in range(1, 8):
            row = {**ROW, "components": milestone, "milestone": milestone}
            display(replace(STATUS, test=row, progress=replace(STATUS.progress, work=milestone / 7)))
    printed = [int(number) for number in re.findall(r"(\d) components", file.getvalue())]
    assert printed == [1, 4, 7]


def test_a_line_comes_also_without_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, file = itertools.count(0.0, 2.0), io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with ProgressDisplay("reacher", file=file) as display:
        for iteration in range(20):
            display(replace(STATUS, test=None, progress=replace(STATUS.progress, iteration=iteration)))
    printed = [int(number) for number in re.findall(r"iteration (\d+)/", file.getvalue())]
    assert printed == [7, 15]


def test_a_title_is_not_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    with ProgressDisplay("gym:env[red]", file=file) as display:
        display(STATUS)
    assert "gym:env[red]" in file.getvalue()


def test_a_terminal_gets_a_live_display() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "svsl", "train", "toys:Unimodal", "--components", "3", "--iterations", "150"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    limit = threading.Timer(120, process.kill)  # ends a process that hangs, and with it the reading
    limit.daemon = True
    limit.start()
    seen = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    assert process.wait() == 0
    limit.cancel()
    text = seen.decode()
    assert "\x1b[" in text, "it redraws in place"
    for word in ("toys:Unimodal seed 0", "component 3/3", "episodes", "recent return", "test return", "remaining"):
        assert word in text


def test_the_remaining_time_includes_what_comes_after_training() -> None:
    file = io.StringIO()
    with ProgressDisplay("reacher", file=file, after_s=lambda status: 2 * status.elapsed_s) as display:
        display(STATUS)
    assert "remaining 1:04:07" in file.getvalue(), "1:02:05 and two minutes"


def test_evaluation_and_figures_are_estimated_by_the_speed_of_training() -> None:
    class Flat(Unimodal):
        context_low, context_high = np.zeros(3), np.ones(3)

    config = RunConfig("toys:Unimodal", {}, "svsl", SVSLConfig(), 0)

    def seconds(options: TrainingOptions) -> float:
        return _after_s(options, config, Flat(), replace(STATUS, episodes_per_s=100.0))

    assert seconds(TrainingOptions(figures=False)) == (3 * 2000 + 200 * 6) / 100
    assert seconds(TrainingOptions(figures=False, eval_contexts=0)) == 0
    assert seconds(TrainingOptions(eval_contexts=0)) == 2 * 3000 / 100, "two pairs of dimensions"
    assert _after_s(TrainingOptions(), config, Flat(), replace(STATUS, episodes_per_s=float("nan"))) == 0


def test_a_stage_is_silent_if_short_and_otherwise_prints_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    for quiet, expected in ((False, ["evaluation: 25% done, next: b", "evaluation: 75% done, next: d"]), (True, [])):
        file = io.StringIO()
        with StageDisplay("evaluation", quiet, file) as report:
            for clock[0], share, what in ((3.0, 0.0, "a"), (6.0, 0.25, "b"), (10.0, 0.5, "c"), (12.0, 0.75, "d")):
                report(share, what)
        clock[0] = 0.0
        assert file.getvalue().splitlines() == expected


def test_a_stage_is_live_on_a_terminal_and_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    with StageDisplay("figures", file=file) as report:
        report(0.5, "contexts[0].png")
        assert report._live is not None
        report._live.refresh()
    text = file.getvalue()
    assert "contexts[0].png" in text
    assert "50%" in text
    assert text.rstrip().endswith("\x1b[2K"), "the line is erased at the end"


def test_a_long_batch_has_a_clock_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    clock, file = [0.0], io.StringIO()
    monkeypatch.setattr("svsl.show.progress.time.monotonic", lambda: clock[0])
    with ProgressDisplay("reacher", file=file) as display:
        assert display._live is not None
        clock[0] = 7.0
        display._live.refresh()
        assert "first episodes" in file.getvalue(), "before the first batch has ended"
        assert "elapsed 0:00:07" in file.getvalue()
        clock[0] = 0.0
        display(STATUS)
        clock[0] = 60.0
        display._live.refresh()
    assert "elapsed 0:02:01  remaining 1:01:05" in file.getvalue()


def test_progress_of_an_evaluation_is_not_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("svsl.show.progress._LINE_EVERY_S", -1.0)
    assert main(["eval", "planar-reacher", "--contexts", "20", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["components"] == len(load_pretrained("planar-reacher"))
    assert "evaluation: 0% done, next: means of components" in printed.err
