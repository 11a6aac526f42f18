"""Learners by name and their settings for each task: the paper's where it has them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from svsl.errors import SvslError
from svsl.learners.base import Learner, SearchSpace
from svsl.learners.svsl import SVSL, SVSLConfig

LearnerConfig = SVSLConfig

LEARNERS: dict[
    str, tuple[type[LearnerConfig], Callable[[LearnerConfig, SearchSpace, np.random.Generator], Learner]]
] = {"svsl": (SVSLConfig, SVSL)}

PRESETS: dict[tuple[str, str], LearnerConfig] = {
    ("planar-reacher", "svsl"): SVSLConfig(
        components=60,
        iterations=350,
        alpha=1e-4,
        beta=1.0,
        beta_weight=1.0,
        kl_context=0.001,
        delete_factor=5.0,
        context_start_std=(1.5, 3.0),
        context_std=(1.0, 1.0),
        context_scale=(1.0, 1.0),
    )
}


def preset(task: str, learner: str = "svsl") -> LearnerConfig:
    """The settings of a learner for a task; general defaults where the task has none of its own."""
    if learner not in LEARNERS:
        raise SvslError(f"unknown learner {learner!r}; known learners: {', '.join(LEARNERS)}")
    return PRESETS.get((task, learner)) or LEARNERS[learner][0]()


def make_learner(name: str, config: LearnerConfig, space: SearchSpace, rng: np.random.Generator) -> Learner:
    """Makes the learner called `name`."""
    return LEARNERS[name][1](config, space, rng)
