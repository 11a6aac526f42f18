"""Speed of the learner on this machine, as ratios measured side by side in one run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
from rich.table import Table

from svsl.backends.process_pool import available_cores
from svsl.bench import reference
from svsl.learners.base import Learner, SearchSpace
from svsl.learners.fixed_mixture import FixedMixtureConfig
from svsl.learners.registry import find_preset, make_learner
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.gaussians import Array, IntArray
from svsl.model.library import SkillLibrary
from svsl.model.random import stream
from svsl.runs.training import numeric_settings
from svsl.show.tables import print_table
from svsl.tasks.base import Task
from svsl.tasks.registry import make_task
from svsl.tasks.simulated import SimulatedTask

TASK = "planar-reacher"
COMPONENT_COUNTS = (10, 20, 40, 60)


class UpdateTiming(TypedDict):
    """Milliseconds of the updates with a number of components; the reference does the same updates."""

    components: int
    newest_ms: float
    all_ms: float
    reference_newest_ms: float
    reference_all_ms: float
    ratio_newest: float
    ratio_all: float
    ratio: float
    iteration_ms: float


class BaselineTiming(TypedDict):
    """One iteration of a baseline at the paper's size beside svsl's update of all components, without episodes."""

    learner: str
    components: int
    iteration_ms: float
    times_all: float


class RolloutTiming(TypedDict):
    """`evaluate` of a simulated task beside bare MuJoCo stepping the same number of steps on the same threads."""

    task: str
    workers: int
    batch: int
    episodes_per_s: float
    share_of_bare: float
    us_per_step: float


class FullRun(TypedDict):
    """The paper's whole planar reacher as one process."""

    cpu_s: float
    wall_s: float
    peak_memory_mb: float
    episodes: int


class BenchResult(TypedDict):
    """Everything `svsl bench` measures."""

    updates: list[UpdateTiming]
    baselines: list[BaselineTiming]
    growth: float
    linear_growth: float
    episodes_per_s: float
    library_sample_us: float
    rollouts: list[RolloutTiming]
    full: FullRun | None


def run(full: bool = False) -> BenchResult:
    """Measures; `full` also trains the paper's planar reacher in a process of its own."""
    task = make_task(TASK)
    with numeric_settings():
        updates = [_time_updates(task, count) for count in COMPONENT_COUNTS]
        baselines = [_time_baseline(task, name, updates[-1]["all_ms"]) for name in ("hireps", "ladips")]
        episodes_per_s = _time_task(task)
        sample_us = _time_library(task)
        rollouts = [timing for name in ("beer-pong", "table-tennis") for timing in _time_rollouts(name)]
    return {
        "updates": updates,
        "baselines": baselines,
        "growth": updates[-1]["iteration_ms"] / updates[0]["iteration_ms"],
        "linear_growth": COMPONENT_COUNTS[-1] / COMPONENT_COUNTS[0],
        "episodes_per_s": episodes_per_s,
        "library_sample_us": sample_us,
        "rollouts": rollouts,
        "full": _full_run() if full else None,
    }


def show(result: BenchResult) -> None:
    """Prints the result as tables."""
    table = Table(title="Updates of one iteration in ms, and how many times longer the straightforward reference takes")
    for name in ("components", "newest", "reference", "all", "reference", "50 iterations", "with episodes"):
        table.add_column(name, justify="right")
    for row in result["updates"]:
        table.add_row(
            str(row["components"]),
            f"{row['newest_ms']:.2f}",
            f"{row['ratio_newest']:.1f}x",
            f"{row['all_ms']:.1f}",
            f"{row['ratio_all']:.1f}x",
            f"{row['ratio']:.1f}x",
            f"{row['iteration_ms']:.2f}",
        )
    print_table(table)
    first, last = COMPONENT_COUNTS[0], COMPONENT_COUNTS[-1]
    print(
        f"an iteration with its episodes, every 50th updating all: {result['growth']:.1f} times the time with "
        f"{last} components as with {first} (linear would be {result['linear_growth']:.1f})"
    )
    for b in result["baselines"]:
        print(
            f"{b['learner']}: {b['iteration_ms']:.0f} ms an iteration of {b['components']} options, "
            f"{b['times_all']:.1f} times svsl's update of all {last} components"
        )
    print(f"planar reacher: {result['episodes_per_s']:,.0f} episodes/s in batches of {_EXPERT_BATCH}")
    print(f"library: {result['library_sample_us']:.0f} microseconds to sample a skill for one context")
    table = Table(title="Simulated tasks: evaluate, and its speed as a share of bare mujoco.rollout")
    for name in ("task", "threads", "batch", "episodes/s", "share of bare", "us/step and thread, bare"):
        table.add_column(name, justify="right")
    for t in result["rollouts"]:
        table.add_row(
            t["task"], str(t["workers"]), str(t["batch"]), f"{t['episodes_per_s']:.0f}", f"{t['share_of_bare']:.0%}",
            f"{t['us_per_step']:.2f}",
        )  # fmt: skip
    print_table(table)
    if result["full"] is not None:
        f = result["full"]
        print(
            f"the paper's planar reacher: {f['episodes']:,} episodes, {f['cpu_s']:.1f} CPU-s, {f['wall_s']:.1f} s, "
            f"{f['peak_memory_mb']:.0f} MB"
        )


_EXPERT_BATCH = 81


def _learner(task: Task, count: int) -> SVSL:
    """A learner of the paper's settings with `count` briefly trained components, in the middle of the newest."""
    config = find_preset(TASK).settings
    assert isinstance(config, SVSLConfig)
    brief = replace(config, components=count, iterations=5, delete_factor=None)
    learner = SVSL(brief, _space(task), stream(0, 0))
    while learner.component < count or learner.stage == "fill":
        _iterate(learner, task)
    learner.config = replace(learner.config, iterations=1_000_000)
    return learner


def _space(task: Task) -> SearchSpace:
    return SearchSpace(np.asarray(task.context_low), np.asarray(task.context_high), task.initial_mean, task.initial_cov)


def _iterate(learner: Learner, task: Task) -> None:
    episodes = learner.ask()
    learner.tell(task.evaluate(episodes.contexts, episodes.parameters, stream(0, 1)).returns)


def _time_updates(task: Task, count: int) -> UpdateTiming:
    learner = _learner(task, count)
    newest, everyone = np.arange(count - 1, count), np.arange(count)
    start = learner._current

    def fast(index: IntArray) -> Callable[[], None]:
        def update() -> None:
            learner._mixture = start
            learner._update_contexts(index)
            learner._update_experts(index)

        return update

    def slow(index: IntArray) -> Callable[[], object]:
        arguments = _reference_arguments(learner, index)
        return lambda: reference.update_components(**arguments)

    newest_ms, all_ms = _best_ms(fast(newest), 50), _best_ms(fast(everyone), 5)
    reference_newest_ms, reference_all_ms = _best_ms(slow(newest), 5), _best_ms(slow(everyone), 1)
    learner._mixture, every = start, learner.config.finetune_every

    def fifty_iterations() -> None:
        end = learner.iteration + every
        while learner.iteration < end:
            _iterate(learner, task)

    return {
        "components": count,
        "newest_ms": newest_ms,
        "all_ms": all_ms,
        "reference_newest_ms": reference_newest_ms,
        "reference_all_ms": reference_all_ms,
        "ratio_newest": reference_newest_ms / newest_ms,
        "ratio_all": reference_all_ms / all_ms,
        "ratio": ((every - 1) * reference_newest_ms + reference_all_ms) / ((every - 1) * newest_ms + all_ms),
        "iteration_ms": _best_ms(fifty_iterations, 1) / every,
    }


def _time_baseline(task: Task, name: str, all_ms: float) -> BaselineTiming:
    """The best of five iterations, once the history is full and before options are dropped."""
    config = find_preset(TASK, name).settings
    assert isinstance(config, FixedMixtureConfig)
    learner = make_learner(name, config, _space(task), stream(0, 0))
    for _ in range(config.history):
        _iterate(learner, task)
    best = np.inf
    for _ in range(5):
        episodes = learner.ask()
        returns = task.evaluate(episodes.contexts, episodes.parameters, stream(0, 1)).returns
        start = time.perf_counter()
        learner.tell(returns)
        best = min(best, 1e3 * (time.perf_counter() - start))
    options = learner.mixture()
    assert options is not None
    return {"learner": name, "components": len(options), "iteration_ms": best, "times_all": best / all_ms}


def _reference_arguments(learner: SVSL, index: IntArray) -> dict[str, Any]:
    mixture, config = learner._current, learner.config
    context_cov, cov = mixture.contexts.cov, mixture.experts.cov
    components = [
        reference.Component(
            mixture.contexts.bias[k], context_cov[k], mixture.experts.gain[k], mixture.experts.bias[k], cov[k]
        )
        for k in range(len(mixture))
    ]
    samples = [
        [reference.Samples(b.contexts[k], b.parameters[k], b.returns[k]) for k in index]
        for b in (learner.context_buffer, learner.expert_buffer)
    ]
    return {
        "components": components,
        "log_weights": mixture.log_weights,
        "index": [int(k) for k in index],
        "context_samples": samples[0],
        "expert_samples": samples[1],
        "alpha": config.alpha,
        "beta": config.beta,
        "kl_context": config.kl_context,
        "kl_expert": config.kl_expert,
        "context_scale": np.array(config.context_scale),
    }


def _time_task(task: Task) -> float:
    rng = stream(0, 2)
    contexts = rng.uniform(task.context_low, task.context_high, (_EXPERT_BATCH, len(task.context_low)))
    parameters = rng.standard_normal((_EXPERT_BATCH, task.parameter_dim))
    return _EXPERT_BATCH / _best_ms(lambda: task.evaluate(contexts, parameters, rng), 100) * 1e3


def _time_library(task: Task) -> float:
    mixture = _learner(task, COMPONENT_COUNTS[-1])._current
    library = SkillLibrary(mixture, np.asarray(task.context_low), np.asarray(task.context_high))
    context, rng = np.array([5.0, 1.0]), stream(0, 3)
    return _best_ms(lambda: library.sample(context, rng), 200) * 1e3


def _time_rollouts(name: str) -> list[RolloutTiming]:
    """Times valid episodes of the initial search distribution."""
    task = cast("SimulatedTask", make_task(name))
    rng = stream(0, 4)
    factor = np.linalg.cholesky(task.initial_cov)
    contexts = rng.uniform(task.context_low, task.context_high, (1024, len(task.context_low)))
    parameters = task.initial_mean + rng.standard_normal((1024, task.parameter_dim)) @ factor.T
    parameters[:, -1] = np.abs(parameters[:, -1]) + 0.2
    runs = np.flatnonzero(task.evaluate(contexts, parameters, rng).info["simulated"])[:256]
    contexts, parameters = contexts[runs], parameters[runs]
    cases = [(available_cores(), 256), (available_cores(), 24), (available_cores(), 12), (1, 24)]
    return [_time_rollout(task, name, contexts[:batch], parameters[:batch], workers) for workers, batch in cases]


def _time_rollout(task: SimulatedTask, name: str, contexts: Array, parameters: Array, workers: int) -> RolloutTiming:
    simulator, rng, count = task.simulator, stream(0, 5), len(contexts)
    simulator.workers = workers
    calls: list[tuple[Array, Array]] = []
    run = simulator.run

    def recording(states: Array, controls: Array) -> tuple[Array, Array]:
        calls.append((states, controls))
        return run(states, controls)

    simulator.run = recording  # type: ignore[method-assign]
    steps = np.asarray(task.evaluate(contexts, parameters, rng).info["steps"], dtype=np.float64)
    del simulator.run
    evaluate_ms = _best_ms(lambda: task.evaluate(contexts, parameters, rng), 1, 5)
    # bare stepping: the largest piece of the same simulation in one call, scaled to all of its steps
    states, controls = max(calls, key=lambda call: call[1].size)
    step_ms = _best_ms(lambda: run(states, controls), 1, 5) / (len(states) * controls.shape[1])
    bare_ms = step_ms * float(steps.sum())
    return {
        "task": name,
        "workers": workers,
        "batch": count,
        "episodes_per_s": count / evaluate_ms * 1e3,
        "share_of_bare": bare_ms / evaluate_ms,
        "us_per_step": step_ms * 1e3 * workers,
    }


def _best_ms(work: Callable[[], object], calls: int, repeats: int = 3) -> float:
    """Milliseconds of one call, the best of some repeats of `calls` calls."""
    best = np.inf
    work()
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - start) / calls)
    return float(best * 1e3)


def _full_run() -> FullRun:
    import resource  # POSIX only, as is this measurement

    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        subprocess.run([sys.executable, "-m", "svsl", "train", TASK, "--quiet", "--out", str(out)], check=True)
        episodes = int(SkillLibrary.load(out / "library.safetensors").metadata["episodes"])
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    return {"cpu_s": cpu, "wall_s": wall, "peak_memory_mb": after.ru_maxrss / unit, "episodes": episodes}
