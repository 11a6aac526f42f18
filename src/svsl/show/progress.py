"""Progress of training: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from svsl.experiments.reproduction import Job, overall
from svsl.runs.folder import MetricsRow
from svsl.runs.training import Status

_LINE_EVERY_S = 5.0
_OVERVIEW_EVERY_S = 30.0


class _Display:
    """A context manager with a live display on a terminal; elsewhere it leaves `_live` None.

    Args:
        title: Name of what is shown.
        quiet: Show nothing at all.
        file: Output (default: standard error).
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


class ReproductionDisplay(_Display):
    """Shows how far all runs of an experiment are."""

    def __init__(self, title: str, quiet: bool = False, file: TextIO | None = None) -> None:
        super().__init__(title, quiet, file)
        self._start: tuple[float, float, int] | None = None
        self._printed_states = Counter[str]()

    def __call__(self, jobs: Sequence[Job]) -> None:
        """Shows where the runs stand; on a terminal always, elsewhere when one ends and now and then."""
        now, work, episodes = time.monotonic(), overall(jobs), sum(job.episodes for job in jobs)
        if self._start is None:
            self._start = now, work, episodes
        if self.quiet:
            return
        elapsed = now - self._start[0]
        rate = (episodes - self._start[2]) / elapsed if elapsed > 0 else math.nan
        remaining = elapsed * (1 - work) / (work - self._start[1]) if work > self._start[1] else math.nan
        states = Counter[str](job.state for job in jobs)
        restarts = sum(job.restarts for job in jobs)
        counts = [f"{states[s]} {s}" for s in ("finished", "running", "waiting", "stopped", "failed") if states[s]]
        words = [
            f"{work:.0%}, {len(jobs)} runs: {', '.join(counts)}" + (f" ({restarts} restarts)" if restarts else ""),
            f"{_amount(episodes)} episodes ({_amount(rate)}/s)",
            f"elapsed {_duration(elapsed)}",
            f"remaining {_duration(remaining)}",
        ]
        if self._live is not None:
            self._live.update(_overview(self.title, work, words, jobs), refresh=True)
            return
        ended = {name: count for name, count in states.items() if name not in ("running", "waiting")}
        quiet_s = 0.0 if sum(ended.values()) == len(jobs) else _LINE_EVERY_S
        if now - self._printed_at > (quiet_s if ended != self._printed_states else _OVERVIEW_EVERY_S):
            self._printed_at, self._printed_states = now, Counter(ended)
            print(f"{self.title}: {', '.join(words)}", file=self._console.file, flush=True)


def _overview(title: str, work: float, words: Sequence[str], jobs: Sequence[Job]) -> Group:
    top = Table.grid(padding=(0, 2))
    top.add_row(Text(title, style="bold"), ProgressBar(total=1.0, completed=work, width=40), words[0])
    lines: list[Table | Text] = [top, Text("  ".join(words[1:]))]
    rows = Table.grid(padding=(0, 2))
    for job in (job for job in jobs if job.state in ("running", "failed")):
        name = Text(job.run.folder.name, style="red" if job.state == "failed" else "")
        told = job.message if job.state == "failed" else f"{job.work:.0%}  {_amount(job.episodes)} episodes"
        rows.add_row(name, ProgressBar(total=1.0, completed=job.work, width=20), Text(told, overflow="ellipsis"))
    return Group(*lines, rows)


def describe(status: Status) -> str:
    """Returns the status as one line of plain text."""
    return ", ".join([*_position(status), *_numbers(status), *_warnings(status)])


def _position(status: Status) -> list[str]:
    p = status.progress
    component = [f"component {p.component}/{p.components}"] if p.components else []  # a policy has none
    return [*component, f"iteration {p.iteration}/{p.iterations}"]


def _numbers(status: Status) -> list[str]:
    test, recent_return = status.test, status.progress.recent_return
    parts = [f"{_amount(status.episodes)} episodes ({_amount(status.episodes_per_s)}/s)"]
    if math.isfinite(recent_return):
        parts.append(f"recent return {recent_return:.3g}")
    if test is not None:
        components = f", {test['components']} components" if "components" in test else ""
        parts.append(f"test return {test['return_mean']:.3f} (success {test['success_rate']:.0%}{components})")
    return [*parts, f"elapsed {_duration(status.elapsed_s)}", f"remaining {_duration(status.remaining_s)}"]


def _warnings(status: Status) -> list[str]:
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
    return str(timedelta(seconds=round(seconds))) if math.isfinite(seconds) else "?"
