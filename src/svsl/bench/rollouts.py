"""The speed of the tasks' episodes; of simulated ones, beside bare MuJoCo."""

from typing import Any

import numpy as np

from svsl.backends.process_pool import available_cores
from svsl.bench import clock
from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.tasks.base import Task
from svsl.tasks.registry import make_task

BATCH = 81  # episodes of an expert's update on the planar reacher


def time_task(task: Task) -> float:
    """Returns the episodes per second of a task without a simulator."""
    rng = stream(0, 2)
    contexts = rng.uniform(task.context_low, task.context_high, (BATCH, len(task.context_low)))
    parameters = rng.standard_normal((BATCH, task.parameter_dim))
    return BATCH / clock.best_ms(lambda: task.evaluate(contexts, parameters, rng), 100) * 1e3


def time_rollouts(name: str) -> list[clock.Timing]:
    """Times valid episodes of the initial search distribution of a task with a `simulator`."""
    task, rng = make_task(name), stream(0, 4)
    factor = np.linalg.cholesky(task.initial_cov)
    contexts = rng.uniform(task.context_low, task.context_high, (1024, len(task.context_low)))
    parameters = task.initial_mean + rng.standard_normal((1024, task.parameter_dim)) @ factor.T
    parameters[:, -1] = np.abs(parameters[:, -1]) + 0.2
    valid = np.flatnonzero(task.evaluate(contexts, parameters, rng).info["simulated"])[:256]
    contexts, parameters = contexts[valid], parameters[valid]
    cases = [(available_cores(), 256), (available_cores(), 24), (available_cores(), 12), (1, 24)]
    return [_time_rollout(task, name, contexts[:batch], parameters[:batch], workers) for workers, batch in cases]


def _time_rollout(task: Any, name: str, contexts: Array, parameters: Array, workers: int) -> clock.Timing:
    """Times `evaluate` beside bare MuJoCo, which runs the same number of steps on the same threads."""
    simulator, rng, count = task.simulator, stream(0, 5), len(contexts)
    simulator.workers = 1  # on several threads a task may use several simulators
    pieces: list[tuple[Array, list[Array]]] = []  # first states and controls of calls that continue each other
    run, last = simulator.run, np.empty(0)

    def recording(states: Array, controls: Array) -> tuple[Array, Array]:
        nonlocal last
        if not np.array_equal(states, last):
            pieces.append((states, []))
        pieces[-1][1].append(controls)
        result = run(states, controls)
        last = result[0][:, -1]
        return result

    simulator.run = recording
    steps = np.asarray(task.evaluate(contexts, parameters, rng).info["steps"], dtype=np.float64)
    del simulator.run
    simulator.workers = workers
    evaluate_ms = clock.best_ms(lambda: task.evaluate(contexts, parameters, rng), 1, 5)
    # bare stepping: the largest piece of the same simulation in one call, scaled to all of its steps
    states, controls = max(((first, np.concatenate(all_, axis=1)) for first, all_ in pieces), key=lambda p: p[1].size)
    step_ms = clock.best_ms(lambda: run(states, controls), 1, 5) / (len(states) * controls.shape[1])
    bare_ms = step_ms * float(steps.sum())
    return {
        "task": name,
        "workers": workers,
        "batch": count,
        "episodes_per_s": count / evaluate_ms * 1e3,
        "share_of_bare": bare_ms / evaluate_ms,
        "us_per_step": step_ms * 1e3 * workers,
    }
