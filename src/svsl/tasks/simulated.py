"""What the tasks on MuJoCo share: the simulator, batches that fit in memory, and how they are shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import mujoco
import numpy as np
from numpy.typing import NDArray

from svsl.model.gaussians import Array, IntArray
from svsl.simulation.rollout import Simulator
from svsl.tasks.base import Outcome, joined
from svsl.tasks.presentation import Motion, MujocoScene

_LARGEST_BATCH = 128  # a larger batch loses more to fresh memory than it gains


class SimulatedTask(ABC):
    """A task on a MuJoCo model. Its episodes run in batches on all cores and can be shown.

    Args:
        model: The model with all that is visible.
        stepped: The model that is stepped: the same motion, perhaps without the visuals.
        control_spec: What a row of controls holds (`mujoco.mjtState` bits).
    """

    context_low: Array
    context_high: Array
    parameter_dim: int
    initial_mean: Array
    initial_cov: Array
    figures: tuple[str, ...] = ("snapshots",)

    def __init__(self, model: mujoco.MjModel, stepped: mujoco.MjModel, control_spec: int) -> None:
        self.model, self.scene = model, MujocoScene(model)
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
    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """One whole episode; see `svsl.tasks.presentation.Showable`."""


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
    """Evaluates rows in batches that fit in memory; the outcome of an episode does not depend on its batch."""
    if len(contexts) <= _LARGEST_BATCH:
        return evaluate(contexts, parameters)
    starts = range(0, len(contexts), _LARGEST_BATCH)
    parts = [evaluate(contexts[s : s + _LARGEST_BATCH], parameters[s : s + _LARGEST_BATCH]) for s in starts]
    return joined(parts)
