"""What the tasks on MuJoCo share: the simulator, limits of memory, and single episodes to look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from svsl.model.gaussians import Array, IntArray
from svsl.simulation.rollout import Simulator
from svsl.tasks.base import Outcome, joined

_MOST_AT_ONCE = 128  # a larger batch pays more for fresh memory than it gains


@dataclass(frozen=True)
class Trajectory:
    """One episode, state by state.

    Attributes:
        states: `(steps, size)`, MuJoCo's time, qpos and qvel after each step.
        dt_s: Time between states.
        ball: `(steps, 3)`, positions of the ball.
        mocap: `(m, 3)`, positions of the scene's movable bodies.
        release: Step from which the ball is free.
    """

    states: Array
    dt_s: float
    ball: Array
    mocap: Array
    release: int


class SimulatedTask(ABC):
    """A task on a MuJoCo model, whose episodes run in batches on all cores and can be looked at state by state.

    Args:
        model: The model with all that is seen.
        stepped: The model that is stepped: the same motion, perhaps without the looks.
        control_spec: What a row of controls holds (`mujoco.mjtState` bits).
    """

    context_low: Array
    context_high: Array
    parameter_dim: int
    initial_mean: Array
    initial_cov: Array

    def __init__(self, model: mujoco.MjModel, stepped: mujoco.MjModel, control_spec: int) -> None:
        self.model = model
        self.dt_s = float(model.opt.timestep)
        self.simulator = Simulator(stepped, control_spec)

    @property
    def workers(self) -> int:
        """Threads of the simulation; None sets all cores, 0 the calling thread only."""
        return self.simulator.workers

    @workers.setter
    def workers(self, count: int | None) -> None:
        self.simulator.workers = count

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Runs one episode per row; deterministic."""
        return in_batches(self.evaluate_batch, contexts, parameters)

    @abstractmethod
    def evaluate_batch(self, contexts: Array, parameters: Array) -> Outcome:
        """Runs one batch that fits in memory."""

    @abstractmethod
    def trajectory(self, context: Array, parameters: Array | None = None) -> Trajectory:
        """All states of one episode; the start alone without parameters, or with ones that cannot be run."""


def distance_to_box(points: Array, low: Array, high: Array) -> Array:
    """Distance of each row to the box; 0 inside."""
    return np.sqrt(((points - np.clip(points, low, high)) ** 2).sum(axis=1))


def running_sum(values: Array) -> Array:
    """Sums of rows `(n, steps)`, rounded alike however many zeros follow (NumPy's `sum` is not)."""
    return np.cumsum(values, axis=1)[:, -1] if values.shape[1] else np.zeros(len(values))


def scattered(values: NDArray[np.generic], rows: IntArray, count: int) -> NDArray[np.generic]:
    """`values` of the simulated `rows` among `count` episodes; NaN, False, 0 or "" for the others."""
    shape = (count, *values.shape[1:])
    result = np.full(shape, np.nan) if values.dtype.kind == "f" else np.zeros(shape, dtype=values.dtype)
    result[rows] = values
    return result


def in_batches(evaluate: Callable[[Array, Array], Outcome], contexts: Array, parameters: Array) -> Outcome:
    """Evaluates rows in batches that fit in memory; an episode's outcome does not depend on its batch."""
    if len(contexts) <= _MOST_AT_ONCE:
        return evaluate(contexts, parameters)
    starts = range(0, len(contexts), _MOST_AT_ONCE)
    parts = [evaluate(contexts[s : s + _MOST_AT_ONCE], parameters[s : s + _MOST_AT_ONCE]) for s in starts]
    return joined(parts)
