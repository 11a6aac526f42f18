"""The 5-link reacher step by step, with the physics of the task: an action is five torques, an episode 200 steps."""

from svsl.environments.steps import StepEnv
from svsl.tasks.reacher5 import Reward


class Reacher5Env(StepEnv):
    """One arm; see `svsl.tasks.reacher5.ReacherArms` for the observation, and `StepEnv` for the rest.

    Args:
        reward: See `Reacher5`.
        render_mode: None or `rgb_array`.
    """

    def __init__(self, reward: Reward = "dense", render_mode: str | None = None) -> None:
        super().__init__("reacher5", render_mode, reward=reward)
