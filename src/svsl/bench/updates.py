"""The speed of the learners' updates: SVSL's beside the straightforward reference, the baselines' beside SVSL's."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from svsl.bench import clock, reference
from svsl.learners.base import Learner, SearchSpace
from svsl.learners.fixed_mixture import FixedMixtureConfig
from svsl.learners.registry import find_preset, make_learner
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import Schedule, SVSLConfig
from svsl.model.gaussians import IntArray
from svsl.model.library import SkillLibrary
from svsl.model.random import stream
from svsl.tasks.base import Task

TASK = "planar-reacher"


def time_updates(task: Task, count: int) -> clock.Timing:
    """Times the updates of the newest and of all `count` components, the same by the reference, and iterations."""
    learner = _learner(task, count)
    newest, everyone = np.arange(count - 1, count), np.arange(count)
    start = learner._current

    def fast(index: IntArray) -> None:
        learner._mixture = start
        learner._update_contexts(index)
        learner._update_experts(index)

    def slow(index: IntArray) -> Callable[[], object]:
        return partial(reference.update_components, **_reference_arguments(learner, index))

    newest_ms, all_ms = clock.best_ms(lambda: fast(newest), 50), clock.best_ms(lambda: fast(everyone), 5)
    reference_newest_ms, reference_all_ms = clock.best_ms(slow(newest), 5), clock.best_ms(slow(everyone), 1)
    learner._mixture, every = start, learner.config.finetune_every

    def one_cycle() -> None:
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
        "iteration_ms": clock.best_ms(one_cycle, 1) / every,
    }


def time_baseline(task: Task, name: str, all_ms: float) -> clock.Timing:
    """Times an iteration of a baseline without its episodes; `all_ms` is SVSL's update of all components.

    It is the best of five, once the history is full and before components are deleted.
    """
    config = find_preset(TASK, name).settings
    assert isinstance(config, FixedMixtureConfig)
    learner = make_learner(name, config, SearchSpace.of(task), stream(0, 0))
    for _ in range(config.history):
        _iterate(learner, task)
    best = np.inf
    for _ in range(5):
        episodes = learner.ask()
        returns = task.evaluate(episodes.contexts, episodes.parameters, stream(0, 1)).returns
        start = time.perf_counter()
        learner.tell(returns)
        best = min(best, 1e3 * (time.perf_counter() - start))
    mixture = learner.mixture()
    assert mixture is not None
    return {"learner": name, "components": len(mixture), "iteration_ms": best, "times_all": best / all_ms}


def time_library(task: Task, count: int) -> float:
    """Returns the microseconds to sample a skill for one context from a library of `count` components."""
    mixture = _learner(task, count)._current
    library = SkillLibrary(mixture, np.asarray(task.context_low), np.asarray(task.context_high))
    context, rng = np.array([5.0, 1.0]), stream(0, 3)
    return clock.best_ms(lambda: library.sample(context, rng), 200) * 1e3


def _learner(task: Task, count: int) -> SVSL:
    """Returns a learner with the paper's settings and `count` briefly trained components, still training the newest."""
    config = find_preset(TASK).settings
    assert isinstance(config, SVSLConfig)
    brief = replace(config, components=count, iterations=5, delete_factor=None)
    learner = SVSL(brief, SearchSpace.of(task), stream(0, 0))
    while learner.component < count or learner.stage == "fill":
        _iterate(learner, task)
    learner.schedule = Schedule(replace(learner.config, iterations=1_000_000))
    return learner


def _iterate(learner: Learner, task: Task) -> None:
    episodes = learner.ask()
    learner.tell(task.evaluate(episodes.contexts, episodes.parameters, stream(0, 1)).returns)


def _reference_arguments(learner: SVSL, index: IntArray) -> dict[str, Any]:
    mixture, config = learner._current, learner.config
    contexts, experts = mixture.contexts, mixture.experts
    arrays = contexts.bias, contexts.cov, experts.gain, experts.bias, experts.cov
    components = [reference.Component(*component) for component in zip(*arrays, strict=True)]
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
