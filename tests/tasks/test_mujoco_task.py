"""Tasks from one's own MuJoCo model: the example's striker against a plain loop over `mj_step`, and the servos."""

import importlib
import sys
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from svsl import Outcome, SvslError
from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.show.playback import trimmed_motion
from svsl.show.rendering import make_renderer
from svsl.simulation.movements import ProDMP
from svsl.simulation.primitives import throw
from svsl.simulation.servos import add_servo, compile_model, read_model
from svsl.tasks.check import check_task
from svsl.tasks.mujoco_task import MujocoTask, Rollout
from swing import PENDULUMS, Swing

EXAMPLES = Path(__file__).parents[2] / "examples"
FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS.value


@pytest.fixture(scope="module")
def striker() -> Any:
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module("04_own_mjcf").Striker()
    finally:
        sys.path.remove(str(EXAMPLES))


def batch(task: MujocoTask, count: int) -> tuple[Array, Array]:
    rng = stream(8)
    contexts = rng.uniform(task.context_low, task.context_high, (count, len(task.context_low)))
    return contexts, rng.multivariate_normal(task.initial_mean, task.initial_cov, count)


def test_the_striker_is_a_loop_of_steps(striker: Any) -> None:
    contexts, parameters = batch(striker, 4)
    _, rollout = striker.simulate(contexts, parameters)
    model = mujoco.MjModel.from_xml_path(str(EXAMPLES / "striker.xml"))  # with its motors: the torques are ours
    kp, kv = 100.0, -striker.model.actuator_biasprm[:, 2]
    for actuator, limit in enumerate((30.0, 15.0)):  # the same servos, by hand
        model.actuator_gainprm[actuator, 0] = kp
        model.actuator_biastype[actuator] = int(mujoco.mjtBias.mjBIAS_AFFINE)
        model.actuator_biasprm[actuator, :3] = 0.0, -kp, -kv[actuator]
        model.actuator_gear[actuator, 0], model.actuator_ctrllimited[actuator] = 1.0, False
        model.actuator_forcelimited[actuator], model.actuator_forcerange[actuator] = True, (-limit, limit)
    touched = False
    for row in range(4):
        offset, speed = (x[0] for x in throw(parameters[row].reshape(1, 2, 2), np.array([100]), 301, 0.005))
        data = mujoco.MjData(model)
        data.qpos[:] = 1.2, -2.4, 0.0, 0.0
        data.mocap_pos[0, :2] = contexts[row]
        for step in range(301):
            assert_array_equal(rollout.qpos[row, step], data.qpos)
            assert_array_equal(rollout.qvel[row, step], data.qvel)
            data.ctrl[:] = np.array([1.2, -2.4]) + offset[step] + kv / kp * speed[step]
            mujoco.mj_step(model, data)  # computes the sensors of the state before it
            assert_array_equal(rollout.sensors[row, step], data.sensordata)
        touched |= bool((rollout.sensor("hit")[row] > 0).any())
    assert touched
    assert_allclose(rollout.time_s[[0, -1]], [0, 1.5])
    assert_allclose(rollout.sensor("puck")[..., 0], 0.28 + rollout.joint("puck_x")[..., 0], atol=1e-12)


def test_the_striker_scores_where_the_puck_ends(striker: Any) -> None:
    contexts, parameters = batch(striker, 30)
    outcome = striker.evaluate(contexts, parameters, stream(0))
    for row in range(30):
        whole = striker.motion(contexts[row], parameters[row])
        distance = float(np.linalg.norm(whole.trail[-1, :2] - contexts[row]))
        assert outcome.info["distance"][row] == pytest.approx(distance)
        if outcome.info["hit"][row]:
            assert outcome.returns[row] == pytest.approx(-10 * min(distance, 1.0))
        assert_array_equal(whole.markers[0, :2], contexts[row])
    assert 0 < outcome.info["hit"].mean() < 1
    assert {f.verdict for f in check_task(striker)} == {"ok"}


def test_the_batch_and_the_threads_change_nothing(striker: Any) -> None:
    contexts, parameters = batch(striker, 150)
    parameters[40] = np.nan
    whole = striker.evaluate(contexts, parameters, stream(0))
    striker.workers = 1
    for rows in (slice(0, 1), slice(30, 60), slice(None)):
        part = striker.evaluate(contexts[rows], parameters[rows], stream(0))
        assert_array_equal(part.returns, whole.returns[rows])
        assert_array_equal(part.info["distance"], whole.info["distance"][rows])


def test_contexts_set_states_and_mocap_bodies() -> None:
    task = Swing()
    contexts, parameters = batch(task, 3)
    states, rollout = task.simulate(contexts, parameters)
    assert_array_equal(rollout.qpos[:, 0], [[0.1, 0.2, 0.3, 0, 2, 7, 1, 0, 0, 0]] * 3)
    assert_allclose(rollout.joint("ball")[:, -1, 0], contexts[:, 1] * 0.4)
    assert_allclose(states[:, -1, 0], 0.41)
    assert_array_equal(task.motion(contexts[0], parameters[0]).markers, [[contexts[0, 0], 0, -3]])
    assert len(task.motion(contexts[0]).poses) == 1


def test_servos_are_kept_made_of_motors_or_added() -> None:
    model, task = Swing().model, Swing()
    assert [model.actuator(number).name for number in range(3)] == ["mine", "motor_servo", "bare_servo"]
    assert_array_equal(model.actuator_gainprm[:, 0], [70, 20, 20])
    assert_array_equal(model.actuator_biasprm[:, :3], [[0, -70, -3], [0, -20, -2], [0, -20, -2]])
    assert_array_equal(model.actuator_gear[:, 0], [2, 1, 1])
    assert_array_equal(model.actuator_forcerange[1], [-8, 4])
    assert_array_equal(model.actuator_forcelimited, [False, True, False])
    assert not model.actuator_ctrllimited.any()
    # desired positions are reached, through a gear, too
    target = np.array([0.2, 0.0, -0.1])
    parameters = np.zeros((1, 9))
    parameters[0, 2::3] = target
    slow = Swing(duration_s=4.0, rest_s=30.0, kp=200.0, kv=60.0)
    _, rollout = slow.simulate(np.zeros((1, 2)), parameters)
    assert_allclose(rollout.qpos[0, -1, :3], slow.start + target, atol=0.01)
    position, velocity = task.desired(parameters)
    _, rollout = task.simulate(np.zeros((1, 2)), parameters)
    assert_allclose(rollout.control[..., 0], 2 * (position[..., 0] + 3 / 70 * velocity[..., 0]))
    assert_allclose(rollout.control[..., 1], position[..., 1] + 0.1 * velocity[..., 1])


def test_another_primitive_and_a_learned_duration() -> None:
    task = Swing(primitive=ProDMP(2), duration_s=(0.1, 0.4))
    assert (task.parameter_dim, task.steps) == (10, 50)
    assert_allclose(task.initial_mean, [0] * 9 + [0.25])
    assert_allclose(np.diag(task.initial_cov), [0.25] * 9 + [0.075**2])
    contexts, parameters = batch(task, 3)
    parameters[:, -1] = 0.2, 0.05, 0.4
    position, velocity = ProDMP(2)(
        parameters[:, :9].reshape(3, 3, 3), np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.1, 0.4]), 51, 0.01
    )
    _, rollout = task.simulate(contexts, parameters)
    assert_array_equal(rollout.control[..., 1], position[..., 1] + 0.1 * velocity[..., 1])
    assert {f.verdict for f in check_task(task)} == {"ok"}


def test_critical_damping_unless_told() -> None:
    pendulum = """<mujoco><worldbody><body><joint name="j" type="slide"/><geom size=".1" mass="4"/></body></worldbody>
    </mujoco>"""
    spec = read_model(pendulum, Path())
    assert add_servo(spec, "j", 25.0, None) == "j_servo"
    assert_allclose(compile_model(spec).actuator_biasprm[0, :3], [0, -25, -2 * np.sqrt(25 * 4)])


def test_what_cannot_be_run_gets_the_penalty() -> None:
    task = Swing()
    contexts, parameters = batch(task, 3)
    parameters[1] = 1e12  # blows up
    parameters[2] = np.nan
    outcome = task.evaluate(contexts, parameters, stream(0))
    assert_array_equal(outcome.returns[1:], [-50, -50])
    assert outcome.returns[0] > -50
    assert_array_equal(outcome.info["simulated"], [True, True, False])
    assert_array_equal(outcome.info["diverged"], [False, True, False])
    assert_array_equal(outcome.success[1:], [False, False])
    assert_array_equal(np.isnan(np.asarray(outcome.info["ball"], dtype=float)), [False, False, True])
    Path("MUJOCO_LOG.TXT").unlink(missing_ok=True)


def test_every_context_is_simulated_and_shown() -> None:
    task = Swing()
    context, parameters = np.array([3.0, 4.0]), np.zeros(9)  # both beyond the box
    outcome = task.evaluate(context[None], parameters[None], stream(0))
    assert_allclose(np.asarray(outcome.info["ball"], dtype=float), 4.0 * 0.4)
    assert -50 < outcome.returns[0] < 0
    assert len(task.motion(context, parameters).poses) == task.steps


def test_a_model_is_a_file_a_text_or_a_spec() -> None:
    Path("pendulums.xml").write_text(PENDULUMS)
    spec = mujoco.MjSpec.from_string(PENDULUMS)
    contexts, parameters = batch(Swing(), 3)
    expected = Swing().evaluate(contexts, parameters, stream(0)).returns
    for model in ("pendulums.xml", Path("pendulums.xml").absolute(), spec):
        assert_array_equal(Swing(model).evaluate(contexts, parameters, stream(0)).returns, expected)
    assert len(spec.actuators) == 2, "the caller's spec stays as it is"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: Swing("missing.xml"), "no model file 'missing.xml' in .*tests or the current directory"),
        (lambda: Swing("<mujoco><nonsense/></mujoco>"), "MuJoCo cannot read the model: .*nonsense"),
        (lambda: Swing(PENDULUMS.replace('size="0.1"', 'size="-1"')), "MuJoCo cannot compile the model"),
        (
            lambda: Swing(PENDULUMS.replace('name="bare"', 'name="b"')),
            "no hinge or slide joint 'bare'; it has servo, motor, b",
        ),
        (lambda: Swing(kp=[1.0, 2.0]), "kp of the joints: expected 3 positive numbers or one for all"),
        (lambda: Swing(tracked="cat"), "the model: Invalid name 'cat'. Valid names: .*'cup'"),
        (lambda: Swing(initial_std=0.0), "initial_std of the joints: expected 3 positive numbers"),
        (
            lambda: Swing(PENDULUMS.replace("<actuator>", '<actuator><motor joint="servo"/>')),
            "joint 'servo' has 2 actuators",
        ),
        (
            lambda: Swing(PENDULUMS.replace("<motor joint=", "<velocity joint=")),
            "actuator 'motor_servo' of joint 'motor' is neither a motor nor a position actuator",
        ),
    ],
)
def test_a_wrong_model_is_explained(change: Any, message: str) -> None:
    with pytest.raises(SvslError, match=message):
        change().evaluate(np.zeros((1, 2)), np.zeros((1, 9)), stream(0))


def test_a_model_without_a_camera_is_drawn() -> None:
    try:
        renderer = make_renderer(Swing(), 80, 60)
    except SvslError as error:
        pytest.skip(str(error))
    picture = renderer.frame(Swing().motion(np.array([0.5, 1.0]), np.zeros(9)), 0)
    renderer.close()
    assert picture.shape == (60, 80, 3)


def test_a_batch_of_which_nothing_can_be_run_is_not_scored() -> None:
    class Strict(Swing):
        def score(self, contexts: Array, parameters: Array, rollout: Rollout) -> Outcome:
            assert len(contexts)
            return super().score(contexts, parameters, rollout)

    task = Strict()
    contexts, parameters = batch(task, 200)
    parameters[:150] = np.nan  # the whole first batch of 128
    outcome = task.evaluate(contexts, parameters, stream(0))
    assert (outcome.returns[:150] == -50).all()
    ball = np.asarray(outcome.info["ball"], dtype=np.float64)
    assert np.isnan(ball[:150]).all()
    assert np.isfinite(ball[150:]).all()
    np.testing.assert_array_equal(outcome.info["simulated"], np.arange(200) >= 150)


def test_a_task_of_ones_own_can_be_watched() -> None:
    task = Swing()
    contexts, parameters = batch(task, 1)
    shown = trimmed_motion(task, contexts[0], parameters[0])
    assert len(shown.poses) == task.steps
    assert shown.duration_s == pytest.approx(0.39)
    resting = Swing(tracked="cup", rest_s=2.0)
    poses = trimmed_motion(resting, contexts[0], parameters[0]).poses
    assert len(poses) == resting.steps, "also if the tracked body rests"


def test_the_body_tracked_unless_told_is_the_last_that_moves() -> None:
    assert Swing().model.body(Swing().tracked).name == "ball"
    still = '<body name="goal" mocap="true"><geom size="0.1"/><body><geom size="0.1"/></body></body><body name="wall"/>'
    task = Swing(PENDULUMS.replace("</worldbody>", f"{still}</worldbody>"))
    assert task.model.body(task.tracked).name == "ball"
