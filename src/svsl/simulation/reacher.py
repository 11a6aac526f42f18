"""The planar arm of the 5-link reacher: Gymnasium's Reacher with three more links, as a MuJoCo spec.

As in Gymnasium's Reacher: links of 0.1 m with a radius of 1 cm and the density of water, an armature and a damping of
1 at every joint, limits of 3 rad at all joints but the first, motors with a gear of 200 and actions from -1 to 1, no
collisions, and 0.02 s between actions. The tip is the end of the last link. The difference: these 0.02 s are one step
of the semi-implicit Euler method instead of two Runge-Kutta steps, so that a controller inside the simulator also acts
once per action. The armature makes the motion so smooth that the difference amounts to a time shift of less than one
step (`tests/tasks/test_reacher5.py`).
"""

from typing import Literal

import mujoco
import numpy as np

from svsl.model.gaussians import Array
from svsl.simulation.arm import GEOM, NO_COLLISIONS, SOLID_GROUP, VISUAL_GROUP, add_sensor

LINKS = 5
LINK_LENGTH = 0.1
REACH = LINKS * LINK_LENGTH
START = (np.pi, 0.0, 0.0, 0.0, 0.0)  # stretched out to the left
GEAR = 200.0
KP, KD = 0.6, 0.075  # servo gains: action per rad and per rad/s
_RADIUS = 0.01
_HEIGHT = 0.02  # height of the arm above the floor

Drive = Literal["motor", "servo"]


def reacher5_model(drive: Drive, visuals: bool = True) -> mujoco.MjModel:
    """Builds the arm on a table, seen from above; the mocap body `goal` marks the goal.

    Args:
        drive: `motor`: a control is the action a, and the torque of a joint is `GEAR * a`. `servo`: a control is a
            desired angle u, and the action is `KP (u - q) - KD qd`. Both limit the action to -1 to 1; the sensors
            `action_1` to `action_5` measure the applied action.
        visuals: Include purely visual geoms; the motion is the same without them.
    """
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.option.timestep = 0.02
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    spec.option.gravity = (0, 0, 0)  # irrelevant for horizontal motion
    # without warm starts a step depends only on the state, not on the previous steps of its rollout
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_WARMSTART | mujoco.mjtDisableBit.mjDSBL_CONTACT
    goal = spec.worldbody.add_body(name="goal", pos=(REACH / 2, 0, _HEIGHT), mocap=True)
    body = spec.worldbody
    for number in range(1, LINKS + 1):
        body = body.add_body(name=f"link_{number}", pos=(LINK_LENGTH, 0, 0) if number > 1 else (0, 0, _HEIGHT))
        limit = {} if number == 1 else {"limited": mujoco.mjtLimited.mjLIMITED_TRUE, "range": (-3.0, 3.0)}
        body.add_joint(
            name=f"joint_{number}", type=mujoco.mjtJoint.mjJNT_HINGE, axis=(0, 0, 1), armature=1, damping=1, **limit
        )
        body.add_geom(
            type=GEOM.mjGEOM_CAPSULE,
            fromto=(0, 0, 0, LINK_LENGTH, 0, 0),
            size=(_RADIUS, 0, 0),
            density=1000,
            rgba=(0.10, 0.42, 0.62, 1) if number % 2 else (0.20, 0.56, 0.76, 1),
            group=SOLID_GROUP,
            **NO_COLLISIONS,
        )
        _add_drive(spec, number, drive)
    body.add_site(name="tip", pos=(LINK_LENGTH, 0, 0), size=(_RADIUS,) * 3, rgba=(0.95, 0.55, 0.12, 1))
    if visuals:
        _add_visuals(spec, goal)
    return spec.compile()


def tip_position(joints: Array) -> Array:
    """Position of the tip: joint angles `(..., 5)` to `(..., 2)`, with rounding independent of the batch."""
    heading = np.cumsum(joints, axis=-1)
    x, y = np.cos(heading), np.sin(heading)
    tip = np.empty((*joints.shape[:-1], 2))
    for axis, part in enumerate((x, y)):
        tip[..., axis] = LINK_LENGTH * sum(part[..., link] for link in range(LINKS))
    return tip


def arm_points(joints: Array) -> Array:
    """Positions of the base, the joints and the tip: joint angles `(..., 5)` to `(..., 6, 2)`."""
    heading = np.cumsum(joints, axis=-1)
    points = np.zeros((*joints.shape[:-1], LINKS + 1, 2))
    steps = LINK_LENGTH * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    np.cumsum(steps, axis=-2, out=points[..., 1:, :])
    return points


def _add_drive(spec: mujoco.MjSpec, number: int, drive: Drive) -> None:
    motor = spec.add_actuator(name=f"motor_{number}", trntype=mujoco.mjtTrn.mjTRN_JOINT, target=f"joint_{number}")
    motor.gear[0] = GEAR
    limited = mujoco.mjtLimited.mjLIMITED_TRUE
    if drive == "motor":
        motor.set_to_motor()
        motor.ctrllimited, motor.ctrlrange = limited, (-1, 1)
    else:  # the actuator's length is GEAR times the angle
        motor.gaintype, motor.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
        motor.gainprm[0] = KP
        motor.biasprm[1:3] = -KP / GEAR, -KD / GEAR
        motor.forcelimited, motor.forcerange = limited, (-1, 1)
    add_sensor(spec, f"action_{number}", "ACTUATORFRC", "ACTUATOR", f"motor_{number}")


def _add_visuals(spec: mujoco.MjSpec, goal: mujoco.MjsBody) -> None:
    """Adds a table, the disc of goals, the base, the goal and a camera straight above."""
    spec.stat.center, spec.stat.extent = (0, 0, 0), 1.0
    spec.visual.global_.offwidth, spec.visual.global_.offheight = 1920, 1440
    spec.visual.headlight.ambient = spec.visual.headlight.diffuse = (0.5, 0.5, 0.5)
    visual = {"mass": 0, "group": VISUAL_GROUP, **NO_COLLISIONS}
    world, disc, box = spec.worldbody, GEOM.mjGEOM_CYLINDER, GEOM.mjGEOM_BOX
    world.add_geom(type=box, pos=(0, 0, -0.02), size=(2, 2, 0.01), rgba=(0.86, 0.87, 0.88, 1), **visual)
    world.add_geom(type=disc, pos=(0, 0, -0.009), size=(REACH, 0.001, 0), rgba=(0.95, 0.96, 0.97, 1), **visual)
    world.add_geom(type=box, pos=(0, 0, -0.007), size=(0.002, REACH, 0.001), rgba=(0.6, 0.6, 0.6, 1), **visual)
    world.add_geom(type=disc, pos=(0, 0, 0), size=(0.018, 0.02, 0), rgba=(0.17, 0.18, 0.21, 1), **visual)
    goal.add_geom(type=GEOM.mjGEOM_SPHERE, size=(0.015, 0, 0), rgba=(0.86, 0.10, 0.12, 1), **visual)
    world.add_light(pos=(0, 0, 3), dir=(0, 0, -1), diffuse=(0.4, 0.4, 0.4), castshadow=False)
    world.add_camera(name="scene", pos=(0, 0, 1.4), fovy=45)
