"""The MuJoCo scene of box pushing: a Panda holds a rod inside an open box on a table.

Degrees of freedom: `qpos[:7]` are the arm's joints, `qpos[7:]` is the pose of the box. The contact parameters follow
from those of the geoms by MuJoCo's rules, as in the published scene: the box's plate slides with its own friction, and
the stiff table only meets what has no priority.

Left out of the published scene, because it changed nothing there: the meshes of the links, the support under the table,
the frame around the table.
"""

from typing import Literal

import mujoco

from svsl.simulation.arm import GEOM, JOINTS, VISUAL_GROUP, Vector, add_sensor
from svsl.simulation.panda import add_panda
from svsl.simulation.scenes import add_camera, add_contact_sensor, add_visual, new_scene

TIMESTEP_S = 0.002
START = (0.38706806, 0.17620842, 0.24989142, -2.39914377, -0.07986905, 2.56857367, 1.47951693)  # of the fixed start
BOX_START: tuple[float, float] = (0.4, 0.3)
BOX_Z = -0.01  # of the box at the start, and of its target
WALLS = ("+x", "-x", "+y", "-y")  # of the box, in its own frame
KP = (12.0, 12.0, 12.0, 12.0, 5.0, 3.0, 1.0)  # N m/rad
KD = (1.0, 1.0, 1.0, 1.0, 0.6, 0.5, 0.3)  # N m s/rad
LARGEST_COMMAND = 10.0  # N m, beyond the compensation
TORQUE_LIMIT = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
Drive = Literal["servo", "motor"]

_BOX = GEOM.mjGEOM_BOX
_HALF, _WALL, _WALL_HALF_HEIGHT, _WALL_Z = 0.05, 0.005, 0.045, 0.0485
_WALL_PLACES = (
    ((_HALF, 0, _WALL_Z), (_WALL, _HALF, _WALL_HALF_HEIGHT)),
    ((-_HALF, 0, _WALL_Z), (_WALL, _HALF, _WALL_HALF_HEIGHT)),
    ((0, _HALF, _WALL_Z), (_HALF, _WALL, _WALL_HALF_HEIGHT)),
    ((0, -_HALF, _WALL_Z), (_HALF, _WALL, _WALL_HALF_HEIGHT)),
)
_PLATE_SIZE: Vector = (_HALF, _HALF, 0.01)
_BLUE, _ORANGE = (0.24, 0.46, 0.72, 1), (0.93, 0.47, 0.13, 1)
_WOOD, _STEEL = (0.80, 0.66, 0.48, 1), (0.30, 0.32, 0.36, 1)
_FLOOR_Z = -0.94


def box_pushing_model(drive: Drive, visuals: bool = True) -> mujoco.MjModel:
    """Builds the scene; the mocap body `target` shows the pose where the box should end.

    Args:
        drive: `servo`: a control is a desired angle u, and the torque of a joint is `KP (u - q) - KD qd`, at most
            `LARGEST_COMMAND`, at every time step, and gravity is compensated. `motor`: a control is a torque, limited
            by `TORQUE_LIMIT`, and nothing is compensated.
        visuals: Include purely visual geoms; the motion is the same without them.
    """
    spec = new_scene(TIMESTEP_S, middle=(0.3, 0.0, 0.1), light=(-0.35, 0.45, -1.0))
    spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 3
    spec.option.solver, spec.option.tolerance = mujoco.mjtSolver.mjSOL_NEWTON, 1e-10
    floor = spec.geom("floor")
    floor.pos, floor.contype, floor.conaffinity = (0, 0, _FLOOR_Z), 1, 1
    add_panda(spec)
    _add_table(spec)
    _add_box(spec)
    for number in range(1, JOINTS + 1):
        _add_drive(spec, number, drive)
    if drive == "motor":
        for body in spec.bodies:
            body.gravcomp = 0
    target = spec.worldbody.add_body(name="target", pos=(0.5, -0.2, BOX_Z), mocap=True)
    _add_target(target)
    add_camera(spec.worldbody, eye=(1.55, -0.85, 0.95), target=(0.3, 0.02, 0.16), fovy=36)
    add_sensor(spec, "rod_tip_pos", "FRAMEPOS", "SITE", "rod_tip")
    add_sensor(spec, "rod_quat", "FRAMEQUAT", "SITE", "rod_tip")
    for name in WALLS:
        rod, wall = (mujoco.mjtObj.mjOBJ_GEOM, "rod"), (mujoco.mjtObj.mjOBJ_GEOM, f"wall_{name}")
        add_contact_sensor(spec, f"rod_{name}", rod, wall)
    if not visuals:
        for geom in list(spec.geoms):
            if geom.group == VISUAL_GROUP:
                spec.delete(geom)
    return spec.compile()


def bias_model() -> mujoco.MjModel:
    """Builds the arm alone, to measure the torques that hold it on its path: gravity, Coriolis and centrifugal.

    Its armature is so large that it does not accelerate, so the sensor `torque_1` .. `torque_7` of the torque between
    two links, whose z axis is the joint's, is MuJoCo's `qfrc_bias`.
    """
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.option.timestep = TIMESTEP_S
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    add_panda(spec)
    for body in spec.bodies:
        body.gravcomp = 0
    for number in range(1, JOINTS + 1):
        spec.joint(f"joint_{number}").armature = 1e12
        spec.body(f"link_{number}").add_site(name=f"link_{number}")
        add_sensor(spec, f"torque_{number}", "TORQUE", "SITE", f"link_{number}")
    return spec.compile()


def _add_table(spec: mujoco.MjSpec) -> None:
    world = spec.worldbody
    stiff = {"solref": (0.002, 1), "solimp": (0.999, 0.999, 0.001, 0.5, 2)}
    world.add_geom(name="table", type=_BOX, pos=(0.2, 0, -0.02), size=(0.49, 0.98, 0.001), rgba=_WOOD, **stiff)
    world.add_geom(name="pedestal", type=_BOX, pos=(-0.04, 0, -0.01), size=(0.18, 0.18, 0.01), rgba=_STEEL)
    add_visual(world, _BOX, (0.2, 0, -0.046), (0.49, 0.98, 0.025), (0.72, 0.58, 0.41, 1))
    for x in (-0.24, 0.64):
        for y in (-0.93, 0.93):
            half_height = (-0.071 - _FLOOR_Z) / 2
            add_visual(world, _BOX, (x, y, -0.071 - half_height), (0.035, 0.035, half_height), _STEEL)
    line = (0.97, 0.97, 0.95, 1)  # around the positions of targets
    for y in (-0.45, 0.45):
        add_visual(world, _BOX, (0.45, y, -0.019), (0.152, 0.002, 0.0006), line)
    for x in (0.3, 0.6):
        add_visual(world, _BOX, (x, 0, -0.019), (0.002, 0.452, 0.0006), line)


def _add_box(spec: mujoco.MjSpec) -> None:
    """Adds the body `box`; its wall +x is marked by its colour."""
    box = spec.worldbody.add_body(name="box", pos=(*BOX_START, BOX_Z))
    box.add_freejoint(name="box")
    slides = {"mass": 2.0, "friction": (0.3, 0.001, 0.0001), "priority": 1}
    box.add_geom(name="plate", type=_BOX, size=_PLATE_SIZE, rgba=_BLUE, **slides)
    for name, (pos, size) in zip(WALLS, _WALL_PLACES, strict=True):
        rgba = _ORANGE if name == "+x" else _BLUE
        box.add_geom(name=f"wall_{name}", type=_BOX, pos=pos, size=size, mass=0.001, rgba=rgba)


def _add_target(target: mujoco.MjsBody) -> None:
    add_visual(target, _BOX, (0, 0, -0.008), (0.055, 0.055, 0.0015), (*_BLUE[:3], 0.55))
    for name, (pos, size) in zip(WALLS, _WALL_PLACES, strict=True):
        rgba = _ORANGE if name == "+x" else _BLUE
        add_visual(target, _BOX, (*pos[:2], 0.0025), (*size[:2], 0.01), (*rgba[:3], 0.4))


def _add_drive(spec: mujoco.MjSpec, number: int, drive: Drive) -> None:
    motor = spec.add_actuator(name=f"motor_{number}", trntype=mujoco.mjtTrn.mjTRN_JOINT, target=f"joint_{number}")
    limit = LARGEST_COMMAND
    if drive == "servo":
        motor.set_to_position(kp=KP[number - 1], kv=KD[number - 1])
    else:
        motor.set_to_motor()
        limit = TORQUE_LIMIT[number - 1]
    motor.forcelimited, motor.forcerange = mujoco.mjtLimited.mjLIMITED_TRUE, (-limit, limit)
    add_sensor(spec, f"command_{number}", "ACTUATORFRC", "ACTUATOR", f"motor_{number}")
