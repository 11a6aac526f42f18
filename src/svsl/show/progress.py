"""Progress of training and of other long work: a live display on a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from svsl.runs.folder import MetricsRow
from svsl.runs.training import Status

_LINE_EVERY_S = 5.0
_LINE_AT_LEAST_EVERY_S = 15.0  # also while nothing new is known
_REFRESHES_PER_S = 4  # of a live display, so that a clock shows that a long batch is at work


class Display:
    """A context manager with a live display on a terminal (default: standard error); elsewhere `_live` stays None.

    `rendered`, if a subclass has one, is drawn several times per second.
    """

    rendered: Callable[[], RenderableType] | None = None
    transient = False  # whether the display disappears at its end

    def __init__(self, title: str, quiet: bool = False, file: TextIO | None = None) -> None:
        self.title, self.quiet = title, quiet
        self._console = Console(file=file or sys.stderr)
        self._live: Live | None = None
        self._printed_at = -math.inf

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self.quiet:
            self._live = Live(
                console=self._console,
                get_renderable=self.rendered,
                auto_refresh=self.rendered is not None,
                refresh_per_second=_REFRESHES_PER_S,
                transient=self.transient,
            )
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()


class ProgressDisplay(Display):
    """Shows each `Status` it is called with; without a terminal, a line after a test, or if none came for a while.

    `after_s` estimates from it how long the work after training will take, which is added to the remaining time.
    """

    def __init__(
        self,
        title: str,
        quiet: bool = False,
        file: TextIO | None = None,
        after_s: Callable[[Status], float] = lambda status: 0.0,
    ) -> None:
        super().__init__(title, quiet, file)
        self._after_s = after_s
        self._printed_test: MetricsRow | None = None
        self._bar = _bar(title, TextColumn("{task.fields[position]}"), position="first episodes")
        self._newest: tuple[float, Status] | None = None  # and when it came
        self._created_at = time.monotonic()

    def rendered(self) -> RenderableType:
        """The display at this moment: during a long batch only its clock moves."""
        if self._newest is None:
            return Group(self._bar, Text(f"elapsed {format_duration(time.monotonic() - self._created_at)}"))
        came_at, status = self._newest
        waited = time.monotonic() - came_at
        remaining = max(status.remaining_s - waited, 0.0) if math.isfinite(status.remaining_s) else math.nan
        status = replace(status, elapsed_s=status.elapsed_s + waited, remaining_s=remaining)
        position = "  ".join(_position(status))
        self._bar.update(self._bar.task_ids[0], completed=status.progress.work, position=position)
        lines = [Text("  ".join(_numbers(status)))]
        if warnings := _warnings(status):
            lines.append(Text("  ".join(warnings), style="yellow"))
        return Group(self._bar, *lines)

    def __call__(self, status: Status) -> None:
        """Shows the current state of the run."""
        if self.quiet:
            return
        status = replace(status, remaining_s=status.remaining_s + self._after_s(status))
        if self._live is not None:
            self._newest = time.monotonic(), status
            return
        now, last = time.monotonic(), status.progress.work >= 1
        tested = status.test != self._printed_test and (last or now - self._printed_at > _LINE_EVERY_S)
        if tested or now - max(self._printed_at, self._created_at) > _LINE_AT_LEAST_EVERY_S:
            self._printed_at, self._printed_test = now, status.test
            print(f"{self.title}: {describe(status)}", file=self._console.file, flush=True)


class StageDisplay(Display):
    """Shows the share of a stage that is done, and what it is doing; disappears at its end.

    Without a terminal it prints a line every few seconds, none in a short stage.
    """

    transient = True

    def __init__(self, title: str, quiet: bool = False, file: TextIO | None = None) -> None:
        super().__init__(title, quiet, file)
        self._bar = _bar(title, TimeElapsedColumn(), TextColumn("{task.fields[what]}", markup=False), what="")
        self._printed_at = time.monotonic()

    def rendered(self) -> RenderableType:
        """The display at this moment."""
        return self._bar

    def __call__(self, share: float, what: str) -> None:
        """Shows the share that is done, 0 to 1, and what is being done now."""
        self._bar.update(self._bar.task_ids[0], completed=share, what=what)
        now = time.monotonic()
        if not self.quiet and self._live is None and now - self._printed_at > _LINE_EVERY_S:
            self._printed_at = now
            print(f"{self.title}: {share:.0%} done, next: {what}", file=self._console.file, flush=True)


def _bar(title: str, *columns: ProgressColumn, **fields: Any) -> Progress:
    """Returns a progress bar of one task, which something else draws."""
    name = TextColumn("{task.description}", style="bold", markup=False)
    bar = Progress(name, BarColumn(30), TaskProgressColumn(), *columns, auto_refresh=False)
    bar.add_task(title, total=1.0, **fields)
    return bar


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
