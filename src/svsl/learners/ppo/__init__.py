"""PPO, a step-based learner. Only `learner` and `environment` import PyTorch (extra `svsl[ppo]`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from svsl.errors import SvslError
from svsl.learners.ppo.config import PPOConfig
from svsl.tasks.base import Task

if TYPE_CHECKING:
    from svsl.learners.ppo.learner import PPOTraining

__all__ = ["PPOConfig", "make_ppo"]


def make_ppo(config: PPOConfig, task: Task, seed: int, workers: int | None = None) -> PPOTraining:
    """Creates PPO on the step-based form of a task; the only place that imports PyTorch.

    Raises:
        SvslError: If the task has no step-based form, or the extra is not installed.
    """
    try:
        learner = import_module("svsl.learners.ppo.learner")
    except ModuleNotFoundError as error:
        raise SvslError(f"PPO needs {error.name}: pip install 'svsl[ppo]'") from None
    training: PPOTraining = learner.PPOTraining(config, task, seed, workers)
    return training
