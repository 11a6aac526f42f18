"""What a person sees while a run trains: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from svsl.runs.training import Status

_LINE_EVERY_S = 5.0


class _Display:
    """What shows something live on a terminal and in a few lines elsewhere; a context manager.

    Args:
        title: What is shown.
        quiet: Show nothing at all.
        file: Where to; standard error unless told.
    """

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


class ProgressDisplay(_Display):
    """Shows each `Status` it is called with."""

    _printed_row = -1.0

    def __call__(self, status: Status) -> None:
        """Shows where the run stands."""
        if self.quiet:
            return
        if self._live is not None:
            self._live.update(_panel(self.title, status), refresh=True)
            return
        now, row = time.monotonic(), float(status.test["milestone"]) if status.test else -1.0
        last = status.progress.work >= 1
        if row != self._printed_row and (last or now - self._printed_at > _LINE_EVERY_S):
            self._printed_at, self._printed_row = now, row
            print(f"{self.title}: {describe(status)}", file=self._console.file, flush=True)


def describe(status: Status) -> str:
    """The status as one line of plain text."""
    p = status.progress
    parts = [
        *_component(status),
        f"iteration {p.iteration}/{p.iterations}",
        f"{_amount(status.episodes)} episodes ({_amount(status.episodes_per_s)}/s)",
        f"newest {p.recent_return:.3g}",
        *_test(status),
        *_troubles(status),
        f"elapsed {_duration(status.elapsed_s)}",
        f"remaining {_duration(status.remaining_s)}",
    ]
    return ", ".join(parts)


def _panel(title: str, status: Status) -> Group:
    p = status.progress
    top = Table.grid(padding=(0, 2))
    top.add_row(
        Text(title, style="bold"),
        ProgressBar(total=1.0, completed=p.work, width=30),
        f"{p.work:.0%}",
        *_component(status),
        f"iteration {p.iteration}/{p.iterations}",
    )
    bottom = [
        f"{_amount(status.episodes)} episodes, {_amount(status.episodes_per_s)}/s",
        f"newest {'component ' if p.components else ''}{p.recent_return:.3g}",
        *_test(status),
        f"elapsed {_duration(status.elapsed_s)}",
        f"remaining {_duration(status.remaining_s)}",
    ]
    lines: list[Table | Text] = [top, Text("  ".join(bottom))]
    if troubles := _troubles(status):
        lines.append(Text("  ".join(troubles), style="yellow"))
    return Group(*lines)


def _component(status: Status) -> list[str]:
    """A step-based learner has no components."""
    p = status.progress
    return [f"component {p.component}/{p.components}"] if p.components else []


def _test(status: Status) -> list[str]:
    if status.test is None:
        return []
    row = status.test
    components = f", {row['components']} components" if "components" in row else ""
    return [f"test return {row['return_mean']:.3f} (success {row['success_rate']:.0%}{components})"]


def _troubles(status: Status) -> list[str]:
    counts = {
        **status.progress.counts,
        "diverged simulations": status.diverged,
        "NaN or infinite returns": status.nonfinite,
    }
    return [f"{name.replace('_', ' ')} {count}" for name, count in counts.items() if count]


def _amount(value: float) -> str:
    if not math.isfinite(value):
        return "?"
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
