"""Videos of skills: several side by side, each with its caption, without a screen."""

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import numpy as np
from matplotlib.font_manager import FontProperties, findfont
from PIL import Image, ImageDraw, ImageFont

from svsl.errors import SvslError
from svsl.model.files import write_bytes
from svsl.model.gaussians import Array
from svsl.show.playback import PlayableSkill, trimmed_motion
from svsl.show.plots.style import Color, component_color, rgb
from svsl.show.rendering import Picture, make_renderer
from svsl.tasks.base import Task

FORMATS = (".mp4", ".gif")
_CAPTION_HEIGHT = 0.09  # relative to the height of a cell


def check_format(path: Path) -> None:
    """Checks the file name of a video, and that its encoder is installed, before anything is rendered."""
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
    """Renders skills side by side into a file, written atomically; returns the number of frames.

    Each skill has a cell of `size`, width and height in pixels. A `speed` of 0.5 is half the real speed. `progress` is
    called with the number of frames done and their total.
    """
    check_format(path)
    motions = [trimmed_motion(task, context, skill.parameters) for skill in skills]
    total = int(np.ceil(max(motion.duration_s for motion in motions) / speed * fps)) + 1
    colors = [component_color(skill.component) for skill in skills]
    captions = [_caption(skill.caption, color, size) for skill, color in zip(skills, colors, strict=True)]
    renderer = make_renderer(task, *size)

    def frames() -> Iterator[Picture]:
        steps, cells = [-1] * len(skills), list(captions)
        for done in range(total):
            for cell, (motion, color) in enumerate(zip(motions, colors, strict=True)):
                step = motion.step_at(speed * done / fps)
                if step != steps[cell]:  # a motion that has ended keeps its last picture
                    steps[cell] = step
                    cells[cell] = np.concatenate([renderer.frame(motion, step, color), captions[cell]])
            progress(done + 1, total)
            yield grid(cells)

    try:
        video = _gif(frames(), fps, colors) if path.suffix == ".gif" else _mp4(frames(), fps)
    finally:
        renderer.close()
    write_bytes(path, video)
    return total


def _caption(text: str, color: Color, size: tuple[int, int]) -> Picture:
    """Returns a strip with a text and the component's colour: `(rows, width, 3)`."""
    height = round(_CAPTION_HEIGHT * size[1])
    strip = Image.new("RGB", (size[0], height), "white")
    pen = ImageDraw.Draw(strip)
    pen.rectangle((0, 0, height // 2, height), fill=rgb(color))
    file, points = findfont(FontProperties(family="DejaVu Sans")), 0.62 * height
    while pen.textlength(text, font := ImageFont.truetype(file, points)) > size[0] - 1.2 * height and points > 5:
        points -= 0.5
    pen.text((0.8 * height, height / 2), text, fill="black", font=font, anchor="lm")
    return np.array(strip)


def grid(cells: Sequence[Picture]) -> Picture:
    """Arranges pictures of one size in a nearly square grid; its width and height are even, as video codecs require."""
    columns = int(np.ceil(np.sqrt(len(cells))))
    rows = -(-len(cells) // columns)
    height, width = cells[0].shape[:2]
    picture = np.full((rows * height + rows * height % 2, columns * width + columns * width % 2, 3), 255, np.uint8)
    for number, cell in enumerate(cells):
        top, left = number // columns * height, number % columns * width
        picture[top : top + height, left : left + width] = cell
    return picture


def _gif(frames: Iterator[Picture], fps: int, colors: Sequence[Color]) -> bytes:
    """Returns a GIF that keeps the given colours.

    All frames share one palette: nothing flickers, and what does not move takes no space.
    """
    pictures = [Image.fromarray(frame) for frame in frames]
    common = pictures[-1].quantize(128, dither=Image.Dither.NONE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*common[: 3 * 128], *(value for color in colors for value in rgb(color))][: 3 * 256])
    small = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations_ms = [round(1000 / fps)] * (len(small) - 1) + [1000]
    buffer = io.BytesIO()
    small[0].save(buffer, "GIF", save_all=True, append_images=small[1:], duration=durations_ms, loop=0)
    return buffer.getvalue()


def _mp4(frames: Iterator[Picture], fps: int) -> bytes:
    from imageio_ffmpeg import write_frames

    first = next(frames)
    size = first.shape[1], first.shape[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        quality = {"codec": "libx264", "quality": None, "output_params": ["-crf", "20", "-movflags", "+faststart"]}
        encoder = write_frames(str(path), size, fps=fps, macro_block_size=2, ffmpeg_log_level="error", **quality)
        encoder.send(None)
        try:
            for frame in chain([first], frames):
                encoder.send(np.ascontiguousarray(frame))
        except OSError:  # a message of many lines; the encoder itself has written its reason to the terminal
            path.unlink(missing_ok=True)
        finally:
            encoder.close()
        if not path.is_file():
            raise SvslError("the video encoder failed; try a .gif")
        return path.read_bytes()
