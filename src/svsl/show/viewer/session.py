"""One browser tab: its selection, the simulation behind it, and the playback."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import viser

from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.show.playback import PlayableSkill, draws_around, outline, skills_at, trimmed_motion
from svsl.show.plots.style import Color, component_color
from svsl.show.viewer.board import Board, Dims
from svsl.show.viewer.controls import Controls, decimals
from svsl.show.viewer.stage import Layout, draw_lines, make_stage
from svsl.tasks.base import Task, context_maps, context_names, uniform_contexts
from svsl.tasks.presentation import Motion, showable

_FRAME_S = 1 / 30
_FAILED = (0.73, 0.33, 0.4)
T = TypeVar("T")


class NewestFirst(Generic[T]):
    """Calls `work(request)` in a separate thread, only for the newest request: older ones are dropped.

    If `work` takes long, it should check `overtaken` regularly and return when that is true.
    """

    def __init__(self, work: Callable[[T], None]) -> None:
        self._work, self._requests = work, queue.SimpleQueue[T | None]()
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self, request: T) -> None:
        """Adds a request, which overtakes those that wait."""
        self._requests.put(request)

    def close(self) -> None:
        """Ends the thread after the current request."""
        self._requests.put(None)

    @property
    def overtaken(self) -> bool:
        """Whether a newer request waits, or the worker is closed."""
        return not self._requests.empty()

    def _run(self) -> None:
        for request in iter(self._requests.get, None):
            if not self.overtaken:
                self._work(request)


@dataclass(frozen=True)
class _Request:
    """A request of a tab: the skills of a context, and optionally draws around one of them."""

    context: Array
    component: int = 0
    draws: int = 0


class Session:
    """Two threads serve a tab: one simulates the newest request, the other plays. The panel only changes the state."""

    def __init__(
        self, client: viser.ClientHandle, library: SkillLibrary, task: Task, layout: Layout, maps: Mapping[Dims, Array]
    ) -> None:
        self.client, self.library, self.task, self.maps = client, library, task, maps
        self.rng, self.half_height = np.random.default_rng(), layout.view.half_height
        self.context = 0.5 * (self.library.context_low + self.library.context_high)
        self._computed: Array | None = None
        self.skills: list[PlayableSkill] = []
        self.motions: dict[int, Motion] = {}
        self.selected = -1  # none yet
        self.queue: list[int] = []
        self.playing, self.time_s = True, 0.0
        self._drawn: tuple[Motion, int] | None = None
        self.lock, self.closed = threading.RLock(), threading.Event()
        self.stage = make_stage(client, self.task)
        names, playable, axes = context_names(self.task), self.stage is not None, layout.view.axes
        self.controls = Controls(client, self.library, names, self.context, playable, self.choose_component)
        self.boards = [
            Board(client, self.library, self.task, dims, place, axes, layout.map_size, maps.get(dims), self._on_map)
            for dims, place in zip(context_maps(self.task), layout.map_places, strict=True)
        ]
        self.worker = NewestFirst(self._compute)
        self._connect_controls()
        self.choose_context(self.context)
        threading.Thread(target=self._play, daemon=True).start()

    def close(self) -> None:
        """Ends the tab's threads."""
        self.closed.set()
        self.worker.close()

    # ---- actions of the user -----------------------------------------------------------------------------------------

    def _connect_controls(self) -> None:
        panel = self.controls

        def slider_moved(event: viser.GuiEvent[viser.GuiSliderHandle[float]]) -> None:
            if event.client is not None:  # the user moved it, not the program
                self.choose_context(np.array([slider.value for slider in panel.sliders]))

        for slider in panel.sliders:
            slider.on_update(slider_moved)
        panel.random_context.on_click(lambda _: self.choose_context(uniform_contexts(self.task, 1, self.rng)[0]))
        panel.play.on_click(lambda _: self.play_or_pause())
        panel.play_all.on_click(lambda _: self.play_all())
        panel.time.on_update(lambda event: self.scrub(panel.time.value) if event.client else None)
        panel.overlay.on_update(lambda _: self.draw_overlay())
        panel.sample.on_click(lambda _: self.sample(int(panel.draws.value)))

    def choose_context(self, context: Array) -> None:
        """Asks for the skills of a context, rounded as on the sliders and clipped to the box."""
        if not np.isfinite(context).all():
            return
        low, high = self.library.context_low, self.library.context_high
        rounded = [round(float(value), decimals(span)) for value, span in zip(context, high - low, strict=True)]
        with self.lock:
            self.context = np.clip(rounded, low, high)
            self.controls.show_context(self.context)
            for board in self.boards:
                board.mark(self.context)
            self.worker.ask(_Request(self.context))

    def _on_map(self, dims: Dims, values: Array) -> None:
        with self.lock:
            context = self.context.copy()
            context[list(dims)] = values
            self.choose_context(context)

    def choose_component(self, component: int) -> None:
        """Plays the skill of a component from its start."""
        with self.lock:
            self.queue = []
            self._start(component)

    def play_all(self) -> None:
        """Plays all skills, one after the other."""
        with self.lock:
            self.queue = [skill.component for skill in self.skills]
            if self.queue:
                self._start(self.queue.pop(0))

    def play_or_pause(self) -> None:
        """Pauses, continues, or starts again at the end."""
        with self.lock:
            motion = self.motions.get(self.selected)
            if not self.playing and motion is not None and self.time_s >= motion.duration_s:
                self.time_s = 0.0
            self._set_playing(not self.playing)

    def scrub(self, time_s: float) -> None:
        """Shows one moment."""
        with self.lock:
            self.queue, self.time_s = [], max(0.0, time_s)  # in this order, because it turns NaN into 0
            self._set_playing(False)

    def sample(self, count: int) -> None:
        """Asks for draws around the selected component's mean."""
        with self.lock:
            if self.skills:
                self.worker.ask(_Request(self.context, self.selected, int(np.clip(count, 1, 50))))

    def _start(self, component: int) -> None:
        self.selected, self.time_s = component, 0.0
        self.controls.show_skills(self.skills, component)
        self._set_playing(True)

    def _set_playing(self, playing: bool, label: str = "Play") -> None:
        self.playing = playing
        self.controls.play.label = "Pause" if playing else label

    # ---- simulation -------------------------------------------------------------------------------------------------

    def _compute(self, request: _Request) -> None:
        try:
            if request.context is not self._computed:
                skills = skills_at(self.library, self.task, request.context, self.rng)
                if self.worker.overtaken:
                    return
                self._adopt(request.context, skills)
            if self.stage is not None:
                self._simulate_motions(request.context)
            if request.draws:
                self._sample(request)
        except Exception as error:  # the task may be the user's own; the page stays up
            self.controls.message.content = f"the task failed: {type(error).__name__}: {error}"

    def _adopt(self, context: Array, skills: list[PlayableSkill]) -> None:
        with self.lock, self.client.atomic():
            self._computed, self.skills, self.motions, self.queue = context, skills, {}, []
            self.controls.sampled.content = ""
            for name in ("/overlay", "/draws"):
                self.client.scene.remove_by_name(name)
            self._start(skills[0].component)

    def _simulate_motions(self, context: Array) -> None:
        for skill in self.skills:
            if skill.component not in self.motions:
                simulated = trimmed_motion(self.task, context, skill.parameters)
                if self.worker.overtaken:
                    return
                with self.lock:
                    self.motions[skill.component] = simulated
        self.draw_overlay()

    def _sample(self, request: _Request) -> None:
        parameters, returns, success = draws_around(
            self.library, self.task, request.context, request.component, request.draws, self.rng
        )
        self.controls.sampled.content = (
            f"component {request.component}: **{success.sum()} of {len(success)}** draws solve it; "
            f"return {returns.mean():.2f} ± {returns.std():.2f}"
        )
        self.client.scene.remove_by_name("/draws")
        for row in range(len(parameters) if self.stage is not None else 0):
            drawn = trimmed_motion(self.task, request.context, parameters[row])
            if self.worker.overtaken:
                return
            color = component_color(request.component) if success[row] else _FAILED
            self._draw_path(f"/draws/{row}", drawn, color, 0.4)

    # ---- drawing ----------------------------------------------------------------------------------------------------

    def draw_maps(self) -> None:
        """Redraws the maps, with the success maps computed so far."""
        for board in self.boards:
            board.draw(self.maps.get(board.dims))

    def draw_overlay(self) -> None:
        """Draws the paths of all skills at once, if the box is ticked."""
        with self.lock:
            self.client.scene.remove_by_name("/overlay")
            if self.controls.overlay.value:
                for k, motion in self.motions.items():
                    self._draw_path(f"/overlay/{k}", motion, component_color(k), 0.7)

    def _draw_path(self, name: str, motion: Motion, color: Color, strength: float) -> None:
        points = outline(showable(self.task).scene, motion)
        # the thickness of lines is in units of the scene: a fraction of the visible height
        draw_lines(self.client, name, points, color, strength * 0.006 * self.half_height)

    def _play(self) -> None:
        last = time.monotonic()
        while not self.closed.wait(_FRAME_S):
            now = time.monotonic()
            with self.lock:
                self._advance(now - last)
            last = now

    def _advance(self, elapsed_s: float) -> None:
        """Advances the playback and draws what has changed."""
        motion = self.motions.get(self.selected)
        if motion is None or self.stage is None:
            return
        if self.playing:
            self.time_s = min(self.time_s + elapsed_s * self.controls.speed_factor, motion.duration_s)
        ended = self.playing and self.time_s >= motion.duration_s
        step = motion.step_at(self.time_s)
        if ended or self._drawn is None or self._drawn[0] is not motion or self._drawn[1] != step:
            self._drawn = (motion, step)
            self.stage.show(motion, step, component_color(self.selected))
            self.controls.show_time(self.time_s, motion.duration_s)
        if ended:  # after the last frame, so that "Play again" appears with it
            self._set_playing(False, "Play again")
        if not self.playing and self.queue:
            self._start(self.queue.pop(0))
