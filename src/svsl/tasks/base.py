"""What a task is: a context box, a parameter size, an initial search distribution and a batch evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from svsl.gaussians import Array, BoolArray


@dataclass(frozen=True)
class Outcome:
    """What a batch of n episodes gave.

    Attributes:
        returns: `(n,)`, the return of each episode. A NaN or infinite one is counted and replaced by the trainer.
        success: `(n,)` bool, whether the episode solved the task.
        info: Named diagnostics, each an array with one entry per episode.
    """

    returns: Array
    success: BoolArray
    info: dict[str, NDArray[np.generic]] = field(default_factory=dict)


@runtime_checkable
class Task(Protocol):
    """The contract between a task and the rest of the library.

    Attributes:
        context_low: `(dc,)`, lower corner of the context box.
        context_high: `(dc,)`, upper corner. Learners may ask for contexts outside the box: score them clearly worse.
        parameter_dim: Number dt of parameters of a skill.
        initial_mean: `(dt,)`, where the search of a new component starts.
        initial_cov: `(dt, dt)`, and how wide.

    A task may also have a float `penalty`: the return given to an episode whose own return is NaN or infinite
    (otherwise the worst finite return seen so far). For the measures of versatility it may put into `info` a `mode`,
    its name for the kind of behaviour, and a `path (n, d)`, what the behaviour looks like, scaled so that a root mean
    square distance of 1 is a clear difference; or do so in `describe`, called like `evaluate`, if that costs time. If
    only a part of the box is meant, `valid_contexts(contexts)` says which rows are, `(n,)` bool: tests draw from it.
    `context_names`, one a dimension, are the labels of figures and sliders.
    """

    context_low: Array
    context_high: Array
    parameter_dim: int
    initial_mean: Array
    initial_cov: Array

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Runs one episode per row of `contexts (n, dc)` and `parameters (n, dt)`.

        Randomness comes from `rng` only. The arguments must not be changed.
        """
        ...


def context_names(task: Task) -> tuple[str, ...]:
    """The names of the context's dimensions: the task's own, or their numbers."""
    names = getattr(task, "context_names", None)
    return tuple(names) if names else tuple(f"context {dim}" for dim in range(len(task.context_low)))
