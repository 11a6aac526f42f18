"""Versatile skill libraries: many good ways to do a task, for every variation of the task."""

import os
import sys

from svsl.errors import SvslError
from svsl.library import Component, Skill, SkillLibrary
from svsl.pretrained import load_pretrained
from svsl.tasks import Outcome, Task, make_task

__version__ = "0.1.0"

__all__ = [
    "Component",
    "Outcome",
    "Skill",
    "SkillLibrary",
    "SvslError",
    "Task",
    "__version__",
    "load_pretrained",
    "make_task",
]

# MuJoCo chooses how to draw when it is first imported; without a screen only EGL can
if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("MUJOCO_GL", "egl")
