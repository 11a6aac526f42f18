"""The Panda of box pushing against the published model and MuJoCo's own dynamics."""

import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose

from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.simulation.box_pushing import START, bias_model, box_pushing_model
from svsl.simulation.panda_kinematics import StartPostures, reach_posture, tcp_pose

# postures and velocities with the rod's tip and quaternion, the diagonal of the mass matrix, and the bias
CASES = (
    (
        START, (0,) * 7, (0.400001, 0.299976, 0.045034), (-0.000050, 0.999995, 0.003139, -0.000011),
        (1.294932, 1.612584, 1.176238, 1.065200, 0.141277, 0.160728, 0.122802),
        (0, -29.003794, 1.354938, 17.042159, 0.584971, 1.805616, 0.000001),
    ),
    (
        (0, 0, 0, -1.5, 0, 1.5, 0), (0,) * 7, (0.547702, 0, 0.451456), (0, 0.923880, 0.382683, 0),
        (1.382910, 2.769915, 1.364137, 0.993050, 0.159653, 0.162276, 0.122802),
        (0, -28.537443, 0, 21.058941, 1.079694, 1.880884, 0),
    ),
    (
        (0.3, -0.4, 0.5, -1.2, -0.6, 1.4, 0.2), (1, -0.5, 0.8, 0.3, -1, 0.6, 2),
        (0.349392, 0.213216, 0.826829), (0.325218, 0.758616, 0.476173, 0.303306),
        (0.559367, 2.842598, 1.166389, 0.964269, 0.162613, 0.161700, 0.122802),
        (0.436950, -6.872086, -6.555936, 15.208108, 0.009726, 1.882756, 0.228609),
    ),
)  # fmt: skip


@pytest.mark.parametrize(("joints", "velocities", "tip", "quat", "inertia", "bias"), CASES)
def test_kinematics_and_dynamics_are_the_published_ones(
    joints: Array, velocities: Array, tip: Array, quat: Array, inertia: Array, bias: Array
) -> None:
    model = box_pushing_model("motor")
    data = mujoco.MjData(model)
    data.qpos[:7], data.qvel[:7] = joints, velocities
    mujoco.mj_forward(model, data)
    assert_allclose(data.site("rod_tip").xpos, tip, atol=1e-6)
    measured = data.sensor("rod_quat").data
    assert_allclose(measured * np.sign(measured @ np.array(quat)), quat, atol=1e-6)
    unit, column = np.zeros(model.nv), np.zeros(model.nv)
    for joint in range(7):
        unit[:] = np.arange(model.nv) == joint
        mujoco.mj_mulM(model, data, column, unit)
        assert column[joint] == pytest.approx(inertia[joint], abs=1e-6)
    assert_allclose(data.qfrc_bias[:7], bias, atol=1e-6)
    arm = bias_model()
    alone = mujoco.MjData(arm)
    alone.qpos[:], alone.qvel[:] = joints, velocities
    mujoco.mj_forward(arm, alone)
    assert_allclose(alone.sensordata[2::3], data.qfrc_bias[:7], atol=1e-9)


def test_masses_and_limits() -> None:
    model = box_pushing_model("servo", visuals=False)
    assert model.body("link_1").subtreemass[0] == pytest.approx(15.8056956, abs=1e-7)
    assert model.body("box").mass[0] == pytest.approx(2.004)
    assert_allclose(sorted(model.body("box").inertia), [0.00175211, 0.00175211, 0.0033467], atol=1e-8)
    assert_allclose(model.jnt_range[:7, 0], [-2.9671, -1.8326, -2.9671, -3.1416, -2.9671, -0.0873, -2.9671])
    assert_allclose(model.jnt_range[:7, 1], [2.9671, 1.8326, 2.9671, 0.0873, 2.9671, 3.8223, 2.9671])


def test_the_box_slides_and_turns_as_published() -> None:
    model = box_pushing_model("servo", visuals=False)
    data = mujoco.MjData(model)

    def rest(velocity: Array) -> tuple[Array, float]:
        mujoco.mj_resetData(model, data)
        data.qpos[:7], data.qpos[7:14] = (0, -1, 0, -2, 0, 2, 0), (0.3, 0.0, -0.00911, 1, 0, 0, 0)
        data.ctrl[:] = data.qpos[:7]
        data.qvel[7:] = velocity
        for _ in range(500):
            mujoco.mj_step(model, data)
        return data.qpos[7:10].copy(), 2 * float(np.arctan2(data.qpos[13], data.qpos[10]))

    still, _ = rest(np.zeros(6))
    assert_allclose(still, [0.3, 0.0, -0.00911], atol=2e-5)
    for speed, distance in ((0.5, 0.0421), (1.0, 0.1690)):
        assert rest(np.array([0, speed, 0, 0, 0, 0]))[0][1] == pytest.approx(distance, abs=5e-4)
    assert rest(np.array([0, 0, 0, 0, 0, 10.0]))[1] == pytest.approx(0.395, abs=2e-3)


def test_the_pose_and_its_jacobian_are_mujocos() -> None:
    model = box_pushing_model("motor", visuals=False)
    data, joints = mujoco.MjData(model), stream(0).uniform(-1.5, 1.5, (4, 7))
    positions, quats, jacobians = tcp_pose(joints)
    site = model.site("tcp").id
    for row, posture in enumerate(joints):
        data.qpos[:7] = posture
        mujoco.mj_forward(model, data)
        linear, angular, quat = np.empty((3, model.nv)), np.empty((3, model.nv)), np.empty(4)
        mujoco.mj_jacSite(model, data, linear, angular, site)
        mujoco.mju_mat2Quat(quat, data.site("tcp").xmat)
        assert_allclose(positions[row], data.site("tcp").xpos, atol=1e-12)
        assert abs(quats[row] @ quat) == pytest.approx(1, abs=1e-12)
        assert_allclose(jacobians[row], np.concatenate([linear, angular])[:, :7], atol=1e-12)


def test_the_inverse_kinematics_end_where_the_published_ones_do() -> None:
    points = np.array([[0.4, 0.3, 0.14], [0.30, -0.15, 0.14], [0.45, -0.45, 0.14], [0.60, -0.15, 0.14]])
    expected = (
        START,
        (-0.27334, -0.25060, -0.22276, -2.92645, -0.12283, 2.67876, 0.39976),
        (-0.59652, 0.50485, -0.20240, -1.87927, 0.13997, 2.37055, -0.09578),
        (-0.18046, 0.45119, -0.06752, -1.95634, 0.04385, 2.40615, 0.50540),
    )
    found = reach_posture(points)
    assert_allclose(found[0], expected[0], atol=5e-8)
    assert_allclose(found[1:], expected[1:], atol=1e-5)
    position, quat, _ = tcp_pose(found)
    assert np.abs(position - points).max() < 2e-4
    assert (np.abs(quat[:, 1]) > np.cos(0.0065 / 2)).all()


def test_interpolated_postures_are_close_to_those_of_the_iteration() -> None:
    low, high = np.array([0.3, -0.45]), np.array([0.6, 0.45])
    postures, places = StartPostures(low, high, 0.14), stream(1).uniform(low, high, (60, 2))
    exact = reach_posture(np.column_stack([places, np.full(60, 0.14)]))
    assert_allclose(postures(places), exact, atol=4e-6)
    np.testing.assert_array_equal(postures(places[:1]), postures(places)[:1])
