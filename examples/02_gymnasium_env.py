"""Train on a Gymnasium environment in the black-box convention: one action is a skill, one step is an episode.

The environment takes its context from `reset(options={"context": c})` and returns it as the observation. Any registered
environment works; this file registers one with a ball thrown in the wind, and is the module that `gym:` imports.

    svsl check-task gym:02_gymnasium_env:examples/Windy-v0          # in the folder of this file
    svsl train gym:02_gymnasium_env:examples/Windy-v0 --components 4 --iterations 100 --alpha 0.03

or, with the same settings, `python 02_gymnasium_env.py`. It takes about half a minute on two cores; episodes run in
parallel processes.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np

from svsl.model.gaussians import Array


class Windy(gymnasium.Env[Array, Array]):
    """Throw a ball at a bucket; the context is its distance [m] and the wind [m/s], the action is the velocity."""

    observation_space = gymnasium.spaces.Box(np.array([3.0, -4.0]), np.array([8.0, 4.0]), dtype=np.float64)
    action_space = gymnasium.spaces.Box(np.array([2.0, 2.0]), np.array([14.0, 14.0]), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Uses the given context, or draws one."""
        super().reset(seed=seed)
        low, high = self.observation_space.low, self.observation_space.high
        self.context = np.array((options or {}).get("context", self.np_random.uniform(low, high)))
        return self.context.copy(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Simulates the flight of the ball until it lands, with air drag and wind."""
        distance, wind = self.context
        position, velocity, dt_s = np.zeros(2), np.array(action, dtype=np.float64), 0.01
        while position[1] >= 0:
            relative = velocity - np.array([wind, 0.0])
            velocity += dt_s * (np.array([0.0, -9.81]) - 0.05 * np.hypot(*relative) * relative)
            position += dt_s * velocity
        miss = position[0] - distance
        effort = 0.01 * float(action @ action)
        return self.context.copy(), -abs(miss) - effort, True, False, {"is_success": abs(miss) < 0.3, "miss": miss}


gymnasium.register("examples/Windy-v0", entry_point="02_gymnasium_env:Windy")


def main(args: list[str]) -> int:
    """Trains with the settings above; `args` are further flags of `svsl train`."""
    from svsl.cli import main as svsl

    settings = "--components 4 --iterations 100 --alpha 0.03"
    return svsl(["train", "gym:02_gymnasium_env:examples/Windy-v0", *settings.split(), *args])


if __name__ == "__main__":  # worker processes import this file
    sys.exit(main(sys.argv[1:]))
