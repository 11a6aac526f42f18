"""A small task on a MuJoCo model, with every kind of actuator, a mocap body and a free body."""

from typing import Any

import numpy as np

from svsl import Outcome
from svsl.model.gaussians import Array
from svsl.tasks.mujoco_task import MujocoTask, Rollout, Scene

PENDULUMS = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.01" gravity="0 0 0" integrator="implicitfast"/>
  <worldbody>
    <body><joint name="servo" axis="0 1 0"/><geom size="0.1" pos="0.5 0 0"/>
      <body pos="0.6 0 0"><joint name="motor" axis="0 1 0"/><geom size="0.1" pos="0.5 0 0"/>
        <body pos="0.6 0 0"><joint name="bare" axis="0 1 0"/><geom size="0.1" pos="0.5 0 0"/></body>
      </body>
    </body>
    <body name="cup" mocap="true" pos="0 0 -3"><geom size="0.1"/></body>
    <body name="ball" pos="0 2 0"><joint name="ball" type="free"/><geom size="0.1"/></body>
  </worldbody>
  <actuator>
    <position name="mine" joint="servo" kp="70" kv="3" gear="2"/>
    <motor joint="motor" gear="-4" ctrlrange="-1 2"/>
  </actuator>
  <sensor><jointpos name="angle" joint="bare"/></sensor>
  <keyframe><key qpos="0.1 0.2 0.3 0 2 0 1 0 0 0" ctrl="0.5 0.5"/></keyframe>
</mujoco>
"""


class Swing(MujocoTask):
    """Swing three joints; the context is where a cup is and how fast a ball flies."""

    context_low, context_high = np.array([-1.0, 0.0]), np.array([1.0, 3.0])

    def __init__(self, model: Any = PENDULUMS, **options: Any) -> None:
        settings: dict[str, Any] = {"duration_s": 0.3, "rest_s": 0.1, "penalty": -50.0, "kp": 20.0, "kv": 2.0}
        super().__init__(model, ("servo", "motor", "bare"), **(settings | options))

    def place(self, contexts: Array, scene: Scene) -> None:
        scene.mocap("cup")[:, 0] = contexts[:, 0]
        scene.qvel[:, 3] = contexts[:, 1]
        scene.joint("ball")[:, 2] = 7.0

    def score(self, contexts: Array, parameters: Array, rollout: Rollout) -> Outcome:
        angle = rollout.sensor("angle")[:, -1]
        return Outcome(-np.abs(angle - contexts[:, 0]), angle > 0, {"ball": rollout.joint("ball")[:, -1, 0]})
