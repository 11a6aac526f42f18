"""Versatile skill libraries: many good ways to do a task, for every variation of the task."""

__version__ = "0.1.0"
