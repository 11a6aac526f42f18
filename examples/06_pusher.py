"""Train on Gymnasium's Pusher-v5: an arm with seven joints pushes a cylinder from where it stands to a fixed goal.

The context is the position of the cylinder, which Pusher draws in `reset`; `set_cylinder` sets it. The parameters are a
joint movement, two weights per joint, which a PD controller tracks with the arm's torques. Pusher reports no success,
so a wrapper does: the cylinder ends within 10 cm of the goal.

    pip install 'gymnasium[mujoco]'
    svsl check-task 06_pusher:pusher                                # in the folder of this file
    svsl train 06_pusher:pusher --components 1 --iterations 100 --alpha 0.01 --kl-expert 0.3

or, with the same settings, `python 06_pusher.py`.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np

from svsl.model.gaussians import Array
from svsl.tasks.movement_task import MovementPrimitiveTask

GOAL = np.array([0.45, -0.05])


class WithSuccess(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the final distance to the goal and the success to the info."""

    def step(self, action: Any) -> Any:
        """Steps and reports."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        distance = float(np.linalg.norm(observation[17:19] - GOAL))
        return observation, reward, terminated, truncated, {**info, "distance": distance, "success": distance < 0.1}


def make_env(**options: Any) -> gymnasium.Env[Any, Any]:
    """Creates a Pusher that reports success."""
    return WithSuccess(gymnasium.make("Pusher-v5", **options))


def set_cylinder(env: Any, position: Array) -> Array:
    """Moves the cylinder and returns the new observation."""
    qpos = env.data.qpos.copy()
    qpos[-4:-2] = (position - GOAL)[::-1]  # its slides point along y and x
    env.set_state(qpos, env.data.qvel)
    observation: Array = env._get_obs()
    return observation


def pusher() -> MovementPrimitiveTask:
    """Push a cylinder to a goal with an arm of seven joints."""
    return MovementPrimitiveTask(
        make_env,
        # with the default weights it is best to keep still beside the cylinder
        env_options={"reward_near_weight": 1.0, "reward_dist_weight": 5.0, "reward_control_weight": 0.01},
        context_indices=[17, 18],  # the cylinder in the first observation
        context_setter=set_cylinder,
        context_low=[0.35, -0.33],
        context_high=[0.6, -0.23],
        joint_positions=[0, 1, 2, 3, 4, 5, 6],
        joint_velocities=[7, 8, 9, 10, 11, 12, 13],
        p_gain=8.0,
        d_gain=1.0,
        duration_s=1.5,
        steps=40,
        bases=2,
        initial_std=0.4,
    )


def main(args: list[str]) -> int:
    """Trains with the settings above; `args` are further flags of `svsl train`."""
    from svsl.cli import main as svsl

    settings = "--components 1 --iterations 100 --alpha 0.01 --kl-expert 0.3"
    return svsl(["train", "06_pusher:pusher", *settings.split(), *args])


if __name__ == "__main__":  # worker processes import this file
    sys.exit(main(sys.argv[1:]))
