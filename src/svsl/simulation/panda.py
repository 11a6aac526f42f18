"""The Franka Emika Panda of box pushing with a rod in its hand, as a MuJoCo spec.

Frames, ranges and inertias are those of the published task. Its joints have neither damping nor armature nor friction.
Two of its oddities are kept, because they dominate the wrist: the flange and the two finger tips have far too large
inertias. The fingers, which open a little in the published task, are fixed here, and the links are only seen: nothing
but the rod collides.
"""

from dataclasses import dataclass
from math import sqrt

import mujoco

from svsl.simulation.arm import (
    GEOM,
    NO_COLLISIONS,
    SOLID_GROUP,
    VISUAL_GROUP,
    Inertia,
    Quaternion,
    Shape,
    Vector,
    add_body,
    add_materials,
    add_shape,
)

_S = sqrt(0.5)
_IDENTITY: Quaternion = (1, 0, 0, 0)
_ABOUT_X: Quaternion = (_S, _S, 0, 0)
_ABOUT_NEG_X: Quaternion = (_S, -_S, 0, 0)
HAND_QUAT: Quaternion = (0.92388, 0, 0, -0.382683)  # 45 degrees about z, rounded as published
FLANGE_POS: Vector = (0, 0, 0.107)  # in link 7; the hand is there, too
TCP_POS: Vector = (0, 0, 0.105)  # in the hand
ROD_TIP_POS: Vector = (0, 0, 0.2)  # in the hand: 2.5 cm above the end of the rod, as published
ROD_RADIUS, ROD_HALF_LENGTH, ROD_CENTRE = 0.01, 0.15, 0.075


@dataclass(frozen=True)
class PandaLink:
    """Frame of a link in its parent (the joint turns about z), the joint's range, and its inertia."""

    pos: Vector
    quat: Quaternion
    joint_range: tuple[float, float]
    inertia: Inertia


# fmt: off
PANDA = (
    PandaLink((0, 0, 0.333), _IDENTITY, (-2.9671, 2.9671), Inertia(
        2.77281, (1.1399e-5, -0.0312655, -0.0693733),
        (0.98466, 0.174481, -0.000101815, 0.000347662), (0.0164224, 0.0153969, 0.00546286))),
    PandaLink((0, 0, 0), _ABOUT_NEG_X, (-1.8326, 1.8326), Inertia(
        2.7996, (-1.31766e-5, -0.0703216, 0.0311782),
        (0.57484, 0.818266, -6.05764e-5, -6.61626e-5), (0.016787, 0.0157415, 0.00553027))),
    PandaLink((0, -0.316, 0), _ABOUT_X, (-2.9671, 2.9671), Inertia(
        2.14603, (0.0443483, 0.0249283, -0.03813),
        (0.0615263, 0.349824, 0.234291, 0.904956), (0.00915257, 0.00896477, 0.00384742))),
    PandaLink((0.0825, 0, 0), _ABOUT_X, (-3.1416, 0.0873), Inertia(
        2.18807, (-0.0385503, 0.0395256, 0.0247162),
        (0.813566, 0.465041, 0.309792, 0.160858), (0.00946899, 0.00928491, 0.00396694))),
    PandaLink((-0.0825, 0.384, 0), _ABOUT_NEG_X, (-2.9671, 2.9671), Inertia(
        3.19545, (-6.36776e-5, 0.0384124, -0.10997),
        (0.990767, -0.135571, 0.000963106, 0.000694406), (0.0278873, 0.0268823, 0.00569569))),
    PandaLink((0, 0, 0), _ABOUT_X, (-0.0873, 3.8223), Inertia(
        1.35761, (0.0510023, 0.00693267, 0.00616899),
        (-0.0460841, 0.754362, 0.044494, 0.653325), (0.00412168, 0.0033698, 0.00213304))),
    PandaLink((0.088, 0, 0), _ABOUT_X, (-2.9671, 2.9671), Inertia(
        0.417345, (0.0103614, 0.0103596, 0.0791078),
        (0.63547, 0.278021, -0.670462, 0.263369), (0.000637671, 0.000528056, 0.000279577))),
)
_FLANGE = Inertia(0.1, (0, 0, 0), _IDENTITY, (0.1, 0.1, 0.1))
_HAND = Inertia(0.670782, (-2.76618e-6, -0.00061547, 0.0239295),
                (0.697945, 0.716151, -0.000242485, 8.47563e-5), (0.00227632, 0.00206087, 0.000456542))
_FINGER_POS: Vector = (0, 0, 0.0584)  # in the hand
_FINGER = (0.0218754, (2.42335e-5, 0.0119585, 0.0237816),  # up to signs, see `_add_hand`
           (0.996177, 0.0868631, 2.79377e-5, -0.00926642), (5.69661e-6, 5.56035e-6, 1.55183e-6))
# fmt: on
_FINGER_TIP = Inertia(0.01, (0, 0, 0), (0, 0, 0, 1), (0.01, 0.01, 0.01))
_FINGER_TIP_POS = (0.0, 0.0085, 0.056)  # in the finger

_SHELL, _DARK, _ACCENT = "arm_shell", "arm_dark", "arm_accent"
_TUBE, _CAPSULE = GEOM.mjGEOM_CYLINDER, GEOM.mjGEOM_CAPSULE
# what is seen, in the frames of the links; 0 is the base
_SHAPES = (
    (0, Shape(_TUBE, (-0.04, 0, 0), (-0.04, 0, 0.03), 0.095, _DARK)),
    (0, Shape(_CAPSULE, (-0.09, 0, 0.06), (-0.02, 0, 0.07), 0.055, _SHELL)),
    (0, Shape(_TUBE, (0, 0, 0), (0, 0, 0.14), 0.062, _SHELL)),
    (1, Shape(_TUBE, (0, 0, -0.193), (0, 0, -0.181), 0.057, _ACCENT)),
    (1, Shape(_TUBE, (0, 0, -0.181), (0, 0, -0.02), 0.06, _SHELL)),
    (1, Shape(_CAPSULE, (0, -0.02, 0), (0, -0.072, 0), 0.057, _SHELL)),
    (2, Shape(_CAPSULE, (0, 0, 0.018), (0, 0, 0.072), 0.057, _SHELL)),
    (2, Shape(_TUBE, (0, -0.03, 0), (0, -0.182, 0), 0.058, _SHELL)),
    (2, Shape(_TUBE, (0, -0.182, 0), (0, -0.194, 0), 0.055, _ACCENT)),
    (3, Shape(_TUBE, (0, 0, -0.121), (0, 0, -0.04), 0.055, _SHELL)),
    (3, Shape(_CAPSULE, (0.01, 0.01, -0.03), (0.0825, 0.03, 0), 0.05, _SHELL)),
    (3, Shape(_CAPSULE, (0.0825, 0.02, 0), (0.0825, 0.062, 0), 0.05, _DARK)),
    (4, Shape(_CAPSULE, (0, 0, 0.02), (0, 0, 0.062), 0.05, _SHELL)),
    (4, Shape(_CAPSULE, (-0.01, 0.02, 0.02), (-0.0825, 0.08, 0.0), 0.05, _SHELL)),
    (4, Shape(_TUBE, (-0.0825, 0.08, 0), (-0.0825, 0.124, 0), 0.052, _ACCENT)),
    (5, Shape(_TUBE, (0, 0, -0.259), (0, 0, -0.17), 0.05, _SHELL)),
    (5, Shape(_CAPSULE, (0, 0.025, -0.19), (0, 0.075, -0.03), 0.04, _SHELL)),
    (5, Shape(_CAPSULE, (0, 0.02, 0), (0, 0.075, 0), 0.05, _SHELL)),
    (6, Shape(_CAPSULE, (0, 0, 0), (0.05, 0.0, 0), 0.045, _SHELL)),
    (6, Shape(_CAPSULE, (0.088, -0.005, 0), (0.088, 0.035, 0), 0.042, _SHELL)),
    (6, Shape(_TUBE, (0.088, 0.035, 0), (0.088, 0.07, 0), 0.044, _DARK)),
    (7, Shape(_TUBE, (0, 0, 0.055), (0, 0, 0.095), 0.043, _SHELL)),
    (7, Shape(_TUBE, (0, 0, 0.095), (0, 0, 0.107), 0.034, _ACCENT)),
)


def add_panda(spec: mujoco.MjSpec) -> None:
    """Adds the arm at the origin to a spec, whose angles must be in radians, without actuators.

    Names: joints `joint_1` .. `joint_7`, bodies `link_0` .. `link_7`, `hand`, `push_rod`, geom `rod`, sites `tcp`,
    `rod_tip` (with the hand's orientation). Every part is gravity compensated.
    """
    add_materials(spec)
    body = spec.worldbody.add_body(name="link_0")
    bodies = [body]
    for number, link in enumerate(PANDA, start=1):
        body = add_body(body, f"link_{number}", link.pos, link.quat, link.inertia)
        body.add_joint(
            name=f"joint_{number}",
            type=mujoco.mjtJoint.mjJNT_HINGE,
            axis=(0, 0, 1),
            limited=mujoco.mjtLimited.mjLIMITED_TRUE,
            range=link.joint_range,
        )
        bodies.append(body)
    for number, shape in _SHAPES:
        add_shape(bodies[number], shape)
    _add_hand(add_body(body, "link_8", FLANGE_POS, _IDENTITY, _FLANGE))


def _add_hand(flange: mujoco.MjsBody) -> None:
    hand = add_body(flange, "hand", (0, 0, 0), HAND_QUAT, _HAND)
    hand.add_site(name="tcp", pos=TCP_POS, rgba=(0, 0, 0, 0))
    hand.add_site(name="rod_tip", pos=ROD_TIP_POS, rgba=(0, 0, 0, 0))
    rod = hand.add_body(name="push_rod", gravcomp=1)
    size, pos = (ROD_RADIUS, ROD_HALF_LENGTH, 0), (0, 0, ROD_CENTRE)
    rod.add_geom(name="rod", type=_TUBE, size=size, pos=pos, group=SOLID_GROUP, rgba=(0.35, 0.37, 0.41, 1))
    mass, (x, y, z), (qw, qx, qy, qz), moments = _FINGER
    for name, side in (("left", 1.0), ("right", -1.0)):
        inertia = Inertia(mass, (-side * x, side * y, z), (qw, side * qx, -side * qy, qz), moments)
        finger = add_body(hand, f"{name}_finger", _FINGER_POS, _IDENTITY, inertia)
        tip_x, tip_y, tip_z = _FINGER_TIP_POS
        add_body(finger, f"{name}_tip", (tip_x, side * tip_y, tip_z), _IDENTITY, _FINGER_TIP)
        _add_box(finger, (0, side * 0.017, 0.02), (0.010, 0.009, 0.025), _DARK)
        _add_box(finger, (0, side * 0.012, 0.045), (0.008, 0.005, 0.009), _SHELL)
    _add_box(hand, (0, 0, 0.034), (0.03, 0.1, 0.03), _SHELL)
    _add_box(hand, (0, 0, 0.0), (0.026, 0.06, 0.014), _SHELL)


def _add_box(body: mujoco.MjsBody, pos: Vector, size: Vector, material: str) -> None:
    visual = {"mass": 0, "group": VISUAL_GROUP, **NO_COLLISIONS}
    body.add_geom(type=GEOM.mjGEOM_BOX, pos=pos, size=size, material=material, **visual)
