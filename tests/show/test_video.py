"""Videos: the frames that are written, read back from the files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from helpers import small_library
from svsl import SvslError, make_task
from svsl.cli import main
from svsl.show.plots.style import component_color
from svsl.show.rendering import make_renderer
from svsl.show.video import grid

Frames = NDArray[np.int64]
THROWS = np.array([[*np.full(14, 0.2), 0.6], [*np.full(14, -0.1), 0.4]])


@pytest.fixture(autouse=True)
def libraries() -> None:
    postures = np.random.default_rng(0).normal(0, 0.2, (3, 10))
    small_library("planar-reacher", np.tile([5.0, 0.0], (3, 1)), 1.0, postures).save("planar.safetensors")
    small_library("beer-pong", np.tile([0.0, -1.7], (2, 1)), 1.0, THROWS).save("beer.safetensors")
    small_library("toys:Bimodal", np.zeros((1, 1)), 1.0, np.zeros((1, 2))).save("toy.safetensors")


def read(path: str) -> Frames:
    if path.endswith(".gif"):
        with Image.open(path) as video:
            frames = []
            for number in range(getattr(video, "n_frames", 1)):
                video.seek(number)
                frames.append(np.asarray(video.convert("RGB"), dtype=np.int64))
            return np.stack(frames)
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed").get_ffmpeg_exe()
    report = subprocess.run([ffmpeg, "-i", path], capture_output=True, text=True, check=False).stderr
    size = re.search(r"Video: .* (\d+)x(\d+)", report)
    assert size is not None
    width, height = map(int, size.groups())
    command = [ffmpeg, "-loglevel", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(data, np.uint8).reshape(-1, height, width, 3).astype(np.int64)


@pytest.mark.parametrize("out", ["planar.gif", "planar.mp4"])
def test_postures_side_by_side(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    if out.endswith(".mp4"):
        pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")
    flags = ["--context", "5.0", "-0.5", "--all", "--width", "160", "--fps", "10"]
    assert main(["video", "planar.safetensors", *flags, "--out", out]) == 0
    printed, err = capsys.readouterr()
    assert err == "", "silent in a pipe"
    assert printed.count("skill    component") == 3
    assert printed.endswith(f"video    {out}\n")
    frames = read(out)
    assert frames.shape == (16, 2 * 131, 320, 3), "1.5 s, four cells of 160 x 120 with captions of 11 rows"
    assert frames[0].mean() > 100, "not black"
    for top, left in ((0, 0), (0, 160), (131, 0)):
        cells = frames[:, top : top + 120, left : left + 160]
        assert np.abs(cells[0] - cells[-1]).mean() > 1, "the arm moves"
    assert frames[-1, 135:, 164:].min() > 240, "the fourth cell is empty"
    # the caption starts with the component's colour
    color = 255 * np.array(component_color(int(printed.split("component ")[1][0])))
    np.testing.assert_allclose(frames[-1, 122:129, 1:4].mean(axis=(0, 1)), color, atol=12)


def test_a_throw_in_the_scene(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")
    try:
        make_renderer(make_task("beer-pong"), 64, 48).close()
    except SvslError as error:
        pytest.skip(str(error))
    flags = ["--context", "0.1", "-1.6", "--component", "1", "--width", "160", "--fps", "4"]
    assert main(["video", "beer.safetensors", *flags, "--out", "throw.mp4"]) == 0
    assert "skill    component 1 · " in capsys.readouterr().out
    frames = read("throw.mp4")
    assert len(frames) >= 4
    assert all(frame[:120].std() > 10 for frame in frames), "not blank"
    assert np.abs(frames[0, :120] - frames[-1, :120]).mean() > 0.5, "something moves"


def test_cells_are_placed_row_by_row_and_edges_are_even() -> None:
    cells = [np.full((5, 7, 3), number, dtype=np.uint8) for number in range(5)]
    picture = grid(cells)
    assert picture.shape == (10, 22, 3)
    assert [int(picture[2, 3 + 7 * i, 0]) for i in range(3)] == [0, 1, 2]
    assert [int(picture[7, 3 + 7 * i, 0]) for i in range(3)] == [3, 4, 255]
    assert grid(cells[:1]).shape == (6, 8, 3)


WRONG = {
    "format": (["planar.safetensors", "--out", "x.avi"], "expected a file name that ends in .mp4 or .gif, got 'x.avi'"),
    "too few": (
        ["planar.safetensors", "--context", "5"],
        "expected 2 numbers in the library's box (4.5 to 7, -6 to 6)",
    ),
    "outside": (["planar.safetensors", "--context", "9", "0"], "got 9 0"),
    "not a number": (["planar.safetensors", "--context", "nan", "0"], "got nan 0"),
    "no component": (["planar.safetensors", "--component", "3"], "whole numbers from 0 to 2, got array([3])"),
    "both": (["planar.safetensors", "--component", "1", "--all"], "component and all: expected one of them"),
    "no motion": (["toy.safetensors", "--trust-task"], "a Bimodal has no motion to show"),
    "size": (["planar.safetensors", "--width", "9999"], "width: expected 64 to 1920, got 9999"),
    "speed": (["planar.safetensors", "--speed", "0"], "speed: expected 0.01 to 100, got 0.0"),
    "no library": (["nowhere"], "nowhere is not a run folder"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_get_one_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    args, message = WRONG[case]
    before = sorted(Path().iterdir())
    out = [] if "--out" in args else ["--out", "x.gif"]
    assert main(["video", *args, *out]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(Path().iterdir()) == before, "nothing is left behind"


def test_without_opengl_pictures_are_refused_in_one_line_and_the_rest_works() -> None:
    """As on a machine with neither EGL nor OSMesa, where svsl turns MuJoCo's drawing off."""
    environment = {**os.environ, "MUJOCO_GL": "disable"}
    command = [sys.executable, "-m", "svsl", "video", "beer.safetensors", "--out", "x.gif"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("svsl: pictures need OpenGL: install libegl1 and libgl1-mesa-dri, or libosmesa6")
    assert done.stderr.count("\n") == 1
    evaluated = [sys.executable, "-m", "svsl", "eval", "beer.safetensors", "--contexts", "3"]
    assert subprocess.run(evaluated, capture_output=True, env=environment, check=False).returncode == 0
