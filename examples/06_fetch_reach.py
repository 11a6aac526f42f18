"""Train on a robot of gymnasium-robotics: a Fetch arm that reaches a point in space, its `desired_goal`.

The goal is the context: svsl sets it in the environment's attribute `goal`. An action moves the gripper a little, so
the parameters are a movement of the gripper in space, three weights per axis, and a controller in the unit of the
actions (20 per metre of error) tracks it. The fourth action opens the gripper, which has nothing to do here.

    pip install gymnasium-robotics 'mujoco<3.9'
    svsl check-task 06_fetch_reach:fetch_reach                      # in the folder of this file
    svsl train 06_fetch_reach:fetch_reach --components 1 --iterations 25 --kl-expert 0.2

or, with the same settings, `python 06_fetch_reach.py`. In about a minute and a half on two cores it learns to reach all
of 300 random goals. One component is enough: where a movement ends is linear in its weights.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TransformAction

from svsl import SvslError
from svsl.model.gaussians import Array
from svsl.tasks.movement_task import MovementPrimitiveTask


def make_env(**options: Any) -> gymnasium.Env[Any, Any]:
    """Creates the environment with three actions; the gripper stays closed."""
    if find_spec("gymnasium_robotics") is None:
        raise SvslError("this example needs pip install gymnasium-robotics 'mujoco<3.9'")
    env = gymnasium.make("gymnasium_robotics:FetchReach-v4", **options)
    return TransformAction(env, lambda action: np.append(action, np.float32(0)), Box(-1, 1, (3,), np.float32))


def no_velocity(env: Any) -> Array:
    """The controller needs no velocities, because the environment damps the motion itself."""
    return np.zeros(3)


def fetch_reach() -> MovementPrimitiveTask:
    """Reach points in a cube of 30 cm with the gripper of a Fetch robot."""
    return MovementPrimitiveTask(
        make_env,
        env_options={"reward_type": "dense"},  # minus the distance in each step
        context_indices=None,  # the desired goal
        context_low=[1.19, 0.6, 0.385],
        context_high=[1.49, 0.9, 0.685],
        joint_positions=[0, 1, 2],  # the achieved goal, which comes first in the observation: the gripper's position
        joint_velocities=no_velocity,
        p_gain=20.0,
        d_gain=0.0,
        duration_s=0.6,
        steps=20,
        bases=2,
        initial_std=0.1,
    )


def main(args: list[str]) -> int:
    """Trains with the settings above; `args` are further flags of `svsl train`."""
    from svsl.cli import main as svsl

    settings = "--components 1 --iterations 25 --kl-expert 0.2"
    return svsl(["train", "06_fetch_reach:fetch_reach", *settings.split(), *args])


if __name__ == "__main__":  # worker processes import this file
    sys.exit(main(sys.argv[1:]))
