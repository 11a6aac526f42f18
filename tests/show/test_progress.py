"""Progress: a live display on a terminal, few plain lines elsewhere."""

import io
import itertools
import os
import pty
import re
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from svsl.learners.base import Progress
from svsl.runs.training import Status
from svsl.show.progress import ProgressDisplay, describe

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
