"""The panel of the page: sliders for the context, the list of skills, playback, draws around a mean."""

from collections.abc import Callable, Sequence

import numpy as np
import viser

from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.show.playback import PlayableSkill
from svsl.show.plots.style import component_color, rgb

SPEEDS = ("0.1x", "0.25x", "0.5x", "1x", "2x")


def decimals(span: float) -> int:
    """Returns the digits after the point that divide a range into 100 to 1000 steps."""
    return int(2 - np.floor(np.log10(span)))


class Controls:
    """The panel of one client. The session decides what its buttons and sliders do.

    Args:
        client: The tab.
        library: Its context box limits the sliders.
        names: Names of the context's dimensions.
        context: `(dc,)`, the initial choice.
        playable: Whether there is a scene to play in.
        choose_component: Called when the button of a skill is clicked.
    """

    def __init__(
        self,
        client: viser.ClientHandle,
        library: SkillLibrary,
        names: Sequence[str],
        context: Array,
        playable: bool,
        choose_component: Callable[[int], None],
    ) -> None:
        self._gui = gui = client.gui
        self._choose_component = choose_component
        self._buttons, self._listed = list[viser.GuiButtonHandle](), list[int]()
        with gui.add_folder("Context"):
            ranges = zip(names, library.context_low, library.context_high, context, strict=True)
            self.sliders = [self._context_slider(*each) for each in ranges]
            self.random_context = gui.add_button("Random context")
            self.success_map = gui.add_button("Compute success map", visible=library.context_dim > 1)
        self._list = gui.add_folder("Skills here")
        with self._list:
            self.message = gui.add_markdown("")
        with gui.add_folder("Playback", visible=playable):
            self.play = gui.add_button("Pause")
            self.play_all = gui.add_button("Play all, one after the other")
            self.time = gui.add_slider("time [s]", min=0.0, max=1.0, step=0.01, initial_value=0.0)
            self.speed = gui.add_dropdown("speed", SPEEDS, initial_value="1x")
            self.overlay = gui.add_checkbox("overlay all", initial_value=False, hint="the paths of all skills at once")
        with gui.add_folder("Around the mean"):
            self.draws = gui.add_slider("draws", min=5, max=50, step=5, initial_value=20)
            self.sample = gui.add_button("Sample around the mean")
            self.sampled = gui.add_markdown("")

    def _context_slider(self, label: str, low: float, high: float, value: float) -> viser.GuiSliderHandle[float]:
        step = 10.0 ** -decimals(high - low)
        return self._gui.add_slider(label, min=float(low), max=float(high), step=step, initial_value=float(value))

    def show_context(self, context: Array) -> None:
        """Sets the sliders."""
        for slider, value in zip(self.sliders, context, strict=True):
            slider.value = float(value)  # type: ignore[misc]  # viser's base class hides the setter

    def show_skills(self, skills: Sequence[PlayableSkill], selected: int) -> None:
        """Lists the skills, one button each, and marks the selected one."""
        while len(self._buttons) < len(skills):
            self._add_skill_button(len(self._buttons))
        self._listed = [skill.component for skill in skills]
        for row, button in enumerate(self._buttons):
            button.visible = row < len(skills)
        for button, skill in zip(self._buttons, skills, strict=False):
            pointer = "▸" if skill.component == selected else ""
            verdict = " ".join(["✓" if skill.success else "✗", skill.mode])
            numbers = f"{skill.component}  ·  {skill.probability:.0%}  ·  {skill.returned:.2f}"
            button.label = f"{pointer}{numbers}  ·  {verdict}"
            button.color = rgb(component_color(skill.component))
        self.message.content = "component · probability · return · solved? how?"

    def _add_skill_button(self, row: int) -> None:
        def clicked(event: viser.GuiEvent[viser.GuiButtonHandle]) -> None:
            if row < len(self._listed):
                self._choose_component(self._listed[row])

        with self._list:
            button = self._gui.add_button("")
        button.on_click(clicked)
        self._buttons.append(button)

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
