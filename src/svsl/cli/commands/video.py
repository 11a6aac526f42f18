"""`svsl video`."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svsl.cli.parsing import Source, Switch, parse
from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.runs.config import PLOT_STREAM
from svsl.runs.sources import open_source


@dataclass(frozen=True)
class Options:
    """Render the skills for one context as a video, side by side."""

    source: Source
    """A run folder (finished or still training), a library file, or the name of a shipped library."""
    context: tuple[float, ...] = ()
    """The context, one number per dimension; default the middle of the box."""
    component: int | None = None
    """Show this component; default the most probable one."""
    all: Switch = False
    """Show all components with a probability of at least 0.01 there, in a grid."""
    out: Path = Path("skills.mp4")
    """The video: .mp4 (needs the extra `video`) or .gif."""
    width: int = 480
    """Width of a cell in pixels; its height is three quarters of it."""
    fps: int = 25
    """Frames per second."""
    speed: float = 1.0
    """Playback speed; 0.5 is half the real speed."""

    def __post_init__(self) -> None:
        if self.all and self.component is not None:
            raise SvslError("component and all: expected one of them, got both")
        for name, low, high in (("width", 64, 1920), ("fps", 1, 100)):
            if not low <= getattr(self, name) <= high:
                raise SvslError(f"setting {name}: expected {low} to {high}, got {getattr(self, name)}")
        if not 0.01 <= self.speed <= 100:
            raise SvslError(f"setting speed: expected 0.01 to 100, got {self.speed}")


def main(args: list[str]) -> int:
    """Renders the video."""
    options = parse(Options, args, "svsl video")
    from svsl.model.random import stream
    from svsl.show.playback import skills_at
    from svsl.show.video import check_format, render_video

    check_format(options.out)
    source = open_source(options.source)
    library = source.library
    task, context = source.task(), context_of(library, options.context)
    components = [options.component] if options.component is not None else None
    skills = skills_at(library, task, context, stream(0, PLOT_STREAM, 4), components)
    skills = skills if options.all else skills[:1]
    size = options.width, round(0.75 * options.width)
    render_video(task, context, skills, options.out, size, options.fps, options.speed, _Progress())
    for skill in skills:
        print(f"skill    {skill.caption}")
    print(f"video    {options.out}")
    return 0


def context_of(library: SkillLibrary, values: tuple[float, ...]) -> Array:
    """The context given by the user, checked; the middle of the box by default."""
    low, high = library.context_low, library.context_high
    context = np.array(values) if values else 0.5 * (low + high)
    box = ", ".join(f"{a:g} to {b:g}" for a, b in zip(low, high, strict=True))
    if context.shape != low.shape or not ((context >= low) & (context <= high)).all():
        given = " ".join(f"{value:g}" for value in values)
        raise SvslError(f"context: expected {len(low)} numbers in the library's box ({box}), got {given}")
    return context


class _Progress:
    """A line with rate and remaining time on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr.isatty():
            rate = done / max(time.monotonic() - self._started, 1e-9)
            end = "\r\x1b[K" if done == total else ""
            text = f"\rframe {done}/{total}, {rate:.1f}/s, {(total - done) / rate:.0f} s left \x1b[K{end}"
            print(text, end="", file=sys.stderr, flush=True)
