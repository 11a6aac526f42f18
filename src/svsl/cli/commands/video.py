"""`svsl video`."""

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from svsl.cli.parsing import SourceName, Switch, require_range
from svsl.cli.task_choice import TaskFlags
from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.model.random import PLOT_STREAM, stream
from svsl.runs.sources import open_source
from svsl.show.playback import skills_at
from svsl.show.video import check_format, render_video


@dataclass(frozen=True)
class Options(TaskFlags):
    """Render the skills for one context as a video, side by side."""

    source: SourceName
    """A run folder (finished or still training), a library file, the name of a shipped library, or hf:user/name."""
    context: tuple[float, ...] = ()
    """The context, one number per dimension (default: the middle of the context box)."""
    component: int | None = None
    """Show this component (default: the most probable one)."""
    all: Switch = False
    """Show all components with a probability of at least 0.01 in the context, in a grid."""
    out: Path = Path("skills.mp4")
    """The video: .mp4 (needs the extra `video`) or .gif."""
    width: int = 480
    """Width of a cell in pixels; its height is three quarters of it."""
    fps: int = 25
    """Frames per second."""
    speed: float = 1.0
    """Playback speed; 0.5 is slow motion at half the real speed."""

    def __post_init__(self) -> None:
        if self.all and self.component is not None:
            raise SvslError("component and all: expected one of them, got both")
        require_range(64, 1920, width=self.width)
        require_range(1, 100, fps=self.fps)
        require_range(0.01, 100, speed=self.speed)


def main(options: Options) -> None:
    """Renders the video."""
    check_format(options.out)
    source = open_source(options.source, options.choice)
    library, task = source.library, source.make_task()
    context = context_of(library, options.context)
    components = [options.component] if options.component is not None else None
    skills = skills_at(library, task, context, stream(0, PLOT_STREAM, 4), components)
    skills = skills if options.all else skills[:1]
    size, progress = (options.width, round(0.75 * options.width)), partial(_show_progress, time.monotonic())
    render_video(task, context, skills, options.out, size, options.fps, options.speed, progress)
    for skill in skills:
        print(f"skill    {skill.caption}")
    print(f"video    {options.out}")


def context_of(library: SkillLibrary, values: tuple[float, ...]) -> Array:
    """Returns the context given by the user, which must be in the box; the middle of the box by default."""
    low, high = library.context_low, library.context_high
    context = np.array(values) if values else 0.5 * (low + high)
    box = ", ".join(f"{a:g} to {b:g}" for a, b in zip(low, high, strict=True))
    if context.shape != low.shape or not ((context >= low) & (context <= high)).all():
        given = " ".join(f"{value:g}" for value in values)
        raise SvslError(f"context: expected {len(low)} numbers in the library's box ({box}), got {given}")
    return context


def _show_progress(started: float, done: int, total: int) -> None:
    """Updates a line with rate and remaining time on a terminal; prints nothing elsewhere."""
    if sys.stderr.isatty():
        rate = done / max(time.monotonic() - started, 1e-9)
        end = "\r\x1b[K" if done == total else ""
        text = f"\rframe {done}/{total}, {rate:.1f}/s, {(total - done) / rate:.0f} s left \x1b[K{end}"
        print(text, end="", file=sys.stderr, flush=True)
