"""Versatile skill libraries: many good ways to do a task, for every variation of the task."""

import ctypes
import os
import sys

from svsl.api import train
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
    "train",
]


def _offscreen_drawing() -> str:
    """How MuJoCo can draw without a screen here."""
    for name, file in (("egl", "libEGL.so.1"), ("osmesa", "libOSMesa.so.8"), ("osmesa", "libOSMesa.so.6")):
        try:
            ctypes.CDLL(file)
        except OSError:
            continue
        return name
    return "disable"


# MuJoCo chooses how to draw when it is first imported, and cannot be imported if what it was told is missing
if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ["MUJOCO_GL"] = os.environ.get("MUJOCO_GL") or _offscreen_drawing()
