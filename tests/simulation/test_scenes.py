"""The compiled scenes have the geometry, dynamics and contacts of the published models."""

from collections.abc import Sequence
from math import cos, pi, sin, sqrt

import mujoco
import numpy as np
import pytest

from svsl.model.gaussians import Array
from svsl.simulation import scenes
from svsl.simulation.arm import Arm
from svsl.simulation.wam import BEER_PONG_ARM, TABLE_TENNIS_ARM

ROBOT = slice(0, 7)
BALL = slice(7, 10)
FAR = (0.0, 0.0, 50.0)
MODELS = {"beer_pong": scenes.beer_pong_model(), "table_tennis": scenes.table_tennis_model()}
STARTS = {"beer_pong": scenes.BEER_PONG_START, "table_tennis": scenes.TABLE_TENNIS_START}
SITES = {"beer_pong": "release", "table_tennis": "racket"}
BOTH = pytest.mark.parametrize("scene", ["beer_pong", "table_tennis"])

POSTURE, SPEED = (0.3, -0.4, 0.5, 0.9, -0.6, 0.4, 0.2), (1, -0.5, 0.8, 0.3, -1, 0.6, 2)
# scene, posture, joint speed, site position, site velocity, diagonal of the mass matrix, bias force
VECTORS = [
    (
        "beer_pong",
        scenes.BEER_PONG_START,
        (0,) * 7,
        (0, -0.849176, 0.784391),
        (0, 0, 0),
        (1.621248, 1.549652, 0.150311, 0.125979, 0.001026, 0.000783, 0.000039),
        (0, -24.553568, -0.067585, -2.877231, -0.037005, -0.139851, 0.000094),
    ),
    (
        "beer_pong",
        POSTURE,
        SPEED,
        (0.129519, 0.070119, 1.80282),
        (0.02843, 0.583174, -0.13373),
        (0.261009, 1.635232, 0.119971, 0.126998, 0.000784, 0.000817, 0.000039),
        (0.411231, 6.011772, -1.042194, -2.464495, -0.051312, -0.084564, -0.0015),
    ),
    (
        "table_tennis",
        scenes.TABLE_TENNIS_START,
        (0,) * 7,
        (1.499586, 0, 1.0195),
        (0, 0, 0),
        (0.472149, 1.672566, 0.339417, 0.275652, 0.001351, 0.02044, 0.000484),
        (0, 8.278027, 0, 7.143536, 0.043624, 0.878678, 0.002236),
    ),
    (
        "table_tennis",
        POSTURE,
        SPEED,
        (2.069249, 0.203679, 0.687707),
        (0.658525, 0.16417, 0.156674),
        (0.264495, 2.004072, 0.204788, 0.268017, 0.004312, 0.02018, 0.000484),
        (0.438878, -6.253851, 0.697089, 2.515344, 0.127684, 0.542991, -0.000851),
    ),
]


def start(
    scene: str, ball: Sequence[float] | Array = FAR, velocity: Sequence[float] | Array = (0, 0, 0)
) -> mujoco.MjData:
    """Data with the arm servoed at its start posture and the given state of the ball."""
    data = mujoco.MjData(MODELS[scene])
    data.qpos[ROBOT] = data.ctrl[:] = STARTS[scene]
    data.qpos[BALL], data.qvel[BALL] = ball, velocity
    return data


def ball_path(scene: str, data: mujoco.MjData, steps: int) -> tuple[Array, Array]:
    """Positions and velocities of the ball after each step."""
    positions, velocities = np.empty((steps, 3)), np.empty((steps, 3))
    for step in range(steps):
        mujoco.mj_step(MODELS[scene], data)
        positions[step], velocities[step] = data.qpos[BALL], data.qvel[BALL]
    return positions, velocities


def restitution(speed: Array) -> float:
    """Rebound over impact speed, of a ball that first moves in the negative direction."""
    impact = int(np.argmin(speed))
    return -float(speed[impact:].max() / speed[impact])


def drop_height(speed: float) -> float:
    return speed**2 / (2 * 9.81)


@pytest.mark.parametrize(("scene", "posture", "speed", "pos", "vel", "mass", "bias"), VECTORS)
def test_kinematics_and_dynamics_of_the_published_arms(
    scene: str,
    posture: Sequence[float],
    speed: Sequence[float],
    pos: Sequence[float],
    vel: Sequence[float],
    mass: Sequence[float],
    bias: Sequence[float],
) -> None:
    model, data = MODELS[scene], start(scene)
    data.qpos[ROBOT], data.qvel[ROBOT] = posture, speed
    mujoco.mj_forward(model, data)
    jacobian, column = np.zeros((3, model.nv)), np.zeros(model.nv)
    mujoco.mj_jacSite(model, data, jacobian, None, model.site(SITES[scene]).id)
    masses = []
    for dof, unit in enumerate(np.eye(model.nv)):
        mujoco.mj_mulM(model, data, column, unit)  # unlike mj_fullM the same in all versions
        masses.append(column[dof])
    np.testing.assert_allclose(data.site(SITES[scene]).xpos, pos, atol=1e-6)
    np.testing.assert_allclose(jacobian @ data.qvel, vel, atol=1e-6)
    np.testing.assert_allclose(np.array(masses)[ROBOT], mass, atol=6e-7)
    np.testing.assert_allclose(data.qfrc_bias[ROBOT], bias, atol=2e-6)


@BOTH
def test_layout(scene: str) -> None:
    model = MODELS[scene]
    assert (model.nq, model.nv, model.nu, model.na, model.nmesh) == (10, 10, 7, 0, 0)
    assert [model.joint(i).name for i in range(10)] == [
        *(f"joint_{i}" for i in range(1, 8)),
        "ball_x",
        "ball_y",
        "ball_z",
    ]
    assert [model.actuator(i).name for i in range(7)] == [f"motor_{i}" for i in range(1, 8)]
    assert model.opt.timestep == {"beer_pong": 0.005, "table_tennis": 0.002}[scene]
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    assert not model.actuator_ctrllimited.any()
    assert not model.actuator_forcelimited.any()
    assert not model.dof_frictionloss.any()
    assert not model.dof_armature.any()
    assert model.vis.global_.offwidth >= 1280
    assert model.vis.global_.offheight >= 960
    data = start(scene, ball=(0.1, 0.2, 3.0))
    mujoco.mj_forward(model, data)
    np.testing.assert_array_equal(data.body("ball").xpos, (0.1, 0.2, 3.0))
    assert model.body("ball").mass[0] == 0.1
    assert model.geom("ball").size[0] == 0.025


def test_joint_ranges_damping_and_gains() -> None:
    beer_pong, table_tennis = MODELS["beer_pong"], MODELS["table_tennis"]
    np.testing.assert_array_equal(beer_pong.jnt_range[ROBOT, 0], (-2.6, -1.985, -2.8, -0.9, -4.55, -1.5707, -2.7))
    np.testing.assert_array_equal(beer_pong.jnt_range[ROBOT, 1], (2.6, 1.985, 2.8, 3.14159, 1.25, 1.5707, 2.7))
    np.testing.assert_array_equal(table_tennis.jnt_range[ROBOT, 0], (-2.6, -2, -2.8, -0.9, -4.8, -1.6, -2.2))
    np.testing.assert_array_equal(table_tennis.jnt_range[ROBOT, 1], (2.6, 2, 2.8, 3.1, 1.3, 1.6, 2.2))
    np.testing.assert_array_equal(beer_pong.dof_damping, [0.07] * 7 + [0] * 3)
    np.testing.assert_array_equal(table_tennis.dof_damping, [1.98, 0.55, 1.65, 0.88, 0.55, 0.11, 0.11] + [0] * 3)
    for model in (beer_pong, table_tennis):
        np.testing.assert_array_equal(model.jnt_limited, [1] * 7 + [0] * 3)


@pytest.mark.parametrize(("scene", "arm"), [("beer_pong", BEER_PONG_ARM), ("table_tennis", TABLE_TENNIS_ARM)])
def test_a_servo_is_a_pd_controller_plus_gravity_compensation(scene: str, arm: Arm) -> None:
    model, data = MODELS[scene], start(scene)
    kp, kv = np.array(arm.kp), np.array(arm.kv)
    rng = np.random.default_rng(0)
    desired, desired_speed = rng.normal(size=7), 5 * rng.normal(size=7)
    data.qpos[ROBOT], data.qvel[ROBOT] = POSTURE, SPEED
    data.ctrl[:] = desired + kv / kp * desired_speed
    mujoco.mj_forward(model, data)
    error_speed = desired_speed - SPEED if kv.any() else np.zeros(7)
    torque = kp * (desired - POSTURE) + kv * error_speed + data.qfrc_gravcomp[ROBOT]
    np.testing.assert_allclose(data.qfrc_actuator[ROBOT], torque, rtol=1e-12)
    if scene == "beer_pong":
        np.testing.assert_array_equal(
            [data.sensor(f"torque_{i}").data[0] for i in range(1, 8)], data.qfrc_actuator[ROBOT]
        )
    data.qvel[:] = 0
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.qfrc_gravcomp[ROBOT], data.qfrc_bias[ROBOT], atol=1e-12)


@BOTH
def test_the_servos_hold_the_start_posture_against_gravity(scene: str) -> None:
    model, data = MODELS[scene], start(scene)
    for _ in range(round(2 / model.opt.timestep)):
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(data.qpos[ROBOT], STARTS[scene], atol=1e-3)
    assert data.qpos[9] == pytest.approx(50 - 9.81 * 2, abs=0.05)  # the ball has no gravity compensation


@BOTH
def test_only_the_listed_pairs_collide(scene: str) -> None:
    model = MODELS[scene]
    assert not model.geom_contype.any()  # so only the listed pairs collide
    arm = set(range(model.body("base").id, model.body("ball").id))
    for first, second in zip(model.pair_geom1, model.pair_geom2, strict=True):
        names = {model.geom(first).name, model.geom(second).name}
        bodies = {int(model.geom_bodyid[first]), int(model.geom_bodyid[second])}
        assert "ball" in names or ("table" in names and bodies & arm)
        assert not bodies <= arm
    hit_by_ball = {model.geom(g).name for g in (*model.pair_geom1, *model.pair_geom2)}
    assert {model.geom(i).name for i in range(model.ngeom) if model.geom_group[i] != 1} == hit_by_ball


def test_contact_parameters_of_every_pair_with_the_ball() -> None:
    for scene, solref in (("beer_pong", (-10000, -10)), ("table_tennis", (0.1, 0.03))):
        model = MODELS[scene]
        ball, cup = model.geom("ball").id, [i for i in range(model.ngeom) if model.geom(i).name.startswith("cup")]
        for pair in range(model.npair):
            geoms = {int(model.pair_geom1[pair]), int(model.pair_geom2[pair])}
            if ball in geoms:
                in_cup = bool(geoms & set(cup))
                np.testing.assert_array_equal(model.pair_solref[pair], (-10000, -100) if in_cup else solref)
                np.testing.assert_array_equal(model.pair_solimp[pair], (0.9, 0.95, 0.001, 0.5, 2))
                np.testing.assert_array_equal(model.pair_friction[pair, :3], (1, 1, 0.1) if in_cup else (0.1,) * 3)
                assert model.pair_dim[pair] == 4
                assert model.pair_margin[pair] == model.pair_gap[pair] == 0


@BOTH
def test_the_arm_does_not_touch_itself_in_any_posture(scene: str) -> None:
    model, data = MODELS[scene], start(scene)
    rng = np.random.default_rng(1)
    table = model.geom("table").id
    for _ in range(500):
        data.qpos[ROBOT] = rng.uniform(model.jnt_range[ROBOT, 0], model.jnt_range[ROBOT, 1])
        mujoco.mj_forward(model, data)
        assert all(table in (contact.geom1, contact.geom2) for contact in data.contact)


@BOTH
def test_visuals_do_not_change_the_motion_bit_for_bit(scene: str) -> None:
    full = MODELS[scene]
    bare = getattr(scenes, f"{scene}_model")(visuals=False)
    assert bare.ngeom < full.ngeom
    ends = []
    for model in (full, bare):
        data = mujoco.MjData(model)
        data.qpos[ROBOT] = STARTS[scene]
        data.qpos[BALL], data.qvel[BALL] = {"beer_pong": (0.1, -1.5, 1.3), "table_tennis": (-0.7, 0, 1.0)}[scene], 0.3
        for step in range(400):
            data.ctrl[:] = np.array(STARTS[scene]) + 0.3 * sin(step / 100)
            mujoco.mj_step(model, data)
        ends.append(np.concatenate([data.qpos, data.qvel, data.sensordata]))
    np.testing.assert_array_equal(ends[0], ends[1])


# Beer pong


def test_beer_pong_geometry() -> None:
    model, data = MODELS["beer_pong"], start("beer_pong")
    mujoco.mj_forward(model, data)
    for name, low, high in (
        ("table", (-0.4, -2.41, 0.0), (0.4, -1.25, 0.8125)),
        ("wall", (-0.4, -2.49, 0.0), (0.4, -2.41, 2.2)),
        ("pedestal", (-0.1, -0.1, 0.0025), (0.1, 0.1, 0.6025)),
    ):
        geom = model.geom(name)
        np.testing.assert_allclose(geom.pos - geom.size, low, atol=1e-12)
        np.testing.assert_allclose(geom.pos + geom.size, high, atol=1e-12)
    np.testing.assert_allclose(data.site("cup_goal").xpos - data.mocap_pos[0], (0, 0, 0.950))
    np.testing.assert_allclose(data.site("cup_goal_final").xpos - data.mocap_pos[0], (0, 0, 0.865))


def test_size_of_the_cup() -> None:
    model = MODELS["beer_pong"]
    for side in range(scenes.CUP_SIDES):
        box = model.geom(f"cup_{side}")
        assert np.hypot(*box.pos[:2]) - box.size[0] == pytest.approx(0.0701)
        assert np.hypot(*box.pos[:2]) + box.size[0] == pytest.approx(0.0804)
        assert box.pos[2] + box.size[2] == pytest.approx(0.946)
        assert box.pos[2] - box.size[2] == pytest.approx(0.8125)
    for name, radius, bottom, top in (("cup_base", 0.08, 0.760, 0.850), ("cup_bottom", 0.07, 0.845, 0.865)):
        disc = model.geom(name)
        np.testing.assert_allclose(disc.pos[:2], 0)
        np.testing.assert_allclose(
            (disc.size[0], disc.pos[2] - disc.size[1], disc.pos[2] + disc.size[1]), (radius, bottom, top)
        )


@pytest.mark.parametrize(
    ("ball", "velocity", "axis"),
    [
        ((0.3, -1.4, 0.8125 + 0.525), (0, 0, 0), 2),
        ((2.0, 0.0, 0.525), (0, 0, 0), 2),
        ((0.2, -1.9, 1.5), (0, -sqrt(9.81), 0), 1),
    ],
    ids=["table", "floor", "wall"],
)
def test_beer_pong_restitution(ball: Sequence[float], velocity: Sequence[float], axis: int) -> None:
    _, velocities = ball_path("beer_pong", start("beer_pong", ball, velocity), 100)
    assert restitution(velocities[:, axis]) == pytest.approx(0.85, abs=0.01)


@pytest.mark.parametrize(("distance", "falls_in"), [(0.0, True), (0.03, True), (0.06, True), (0.10, False)])
def test_a_ball_dropped_near_the_axis_stays_in_the_cup(distance: float, falls_in: bool) -> None:
    model = MODELS["beer_pong"]
    for direction in np.linspace(0, 2 * pi, 11)[:-1]:
        data = start("beer_pong")
        axis = data.mocap_pos[0, :2]
        data.qpos[BALL] = (axis[0] + distance * cos(direction), axis[1] + distance * sin(direction), 1.3)
        touched = False
        for _ in range(500):
            mujoco.mj_step(model, data)
            touched |= data.sensor("ball_cup_bottom").data[0] > 0
        assert touched == falls_in
        if falls_in:
            assert data.sensor("ball_cup_bottom").data[0] > 0
            assert np.hypot(*(data.qpos[7:9] - axis)) < scenes.CUP_INNER_RADIUS - scenes.BALL_RADIUS + 0.001
            assert data.qpos[9] == pytest.approx(0.890, abs=0.001)
            np.testing.assert_allclose(data.qvel[BALL], 0, atol=0.01)


def test_the_cup_moves_with_its_mocap_position() -> None:
    for context in ((-0.3, -1.3), (0.32, -2.2)):
        axis = np.add(context, scenes.CUP_AXIS_OFFSET)
        for offset, contact in ((0.0, True), (0.2 * -np.sign(context[0]), False)):
            data = start("beer_pong", ball=(axis[0] + offset, axis[1], 1.1))
            data.mocap_pos[0, :2] = axis
            ball_path("beer_pong", data, 100)
            assert (data.sensor("ball_cup_bottom").data[0] > 0) == contact
            np.testing.assert_allclose(data.site("cup_goal").xpos, (*axis, 0.950))


def test_the_ball_in_the_hand_touches_nothing() -> None:
    model, data = MODELS["beer_pong"], start("beer_pong")
    rng = np.random.default_rng(2)
    for _ in range(200):
        data.qpos[ROBOT] = rng.uniform(model.jnt_range[ROBOT, 0], model.jnt_range[ROBOT, 1])
        mujoco.mj_kinematics(model, data)
        data.qpos[BALL] = data.site("release").xpos
        mujoco.mj_forward(model, data)
        palm, ball = model.geom("palm").id, model.geom("ball").id
        assert not any({contact.geom1, contact.geom2} == {palm, ball} for contact in data.contact)


def test_release_sensors() -> None:
    model, data = MODELS["beer_pong"], start("beer_pong")
    data.qpos[ROBOT], data.qvel[ROBOT] = POSTURE, SPEED
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.sensor("release_pos").data, (0.129519, 0.070119, 1.80282), atol=1e-6)
    np.testing.assert_allclose(data.sensor("release_vel").data, (0.02843, 0.583174, -0.13373), atol=1e-6)


# Table tennis


def test_table_tennis_geometry() -> None:
    model = MODELS["table_tennis"]
    for name, low, high in (
        ("table", (-1.37, -0.7625, 0.75), (1.37, 0.7625, 0.77)),
        ("net", (-0.01, -0.915, 0.77), (0.01, 0.915, 0.9225)),
    ):
        geom = model.geom(name)
        np.testing.assert_allclose(geom.pos - geom.size, low, atol=1e-12)
        np.testing.assert_allclose(geom.pos + geom.size, high, atol=1e-12)
    assert {model.body(i).name for i in range(model.nbody) if model.body_mocapid[i] >= 0} == {"target", "serve"}


def test_the_serve_bounces_where_the_published_one_does() -> None:
    data = start("table_tennis", ball=(-0.7, 0, 1.76), velocity=(2.5, 0, 1))
    data.qpos[3] = data.ctrl[3] = -0.5  # out of the ball's way
    positions, velocities = ball_path("table_tennis", data, 600)
    bounce = int(np.argmax(np.diff(velocities[:, 2]) > 0)) + 1
    assert bounce == pytest.approx(278, abs=2)
    assert positions[bounce, 0] == pytest.approx(0.695, abs=0.005)
    for x, z in ((1.40, 1.616), (1.70, 1.647), (2.00, 1.482)):
        assert positions[np.argmax(positions[:, 0] > x), 2] == pytest.approx(z, abs=0.005)


@pytest.mark.parametrize("speed", [3.14, 3.0, 2.72, 2.51])
@pytest.mark.parametrize(("ball_xy", "surface"), [((0.7, 0.3), 0.77), ((0.0, 2.0), 0.0)], ids=["table", "floor"])
def test_table_tennis_restitution(speed: float, ball_xy: tuple[float, float], surface: float) -> None:
    # The published values are between 0.887 and 0.951, depending on where in a step the ball arrives.
    data = start("table_tennis", ball=(*ball_xy, surface + 0.025 + drop_height(speed)))
    _, velocities = ball_path("table_tennis", data, 250)
    assert 0.86 < restitution(velocities[:, 2]) < 0.97


def test_oblique_bounce_and_net() -> None:
    data = start("table_tennis", ball=(0.3, 0.0, 0.795 + 0.01), velocity=(1.5, 0.7, -2.394))
    _, velocities = ball_path("table_tennis", data, 20)
    np.testing.assert_allclose(velocities[-1, :2], (1.290, 0.607), atol=0.02)
    data = start("table_tennis", ball=(-0.2, 0.0, 0.89), velocity=(2.5, 0.0, 0.3))
    _, velocities = ball_path("table_tennis", data, 60)
    assert velocities[:, 0].min() == pytest.approx(-2.361, abs=0.15)


@pytest.mark.parametrize("side", [1, -1])
def test_restitution_of_the_servoed_racket(side: int) -> None:
    # Published: 0.75 and 0.79 at one phase of the impact within a step; we average over phases.
    model, measured = MODELS["table_tennis"], []
    for phase in np.linspace(0, 0.006, 5)[:-1]:
        data = start("table_tennis")
        mujoco.mj_forward(model, data)
        normal = side * data.sensor("racket_normal").data
        data.qpos[BALL] = data.sensor("racket_pos").data + (0.06 + phase) * normal
        data.qvel[BALL] = -3 * normal
        _, velocities = ball_path("table_tennis", data, 30)
        measured.append(float(velocities[-1] @ normal) / 3)
    assert np.mean(measured) == pytest.approx(0.75, abs=0.06)


def test_racket_sensors() -> None:
    model, data = MODELS["table_tennis"], start("table_tennis")
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.sensor("racket_pos").data, (1.499586, 0, 1.0195), atol=1e-6)
    np.testing.assert_array_equal(data.sensor("racket_normal").data, data.body("racket").xmat.reshape(3, 3)[:, 0])
    red_face = [i for i in range(model.ngeom) if model.geom_matid[i] == model.material("racket_red").id]
    toward_red = data.geom_xpos[red_face[0]] - data.sensor("racket_pos").data
    assert toward_red @ data.sensor("racket_normal").data > 0


# Contact sensors

CUP = (*(f"cup_{side}" for side in range(scenes.CUP_SIDES)), "cup_base", "cup_bottom")
BALL_SENSORS: dict[str, dict[str, tuple[str, ...]]] = {
    "beer_pong": {
        "ball_table": ("table",),
        "ball_wall": ("wall",),
        "ball_cup_bottom": ("cup_bottom",),
        "ball_cup": CUP,
        "ball_floor": ("floor",),
    },
    "table_tennis": {
        "ball_racket": ("bat",),
        "ball_table": ("table",),
        "ball_net": ("net",),
        "ball_floor": ("floor",),
    },
}
Placement = tuple[tuple[float, float, float], tuple[float, float, float]]  # position, velocity of the ball
BALL_STARTS: dict[str, list[Placement]] = {
    "beer_pong": [
        ((0.25, -1.5, 1.2), (0.2, -0.8, 0)),
        ((0.0, -1.77, 1.3), (0, 0, 0)),
        ((0.05, -1.9, 1.2), (0, -3, 1)),
        ((0.3, -1.0, 0.7), (0.3, 1, 0)),
    ],
    "table_tennis": [
        ((-0.7, 0, 1.76), (2.5, 0, 1)),
        ((-0.3, 0.1, 0.85), (2, 0, 0.5)),
        ((1.5, 0.3, 1.0), (0, -3, 0.3)),
    ],
}
STRETCHED = (0, 1.2, 0, 0, 0, 0, 0)


@BOTH
def test_contact_sensors_agree_with_a_scan_of_the_contacts(scene: str) -> None:
    model = MODELS[scene]
    if scene == "beer_pong":  # here the arm cannot reach the table
        model = scenes.beer_pong_model()
        model.geom("table").pos[1] += 0.6
    arm_bodies = range(model.body("base").id, model.body("ball").id)
    seen: set[str] = set()
    for ball, velocity in BALL_STARTS[scene]:
        data = start(scene, ball, velocity)
        for step in range(800):
            if step == 400:
                data.ctrl[:] = STRETCHED
            mujoco.mj_step(model, data)
            pairs = [(contact.geom1, contact.geom2) for contact in data.contact]
            names = [{model.geom(g).name for g in pair} for pair in pairs]
            expected = {
                sensor: sum("ball" in pair and bool(pair & set(others)) for pair in names)
                for sensor, others in BALL_SENSORS[scene].items()
            }
            bodies = [{int(model.geom_bodyid[g]) for g in pair} for pair in pairs]
            expected["arm_table"] = sum(
                "table" in pair and bool(ids & set(arm_bodies)) for pair, ids in zip(names, bodies, strict=True)
            )
            assert {sensor: data.sensor(sensor).data[0] for sensor in expected} == expected
            seen |= {sensor for sensor, count in expected.items() if count}
    assert seen == {*BALL_SENSORS[scene], "arm_table"}
