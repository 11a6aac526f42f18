"""Train on gymnasium-robotics' FetchPush: a Fetch arm pushes a block to a point on the table.

A push depends on where the block lies and on where it should go, so both are the context: four numbers of the first
observation, which `place` sets. The parameters are a movement of the gripper over the table, two weights per axis,
around a straight push to the left. The block lies to the left of the gripper and the goal further left: pushes in all
directions, as the environment draws them, need ways around the block, and so more weights and components.

    pip install gymnasium-robotics 'mujoco<3.9'
    svsl check-task 08_fetch_push:fetch_push                        # in the folder of this file
    svsl train 08_fetch_push:fetch_push --components 1 --iterations 40 --kl-expert 0.15

or, with the same settings, `python 08_fetch_push.py`. It takes two minutes of processor time. The means of the library
push the block to within 5 cm of 76 % of 300 random goals (95 % interval: 71 to 81); before training, 19 % of pushes do.
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
from svsl.simulation.movements import ProMP
from svsl.tasks.movement_task import MovementPrimitiveTask


def make_env(**options: Any) -> gymnasium.Env[Any, Any]:
    """Creates the environment with two actions: the gripper stays closed and at its height."""
    if find_spec("gymnasium_robotics") is None:
        raise SvslError("this example needs pip install gymnasium-robotics 'mujoco<3.9'")
    env = gymnasium.make("gymnasium_robotics:FetchPush-v4", **options)
    stay = np.zeros(2, np.float32)
    return TransformAction(env, lambda action: np.concatenate([action, stay]), Box(-1, 1, (2,), np.float32))


def place(env: Any, context: Array) -> dict[str, Array]:
    """Puts the block at the first two numbers, the goal at the last two, and returns the new observation."""
    pose = env._utils.get_joint_qpos(env.model, env.data, "object0:joint").copy()
    pose[:2] = context[:2]
    env._utils.set_joint_qpos(env.model, env.data, "object0:joint", pose)
    env._mujoco.mj_forward(env.model, env.data)
    env.goal = np.array([*context[2:], env.height_offset])
    observation: dict[str, Array] = env._get_obs()
    return observation


def no_velocity(env: Any) -> Array:
    """The controller needs no velocities, because the environment damps the motion itself."""
    return np.zeros(2)


def fetch_push() -> MovementPrimitiveTask:
    """Push a block 8 to 22 cm to the left with the gripper of a Fetch robot."""
    return MovementPrimitiveTask(
        make_env,
        env_options={"reward_type": "dense"},  # minus the distance in each step
        context_indices=[0, 1, 3, 4],  # x and y of the achieved goal, the block, and of the desired goal
        context_setter=place,
        context_low=[1.30, 0.83, 1.28, 0.95],
        context_high=[1.38, 0.87, 1.40, 1.05],
        joint_positions=[6, 7],  # the gripper's position comes first in `observation`, after the goals
        joint_velocities=no_velocity,
        p_gain=20.0,
        d_gain=0.0,
        duration_s=0.8,
        steps=25,
        primitive=ProMP(2),
        initial_mean=[0.0, 0.0, 0.1, 0.23],  # nothing in x, to the left in y
        initial_std=[0.02, 0.03],
    )


def main(args: list[str]) -> int:
    """Trains with the settings above; `args` are further flags of `svsl train`."""
    from svsl.cli import main as svsl

    settings = "--components 1 --iterations 40 --kl-expert 0.15"
    return svsl(["train", "08_fetch_push:fetch_push", *settings.split(), *args])


if __name__ == "__main__":  # worker processes import this file
    sys.exit(main(sys.argv[1:]))
