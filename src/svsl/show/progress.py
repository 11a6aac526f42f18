"""Progress of training: a live display on a terminal, plain lines elsewhere."""

import math
import sys
import time
from datetime import timedelta
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from svsl.runs.folder import MetricsRow
from svsl.runs.training import Status

_LINE_EVERY_S = 5.0


class Display:
    """A context manager with a live display on a terminal (default: standard error); elsewhere `_live` stays None."""

    def __init__(self, title: str, quiet: bool = False, file: TextIO | None = None) -> None:
        self.title, self.quiet = title, quiet
        self._console = Console(file=file or sys.stderr)
        self._live: Live | None = None
        self._printed_at = -math.inf

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self.quiet:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()


class ProgressDisplay(Display):
    """Shows each `Status` it is called with; without a terminal, one line after a test, at most every few seconds."""

    def __init__(self, title: str, quiet: bool = False, file: TextIO | None = None) -> None:
        super().__init__(title, quiet, file)
        self._printed_test: MetricsRow | None = None
        name = TextColumn("{task.description}", style="bold", markup=False)
        position = TextColumn("{task.fields[position]}")
        self._bar = Progress(name, BarColumn(30), TaskProgressColumn(), position, auto_refresh=False)
        self._bar.add_task(title, total=1.0, position="")

    def __call__(self, status: Status) -> None:
        """Shows the current state of the run."""
        if self.quiet:
            return
        if self._live is not None:
            position = "  ".join(_position(status))
            self._bar.update(self._bar.task_ids[0], completed=status.progress.work, position=position)
            lines = [Text("  ".join(_numbers(status)))]
            if warnings := _warnings(status):
                lines.append(Text("  ".join(warnings), style="yellow"))
            self._live.update(Group(self._bar, *lines), refresh=True)
            return
        now, last = time.monotonic(), status.progress.work >= 1
        if status.test != self._printed_test and (last or now - self._printed_at > _LINE_EVERY_S):
            self._printed_at, self._printed_test = now, status.test
            print(f"{self.title}: {describe(status)}", file=self._console.file, flush=True)


def describe(status: Status) -> str:
    """Returns the status as one line of plain text."""
    return ", ".join([*_position(status), *_numbers(status), *_warnings(status)])


def _position(status: Status) -> list[str]:
    p = status.progress
    component = [f"component {p.component}/{p.components}"] if p.components else []  # a policy has none
    return [*component, f"iteration {p.iteration}/{p.iterations}"]


def _numbers(status: Status) -> list[str]:
    test, recent_return = status.test, status.progress.recent_return
    parts = [f"{format_amount(status.episodes)} episodes ({format_amount(status.episodes_per_s)}/s)"]
    if math.isfinite(recent_return):
        parts.append(f"recent return {recent_return:.3g}")
    if test is not None:
        components = f", {test['components']} components" if "components" in test else ""
        parts.append(f"test return {test['return_mean']:.3f} (success {test['success_rate']:.0%}{components})")
    return [*parts, f"elapsed {format_duration(status.elapsed_s)}", f"remaining {format_duration(status.remaining_s)}"]


def _warnings(status: Status) -> list[str]:
    own = {"diverged simulations": status.diverged, "NaN or infinite returns": status.nonfinite}
    counts = {**status.progress.counts, **own}
    return [f"{name.replace('_', ' ')} {count}" for name, count in counts.items() if count]


def format_amount(value: float) -> str:
    """Formats a number with a unit: `1.2 M`, `3 k`."""
    if not math.isfinite(value):
        return "?"
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def format_duration(seconds: float) -> str:
    """Formats a duration as `h:mm:ss`."""
    return str(timedelta(seconds=round(seconds))) if math.isfinite(seconds) else "?"
