"""Batched MuJoCo simulation on a persistent thread pool, with no Python per time step."""

import mujoco
import numpy as np
from mujoco.rollout import Rollout
from numpy.typing import NDArray

from svsl.backends.process_pool import available_cores
from svsl.model.gaussians import Array, BoolArray, IntArray


class Simulator:
    """Simulates many copies of one model in parallel.

    Args:
        model: The compiled model.
        control_spec: The content of a row of controls (`mujoco.mjtState` bits).
        workers: Number of threads (default: all available cores); 0 also means one. Does not affect the results.
    """

    def __init__(self, model: mujoco.MjModel, control_spec: int, workers: int | None = None) -> None:
        self.model, self.control_spec = model, control_spec
        self.state_size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
        self.control_size = mujoco.mj_stateSize(model, control_spec)
        self._workers = _threads(workers)
        self._pool: Rollout | None = None

    @property
    def workers(self) -> int:
        """Number of threads."""
        return self._workers

    @workers.setter
    def workers(self, count: int | None) -> None:
        threads = _threads(count)
        if threads != self._workers:
            self._workers, self._pool = threads, None

    def run(self, states: Array, controls: Array) -> tuple[Array, Array]:
        """Simulates every row.

        Args:
            states: `(n, state_size)`: time, qpos, qvel.
            controls: `(n, steps, control_size)`.

        Returns:
            The states after each step `(n, steps, state_size)`, and the sensors before each step `(n, steps, ns)`.
        """
        if self._pool is None:
            threads = self._workers if self._workers > 1 else 0
            self._pool = Rollout(nthread=threads)
            self._thread_data = [mujoco.MjData(self.model) for _ in range(self._workers)]
        rows, steps = controls.shape[:2]
        state = np.empty((rows, steps, self.state_size))
        sensors = np.empty((rows, steps, self.model.nsensordata))
        if rows == 0 or steps == 0:
            return state, sensors
        self._pool.rollout(
            [self.model] * rows,
            self._thread_data,
            np.ascontiguousarray(states),
            np.ascontiguousarray(controls),
            control_spec=self.control_spec,
            skip_checks=True,
            nstep=steps,
            state=state,
            sensordata=sensors,
            chunk_size=1,
        )
        return state, sensors

    def sensor(self, sensors: Array, name: str) -> Array:
        """The values of one named sensor: `(..., ns)` -> `(...)`, or `(..., d)` if it has d > 1 values."""
        info = self.model.sensor(name)
        values = sensors[..., info.adr[0] : info.adr[0] + info.dim[0]]
        return values[..., 0] if info.dim[0] == 1 else values


def _threads(workers: int | None) -> int:
    return available_cores() if workers is None else max(1, workers)


def diverged(states: Array, time_s: NDArray[np.floating], dt_s: float) -> BoolArray:
    """Which simulations diverged, by their states `(n, size)` at `time_s (n,)`: MuJoCo stops the clock of those."""
    return np.asarray((np.abs(states[:, 0] - time_s) > 0.5 * dt_s) | ~np.isfinite(states).all(axis=1))


def rising_edges(contact: BoolArray) -> BoolArray:
    """Where a contact begins: `(..., steps)` bool."""
    before = np.zeros_like(contact)
    before[..., 1:] = contact[..., :-1]
    return contact & ~before


def first_true(flags: BoolArray) -> IntArray:
    """Index of the first True along the last axis, or the length of that axis if all are False."""
    return np.where(flags.any(axis=-1), flags.argmax(axis=-1), flags.shape[-1])
