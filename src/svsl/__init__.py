"""Versatile skill libraries: many good ways to do a task, for every variation of the task."""

from svsl.errors import SvslError
from svsl.library import Component, Skill, SkillLibrary
from svsl.tasks import Outcome, Task, make_task

__version__ = "0.1.0"

__all__ = ["Component", "Outcome", "Skill", "SkillLibrary", "SvslError", "Task", "__version__", "make_task"]
