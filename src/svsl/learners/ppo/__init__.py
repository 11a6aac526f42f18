"""PPO, a step-based learner. Only `learner` and `environment` import PyTorch (extra `svsl[ppo]`)."""

from svsl.errors import SvslError
from svsl.learners.base import PolicyTraining
from svsl.learners.ppo.config import PPOConfig
from svsl.tasks.base import Task

__all__ = ["PPOConfig", "make_ppo"]


def make_ppo(config: PPOConfig, task: Task, seed: int, workers: int | None = None) -> PolicyTraining:
    """Creates PPO on the step-based form of a task; the only place that imports PyTorch."""
    try:
        from svsl.learners.ppo.learner import PPOTraining
    except ModuleNotFoundError as error:
        raise SvslError(f"PPO needs {error.name}: pip install 'svsl[ppo]'") from None
    return PPOTraining(config, task, seed, workers)
