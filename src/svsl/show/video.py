"""Videos of skills: several side by side, each with its caption, without a screen."""

from __future__ import annotations

import io
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from svsl.errors import SvslError
from svsl.model.files import write_bytes
from svsl.model.gaussians import Array
from svsl.show.playback import Motion, PlayableSkill, motion
from svsl.show.plots.skills import draw_reacher_scene
from svsl.show.plots.style import component_color, pixels
from svsl.show.rendering import SceneRenderer
from svsl.tasks.base import Task
from svsl.tasks.planar_reacher import PlanarReacher

Picture = NDArray[np.uint8]
FORMATS = (".mp4", ".gif")
_CAPTION_HEIGHT = 0.09  # of a cell
_TRAIL_STEP_S = 0.02


def check_format(path: Path) -> None:
    """Complains about a video file that could not be written, before anything is rendered.

    Raises:
        SvslError: If the kind of file is unknown or the encoder is not installed.
    """
    if path.suffix not in FORMATS:
        raise SvslError(f"out: expected a file name that ends in {' or '.join(FORMATS)}, got {str(path)!r}")
    if path.suffix == ".mp4" and find_spec("imageio_ffmpeg") is None:
        raise SvslError("mp4 needs an encoder: pip install 'svsl[video]', or choose a .gif")


def render_video(
    task: Task,
    context: Array,
    skills: Sequence[PlayableSkill],
    path: Path,
    size: tuple[int, int] = (480, 360),
    fps: int = 25,
    speed: float = 1.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Renders skills side by side into a file; returns the number of frames.

    Args:
        task: Their task.
        context: `(dc,)`.
        skills: What to show, one cell each.
        path: The video; `.mp4` or `.gif`. It is there whole or not at all.
        size: Width and height of a cell in pixels.
        fps: Frames a second.
        speed: 0.5 is half as fast as in reality.
        progress: Called with the number of frames done and their total.

    Raises:
        SvslError: If the task has nothing to show, or nothing to show it with.
    """
    check_format(path)
    motions = [motion(task, context, skill.parameters) for skill in skills]
    total = int(np.ceil(max(shown.duration_s for shown in motions) / speed * fps)) + 1
    frames = _frames(task, context, skills, motions, size, [speed * i / fps for i in range(total)])
    colors = [component_color(skill.component) for skill in skills]
    counted = _counted(frames, total, progress)
    write_bytes(path, _gif(counted, fps, colors) if path.suffix == ".gif" else _mp4(counted, fps))
    return total


def _counted(frames: Iterator[Picture], total: int, progress: Callable[[int, int], None]) -> Iterator[Picture]:
    for done, frame in enumerate(frames, 1):
        progress(done, total)
        yield frame


def _frames(
    task: Task,
    context: Array,
    skills: Sequence[PlayableSkill],
    motions: Sequence[Motion],
    size: tuple[int, int],
    times_s: Sequence[float],
) -> Iterator[Picture]:
    colors = [component_color(skill.component) for skill in skills]
    captions = [_caption(skill.caption, color, size) for skill, color in zip(skills, colors, strict=True)]
    artist = _PlanarArtist(task, context, size) if isinstance(task, PlanarReacher) else _SceneArtist(task, size)
    try:
        steps, cells = [-1] * len(skills), list(captions)
        for time_s in times_s:
            for number, (shown, color) in enumerate(zip(motions, colors, strict=True)):
                step = shown.step_at(time_s)
                if step != steps[number]:  # one that is over looks as before
                    steps[number] = step
                    cells[number] = np.concatenate([artist.draw(shown, step, color), captions[number]])
            yield grid(cells)
    finally:
        artist.close()


class _SceneArtist:
    """Draws simulated episodes with the trail of the ball."""

    def __init__(self, task: Task, size: tuple[int, int]) -> None:
        self._renderer = SceneRenderer(task, *size)

    def draw(self, shown: Motion, step: int, color: tuple[float, float, float]) -> Picture:
        assert shown.trajectory is not None
        stride = max(1, round(_TRAIL_STEP_S / shown.dt_s))
        past = shown.trail[shown.trail_start : step + 1]
        points = np.concatenate([past[::stride], past[-1:]])
        return self._renderer.frame(shown.trajectory, step, [(points, color)])

    def close(self) -> None:
        self._renderer.close()


class _PlanarArtist:
    """Draws the planar arm with matplotlib."""

    def __init__(self, task: PlanarReacher, context: Array, size: tuple[int, int]) -> None:
        self._figure = figure = Figure(figsize=(size[0] / 100, size[1] / 100), dpi=100)
        axes = figure.add_axes((0, 0, 1, 1))
        draw_reacher_scene(axes, task)
        axes.set_xlim(-3.5, 10.5)
        axes.axis("off")
        axes.plot(*context, "o", color="#EE0000", ms=9, zorder=3)
        (self._trail,) = axes.plot([], [], "-", lw=1)
        (self._arm,) = axes.plot([], [], "-o", ms=3, lw=2.5)

    def draw(self, shown: Motion, step: int, color: tuple[float, float, float]) -> Picture:
        self._arm.set_data(*shown.poses[step].T)
        self._trail.set_data(*shown.trail[: step + 1, :2].T)
        self._arm.set_color(color)
        self._trail.set_color(color)
        return pixels(self._figure)

    def close(self) -> None:
        """Nothing is held."""


def _caption(text: str, color: tuple[float, float, float], size: tuple[int, int]) -> Picture:
    """A strip with a text and the component's colour: `(rows, width, 3)`."""
    height = round(_CAPTION_HEIGHT * size[1])
    strip = Image.new("RGB", (size[0], height), "white")
    pen = ImageDraw.Draw(strip)
    pen.rectangle((0, 0, height // 2, height), fill=_rgb(color))
    file, points = findfont(FontProperties(family="DejaVu Sans")), 0.62 * height
    while pen.textlength(text, font := ImageFont.truetype(file, points)) > size[0] - 1.2 * height and points > 5:
        points -= 0.5
    pen.text((0.8 * height, height / 2), text, fill="black", font=font, anchor="lm")
    return np.array(strip)


def grid(cells: Sequence[Picture]) -> Picture:
    """Pictures of one size in a grid, about as wide as high, on white; both edges even, as videos want them."""
    columns = int(np.ceil(np.sqrt(len(cells))))
    rows = -(-len(cells) // columns)
    height, width = cells[0].shape[:2]
    picture = np.full((rows * height + rows * height % 2, columns * width + columns * width % 2, 3), 255, np.uint8)
    for number, cell in enumerate(cells):
        top, left = number // columns * height, number % columns * width
        picture[top : top + height, left : left + width] = cell
    return picture


def _gif(frames: Iterator[Picture], fps: int, colors: Sequence[tuple[float, float, float]]) -> bytes:
    """A GIF that keeps the given colours.

    All frames share one palette: nothing flickers, and what stands still costs no bytes.
    """
    pictures = [Image.fromarray(frame) for frame in frames]
    common = pictures[-1].quantize(128, dither=Image.Dither.NONE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*common[: 3 * 128], *(value for color in colors for value in _rgb(color))][: 3 * 256])
    small = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations_ms = [round(1000 / fps)] * (len(small) - 1) + [1000]
    buffer = io.BytesIO()
    small[0].save(buffer, "GIF", save_all=True, append_images=small[1:], duration=durations_ms, loop=0)
    return buffer.getvalue()


def _rgb(color: tuple[float, float, float]) -> tuple[int, int, int]:
    red, green, blue = (round(255 * value) for value in color)
    return red, green, blue


def _mp4(frames: Iterator[Picture], fps: int) -> bytes:
    from imageio_ffmpeg import get_ffmpeg_exe

    first = next(frames)
    size = f"{first.shape[1]}x{first.shape[0]}"
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(fps), "-i", "-"]
    encoded = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-movflags", "+faststart"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        command = [get_ffmpeg_exe(), "-loglevel", "error", *raw, *encoded, str(path)]
        encoder = subprocess.Popen(command, stdin=subprocess.PIPE)
        with suppress(BrokenPipeError), encoder:  # what it died of is in its exit code
            assert encoder.stdin is not None
            for frame in chain([first], frames):
                encoder.stdin.write(np.ascontiguousarray(frame).tobytes())
        if encoder.returncode:
            raise SvslError(f"the video encoder failed with exit code {encoder.returncode}; try a .gif")
        return path.read_bytes()
