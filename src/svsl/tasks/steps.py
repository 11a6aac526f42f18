"""Tasks with a step-based form: the same episodes, controlled action by action."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from gymnasium import spaces

from svsl.errors import SvslError
from svsl.model.gaussians import Array, BoolArray, IntArray
from svsl.tasks.base import Task


class StepForm(Protocol):
    """Several episodes of a task that are stepped together, each with its own context."""

    steps: int  # of an episode
    states: Array  # (n, size), of the physics
    goals: Array  # (n, dc), the contexts
    time: IntArray  # (n,), steps done in each episode
    sees_time: bool  # whether the observation holds the time; if not, the end of an episode is a truncation
    observation_space: "spaces.Box[np.float64]"  # of one episode
    action_space: "spaces.Box[np.float64]"  # of one episode

    def begin(self, rows: BoolArray | slice, goals: Array) -> None:
        """Starts new episodes in some rows."""

    def observe(self) -> Array:
        """The observations `(n, do)`."""
        ...

    def step(self, actions: Array) -> tuple[Array, BoolArray]:
        """Steps every episode by one of `actions (n, da)`; returns the rewards and which episodes are over."""
        ...

    def distance(self) -> Array:
        """Distance of each episode to its goal as it is now: `(n,)`."""
        ...

    def success(self) -> BoolArray:
        """Which episodes solve the task as they are now: `(n,)`."""
        ...


def step_form(task: Task, count: int, workers: int | None = None) -> StepForm:
    """Returns the step-based form of `count` episodes of a task that has a method `step_form(count, workers)`.

    `workers` is the number of simulation threads (default: all cores).
    """
    make: Callable[[int, int | None], StepForm] | None = getattr(task, "step_form", None)
    if make is None:
        raise SvslError(
            f"a {type(task).__name__} has no step-based form, which this learner needs; use reacher5 or box-pushing"
        )
    return make(count, workers)
