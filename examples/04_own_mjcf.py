"""Train on your own MuJoCo model: give the file and the joints, place a context and score an episode.

`striker.xml` is a two-joint arm on a table that hits a puck. The context is where the puck should stop, the parameters
are a joint movement. Episodes run in batches in C, on all cores, without Python per time step.

    svsl check-task 04_own_mjcf:Striker                             # in the folder of this file
    svsl train 04_own_mjcf:Striker --components 5 --iterations 150 --alpha 0.003 --beta 0.3 --kl-expert 0.1

or, with the same settings, `python 04_own_mjcf.py`. It takes about a minute on two cores.
"""

from __future__ import annotations

import sys

import numpy as np

from svsl import Outcome
from svsl.model.gaussians import Array
from svsl.tasks.mujoco_task import MujocoTask, Rollout, Scene

SUCCESS_DISTANCE = 0.08  # the radius of the mark


class Striker(MujocoTask):
    """Hit a puck so that it stops at a goal; the context is the goal.

    Return: `-10` times the final distance of puck and goal, at most one metre; also `-5` times the smallest distance of
    tip and puck if they never touch.
    """

    context_low = np.array([0.65, -0.25])
    context_high = np.array([0.95, 0.25])

    def __init__(self) -> None:
        super().__init__(
            "striker.xml",
            joints=("shoulder", "elbow"),
            duration_s=0.5,
            rest_s=1.0,
            penalty=-30.0,
            bases=2,
            initial_std=0.4,
            kp=100.0,
            tracked="puck",
        )
        self.initial_mean = np.array([-0.4, -0.8, 0.8, 1.6])  # the arm unfolds; two weights per joint

    def place(self, contexts: Array, scene: Scene) -> None:
        """Moves the mark to the goal."""
        scene.mocap("goal")[:, :2] = contexts

    def score(self, contexts: Array, parameters: Array, rollout: Rollout) -> Outcome:
        """Scores episodes by the final position of the puck."""
        puck, tip = rollout.sensor("puck")[..., :2], rollout.sensor("tip")[..., :2]
        distance = np.linalg.norm(puck[:, -1] - contexts, axis=1)
        hit = np.any(rollout.sensor("hit") > 0, axis=1)
        gap = np.linalg.norm(tip - puck, axis=2).min(axis=1)
        returns = -10 * np.minimum(distance, 1.0) - np.where(hit, 0.0, 5 * gap)
        return Outcome(returns, distance < SUCCESS_DISTANCE, {"distance": distance, "hit": hit})


def main(args: list[str]) -> int:
    """Trains with the settings above; `args` are further flags of `svsl train`."""
    from svsl.cli import main as svsl

    settings = "--components 5 --iterations 150 --alpha 0.003 --beta 0.3 --kl-expert 0.1"
    return svsl(["train", "04_own_mjcf:Striker", *settings.split(), *args])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
