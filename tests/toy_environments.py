"""Small Gymnasium environments: one that follows the black-box convention, and others that do not."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from svsl.model.gaussians import Array

Step = tuple[Array, float, bool, bool, dict[str, Any]]


class Toss(gymnasium.Env[Array, Array]):
    """Hit `theta = (c, -c)` in one step; noise in the return comes from the environment's own generator."""

    observation_space: Any = Box(-1.0, 1.0, (1,), dtype=np.float64)
    action_space: Any = Box(-3.0, 3.0, (2,), dtype=np.float64)

    def __init__(self, noise: float = 0.1, render_mode: str | None = None) -> None:
        self.noise, self.context = noise, np.zeros(1)
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = self.np_random.uniform(-1.0, 1.0, 1)
        self.context = np.array((options or {}).get("context", drawn))
        return self.context.copy(), {}

    def step(self, action: Array) -> Step:
        self.episodes += 1
        error = action - np.array([self.context[0], -self.context[0]])
        distance = float(np.sqrt((error**2).sum()))
        reward = -(distance**2) + self.noise * float(self.np_random.standard_normal())
        info = {"is_success": distance < 0.3, "distance": distance, "mode": "left" if action[0] < 0 else "right"}
        return self.context.copy(), reward, True, False, info


class Mortal(Toss):
    """Kills its process once, at the first episode after the file `kill` was created."""

    def step(self, action: Array) -> Step:
        with contextlib.suppress(FileNotFoundError):  # of two processes only one can delete it
            Path("kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Deadly(Toss):
    """Kills its process whenever the context is above 0.9."""

    def step(self, action: Array) -> Step:
        if self.context[0] > 0.9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Deaf(Toss):
    """Ignores the given context and draws its own."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        return super().reset(seed=seed)


class Settable(Deaf):
    """Ignores the context at reset, but has setters."""

    def set_context(self, context: Array) -> Array:
        self.context = np.array(context)
        return self.context

    def set_quietly(self, context: Array) -> None:
        self.context = np.array(context)

    def set_wrongly(self, context: Array) -> Array:
        return np.asarray(context + 0.5)


class Broken(Toss):
    """Raises in `step`."""

    def step(self, action: Array) -> Step:
        raise ZeroDivisionError("the cable came off")


class Endless(Toss):
    """Does not end after one step."""

    def step(self, action: Array) -> Step:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, False, truncated, info


class Unbounded(Toss):
    """Has an unbounded action space."""

    action_space = Box(-np.inf, np.inf, (2,), dtype=np.float64)


class Wide(Toss):
    """Has an unbounded observation space."""

    observation_space = Box(-np.inf, np.inf, (1,), dtype=np.float64)


class Buttons(Toss):
    """Has a discrete action space."""

    action_space = Discrete(4)


class Numbered(Toss):
    """Has a discrete observation space."""

    observation_space: Any = Discrete(7)


class Stuck(Toss):
    """Cannot be reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        raise RuntimeError("no power")


class Cart(gymnasium.Env[Array, Array]):
    """Two unit masses pushed for steps of 0.05 s (or placed at the action); rewards closeness to a target.

    The observation is the target, the positions and the velocities.
    """

    observation_space = Box(-10.0, 10.0, (6,), dtype=np.float64)
    action_space = Box(-40.0, 40.0, (2,), dtype=np.float64)
    dt = 0.05

    def __init__(self, put: bool = False, render_mode: str | None = None) -> None:
        self.put, self.target, self.q, self.v = put, np.zeros(2), np.zeros(2), np.zeros(2)

    def observe(self) -> Array:
        return np.concatenate([self.target, self.q, self.v])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.target = np.array((options or {}).get("context", [0.5, 0.5]))
        self.q, self.v, self.count = self.np_random.uniform(-0.1, 0.1, 2), np.zeros(2), 0
        return self.observe(), {}

    def step(self, action: Array) -> Step:
        self.count += 1
        if self.put:
            self.q = np.array(action)
        else:
            self.v = self.v + self.dt * action
            self.q = self.q + self.dt * self.v
        near = float(np.sqrt(((self.q - self.target) ** 2).sum()))
        return self.observe(), -near, False, self.count == 30, {"success": near < 0.1, "near": near}


class Hanging(Toss):
    """Never ends an episode whose context is above 0.9."""

    def step(self, action: Array) -> Step:
        while self.context[0] > 0.9:
            signal.pause()
        return super().step(action)


class Sleepy(Toss):
    """Hangs once, at the first episode after the file `hang` was created."""

    def step(self, action: Array) -> Step:
        if Path("hang").exists():
            Path("hang").unlink()
            signal.pause()
        return super().step(action)


class Filmed(Toss):
    """A large picture: its red is the context, its green whether the step is done, both from 0 to 200."""

    metadata: Any = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's contract)

    def __init__(self, noise: float = 0.0, render_mode: str | None = None) -> None:
        super().__init__(noise)
        self.render_mode = render_mode

    def render(self) -> Any:
        picture = np.zeros((400, 600, 3), dtype=np.uint8)
        picture[..., 0], picture[..., 1] = 200 * self.context[0], 200 * (self.episodes > 0)
        return picture


class Goal(gymnasium.Env[dict[str, Array], Array]):
    """A goal-conditioned environment like those of gymnasium-robotics: its goal is drawn, and kept in an attribute.

    The body moves by a tenth of the action in each of its 10 steps.
    """

    space = Box(-np.inf, np.inf, (2,), dtype=np.float64)
    observation_space: Any = Dict({"observation": space, "achieved_goal": space, "desired_goal": space})
    action_space = Box(-5.0, 5.0, (2,), dtype=np.float64)
    metadata: Any = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's contract)
    dt = 0.1

    def __init__(self, render_mode: str | None = None) -> None:
        self.goal, self.body, self.render_mode = np.zeros(0), np.zeros(2), render_mode

    def _get_obs(self) -> dict[str, Array]:
        return {"observation": -self.body, "achieved_goal": self.body.copy(), "desired_goal": self.goal.copy()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        self.goal, self.body, self.count = self.np_random.uniform([1, 2], [1.5, 3], 2), np.ones(2), 0
        return self._get_obs(), {}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        self.count, self.body = self.count + 1, self.body + action / 10
        distance = float(np.abs(self.body - self.goal).sum())
        return self._get_obs(), -distance, False, self.count == 10, {"is_success": distance < 0.1}

    def render(self) -> Any:
        return np.full((4, 6, 3), 10 * self.count, dtype=np.uint8)


class OneStepGoal(Goal):
    """Ends after one step."""

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, True, truncated, info


class FixedGoal(OneStepGoal):
    """Shows a goal of its own; only `set_both` changes it."""

    shown = np.ones(2)

    def _get_obs(self) -> dict[str, Array]:
        return super()._get_obs() | {"desired_goal": self.shown}

    def set_both(self, goal: Array) -> dict[str, Array]:
        self.goal = self.shown = goal
        return self._get_obs()


_KINDS: list[type[gymnasium.Env[Any, Array]]] = [Hanging, Sleepy, Filmed, OneStepGoal, FixedGoal]
_KINDS += [Toss, Mortal, Deadly, Deaf, Settable, Broken, Endless, Unbounded, Wide, Buttons, Numbered, Stuck, Cart]
for _kind in _KINDS:
    gymnasium.register(f"toy/{_kind.__name__}-v0", entry_point=f"toy_environments:{_kind.__name__}")
gymnasium.register("toy/Goal-v0", entry_point="toy_environments:Goal", max_episode_steps=10)
