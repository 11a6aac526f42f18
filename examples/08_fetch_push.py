"""Train on a robot of gymnasium-robotics: a Fetch arm pushes a box over the table to its `desired_goal`.

Here the context is more than the desired goal: also where the box stands. FetchPush draws both in `reset`, and
`set_box_and_goal` sets them; `context_indices` says where the observation shows them. The parameters are a movement of
the closed gripper in space, as in example 07.

    pip install gymnasium-robotics 'mujoco<3.9'
    svsl check-task 08_fetch_push:fetch_push                        # in the folder of this file
    svsl train 08_fetch_push:fetch_push --components 1 --iterations 50 --kl-expert 0.3

or, with the same settings, `python 08_fetch_push.py`.
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
    env = gymnasium.make("gymnasium_robotics:FetchPush-v4", **options)
    return TransformAction(env, lambda action: np.append(action, np.float32(0)), Box(-1, 1, (3,), np.float32))


def set_box_and_goal(env: Any, context: Array) -> dict[str, Array]:
    """Moves the box and the goal on the table, and returns the new observation."""
    pose = env._utils.get_joint_qpos(env.model, env.data, "object0:joint")
    pose[:2] = context[:2]
    env._utils.set_joint_qpos(env.model, env.data, "object0:joint", pose)
    env._mujoco.mj_forward(env.model, env.data)
    env.goal[:2] = context[2:]
    observation: dict[str, Array] = env._get_obs()
    return observation


def no_velocity(env: Any) -> Array:
    """The controller needs no velocities, because the environment damps the motion itself."""
    return np.zeros(3)


def fetch_push() -> MovementPrimitiveTask:
    """Push a box forward and sideways to points within 15 cm."""
    return MovementPrimitiveTask(
        make_env,
        env_options={"reward_type": "dense"},  # minus the distance of the box from the goal in each step
        context_indices=[0, 1, 3, 4],  # the achieved goal (the box) and the desired goal come first
        context_setter=set_box_and_goal,
        context_low=[1.42, 0.72, 1.48, 0.67],
        context_high=[1.46, 0.78, 1.58, 0.83],
        joint_positions=[6, 7, 8],  # the gripper
        joint_velocities=no_velocity,
        p_gain=20.0,
        d_gain=0.0,
        duration_s=0.8,
        steps=26,
        bases=3,
        initial_mean=[0.0, 0.0, 0.17, 0.0, 0.0, 0.0, 0.0, 0.0, -0.02],  # forward, and down to the table
        initial_std=0.05,
    )


def main(args: list[str]) -> int:
    """Trains with the settings above; `args` are further flags of `svsl train`."""
    from svsl.cli import main as svsl

    settings = "--components 1 --iterations 50 --kl-expert 0.3"
    return svsl(["train", "08_fetch_push:fetch_push", *settings.split(), *args])


if __name__ == "__main__":  # worker processes import this file
    sys.exit(main(sys.argv[1:]))
