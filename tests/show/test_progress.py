"""What a person sees: one line elsewhere, a live display on a terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

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


def test_a_line_says_it_all() -> None:
    assert describe(STATUS) == (
        "component 7/60, iteration 120/350, 1.23 M episodes (45.6 k/s), newest -2.5, "
        "test return -1.250 (success 50%, 6 components), deleted 2, diverged simulations 4, NaN or infinite returns 3, "
        "elapsed 1:01, remaining 1:02:05"
    )


def test_lines_are_few_and_quiet_is_quiet() -> None:
    for quiet, lines in ((False, 1), (True, 0)):
        file = io.StringIO()
        with ProgressDisplay("reacher", quiet, file) as display:
            for _ in range(20):
                display(STATUS)
        assert file.getvalue().count("\n") == lines


def test_a_terminal_gets_a_live_display() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "svsl", "train", "toys:Unimodal", "--components", "3", "--iterations", "150"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env=environment)
    os.close(theirs)
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
    text = seen.decode()
    assert "\x1b[" in text, "it redraws in place"
    for word in ("toys:Unimodal seed 0", "component 3/3", "episodes", "newest component", "test return", "remaining"):
        assert word in text
