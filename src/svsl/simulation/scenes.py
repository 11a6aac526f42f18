"""The MuJoCo scenes of beer pong and table tennis, built around the arm of `arm.py`.

Both models have ten degrees of freedom: `qpos[:7]` are the arm's joints, `qpos[7:]` is the world position of the ball
(three slide joints: the ball does not rotate, so no contact can spin it).

Collisions are an explicit list of pairs, each with its own contact parameters: the ball with everything, the arm with
the table; never the arm with itself, the floor, the net or its own stand. Here this is faster than MuJoCo's broad
phase, and each pair uses its own parameters without mixing rules.

Purely visual geoms take a tenth of the time of a step. `visuals=False` omits them and gives the same dynamics, state
and sensors, bit for bit.
"""

from dataclasses import dataclass
from math import cos, pi, sin, tan

import mujoco

from svsl.simulation.arm import (
    GEOM,
    HIDDEN_SOLID_GROUP,
    JOINTS,
    NO_COLLISIONS,
    SOLID_GROUP,
    VISUAL_GROUP,
    Quaternion,
    Vector,
    add_arm,
    add_hand,
    add_racket,
    add_sensor,
)
from svsl.simulation.wam import BEER_PONG_ARM, TABLE_TENNIS_ARM

BEER_PONG_START = (0.0, 1.35, 0.0, 1.18, 0.0, -0.786, -1.59)
TABLE_TENNIS_START = (0.0, 0.0, 0.0, 1.5, 0.0, 0.0, 1.5)

BALL_RADIUS = 0.025
BALL_MASS = 0.1

# The axis of the published cup is offset from the context; the tasks keep the offset to keep returns comparable.
CUP_AXIS_OFFSET = (0.0, -0.1337249)
CUP_SIDES = 16
CUP_INNER_RADIUS = 0.0701
CUP_OUTER_RADIUS = 0.0804
CUP_TOP = 0.946
CUP_FLOOR = 0.865
BEER_PONG_TABLE_TOP = 0.8125
WALL_FRONT = -2.41

TABLE_TENNIS_TABLE_TOP = 0.77
TABLE_HALF_LENGTH = 1.37
TABLE_HALF_WIDTH = 0.7625
NET_TOP = 0.9225

_BOX, _CYLINDER = GEOM.mjGEOM_BOX, GEOM.mjGEOM_CYLINDER
_GEOM, _BODY = mujoco.mjtObj.mjOBJ_GEOM, mujoco.mjtObj.mjOBJ_BODY
_Object = tuple[mujoco.mjtObj, str]
_BALL: _Object = (_BODY, "ball")
_ARM: _Object = (mujoco.mjtObj.mjOBJ_XBODY, "base")  # with its subtree
_Rgba = tuple[float, float, float, float]
_HIDDEN, _WOOD, _STEEL, _ORANGE = (0, 0, 0, 0), (0.74, 0.56, 0.38, 1), (0.30, 0.32, 0.36, 1), (1.0, 0.62, 0.1, 1)


@dataclass(frozen=True)
class Contact:
    """Contact parameters of a pair; `solref` is (-stiffness, -damping), or a time constant and a damping ratio."""

    solref: tuple[float, float]
    sliding_friction: float = 0.1
    torsional_friction: float = 0.1
    dimensions: int = 4


BEER_PONG_BOUNCE = Contact(solref=(-10000, -10))
CUP_CONTACT = Contact(solref=(-10000, -100), sliding_friction=1.0)
TABLE_TENNIS_BOUNCE = Contact(solref=(0.1, 0.03))
ARM_CONTACT = Contact(solref=(0.02, 1), sliding_friction=1.0, torsional_friction=0.005, dimensions=3)


def beer_pong_model(visuals: bool = True, cup_radius: float = CUP_INNER_RADIUS) -> mujoco.MjModel:
    """Builds the arm in front of a table with a cup of inner radius `cup_radius` and a wall; throws go towards -y.

    The cup is the mocap body `cup`: `mocap_pos = (x, y, 0)` puts its axis at (x, y), which is a context plus
    `CUP_AXIS_OFFSET`. The ball touches `cup_bottom` if and only if it is in the cup.

    Deviations from the published scene: one table box instead of two overlapping ones (the higher one, which the
    reward uses), which ends at the wall instead of inside it; the wall of the cup is a regular tube of boxes with the
    mean radii of its twelve meshes, without the slit and the one bouncy piece, and ends at the table instead of going
    through it; the cylinders are not tilted by 0.0008 rad. The arm is too short to reach the table: the sensor
    `arm_table` is for modified scenes.
    """
    spec = new_scene(timestep=0.005, middle=(0.0, -1.1, 0.9), light=(-0.75, -0.5, -1.0))
    world = spec.worldbody
    add_hand(add_arm(spec, BEER_PONG_ARM))
    _add_ball(spec)
    table_end, half_height = -1.25, BEER_PONG_TABLE_TOP / 2
    table_middle, half_length = (table_end + WALL_FRONT) / 2, (table_end - WALL_FRONT) / 2
    _add_static(spec, "table", (0, table_middle, half_height), (0.4, half_length, half_height), _WOOD)
    _add_static(spec, "pedestal", (0, 0, 0.3025), (0.1, 0.1, 0.3), _STEEL)
    _add_static(spec, "wall", (0, WALL_FRONT - 0.04, 1.1), (0.4, 0.04, 1.1), (0.80, 0.84, 0.88, 1))
    _add_cup(spec, (CUP_AXIS_OFFSET[0], -1.6 + CUP_AXIS_OFFSET[1]), cup_radius - CUP_INNER_RADIUS)
    add_camera(world, eye=(2.7, 0.3, 1.85), target=(0.0, -1.12, 1.0), fovy=45)

    for kind, name in ((_GEOM, "table"), (_GEOM, "wall"), (_GEOM, "cup_bottom"), (_BODY, "cup"), (_GEOM, "floor")):
        add_contact_sensor(spec, f"ball_{name}", (kind, name), _BALL)
    add_contact_sensor(spec, "arm_table", (_GEOM, "table"), _ARM)
    for number in range(1, JOINTS + 1):
        add_sensor(spec, f"torque_{number}", "JOINTACTFRC", "JOINT", f"joint_{number}")
    add_sensor(spec, "release_pos", "FRAMEPOS", "SITE", "release")
    add_sensor(spec, "release_vel", "FRAMELINVEL", "SITE", "release")
    return _compile(spec, visuals, BEER_PONG_BOUNCE, hand=("palm",))


def table_tennis_model(visuals: bool = True) -> mujoco.MjModel:
    """Builds the arm with a racket, mounted above one end of a table (x > 0); the ball is served from the other end.

    `target` and `serve` are mocap bodies that only mark positions on the table. The net is wider than the table, as in
    the published scene.
    """
    spec = new_scene(timestep=0.002, middle=(0.5, 0.0, 1.0), light=(0.35, 0.55, -1.0))
    world = spec.worldbody
    add_racket(add_arm(spec, TABLE_TENNIS_ARM))
    _add_ball(spec)
    half_size = (TABLE_HALF_LENGTH, TABLE_HALF_WIDTH, 0.01)
    _add_static(spec, "table", (0, 0, TABLE_TENNIS_TABLE_TOP - 0.01), half_size, (0.12, 0.36, 0.56, 1))
    net_half_height = (NET_TOP - TABLE_TENNIS_TABLE_TOP) / 2
    net_pos, net_half_size = (0, 0, NET_TOP - net_half_height), (0.01, 0.915, net_half_height)
    _add_static(spec, "net", net_pos, net_half_size, (0.92, 0.94, 0.96, 0.55))
    _add_table_tennis_visuals(spec)
    for name, x, rgba in (("target", -0.7, (0.9, 0.15, 0.15, 0.9)), ("serve", -0.9, (1.0, 0.62, 0.1, 0.9))):
        marker = world.add_body(name=name, pos=(x, 0, TABLE_TENNIS_TABLE_TOP), mocap=True)
        add_visual(marker, _CYLINDER, (0, 0, 0.002), (0.05, 0.002, 0), rgba=rgba)
    add_camera(world, eye=(-1.15, -3.75, 2.3), target=(0.45, 0.0, 1.0), fovy=45)

    for name, geom in (("racket", "bat"), ("table", "table"), ("net", "net"), ("floor", "floor")):
        add_contact_sensor(spec, f"ball_{name}", (_GEOM, geom), _BALL)
    add_contact_sensor(spec, "arm_table", (_GEOM, "table"), _ARM)
    add_sensor(spec, "racket_pos", "FRAMEPOS", "SITE", "racket")
    add_sensor(spec, "racket_normal", "FRAMEXAXIS", "SITE", "racket")
    return _compile(spec, visuals, TABLE_TENNIS_BOUNCE, hand=("bat", "handle"))


def new_scene(timestep: float, middle: Vector, light: Vector) -> mujoco.MjSpec:
    """Creates an empty scene around `middle`: options, sky, a directional light along `light`, and materials."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.option.timestep = timestep
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    spec.option.gravity = (0, 0, -9.81)
    spec.stat.center, spec.stat.extent = middle, 2.5
    spec.visual.global_.offwidth, spec.visual.global_.offheight = 1920, 1440
    spec.visual.quality.shadowsize = 2048
    spec.visual.map.shadowclip = 1.6
    spec.visual.headlight.ambient = (0.42, 0.42, 0.43)
    spec.visual.headlight.diffuse = (0.30, 0.30, 0.30)
    spec.visual.headlight.specular = (0.1, 0.1, 0.1)
    _add_sky_and_floor(spec)
    spec.worldbody.add_light(
        pos=[m - 3 * direction for m, direction in zip(middle, light, strict=True)],
        dir=light,
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        diffuse=(0.55, 0.54, 0.52),
        castshadow=True,
    )
    return spec


def _add_sky_and_floor(spec: mujoco.MjSpec) -> None:
    sky, checker = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT, mujoco.mjtBuiltin.mjBUILTIN_CHECKER
    texture = spec.add_texture(name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, builtin=sky, width=256, height=1536)
    texture.rgb1, texture.rgb2 = (0.72, 0.82, 0.92), (0.97, 0.97, 0.97)
    texture = spec.add_texture(
        name="checker", type=mujoco.mjtTexture.mjTEXTURE_2D, builtin=checker, width=512, height=512
    )
    texture.rgb1, texture.rgb2 = (0.80, 0.81, 0.82), (0.72, 0.74, 0.76)
    textures = [""] * int(mujoco.mjtTextureRole.mjNTEXROLE)
    textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "checker"
    spec.add_material(name="floor", textures=textures, texrepeat=(1, 1), texuniform=True)
    plane = GEOM.mjGEOM_PLANE
    spec.worldbody.add_geom(name="floor", type=plane, size=(0, 0, 0.05), material="floor", **NO_COLLISIONS)


def _add_ball(spec: mujoco.MjSpec) -> None:
    """Adds the body `ball` on the slide joints `ball_x`, `ball_y`, `ball_z`, whose qpos is its position."""
    ball = spec.worldbody.add_body(name="ball")
    for axis, name in enumerate("xyz"):
        direction = [float(axis == i) for i in range(3)]
        ball.add_joint(name=f"ball_{name}", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=direction)
    size, kind = (BALL_RADIUS, 0, 0), GEOM.mjGEOM_SPHERE
    ball.add_geom(name="ball", type=kind, size=size, mass=BALL_MASS, rgba=_ORANGE, **NO_COLLISIONS)


def _add_cup(spec: mujoco.MjSpec, axis: tuple[float, float], wider: float) -> None:
    """Adds the mocap body `cup`: a tube of boxes, a base, a bottom and goal sites, `wider` than the published cup."""
    cup = spec.worldbody.add_body(name="cup", pos=(*axis, 0), mocap=True)
    red, white = (0.86, 0.10, 0.12, 0.5), (0.97, 0.95, 0.93, 1)
    radius = (CUP_INNER_RADIUS + CUP_OUTER_RADIUS) / 2 + wider
    half_size = (
        (CUP_OUTER_RADIUS - CUP_INNER_RADIUS) / 2,
        radius * tan(pi / CUP_SIDES),
        (CUP_TOP - BEER_PONG_TABLE_TOP) / 2,
    )
    for side in range(CUP_SIDES):
        angle = 2 * pi * side / CUP_SIDES
        quat = (cos(angle / 2), 0, 0, sin(angle / 2))
        pos = (radius * cos(angle), radius * sin(angle), (CUP_TOP + BEER_PONG_TABLE_TOP) / 2)
        cup.add_geom(name=f"cup_{side}", type=_BOX, pos=pos, quat=quat, size=half_size, rgba=red, **NO_COLLISIONS)
        rim = (half_size[0] + 0.0015, (radius + half_size[0]) * tan(pi / CUP_SIDES), 0.003)
        add_visual(cup, _BOX, (*pos[:2], CUP_TOP + 0.0007 - rim[2]), rim, rgba=white, quat=quat)
    for name, bottom, top, r in (("cup_base", 0.760, 0.850, 0.08), ("cup_bottom", 0.845, CUP_FLOOR, 0.07)):
        size = (r + wider, (top - bottom) / 2, 0)
        pos = (0, 0, (top + bottom) / 2)
        cup.add_geom(name=name, type=_CYLINDER, pos=pos, size=size, rgba=white, **NO_COLLISIONS)
    cup.add_site(name="cup_goal", pos=(0, 0, 0.950), rgba=_HIDDEN)
    cup.add_site(name="cup_goal_final", pos=(0, 0, CUP_FLOOR), rgba=_HIDDEN)


def _add_table_tennis_visuals(spec: mujoco.MjSpec) -> None:
    """Adds lines, legs and the gantry that carries the arm, without collisions."""
    world, top, white = spec.worldbody, TABLE_TENNIS_TABLE_TOP, (0.95, 0.95, 0.95, 1)
    length, width = TABLE_HALF_LENGTH, TABLE_HALF_WIDTH
    for y, half_width in ((-width + 0.01, 0.01), (width - 0.01, 0.01), (0.0, 0.0025)):
        add_visual(world, _BOX, (0, y, top), (length, half_width, 0.0006), rgba=white)
    for x in (-length + 0.01, length - 0.01):
        add_visual(world, _BOX, (x, 0, top), (0.01, width, 0.0006), rgba=white)
        for y in (-0.6, 0.6):
            leg_half_height = (top - 0.02) / 2
            leg = (x * 0.8, y, leg_half_height)
            add_visual(world, _BOX, leg, (0.03, 0.03, leg_half_height), rgba=_STEEL)
    add_visual(world, _BOX, (0, 0, NET_TOP), (0.011, 0.916, 0.008), rgba=white)
    x, _, z = TABLE_TENNIS_ARM.pos
    add_visual(world, _BOX, (x + 0.3, 0, z + 0.05), (0.45, 0.09, 0.05), rgba=_STEEL)
    add_visual(world, _BOX, (x + 0.7, 0, (z + 0.1) / 2), (0.07, 0.09, (z + 0.1) / 2), rgba=_STEEL)
    add_visual(world, _BOX, (x + 0.7, 0, 0.02), (0.35, 0.45, 0.02), rgba=_STEEL)


def _add_static(spec: mujoco.MjSpec, name: str, pos: Vector, size: Vector, rgba: _Rgba) -> None:
    """Adds a fixed box that the ball can collide with."""
    spec.worldbody.add_geom(name=name, type=_BOX, pos=pos, size=size, rgba=rgba, **NO_COLLISIONS)


def add_visual(
    body: mujoco.MjsBody, kind: mujoco.mjtGeom, pos: Vector, size: Vector, rgba: _Rgba, quat: Quaternion = (1, 0, 0, 0)
) -> None:
    """Adds a geom that is only seen."""
    body.add_geom(type=kind, pos=pos, quat=quat, size=size, rgba=rgba, mass=0, group=VISUAL_GROUP, **NO_COLLISIONS)


def _compile(spec: mujoco.MjSpec, visuals: bool, bounce: Contact, hand: tuple[str, ...]) -> mujoco.MjModel:
    """Lets the ball collide with every solid geom, and the arm and the geoms `hand` with the table; compiles."""
    solids = [geom.name for geom in spec.geoms if geom.group in (SOLID_GROUP, HIDDEN_SOLID_GROUP)]
    for name in solids:
        if name != "ball":
            _add_pair(spec, "ball", name, CUP_CONTACT if name.startswith("cup") else bounce)
    for name in ("link_3_solid", "link_4_solid", "link_6_solid", *hand):
        _add_pair(spec, name, "table", ARM_CONTACT)
    if not visuals:
        for geom in list(spec.geoms):
            if geom.group == VISUAL_GROUP:
                spec.delete(geom)
    return spec.compile()


def _add_pair(spec: mujoco.MjSpec, first: str, second: str, contact: Contact) -> None:
    sliding, torsional = contact.sliding_friction, contact.torsional_friction
    pair = spec.add_pair(geomname1=first, geomname2=second, solref=contact.solref, condim=contact.dimensions)
    pair.friction = (sliding, sliding, torsional, 0.1, 0.1)


def add_camera(world: mujoco.MjsBody, eye: Vector, target: Vector, fovy: float) -> None:
    """Adds the camera `scene` at `eye`, upright, looking at `target`."""
    forward = [b - a for a, b in zip(eye, target, strict=True)]
    right = (forward[1], -forward[0], 0.0)
    up = (-forward[0] * forward[2], -forward[1] * forward[2], forward[0] ** 2 + forward[1] ** 2)
    camera = world.add_camera(name="scene", pos=eye, fovy=fovy)
    camera.alt.type = mujoco.mjtOrientation.mjORIENTATION_XYAXES
    camera.alt.xyaxes = (*right, *up)


def add_contact_sensor(spec: mujoco.MjSpec, name: str, first: _Object, second: _Object) -> None:
    """Adds a sensor that counts the contacts of two objects."""
    sensor = spec.add_sensor(name=name, type=mujoco.mjtSensor.mjSENS_CONTACT)
    sensor.objtype, sensor.objname = first
    sensor.reftype, sensor.refname = second
    sensor.intprm = (1 << int(mujoco.mjtConDataField.mjCONDATA_FOUND), 0, 1)
