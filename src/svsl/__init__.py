"""Versatile skill libraries: many good ways to do a task, for every variation of the task."""

import ctypes
import os
import sys
from importlib import import_module

from svsl.errors import SvslError
from svsl.model.version import __version__

TYPE_CHECKING = False  # like typing's, without the time to import it
if TYPE_CHECKING:
    from svsl.api import make_learner, train
    from svsl.learners.base import SearchSpace
    from svsl.model.library import Component, Skill, SkillLibrary
    from svsl.model.shipped import load_pretrained
    from svsl.runs.callbacks import Callback
    from svsl.tasks.base import Outcome, Task
    from svsl.tasks.registry import make_task

__all__ = [
    "Callback",
    "Component",
    "Outcome",
    "SearchSpace",
    "Skill",
    "SkillLibrary",
    "SvslError",
    "Task",
    "__version__",
    "load_pretrained",
    "make_learner",
    "make_task",
    "train",
]

# imported on first use: a program that only uses a library needs NumPy and safetensors, nothing else, and the command
# line can answer Ctrl-C while NumPy is imported
_ON_FIRST_USE = {
    "Callback": "svsl.runs.callbacks",
    "Component": "svsl.model.library",
    "Outcome": "svsl.tasks.base",
    "SearchSpace": "svsl.learners.base",
    "Skill": "svsl.model.library",
    "SkillLibrary": "svsl.model.library",
    "Task": "svsl.tasks.base",
    "load_pretrained": "svsl.model.shipped",
    "make_learner": "svsl.api",
    "make_task": "svsl.tasks.registry",
    "train": "svsl.api",
}


def __getattr__(name: str) -> object:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_FIRST_USE[name]), name)


def _offscreen_backend() -> str:
    """What MuJoCo can render with here without a screen."""
    for name, file in (("egl", "libEGL.so.1"), ("osmesa", "libOSMesa.so.8"), ("osmesa", "libOSMesa.so.6")):
        try:
            ctypes.CDLL(file)
        except OSError:
            continue
        return name
    return "disable"


# MuJoCo chooses its renderer on import, and cannot be imported if the one named in MUJOCO_GL is missing
if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ["MUJOCO_GL"] = os.environ.get("MUJOCO_GL") or _offscreen_backend()
