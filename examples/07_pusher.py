"""Train on Gymnasium's Pusher-v5: an arm of seven joints pushes a cylinder over a table onto the goal.

The context is where the cylinder stands. Three of the joints move, the other four are held, so that a movement has
nine parameters instead of 21. The search starts around a movement that lowers the hand and sweeps it over the table: an
arm that never touches the cylinder learns nothing. The environment reports no success; here it is a cylinder that
ends on the goal's disc.

    pip install 'gymnasium[mujoco]'
    svsl check-task 07_pusher:pusher                                # in the folder of this file
    svsl train 07_pusher:pusher --components 1 --iterations 80 --kl-expert 0.15

or, with the same settings, `python 07_pusher.py`. It takes two minutes of processor time. The means of the library push
the cylinder onto the goal from 67 % of 300 random places (95 % interval: 61 to 72); before training, 5 % of movements
do. The places are those from which one sweep is enough: 10 to 20 cm before the goal.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from svsl.model.gaussians import Array
from svsl.simulation.movements import ProMP
from svsl.tasks.movement_task import MovementPrimitiveTask

MOVED, HELD = [0, 1, 3], [2, 4, 5, 6]  # shoulder pan, shoulder lift and elbow; what rolls, and the wrist
GOAL_RADIUS = 0.08


class ThreeJoints(gymnasium.Wrapper[Array, Any, Array, Any]):
    """Moves three joints of the Pusher, holds the others, and says whether the cylinder is on the goal."""

    def __init__(self, env: gymnasium.Env[Array, Any]) -> None:
        super().__init__(env)
        self.action_space = Box(-2, 2, (3,), np.float32)

    def step(self, action: Array) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        """Adds the torques of the held joints."""
        data = self.unwrapped.data  # type: ignore[attr-defined]
        torques = np.zeros(7, np.float32)
        torques[MOVED] = action
        torques[HELD] = np.clip(-4 * data.qpos[HELD] - 0.4 * data.qvel[HELD], -2, 2)
        observation, reward, terminated, truncated, info = self.env.step(torques)
        distance = float(np.linalg.norm(observation[17:19] - observation[20:22]))
        return observation, reward, terminated, truncated, {**info, "is_success": distance < GOAL_RADIUS}


def make_env(**options: Any) -> ThreeJoints:
    """Creates the environment with three actions."""
    return ThreeJoints(gymnasium.make("Pusher-v5", **options))


def place(env: Any, position: Array) -> Array:
    """Puts the cylinder at x, y on the table and returns the new observation."""
    qpos = env.data.qpos.copy()
    qpos[7:9] = position[1] + 0.05, position[0] - 0.45  # slides in y and x, from where the goal is
    env.set_state(qpos, np.zeros_like(env.data.qvel))
    observation: Array = env._get_obs()
    return observation


def joint_positions(env: Any) -> Array:
    """Positions of the joints that move."""
    positions: Array = env.data.qpos[MOVED]
    return positions


def joint_velocities(env: Any) -> Array:
    """Velocities of the joints that move."""
    velocities: Array = env.data.qvel[MOVED]
    return velocities


def pusher() -> MovementPrimitiveTask:
    """Push a cylinder that stands 10 to 20 cm before the goal onto it."""
    return MovementPrimitiveTask(
        make_env,
        env_options={"reward_control_weight": 0.01},
        context_indices=[17, 18],  # the cylinder in the first observation
        context_setter=place,
        context_low=[0.35, -0.25],
        context_high=[0.55, -0.15],
        joint_positions=joint_positions,
        joint_velocities=joint_velocities,
        p_gain=[8.0, 8.0, 4.0],
        d_gain=[1.0, 1.0, 0.4],
        duration_s=2.5,
        steps=80,
        primitive=ProMP(3),
        initial_mean=[0.0, 0.4, 1.1, 1.2, 1.2, 1.0, -1.5, -1.5, -1.1],  # sweep; lower the hand
        initial_std=[0.15, 0.1, 0.1],
    )


def main(args: list[str]) -> int:
    """Trains with the settings above; `args` are further flags of `svsl train`."""
    from svsl.cli import main as svsl

    settings = "--components 1 --iterations 80 --kl-expert 0.15"
    return svsl(["train", "07_pusher:pusher", *settings.split(), *args])


if __name__ == "__main__":  # worker processes import this file
    sys.exit(main(sys.argv[1:]))
