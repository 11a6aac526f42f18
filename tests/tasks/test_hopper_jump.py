"""Hopper jump against the published numbers, and against a plain loop over `mj_step` on Gymnasium's own model."""

import gymnasium
import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import svsl.environments  # noqa: F401 (registers the environments)
from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.simulation.hopper import HOPPER_FILE, foot_points, hopper_model, touches_floor
from svsl.tasks.hopper_jump import HopperJump

UPRIGHT_JUMP = np.array([0.29, -5.17, 7.52, 11.48, 5.39, 2.32, -12.57, -0.48, -0.4, -20.88, 7.8, 5.56])
CONTEXT = np.array([0.8, -0.2, -0.1, 0.3])
# by joint: three weights and the goal, for thigh, leg and foot
JUMP = np.array([-1.95, 2.33, 1.72, -1.12, 2.92, -1.04, 0.46, 0.47, 1.25, -4.96, -1.02, 1.49])


@pytest.fixture(scope="module")
def task() -> HopperJump:
    return HopperJump()


def batch(task: HopperJump, count: int) -> tuple[Array, Array]:
    rng = stream(5)
    contexts = rng.uniform(task.context_low, task.context_high, (count, 4))
    parameters = JUMP + 0.4 * rng.standard_normal((count, 12))
    parameters[0] = 0
    return contexts, parameters


def test_the_model_is_the_published_one() -> None:
    model = hopper_model(visuals=False)
    data, columns = mujoco.MjData(model), np.empty((6, 6))
    data.qpos[:] = 0, 1.5, 0, -0.5, -0.2, 0.785
    mujoco.mj_forward(model, data)
    for column, unit in zip(columns, np.eye(6), strict=True):
        mujoco.mj_mulM(model, data, column, unit)  # unlike mj_fullM the same in all versions
    diagonal = [15.82001341, 15.82001341, 9.35018297, 7.18109966, 2.45679557, 1.12598138]
    assert_allclose(np.diag(columns), diagonal, atol=1e-8)
    bias = [0, 155.19433151, 39.2444169, -39.2444169, -17.81376798, 3.37723914]
    assert_allclose(data.qfrc_bias, bias, atol=1e-7)
    assert_allclose(foot_points(data.qpos)[0], [-0.53275648, 0.46288337], atol=1e-8)
    assert model.opt.timestep == 0.002
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4


def touching(model: mujoco.MjModel, data: mujoco.MjData) -> bool:
    pair = {model.geom("floor").id, model.geom("foot_geom").id}
    return any(set(contact.geom.tolist()) == pair for contact in data.contact)


def test_the_foot_is_where_mujoco_has_it() -> None:
    model, rng = hopper_model(), stream(6)
    data, foot = mujoco.MjData(model), model.body("foot").id
    seen = []
    for number in range(300):
        qpos = rng.uniform([-1, 0.6, -1.5, -2.6, -2.6, -0.78], [1, 1.5, 1.5, 0, 0, 0.78])
        if number % 2:  # close to the floor; between 1 and 2 mm versions of MuJoCo differ
            qpos[1] -= foot_points(qpos)[1] - (rng.uniform(-0.003, 0.001) if number % 4 == 1 else 0.0022)
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        sole, height = foot_points(qpos)
        under_ankle = data.xpos[foot] + data.xmat[foot].reshape(3, 3) @ np.array([-0.13, 0, 0.04])
        assert_allclose(sole, under_ankle[[0, 2]], atol=1e-12)
        seen.append(touching(model, data))
        assert touches_floor(height) == seen[-1]
    assert 75 <= sum(seen) <= 225


def test_published_jump(task: HopperJump) -> None:
    outcome = task.evaluate(CONTEXT[None], JUMP[None], stream(0))
    assert outcome.returns[0] == pytest.approx(18.19, abs=0.005)
    assert outcome.info["height"][0] == pytest.approx(1.802, abs=5e-4)
    assert outcome.info["distance"][0] == pytest.approx(0.260, abs=1e-3)
    assert outcome.info["landing_distance"][0] == pytest.approx(0.360, abs=1e-3)
    assert outcome.info["effort"][0] == pytest.approx(0.329, abs=5e-4)
    assert outcome.info["jumped"][0]
    assert outcome.info["healthy"][0]
    assert not outcome.success[0]  # it ends 0.26 m from the goal
    # it leaves the floor in step 60 and lands in step 137, counted from 0
    assert task.motion(CONTEXT, JUMP).moments == {"jump": 61, "landing": 138}
    assert outcome.info["mode"][0] == "leaning back, beyond"


@pytest.mark.parametrize(
    ("context", "published"),
    [(CONTEXT, 2.593), ((0.3, -0.5, -0.2, 0.785), 11.473), ((1.35, 0.0, 0.0, 0.0), 2.947)],
)
def test_published_returns_of_a_hopper_that_holds_its_posture(
    task: HopperJump, context: object, published: float
) -> None:
    hoppers, posture = task.step_form(1, workers=1), np.array(context)
    hoppers.begin(slice(None), posture[None])
    total, over = 0.0, False
    while not over:
        positions, velocities = hoppers.states[0, 4:7], hoppers.states[0, 10:13]
        rewards, ends = hoppers.step((posture[1:] - positions - 0.1 * velocities)[None])
        total, over = total + rewards[0], bool(ends[0])
    assert total == pytest.approx(published, abs=2e-3)


def naive_return(task: HopperJump, context: Array, parameters: Array) -> float:
    """Return of one episode: MuJoCo's own steps, contacts from its list, the landing as a state machine."""
    model = mujoco.MjModel.from_xml_path(str(HOPPER_FILE))
    data, foot = mujoco.MjData(model), model.body("foot").id
    data.qpos[:] = [0, 1.5, 0, *context[1:]]
    path = task.movement.trajectories(parameters[None], context[None, 1:], 251, 0.008)
    height, landing, touched, left, effort, distance = 0.0, 5.0, False, False, 0.0, 0.0
    landed = False
    for step in range(1, 251):
        action = path[0][0, step] - data.qpos[3:] + 0.1 * (path[1][0, step] - data.qvel[3:])
        data.ctrl[:] = np.clip(action, -1, 1)
        for _ in range(4):
            mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        effort += 1e-3 * float(data.ctrl @ data.ctrl)
        height = max(height, data.qpos[1])
        sole = data.xpos[foot] + data.xmat[foot].reshape(3, 3) @ np.array([-0.13, 0, 0.04])
        distance = float(np.linalg.norm(sole - [context[0], 0, 0]))
        contact = touching(model, data)
        if left and contact and not landed:
            landed, landing = True, distance
        left = left or (touched and not contact)
        touched = touched or contact
    healthy = data.qpos[1] > 0.5 and bool((np.abs([*data.qpos[2:], *data.qvel]) < 100).all())
    return 10 * height - 3 * distance - 2 * landing + 2 * healthy - effort


def test_the_return_is_that_of_a_plain_loop(task: HopperJump) -> None:
    contexts, parameters = batch(task, 5)
    outcome = task.evaluate(contexts, parameters, stream(0))
    expected = [naive_return(task, c, p) for c, p in zip(contexts, parameters, strict=True)]
    assert_allclose(outcome.returns, expected, atol=1e-4)  # warm starts of MuJoCo's solver make the difference
    assert 0 < outcome.info["jumped"].mean() < 1
    assert np.ptp(outcome.returns) > 3


def test_kinds_of_jumps(task: HopperJump) -> None:
    contexts = np.tile(CONTEXT, (5, 1))
    contexts[1:3, 0] = 1.1, 1.35
    parameters = np.array([JUMP, JUMP, JUMP, UPRIGHT_JUMP, np.zeros(12)])
    outcome = task.evaluate(contexts, parameters, stream(0))
    leaning = [f"leaning back, {place}" for place in ("beyond", "on the goal", "short")]
    assert_array_equal(outcome.info["mode"], [*leaning, "upright, short", "no jump"])
    assert outcome.info["path"].shape == (5, 4 * 26)
    motion = task.motion(CONTEXT, JUMP)
    torso, sole = motion.poses[::10, 1:3], motion.trail[::10, ::2]
    assert_allclose(outcome.info["path"][0].reshape(26, 4) * 0.1, np.concatenate([torso, sole], axis=1), atol=1e-12)


def test_success_needs_a_jump_its_height_and_the_goal(task: HopperJump) -> None:
    hoppers = task.step_form(4)
    hoppers.begin(slice(None), np.tile(CONTEXT, (4, 1)))
    hoppers.soles[:] = [(0.8 + offset, 0.0) for offset in (0.19, 0.21, 0.19, 0.19)]
    hoppers.highest[:] = 1.8, 1.8, 1.79, 1.8
    hoppers.stage[:] = 3, 3, 3, 2
    assert_array_equal(hoppers.success(), [True, False, False, False])


def test_the_batch_and_the_threads_change_nothing(task: HopperJump) -> None:
    contexts, parameters = batch(task, 6)
    parameters[3] = np.nan
    task.workers = 3
    whole = task.evaluate(contexts, parameters, stream(0))
    assert whole.returns[3] == task.penalty
    nothing = task.evaluate(contexts[3:4], parameters[3:4], stream(0))
    assert nothing.returns[0] == task.penalty
    assert nothing.info["path"].shape == (1, 104)
    task.workers = 1
    part = task.evaluate(contexts[1:5], parameters[1:5], stream(1))
    task.workers = None
    assert_array_equal(part.returns, whole.returns[1:5])
    assert_array_equal(part.info["path"], whole.info["path"][1:5])


def test_step_by_step_is_the_same_episode(task: HopperJump) -> None:
    env = gymnasium.make("svsl/HopperJump-v0")
    observation, _ = env.reset(seed=0, options={"context": CONTEXT})
    path = task.movement.trajectories(JUMP[None], CONTEXT[1:], 251, 0.008)
    total = 0.0
    for step in range(1, 251):
        action = path[0][0, step] - observation[3:6] + 0.1 * (path[1][0, step] - observation[9:12])
        observation, reward, terminated, truncated, info = env.step(np.clip(action, -1, 1))
        total += float(reward)
        assert terminated == (step == 250)
        assert not truncated
    outcome = task.evaluate(CONTEXT[None], JUMP[None], stream(0))
    assert total == pytest.approx(outcome.returns[0], abs=1e-9)
    assert info["distance"] == pytest.approx(outcome.info["distance"][0], abs=1e-9)
    assert observation[13:] == pytest.approx([outcome.info["height"][0], 3, outcome.info["landing_distance"][0], 250])
    skill_env = gymnasium.make("svsl/HopperJumpSkill-v0")
    skill_env.reset(seed=0, options={"context": CONTEXT})
    assert skill_env.step(JUMP)[1] == outcome.returns[0]
