"""The step-based reacher as a vectorised environment of stable-baselines3 (extra `svsl[ppo]`)."""

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from svsl.learners.base import Arrays
from svsl.model.gaussians import Array, BoolArray
from svsl.tasks.base import Task, uniform_contexts
from svsl.tasks.steps import StepForm


class ArmsVecEnv(VecEnv):
    """All arms as one vectorised environment: one call of the simulator steps them all.

    Args:
        arms: The arms.
        task: Defines the distribution of goals.
        rng: Draws the goals; may be replaced at any time.
    """

    def __init__(self, arms: StepForm, task: Task, rng: np.random.Generator) -> None:
        self.arms, self.task, self.rng = arms, task, rng
        self.finished: list[float] = []  # returns of finished episodes
        self._returns = np.zeros(len(arms.time))
        self._actions: Array = np.zeros((len(arms.time), 0))
        super().__init__(len(arms.time), arms.observation_space, arms.action_space)

    def reset(self) -> Array:
        """Starts a new episode of every arm; returns the observations."""
        self.arms.begin(slice(None), uniform_contexts(self.task, self.num_envs, self.rng))
        self._returns[:] = 0
        return self.arms.observe()

    def step_async(self, actions: Array) -> None:
        """Stores the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Array, Array, BoolArray, list[dict[str, Any]]]:
        """Steps all arms and starts a new episode where one is over."""
        rewards, over = self.arms.step(self._actions)
        self._returns += rewards
        observations = self.arms.observe()
        infos: list[dict[str, Any]] = [{} for _ in over]
        if over.any():
            for row in np.flatnonzero(over):
                infos[row]["terminal_observation"] = observations[row].copy()
                infos[row]["TimeLimit.truncated"] = not self.arms.sees_time
            self.finished += self._returns[over].tolist()
            self._returns[over] = 0
            self.arms.begin(over, uniform_contexts(self.task, int(over.sum()), self.rng))
            observations = self.arms.observe()
        return observations, rewards, over, infos

    def state(self) -> Arrays:
        """Returns the state of all episodes."""
        arms = self.arms
        return {"states": arms.states, "goals": arms.goals, "time": arms.time, "returns": self._returns}

    def restore(self, state: Arrays) -> None:
        """Continues from a `state`."""
        arms = self.arms
        for place, name in ((arms.states, "states"), (arms.goals, "goals"), (arms.time, "time")):
            place[:] = state[name]
        self._returns[:] = state["returns"]

    def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def get_attr(self, attr_name: str, indices: object = None) -> list[Any]:
        """Returns an attribute, which is the same for every arm."""
        return [None if attr_name == "render_mode" else getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: object, indices: object = None) -> None:
        """Not supported: arms have no attributes of their own."""
        raise NotImplementedError

    def env_method(self, method_name: str, *args: object, indices: object = None, **kwargs: object) -> list[Any]:
        """Not supported: arms have no methods of their own."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: type, indices: object = None) -> list[bool]:
        """Returns False for every arm."""
        return [False] * self.num_envs
