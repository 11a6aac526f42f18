"""The Barrett WAM of both robot tasks: data classes, shapes, and functions that add the arm to a MuJoCo spec.

The two scenes use two published calibrations of the same arm. They differ in the position of the link frames along the
joint axes, in the inertias, the joint ranges and the damping; the shape is the same. A variant is therefore data
(`BEER_PONG_ARM` and `TABLE_TENNIS_ARM` in `wam.py`), and the shape is defined once, in frames whose origins are the
shoulder, the elbow or the wrist (`Link.centre` is the position of that point in the link frame of the variant).

All joints are hinges about the local z axis through the link's origin, without armature or springs. Every link is
gravity compensated (`gravcomp`), and the compensation counts as actuator force (`actgravcomp`), so `qfrc_actuator` is
the total torque a real motor would have to provide. The published beer pong arm has a joint `frictionloss` of 0.001;
here it is 0, because it is negligible compared with the damping but requires a constraint solve at every step.
"""

from dataclasses import dataclass

import mujoco

JOINTS = 7
GEOM = mujoco.mjtGeom

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]  # w, x, y, z

# Geom groups; by default the renderer shows groups 0 to 2. Geoms do not collide by default (`NO_COLLISIONS`): the
# scenes list the pairs that do.
SOLID_GROUP, VISUAL_GROUP, HIDDEN_SOLID_GROUP = 0, 1, 3
NO_COLLISIONS = {"contype": 0, "conaffinity": 0}

_IDENTITY: Quaternion = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Inertia:
    """Mass [kg], centre of mass in the body's frame [m], principal axes and moments [kg m^2]."""

    mass: float
    com: Vector
    quat: Quaternion
    diagonal: Vector


@dataclass(frozen=True)
class Link:
    """One moving link: its frame in the parent frame, its joint (about z) and its inertia.

    Attributes:
        pos, quat: Frame of the link in the parent frame at joint angle zero.
        joint_range: Joint limits [rad].
        damping: Joint damping [N m s/rad].
        inertia: Inertia of the link.
        centre: The shoulder (links 1 to 3), elbow (4) or wrist (5 to 7) in this link's frame.
    """

    pos: Vector
    quat: Quaternion
    joint_range: tuple[float, float]
    damping: float
    inertia: Inertia
    centre: Vector = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Arm:
    """A variant of the WAM: its base, its seven links and its servos.

    The servo force of a joint is `kp (ctrl - q) - kv qd`, with neither control nor force limits, so that a control of
    `q_des + kv / kp * qd_des` is a PD controller.

    Attributes:
        pos, quat: Frame of the (static) base in the world.
        shoulder: Position of the shoulder in the base frame.
        links: The links, from the base to the hand.
        kp: Stiffness of the servos [N m/rad].
        kv: Damping of the servos [N m s/rad].
    """

    pos: Vector
    quat: Quaternion
    shoulder: Vector
    links: tuple[Link, ...]
    kp: tuple[float, ...]
    kv: tuple[float, ...]


RACKET_POS: Vector = (0.0, 0.0, 0.26)  # in the frame of link 7
RACKET_INERTIA = Inertia(
    mass=0.28483642,
    com=(-0.00080438, 0.0, -0.00561726),
    quat=(0.99999919, 0.0, -0.00127289, 0.0),
    diagonal=(0.00088054, 0.00051001, 0.00037499),
)
RELEASE_POS: Vector = (0.0, 0.0, 0.035)  # in the frame of link 7


@dataclass(frozen=True)
class Shape:
    """A capsule, cylinder or (start = end) sphere on a link, in the frame at the link's centre."""

    kind: mujoco.mjtGeom
    start: Vector
    end: Vector
    radius: float
    material: str = ""


_SHELL, _DARK, _ACCENT = "arm_shell", "arm_dark", "arm_accent"
_TUBE, _CAPSULE, _BALL = GEOM.mjGEOM_CYLINDER, GEOM.mjGEOM_CAPSULE, GEOM.mjGEOM_SPHERE

# Shapes with the number of their body: 0 is the base, 1 to 7 are the links. At zero angles the arm points along the
# base's z axis; links 2, 4 and 6 rotate about the base's y axis, and their -y axis points along the arm.
_VISUAL_SHAPES = (
    (0, Shape(_TUBE, (0, 0, -0.344), (0, 0, -0.318), 0.135, _DARK)),
    (0, Shape(_TUBE, (0, 0, -0.318), (0, 0, -0.215), 0.105, _SHELL)),
    (1, Shape(_TUBE, (0, 0, -0.215), (0, 0, -0.195), 0.092, _ACCENT)),
    (1, Shape(_TUBE, (0, 0, -0.195), (0, 0, -0.085), 0.098, _SHELL)),
    (1, Shape(_TUBE, (0, -0.147, -0.062), (0, 0.147, -0.062), 0.055, _SHELL)),
    (1, Shape(_TUBE, (0, -0.15, 0), (0, -0.092, 0), 0.082, _DARK)),
    (1, Shape(_TUBE, (0, 0.092, 0), (0, 0.15, 0), 0.082, _DARK)),
    (2, Shape(_TUBE, (0, 0, -0.09), (0, 0, 0.09), 0.086, _SHELL)),
    (2, Shape(_TUBE, (0, 0, 0), (0, -0.135, 0), 0.064, _SHELL)),
    (3, Shape(_TUBE, (0, 0, 0.135), (0, 0, 0.155), 0.058, _ACCENT)),
    (3, Shape(_TUBE, (0, 0, 0.155), (0, 0, 0.50), 0.05, _SHELL)),
    (3, Shape(_CAPSULE, (0.01, 0, 0.49), (0.045, 0, 0.55), 0.046, _SHELL)),
    (3, Shape(_TUBE, (0.045, -0.068, 0.55), (0.045, 0.068, 0.55), 0.044, _DARK)),
    (4, Shape(_TUBE, (0, 0, -0.05), (0, 0, 0.05), 0.05, _SHELL)),
    (4, Shape(_CAPSULE, (0, 0, 0), (-0.045, -0.06, 0), 0.043, _SHELL)),
    (4, Shape(_TUBE, (-0.045, -0.05, 0), (-0.045, -0.225, 0), 0.043, _SHELL)),
    (5, Shape(_TUBE, (0, 0, -0.075), (0, 0, -0.06), 0.038, _ACCENT)),
    (5, Shape(_TUBE, (0, 0, -0.06), (0, 0, -0.025), 0.04, _DARK)),
    (5, Shape(_TUBE, (0, -0.046, 0), (0, 0.046, 0), 0.03, _DARK)),
    (6, Shape(_TUBE, (0, 0, -0.034), (0, 0, 0.034), 0.034, _SHELL)),
    (6, Shape(_TUBE, (0, 0, 0), (0, -0.042, 0), 0.028, _SHELL)),
    (7, Shape(_TUBE, (0, 0, 0.042), (0, 0, 0.056), 0.033, _DARK)),
)

# Collision shapes: few and simple, because each takes time at every step.
_COLLISION_SHAPES = (
    (0, Shape(_CAPSULE, (0, 0, -0.24), (0, 0, -0.12), 0.1)),
    (2, Shape(_BALL, (0, 0, 0), (0, 0, 0), 0.12)),
    (3, Shape(_CAPSULE, (0, 0, 0.12), (0.02, 0, 0.53), 0.055)),
    (4, Shape(_CAPSULE, (-0.03, -0.03, 0), (-0.045, -0.24, 0), 0.045)),
    (6, Shape(_CAPSULE, (0, 0, 0), (0, -0.033, 0), 0.035)),  # ends 2 mm from the ball in the hand
)


def add_arm(spec: mujoco.MjSpec, arm: Arm) -> mujoco.MjsBody:
    """Adds the arm to a spec, whose angles must be in radians, and returns link 7 for a hand or a racket.

    Names: bodies `base`, `link_1` .. `link_7`, joints `joint_1` .. `joint_7`, actuators `motor_1` .. `motor_7`; the
    collision shape of a body is the geom `<name of the body>_solid`.
    """
    add_materials(spec)
    bodies, centres = [spec.worldbody.add_body(name="base", pos=arm.pos, quat=arm.quat)], [arm.shoulder]
    limited = mujoco.mjtLimited.mjLIMITED_TRUE
    hinge = {"type": mujoco.mjtJoint.mjJNT_HINGE, "axis": (0, 0, 1), "limited": limited, "actgravcomp": True}
    for number, (link, kp, kv) in enumerate(zip(arm.links, arm.kp, arm.kv, strict=True), start=1):
        body = add_body(bodies[-1], f"link_{number}", link.pos, link.quat, link.inertia)
        body.add_joint(name=f"joint_{number}", range=link.joint_range, damping=link.damping, **hinge)
        motor = spec.add_actuator(name=f"motor_{number}", trntype=mujoco.mjtTrn.mjTRN_JOINT, target=f"joint_{number}")
        motor.set_to_position(kp=kp, kv=kv)
        bodies.append(body)
        centres.append(link.centre)
    for number, shape in _VISUAL_SHAPES:
        add_shape(bodies[number], shape, centres[number])
    for number, shape in _COLLISION_SHAPES:
        add_shape(bodies[number], shape, centres[number], name=f"{bodies[number].name}_solid")
    return bodies[-1]


def add_body(parent: mujoco.MjsBody, name: str, pos: Vector, quat: Quaternion, inertia: Inertia) -> mujoco.MjsBody:
    """Adds a gravity-compensated part of the arm with the given inertia, regardless of the mass of its geoms."""
    return parent.add_body(
        name=name,
        pos=pos,
        quat=quat,
        gravcomp=1,
        explicitinertial=True,
        mass=inertia.mass,
        ipos=inertia.com,
        iquat=inertia.quat,
        inertia=inertia.diagonal,
    )


def add_hand(link_7: mujoco.MjsBody) -> None:
    """Adds a palm with three open fingers around the ball, and the site `release` at the position of the ball.

    Only the palm can touch the ball; it ends 2 mm below the ball in the hand.
    """
    link_7.add_site(name="release", pos=RELEASE_POS, size=(0.005,) * 3, rgba=(0, 0, 0, 0))
    add_shape(link_7, Shape(_BALL, (0, 0, -0.02), (0, 0, -0.02), 0.028), name="palm")
    add_shape(link_7, Shape(_TUBE, (0, 0, -0.006), (0, 0, 0.006), 0.044, _SHELL))
    for x, y in ((1.0, 0.0), (-0.5, 0.75**0.5), (-0.5, -(0.75**0.5))):
        root, knuckle, tip = (0.037 * x, 0.037 * y, 0.004), (0.05 * x, 0.05 * y, 0.03), (0.04 * x, 0.04 * y, 0.058)
        add_shape(link_7, Shape(_CAPSULE, root, knuckle, 0.008, _DARK))
        add_shape(link_7, Shape(_CAPSULE, knuckle, tip, 0.0065, _ACCENT))


def add_racket(link_7: mujoco.MjsBody) -> None:
    """Adds the body `racket` with the site `racket` at the paddle's centre; the x axis is normal to the paddle.

    The colliding geoms are `bat`, `bat_back` and `handle`. The red face points along +x, the green one along -x.
    """
    for start, end, radius in ((0.056, 0.085, 0.03), (0.08, 0.15, 0.02)):
        add_shape(link_7, Shape(_CAPSULE, (0, 0, start), (0, 0, end), radius, _SHELL if radius > 0.025 else _DARK))
    racket = add_body(link_7, "racket", RACKET_POS, _IDENTITY, RACKET_INERTIA)
    racket.add_site(name="racket", size=(0.005,) * 3, rgba=(0, 0, 0, 0))
    solid = {"mass": 0, "material": "wood", "group": SOLID_GROUP, **NO_COLLISIONS}
    for name, x, half_thickness, radius in (("bat", 0.0, 0.005, 0.075), ("bat_back", -0.0026, 0.0025, 0.0749)):
        fromto = (x - half_thickness, 0, 0, x + half_thickness, 0, 0)
        racket.add_geom(name=name, type=_TUBE, fromto=fromto, size=(radius, 0, 0), **solid)
    racket.add_geom(name="handle", type=GEOM.mjGEOM_BOX, pos=(0, 0, -0.08), size=(0.005, 0.01, 0.05), **solid)
    add_shape(racket, Shape(_TUBE, (0.003, 0, 0), (0.0056, 0, 0), 0.0745, "racket_red"))
    add_shape(racket, Shape(_TUBE, (-0.0057, 0, 0), (-0.003, 0, 0), 0.0745, "racket_green"))


def add_shape(body: mujoco.MjsBody, shape: Shape, centre: Vector = (0.0, 0.0, 0.0), name: str = "") -> None:
    """Adds a visual shape (with a material) or a collision shape (without)."""
    start = [a + b for a, b in zip(shape.start, centre, strict=True)]
    end = [a + b for a, b in zip(shape.end, centre, strict=True)]
    position = {"pos": start} if shape.kind == _BALL else {"fromto": [*start, *end]}
    group = VISUAL_GROUP if shape.material else HIDDEN_SOLID_GROUP
    size = (shape.radius, 0, 0)
    geom = body.add_geom(name=name, type=shape.kind, size=size, mass=0, group=group, **position, **NO_COLLISIONS)
    geom.material = shape.material


def add_materials(spec: mujoco.MjSpec) -> None:
    """Adds the materials of arms and rackets."""
    for name, rgba, specular in (
        (_SHELL, (0.93, 0.93, 0.91, 1), 0.5),
        (_DARK, (0.17, 0.18, 0.21, 1), 0.4),
        (_ACCENT, (0.95, 0.55, 0.12, 1), 0.4),
        ("wood", (0.76, 0.57, 0.36, 1), 0.1),
        ("racket_red", (0.82, 0.09, 0.10, 1), 0.1),
        ("racket_green", (0.07, 0.55, 0.20, 1), 0.1),
    ):
        spec.add_material(name=name, rgba=rgba, specular=specular, shininess=0.5)


def add_sensor(spec: mujoco.MjSpec, name: str, kind: str, object_kind: str, object_name: str) -> None:
    """Adds a sensor of an object; the kinds are MuJoCo's `mjSENS_<kind>` and `mjOBJ_<kind>`."""
    sensor_type = getattr(mujoco.mjtSensor, f"mjSENS_{kind}")
    object_type = getattr(mujoco.mjtObj, f"mjOBJ_{object_kind}")
    spec.add_sensor(name=name, type=sensor_type, objtype=object_type, objname=object_name)
