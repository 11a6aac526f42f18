"""The one-legged hopper of Gymnasium, read from the installed package, and its planar kinematics."""

from pathlib import Path

import gymnasium
import mujoco
import numpy as np

from svsl.errors import SvslError
from svsl.model.gaussians import Array, BoolArray
from svsl.simulation.arm import GEOM, NO_COLLISIONS, VISUAL_GROUP

HOPPER_FILE = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "hopper.xml"
ANKLE_HEIGHT = 0.06  # of the ankle above the sole, the radius of the foot
_HIP, _THIGH, _SHIN = 0.2, 0.45, 0.5  # from the middle of the torso to the hip, to the knee, to the ankle
_HEEL, _TOES = -0.13, 0.26  # ends of the foot's axis, from the ankle
_TOUCH = 0.002  # two margins of 1 mm: where MuJoCo reports a contact (before version 4 from 1 mm on)


def hopper_model(visuals: bool = True) -> mujoco.MjModel:
    """Builds the hopper; with visuals, the mocap body `goal` marks a place on the floor.

    Raises:
        SvslError: If the installed Gymnasium has no model of the hopper.
    """
    if not HOPPER_FILE.exists():
        raise SvslError(f"the installed Gymnasium has no file {HOPPER_FILE.name}; install gymnasium>=1.0 again")
    spec = mujoco.MjSpec.from_file(str(HOPPER_FILE))
    # without warm starts a step depends only on the state, not on the previous steps of its rollout
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_WARMSTART
    if visuals:
        for name, shade in (("torso", 0.95), ("thigh", 0.8), ("leg", 0.95), ("foot", 0.8)):
            geom = spec.geom(f"{name}_geom")
            geom.material, geom.rgba = "", (shade, 0.7 * shade, 0.4 * shade, 1)  # the viewer shows no textures
        floor = spec.material("MatPlane")
        floor.reflectance, spec.texture("texplane").rgb1, spec.texture("texplane").rgb2 = 0, (0.5,) * 3, (0.6,) * 3
        spec.visual.global_.offwidth, spec.visual.global_.offheight = 1920, 1440
        spec.stat.center, spec.stat.extent = (0.5, 0, 0.9), 2.0
        goal = spec.worldbody.add_body(name="goal", mocap=True)
        goal.add_geom(
            type=GEOM.mjGEOM_CYLINDER, size=(0.06, 0.006, 0), rgba=(0.86, 0.10, 0.12, 1), group=VISUAL_GROUP,
            mass=0, condim=3, **NO_COLLISIONS,
        )  # fmt: skip
        spec.worldbody.add_camera(name="scene", pos=(0.6, -3.6, 1.05), xyaxes=(1, 0, 0, 0, 0.05, 1), fovy=45)
    return spec.compile()


def foot_points(qpos: Array) -> tuple[Array, Array]:
    """Position of the sole under the ankle, and height of the lower end of the foot above the floor.

    Args:
        qpos: `(..., 6)`: torso x, z and angle, thigh, leg, foot.

    Returns:
        Positions x, z `(..., 2)`, and heights `(...)`, with rounding independent of the batch.
    """
    angles = qpos[..., 2:].copy()  # of torso, thigh, leg and foot, each relative to the one before
    angles[..., 1:] *= -1  # the joints' axes point the other way
    np.cumsum(angles, axis=-1, out=angles)
    sine, cosine = np.sin(angles), np.cos(angles)
    position = qpos[..., :2].copy()
    for part, length in enumerate((_HIP, _THIGH, _SHIN, ANKLE_HEIGHT)):
        position[..., 0] -= length * sine[..., part]
        position[..., 1] -= length * cosine[..., part]
    ankle_z = position[..., 1] + ANKLE_HEIGHT * cosine[..., 3]
    return position, ankle_z - ANKLE_HEIGHT - np.maximum(_HEEL * sine[..., 3], _TOES * sine[..., 3])


def touches_floor(height: Array) -> BoolArray:
    """Whether a foot whose lower end is at this height touches the floor."""
    return np.asarray(height < _TOUCH)
