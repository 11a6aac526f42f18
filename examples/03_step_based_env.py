"""Train on an ordinary step-based Gymnasium environment: a skill is a movement that is tracked step by step.

Gymnasium's Reacher-v5 is a two-link arm moved by torques; its first observation contains the position of the target.
The parameters are a joint movement, which a PD controller tracks; the rewards of all steps are summed. Reacher draws
its own targets in `reset`, so `set_target` sets them.

    pip install 'gymnasium[mujoco]'
    svsl check-task 03_step_based_env:reacher                       # in the folder of this file
    svsl train 03_step_based_env:reacher --components 2 --iterations 100 --alpha 0.003 --kl-expert 0.05

or, with the same settings, `python 03_step_based_env.py`. It takes about a minute on two cores, because every step of
every episode runs in Python. Example 04 is faster for MuJoCo models.
"""

from __future__ import annotations

import sys
from typing import Any

from svsl.model.gaussians import Array
from svsl.tasks.movement_task import MovementPrimitiveTask


def set_target(env: Any, target: Array) -> Array:
    """Moves the target of a Reacher and returns the new observation."""
    env.goal = target
    qpos = env.data.qpos.copy()
    qpos[2:] = target
    env.set_state(qpos, env.data.qvel)
    observation: Array = env._get_obs()
    return observation


def reacher() -> MovementPrimitiveTask:
    """Reach targets in a square with a two-link arm."""
    return MovementPrimitiveTask(
        "Reacher-v5",
        env_options={"reward_control_weight": 0.1},
        context_indices=[4, 5],  # the target in the first observation
        context_setter=set_target,
        context_low=[0.05, -0.12],
        context_high=[0.17, 0.12],
        joint_positions="data.qpos",  # attribute of the environment; the observation has only sine and cosine
        joint_velocities=[6, 7],  # indices of the observation
        p_gain=0.4,
        d_gain=0.03,
        duration_s=0.3,
        steps=25,
        bases=2,
        initial_std=1.0,
        success_return=-2.5,
    )


def main(args: list[str]) -> int:
    """Trains with the settings above; `args` are further flags of `svsl train`."""
    from svsl.cli import main as svsl

    settings = "--components 2 --iterations 100 --alpha 0.003 --kl-expert 0.05"
    return svsl(["train", "03_step_based_env:reacher", *settings.split(), *args])


if __name__ == "__main__":  # worker processes import this file
    sys.exit(main(sys.argv[1:]))
