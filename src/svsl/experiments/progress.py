"""Live display of the progress of a reproduction."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import TextIO

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from svsl.experiments.reproduction import Job, overall_progress
from svsl.show.progress import Display, format_amount, format_duration
from svsl.show.tables import print_table

_STATES = ("finished", "running", "queued", "waiting", "stopped", "detached", "failed")
_LINE_EVERY_S, _OVERVIEW_EVERY_S = 5.0, 30.0


class ReproductionDisplay(Display):
    """Shows the progress of all jobs of an experiment: live on a terminal, otherwise as a few lines."""

    def __init__(self, title: str, quiet: bool = False, file: TextIO | None = None) -> None:
        super().__init__(title, quiet, file)
        self._start: tuple[float, float, int] | None = None
        self._printed_states = Counter[str]()

    def __call__(self, jobs: Sequence[Job]) -> None:
        """Shows the current state; without a terminal only when a job has ended, and from time to time."""
        now, work, episodes = time.monotonic(), overall_progress(jobs), sum(job.episodes for job in jobs)
        if self._start is None:
            self._start = now, work, episodes
        if self.quiet:
            return
        elapsed = now - self._start[0]
        rate = (episodes - self._start[2]) / elapsed if elapsed > 0 else math.nan
        remaining = elapsed * (1 - work) / (work - self._start[1]) if work > self._start[1] else math.nan
        states = Counter[str](job.state for job in jobs)
        restarts = sum(job.restarts for job in jobs)
        counts = [f"{states[s]} {s}" for s in _STATES if states[s]]
        parts = [
            f"{work:.0%}, {len(jobs)} runs: {', '.join(counts)}" + (f" ({restarts} restarts)" if restarts else ""),
            f"{format_amount(episodes)} episodes ({format_amount(rate)}/s)",
            f"elapsed {format_duration(elapsed)}",
            f"remaining {format_duration(remaining)}",
        ]
        if self._live is not None:
            self._live.update(_overview(self.title, work, parts, jobs), refresh=True)
            return
        ended = {name: count for name, count in states.items() if name not in ("running", "queued", "waiting")}
        pause_s = 0.0 if sum(ended.values()) == len(jobs) else _LINE_EVERY_S
        if now - self._printed_at > (pause_s if ended != self._printed_states else _OVERVIEW_EVERY_S):
            self._printed_at, self._printed_states = now, Counter(ended)
            print(f"{self.title}: {', '.join(parts)}", file=self._console.file, flush=True)


def show_status(title: str, jobs: Sequence[Job]) -> None:
    """Prints how far each run is, and when it was last heard of; runs that have not begun are only counted."""
    table = Table(title=title)
    for heading in ("run", "done", "episodes", "last sign of life"):
        table.add_column(heading)
    for job in (job for job in jobs if job.work > 0):
        age_s = job.run.progress_age_s
        done = f"{job.work:.0%}" if job.evaluated is None else f"evaluation {job.evaluated:.0%}"
        seen = "" if age_s is None else f"{format_duration(age_s)} ago"
        cells = ("finished", "") if job.state == "finished" else (done, seen)
        table.add_row(job.run.folder.name, cells[0], format_amount(job.episodes), cells[1])
    print_table(table)
    finished, begun = sum(job.state == "finished" for job in jobs), sum(job.work > 0 for job in jobs)
    others = f"{begun - finished} begun, {len(jobs) - begun} not begun"
    print(f"{overall_progress(jobs):.0%} done; {len(jobs)} runs: {finished} finished, {others}")


def _overview(title: str, work: float, parts: Sequence[str], jobs: Sequence[Job]) -> Group:
    top = Table.grid(padding=(0, 2))
    top.add_row(Text(title, style="bold"), ProgressBar(total=1.0, completed=work, width=40), parts[0])
    lines: list[Table | Text] = [top, Text("  ".join(parts[1:]))]
    rows = Table.grid(padding=(0, 2))
    for job in (job for job in jobs if job.state in ("running", "failed")):
        name = Text(job.run.folder.name, style="red" if job.state == "failed" else "")
        stage = f"{job.work:.0%}" if job.evaluated is None else f"evaluation {job.evaluated:.0%}"
        detail = job.message if job.state == "failed" else f"{stage}  {format_amount(job.episodes)} episodes"
        rows.add_row(name, ProgressBar(total=1.0, completed=job.work, width=20), Text(detail, overflow="ellipsis"))
    return Group(*lines, rows)
