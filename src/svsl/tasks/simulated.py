"""Shared by the tasks on MuJoCo: the simulator, batches that fit in memory, and episodes that cannot be run."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from svsl.model.gaussians import Array, BoolArray, IntArray
from svsl.simulation.arm import JOINTS
from svsl.simulation.rollout import Simulator
from svsl.tasks.base import Outcome, joined
from svsl.tasks.presentation import Motion, MujocoScene

_LARGEST_BATCH = 128  # a larger batch loses more to fresh memory than it gains

# entries of a state of the tasks with a ball: time, qpos (arm, ball), qvel (arm, ball)
BALL, BALL_VELOCITY = slice(1 + JOINTS, 1 + JOINTS + 3), slice(1 + 2 * JOINTS + 3, None)


@dataclass(frozen=True)
class Plan:
    """A batch of n episodes before the simulation; m of them can be run."""

    returns: Array  # (n,), of the episodes that cannot be run
    rows: IntArray  # (m,), the episodes that can
    invalid: dict[str, BoolArray]  # by name, (n,): what is wrong with the others

    def completed(self, outcome: Outcome) -> Outcome:
        """Adds the outcome of the m episodes; diagnostics of the others are NaN, False, 0 or ""."""
        count, success = len(self.returns), np.zeros(len(self.returns), dtype=bool)
        self.returns[self.rows], success[self.rows] = outcome.returns, outcome.success
        info: dict[str, NDArray[np.generic]] = {"simulated": np.isin(np.arange(count), self.rows), **self.invalid}
        for name, values in outcome.info.items():
            shape = (count, *values.shape[1:])
            info[name] = np.full(shape, np.nan) if values.dtype.kind == "f" else np.zeros(shape, dtype=values.dtype)
            info[name][self.rows] = values
        return Outcome(self.returns, success, info)


@dataclass(frozen=True)
class ArmPlan(Plan):
    """With the movements of the m episodes."""

    movement: tuple[Array, ...]  # (m, length, joints): desired positions, and velocities if the task uses them
    steps: IntArray  # (m,), of each movement


class SimulatedTask(ABC):
    """A task on a MuJoCo model. Its episodes run in batches on all cores and can be shown.

    Args:
        model: The model with all that is visible.
        stepped: The model that is stepped: the same motion, possibly without the visuals.
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
        """Runs one episode per row; deterministic. The outcome of an episode does not depend on its batch."""
        batches = [slice(s, s + _LARGEST_BATCH) for s in range(0, max(1, len(contexts)), _LARGEST_BATCH)]
        return joined([self.evaluate_batch(contexts[rows], parameters[rows]) for rows in batches])

    @abstractmethod
    def evaluate_batch(self, contexts: Array, parameters: Array) -> Outcome:
        """Runs one batch that fits in memory."""

    @abstractmethod
    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """One whole episode; see `svsl.tasks.presentation.Showable`."""


class ArmTask(SimulatedTask):
    """A task of the Barrett WAM whose last parameter is the duration of the movement in seconds."""

    duration_range: tuple[float, float]
    scores_outside = True

    @abstractmethod
    def steps(self, parameters: Array) -> IntArray:
        """Steps of each movement: `(n,)`."""

    @abstractmethod
    def _desired(self, parameters: Array, steps: IntArray) -> tuple[Array, ...]:
        """Desired positions, and velocities if the task uses them: `(n, length, joints)` each."""

    @abstractmethod
    def _invalid_returns(self, bad_context: BoolArray, outside: Array, excess: Array) -> Array:
        """Returns of contexts at a distance `outside` of their box, and else of durations beyond theirs by `excess`."""

    @abstractmethod
    def _path_returns(self, path: Array, steps: IntArray, low: Array, high: Array) -> Array:
        """Returns of paths `(n, length, joints)` outside the joint limits; 0 for those inside."""

    def _plan(self, contexts: Array, parameters: Array) -> ArmPlan:
        """Scores the episodes that are not valid and computes the desired movements of the others."""
        duration = parameters[:, -1]
        outside = distance_to_box(contexts, self.context_low, self.context_high)
        excess = duration - np.clip(duration, *self.duration_range)
        bad_context, bad_duration = ~(outside <= 0), ~(excess == 0)  # also NaN
        returns = self._invalid_returns(bad_context, outside, excess)
        movable = np.flatnonzero(~bad_context & ~bad_duration)
        steps = self.steps(parameters[movable])
        movement = self._desired(parameters[movable], steps)
        path_returns = self._path_returns(movement[0], steps, *self.model.jnt_range[:JOINTS].T)
        fits = path_returns == 0
        returns[movable[~fits]] = path_returns[~fits]
        bad_duration &= ~bad_context
        bad_path = np.isin(np.arange(len(contexts)), movable[~fits])
        invalid = {"invalid_context": bad_context, "invalid_duration": bad_duration, "invalid_path": bad_path}
        return ArmPlan(returns, movable[fits], invalid, tuple(part[fits] for part in movement), steps[fits])


def distance_to_box(points: Array, low: Array, high: Array) -> Array:
    """Distance of each row to the box; 0 inside."""
    return np.sqrt(((points - np.clip(points, low, high)) ** 2).sum(axis=1))


def running_sum(values: Array) -> Array:
    """Sums of rows `(n, steps)`, rounded alike however many zeros follow (NumPy's `sum` is not)."""
    return np.cumsum(values, axis=1)[:, -1] if values.shape[1] else np.zeros(len(values))
