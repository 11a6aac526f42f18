"""The panel of the page: sliders for the context, the list of skills, playback, draws around a mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import viser

from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.show.playback import PlayableSkill
from svsl.show.plots.style import component_color, rgb

SPEEDS = ("0.1x", "0.25x", "0.5x", "1x", "2x")


def decimals(span: float) -> int:
    """Digits after the point that divide a range into 100 to 1000 steps."""
    return int(2 - np.floor(np.log10(span)))


@dataclass(frozen=True)
class Actions:
    """What the panel can ask for."""

    choose_context: Callable[[Array], None]
    random_context: Callable[[], None]
    choose_component: Callable[[int], None]
    play_all: Callable[[], None]
    overlay: Callable[[], None]
    play_or_pause: Callable[[], None]
    scrub: Callable[[float], None]
    sample: Callable[[int], None]
    success_map: Callable[[], None]


class Controls:
    """The panel of one client.

    Args:
        client: The tab.
        library: Its context box limits the sliders.
        names: Names of the context's dimensions.
        context: `(dc,)`, the initial choice.
        playable: Whether there is a scene to play in.
        actions: What happens on a click; called only for what the user does, not when values are set from here.
    """

    def __init__(
        self,
        client: viser.ClientHandle,
        library: SkillLibrary,
        names: Sequence[str],
        context: Array,
        playable: bool,
        actions: Actions,
    ) -> None:
        self.gui, self.actions, self._buttons = client.gui, actions, list[viser.GuiButtonHandle]()
        self._shown: list[int] = []
        with self.gui.add_folder("Context"):
            self.sliders = [
                self._context_slider(name, low, high, value)
                for name, low, high, value in zip(
                    names, library.context_low, library.context_high, context, strict=True
                )
            ]
            self._button("Random context", actions.random_context)
            self.map_button = self._button("Compute success map", actions.success_map)
        self._list = self.gui.add_folder("Skills here")
        with self._list:
            self.message = self.gui.add_markdown("")
        self.overlay = self._playback(playable)
        with self.gui.add_folder("Around the mean"):
            self.draws = self.gui.add_slider("draws", min=5, max=50, step=5, initial_value=20)
            self._button("Sample around the mean", lambda: actions.sample(int(self.draws.value)))
            self.sampled = self.gui.add_markdown("")

    def _playback(self, playable: bool) -> viser.GuiCheckboxHandle:
        actions = self.actions
        with self.gui.add_folder("Playback", visible=playable):
            self.play = self._button("Pause", actions.play_or_pause)
            self._button("Play all, one after the other", actions.play_all)
            self.time = self.gui.add_slider("time [s]", min=0.0, max=1.0, step=0.01, initial_value=0.0)
            self.time.on_update(lambda event: actions.scrub(self.time.value) if event.client else None)
            self.speed = self.gui.add_dropdown("speed", SPEEDS, initial_value="1x")
            overlay = self.gui.add_checkbox("overlay all", initial_value=False, hint="the paths of all skills at once")
            overlay.on_update(lambda event: actions.overlay())
        return overlay

    def _context_slider(self, label: str, low: float, high: float, value: float) -> viser.GuiSliderHandle[float]:
        step = 10.0 ** -decimals(high - low)
        slider = self.gui.add_slider(label, min=float(low), max=float(high), step=step, initial_value=float(value))

        def moved(event: viser.GuiEvent[viser.GuiSliderHandle[float]]) -> None:
            if event.client is not None:
                self.actions.choose_context(np.array([s.value for s in self.sliders]))

        slider.on_update(moved)
        return slider

    def _button(self, label: str, action: Callable[[], None]) -> viser.GuiButtonHandle:
        button = self.gui.add_button(label)
        button.on_click(lambda event: action())
        return button

    def show_context(self, context: Array) -> None:
        """Sets the sliders."""
        for slider, value in zip(self.sliders, context, strict=True):
            slider.value = float(value)  # type: ignore[misc]  # viser's base class hides the setter

    def show_skills(self, skills: Sequence[PlayableSkill], selected: int) -> None:
        """Lists the skills, one button each, and marks the selected one."""
        while len(self._buttons) < len(skills):
            self._add_skill_button(len(self._buttons))
        self._shown = [skill.component for skill in skills]
        for row, button in enumerate(self._buttons):
            button.visible = row < len(skills)
        for button, skill in zip(self._buttons, skills, strict=False):
            pointer = "▶ " if skill.component == selected else ""
            verdict = " ".join(["✓" if skill.success else "✗", skill.mode])
            numbers = f"{skill.component}  ·  {skill.probability:.0%}  ·  {skill.returned:.2f}"
            button.label = f"{pointer}{numbers}  ·  {verdict}"
            button.color = rgb(component_color(skill.component))
        self.message.content = "component · probability · return · solved? how?"

    def _add_skill_button(self, row: int) -> None:
        with self._list:
            button = self.gui.add_button("")
        button.on_click(lambda event: self._choose_row(row))
        self._buttons.append(button)

    def _choose_row(self, row: int) -> None:
        if row < len(self._shown):
            self.actions.choose_component(self._shown[row])

    @property
    def speed_factor(self) -> float:
        """Playback speed relative to real time."""
        value = str(self.speed.value)
        return float(value.removesuffix("x")) if value in SPEEDS else 1.0

    def show_time(self, time_s: float, duration_s: float) -> None:
        """Sets the time slider."""
        end = float(max(np.ceil(100 * duration_s), 1) / 100)
        if self.time.max != end:
            self.time.max = end
        self.time.value = float(time_s)  # type: ignore[misc]
