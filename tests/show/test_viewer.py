"""The page, used as a visitor would: a real server and a real browser."""

import io
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mujoco
import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from helpers import small_library
from pages import look_and_leave
from svsl import Outcome, SkillLibrary, load_pretrained, make_task
from svsl.cli import main
from svsl.model.gaussians import Array
from svsl.show.plots.style import pixels
from svsl.tasks.base import context_maps
from svsl.tasks.mujoco_task import MujocoTask, Rollout, Scene

browser_control = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("viser", reason="viser is not installed (the extra `viewer`)")
pytest.importorskip("mjviser", reason="mjviser is not installed (the extra `viewer`)")

from playwright.sync_api import Browser, Page, expect  # noqa: E402

from svsl.show.viewer.board import map_picture  # noqa: E402
from svsl.show.viewer.session import NewestFirst  # noqa: E402
from svsl.show.viewer.stage import framed, view_of  # noqa: E402
from waiting import wait_until  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
SOFTWARE_GL = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
WAIT_MS = 60_000
SKILL = re.compile(r"^▸?\d+\s+·\s+\d+%")
THROWS = np.array([[*np.full(14, 0.2), 0.6], [*np.full(14, -0.1), 0.4]])


@dataclass
class Served:
    """A running `svsl view`."""

    library: SkillLibrary
    process: subprocess.Popen[str]
    address: str = field(init=False)

    def __post_init__(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith("  (Ctrl-C ends)\n"), line
        self.address = line.split()[0]

    def end(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def serve(library: SkillLibrary) -> Served:
    library.save("library.safetensors")
    command = [sys.executable, "-m", "svsl", "view", "library.safetensors", "--port", "0", "--trust-task"]
    return Served(library, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_control.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SOFTWARE_GL)
        yield browser
        browser.close()


def open_page(browser: Browser, address: str) -> tuple[Page, list[str]]:
    """A tab with the page, and the errors of its console."""
    page, errors = browser.new_page(viewport={"width": 800, "height": 420}), list[str]()
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_default_timeout(WAIT_MS)
    page.goto(address)
    page.get_by_role("button", name=SKILL).first.wait_for()
    close_notifications(page)
    return page, errors


def close_notifications(page: Page) -> None:
    """Closes what viser says about the browser, such as that it draws without a GPU: it covers the maps."""
    notifications = page.locator(".mantine-Notification-root")
    while notifications.count():
        notifications.first.get_by_role("button").click()
        notifications.first.wait_for(state="detached")


def skills(page: Page) -> list[str]:
    texts = page.get_by_role("button", name=SKILL).all_inner_texts()
    return [" ".join(text.removeprefix("▸").split()) for text in texts]


def chosen_context(page: Page) -> Array:
    values = [box.input_value() for box in page.locator("input.mantine-NumberInput-input").all()]
    return np.array([float(value) for value in values])


def pixel_of(page: Page, library: SkillLibrary, context: Array, dims: tuple[int, ...]) -> tuple[float, float]:
    """Returns the pixel of a context on its map, seen from the page's initial camera."""
    task = make_task(library.metadata["task"])
    maps = context_maps(task)
    view, places, size = framed(view_of(task), len(maps), scene=True)
    _, low, high = map_picture(library, task, dims, None)
    share = (context[list(dims)] - low) / (high - low) - 0.5
    point = places[maps.index(dims)] + size * (view.axes[:, :2] @ share) - view.eye
    right, up, back = view.axes.T @ point
    canvas = page.locator("canvas").first.bounding_box()
    assert canvas is not None
    scale = 0.5 * canvas["height"] / np.tan(view.fov / 2) / -back
    return canvas["x"] + canvas["width"] / 2 + scale * right, canvas["y"] + canvas["height"] / 2 - scale * up


def wait_for_skills(page: Page, beginnings: list[str]) -> None:
    """Waits until the list shows skills that begin like these; the browser changes it entry by entry."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while len(now := skills(page)) != len(beginnings) or not all(map(str.startswith, now, beginnings)):
        assert time.monotonic() < deadline, f"expected {beginnings}, got {now}"
        page.wait_for_timeout(50)


def wait_for_context(page: Page, context: Array) -> None:
    deadline = time.monotonic() + WAIT_MS / 1000
    while np.abs(chosen_context(page)[: len(context)] - context).max() > 0.03:
        assert time.monotonic() < deadline, f"expected {context}, got {chosen_context(page)}"
        page.wait_for_timeout(50)


def _contrast(page: Page) -> float:
    """Standard deviation of the pixels on the left of the page, where the map and the scene are."""
    picture = np.asarray(Image.open(io.BytesIO(page.screenshot(timeout=WAIT_MS))).convert("RGB"), dtype=np.float64)
    return float(picture[:, :450].std())


@needs_browser
def test_choosing_a_context_and_watching_a_throw(browser: Browser) -> None:
    means = np.array([[-0.2, -1.9], [0.2, -1.4]])
    served = serve(small_library("beer-pong", means, 0.1, THROWS))
    try:
        page, errors = open_page(browser, served.address)
        assert errors == [], "it loads without errors"
        wait_for_skills(page, ["0 · 92% · ", "1 · 8% · "])
        # a click on the map
        target = np.array([0.2, -1.4])
        page.mouse.click(*pixel_of(page, served.library, target, (0, 1)))
        wait_for_skills(page, ["1 · 100% · "])
        wait_for_context(page, target)
        # it plays to its end, and again
        play_again = page.get_by_role("button", name="Play again", exact=True)
        play_again.wait_for()
        duration = chosen_context(page)[2]
        assert duration > 0.5
        play_again.click()
        page.get_by_role("button", name="Pause", exact=True).wait_for()
        play_again.wait_for()
        assert chosen_context(page)[2] == duration
        # draws around the mean
        page.get_by_role("button", name="Sample around the mean").click()
        expect(page.get_by_text("of 20 draws solve it")).to_be_visible(timeout=WAIT_MS)
        # a drag over the map, to the other component
        page.mouse.move(*pixel_of(page, served.library, target, (0, 1)))
        page.mouse.down()
        page.mouse.move(*pixel_of(page, served.library, np.array([0.0, -1.6]), (0, 1)), steps=3)
        page.mouse.move(*pixel_of(page, served.library, means[0], (0, 1)), steps=3)
        page.mouse.up()
        wait_for_context(page, means[0])
        wait_for_skills(page, ["0 · 100% · "])
        wait_until(lambda: _contrast(page) > 15)  # the scene is drawn, not blank
        page.close()
    finally:
        code, out, err = served.end()
    assert (code, out, err) == (0, "", ""), "Ctrl-C ends it silently"


@needs_browser
def test_a_users_task_gets_a_map_and_a_list(browser: Browser) -> None:
    parameters = np.array([[1.0, 0.0], [-1.0, 0.0]])
    served = serve(small_library("toys:Bimodal", np.array([[-0.5], [0.5]]), 0.2, parameters))
    try:
        page, errors = open_page(browser, served.address)
        both = ["0 · 50% · ", "1 · 50% · "]
        wait_for_skills(page, both)
        assert page.get_by_role("button", name="Play").count() == 0, "nothing to play"
        page.locator("input.mantine-NumberInput-input").first.fill("0.9")
        page.keyboard.press("Enter")
        wait_for_skills(page, ["1 · 100% · "])
        # another tab has its own state
        other, _ = open_page(browser, served.address)
        wait_for_skills(other, both)
        assert (chosen_context(other)[0], chosen_context(page)[0]) == (0.0, 0.9)
        wait_for_skills(page, ["1 · 100% · "])
        other.close()
        assert errors == []
        page.close()
    finally:
        assert served.end()[0] == 0


@needs_browser
def test_an_environment_shows_its_own_pictures(browser: Browser) -> None:
    served = serve(small_library("gym:toy_environments:toy/Filmed-v0", np.zeros((1, 1)), 1.0, np.zeros((1, 2))))
    try:
        page, errors = open_page(browser, served.address)
        wait_for_skills(page, ["0 · 100% · "])
        page.locator("input.mantine-NumberInput-input").first.fill("1")
        page.keyboard.press("Enter")

        def yellow() -> bool:  # the context is red, the end of the episode green
            pixels = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), dtype=np.int64)
            return bool(((pixels[..., :2].min(axis=-1) > 120) & (pixels[..., 2] < 60)).mean() > 0.05)

        wait_until(yellow)
        assert errors == []
        page.close()
    finally:
        assert served.end()[0] == 0


class Reach(MujocoTask):
    """A user's task."""

    context_low, context_high = np.array([0.0]), np.array([1.0])

    def __init__(self, camera: str = "", looks: str = "") -> None:
        body = f'<body pos="1 2 3">{camera}<joint name="j"/><geom size="0.1" pos="0.5 0 0"/></body>'
        model = f"<mujoco><visual><global {looks}/></visual><worldbody>{body}</worldbody></mujoco>"
        super().__init__(model, ("j",), duration_s=0.1, penalty=-1.0)

    def place(self, contexts: Array, scene: Scene) -> None:
        pass

    def score(self, contexts: Array, parameters: Array, rollout: Rollout) -> Outcome:
        return Outcome(np.zeros(len(contexts)), np.zeros(len(contexts), dtype=bool))


@pytest.mark.parametrize("looks", ["", 'azimuth="30" elevation="-20" fovy="60"', 'azimuth="30" elevation="-90"'])
def test_a_model_without_a_camera_is_seen_as_in_pictures(looks: str) -> None:
    task = Reach(looks=looks)
    view, data = view_of(task), mujoco.MjData(task.model)
    mujoco.mj_forward(task.model, data)
    scene, free = mujoco.MjvScene(task.model, 100), mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(task.model, free)
    mujoco.mjv_updateScene(task.model, data, mujoco.MjvOption(), None, free, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
    eyes = scene.camera  # two, for stereo
    np.testing.assert_allclose(view.eye, 0.5 * (eyes[0].pos + eyes[1].pos), atol=1e-5)
    np.testing.assert_allclose(view.axes[:, 1], eyes[0].up, atol=1e-5)
    np.testing.assert_allclose(view.axes[:, 2], -eyes[0].forward, atol=1e-5)
    np.testing.assert_allclose(view.target, task.model.stat.center, atol=1e-9)
    half_height = eyes[0].frustum_top / eyes[0].frustum_near
    assert np.tan(view.fov / 2) == pytest.approx(half_height, rel=1e-5)


def test_a_camera_that_looks_straight_down_has_an_up_direction() -> None:
    view = view_of(Reach('<camera name="scene" pos="0.5 0 2" euler="0 0 90"/>'))
    np.testing.assert_allclose(view.eye, [1.5, 2, 5], atol=1e-9)
    np.testing.assert_allclose(view.axes, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-9)


@pytest.mark.parametrize("name", ["planar-reacher", "beer-pong", "table-tennis"])
def test_maps_can_be_read_on_the_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []

    def kept(figure: Figure) -> NDArray[np.uint8]:
        drawn.append(figure)
        return pixels(figure)

    monkeypatch.setattr("svsl.show.viewer.board.pixels", kept)
    task = make_task(name)
    for dims in context_maps(task):
        map_picture(load_pretrained(name), task, dims, None)
        axes = drawn[-1].axes[0]
        outline = np.asarray(axes.get_tightbbox())
        assert 0 <= outline.min() <= outline.max() <= 640, "no label is cut"
        words = [axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels(), *axes.texts]
        assert min(float(word.get_fontsize()) for word in words) >= 13, "the page shows maps at half their size"


@pytest.mark.parametrize("computed", [False, True])
def test_a_point_of_the_map_is_the_context_drawn_there(computed: bool) -> None:
    means = np.array([[5.0, 1.0], [6.5, -4.0]])
    library = small_library("planar-reacher", means, 0.3, np.zeros((2, 10)))
    picture, low, high = map_picture(
        library, make_task("planar-reacher"), (0, 1), np.ones((4, 4)) if computed else None
    )
    size = np.array([picture.shape[1], picture.shape[0]])

    def darkest(context: Array) -> int:
        x, y = np.round((context - low) / (high - low) * size - 0.5).astype(int)
        return int(picture[::-1][y - 1 : y + 2, x - 1 : x + 2].sum(axis=2).min())

    middle = 0.5 * (library.context_low + library.context_high)
    for corner in (library.context_low, library.context_high):
        assert darkest(np.array([corner[0], middle[1]])) < 100, "the box's left and right edges are black"
        assert darkest(np.array([middle[0], corner[1]])) < 100
    assert darkest(means[0] + [0.6, 2.0]) == 3 * 255, "nothing is drawn between the components"
    assert darkest(means[0]) < 400, "the mean of a component is a dot"


def test_only_this_machine_is_served_and_only_the_page() -> None:
    library = small_library("toys:Bimodal", np.zeros((1, 1)), 0.5, np.zeros((1, 2)))
    served = serve(library)
    try:
        host, port = served.address.removeprefix("http://").split(":")
        assert host == "127.0.0.1"
        for path, status in (("/", b"200"), ("/../../../../../../../etc/passwd", b"404"), ("//etc/passwd", b"404")):
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                assert status in connection.recv(100).split(b"\r\n")[0]
        elsewhere = socket.gethostbyname(socket.gethostname())
        if not elsewhere.startswith("127."):
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((elsewhere, int(port)), timeout=5)
    finally:
        assert served.end() == (0, "", "")


WRONG = {
    "port": (["library.safetensors", "--port", "70000"], "port: expected 0 to 65535, got 70000"),
    "host": (["library.safetensors", "--host", "192.0.2.1"], "host: expected an address of this machine"),
    "no library": (["nowhere"], "nowhere is not a run folder"),
    "no task": (["no-task.safetensors"], "the library's metadata names no task"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_get_one_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    library = small_library("toys:Bimodal", np.zeros((1, 1)), 0.5, np.zeros((1, 2)))
    library.save("library.safetensors")
    SkillLibrary(library.mixture, library.context_low, library.context_high).save(Path("no-task.safetensors"))
    args, message = WRONG[case]
    assert main(["view", *args, "--trust-task"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_only_the_newest_request_is_served() -> None:
    begun, proceed, done = threading.Event(), threading.Event(), queue.Queue[int]()

    def work(request: int) -> None:
        begun.set()
        proceed.wait(10)
        done.put(-request if worker.overtaken else request)

    worker = NewestFirst(work)
    worker.ask(1)
    begun.wait(10)
    for request in (2, 3, 4):
        worker.ask(request)
    proceed.set()
    served = [done.get(timeout=10), done.get(timeout=10)]
    worker.close()
    assert served == [-1, 4], "the first saw that it was overtaken; 2 and 3 never ran"


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_page_for_everybody_is_announced_with_an_address_that_works(
    host: str, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("webbrowser.open", look_and_leave)
    assert main(["view", "planar-reacher", "--host", host, "--port", "0", "--open"]) == 0
    out, err = capsys.readouterr()
    assert "0.0.0.0" not in out
    assert ("everybody on the network can use this page" in err) == warned
