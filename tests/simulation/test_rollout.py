"""Batched simulation compared with a plain loop over `mj_step`, and the helpers that read its results."""

import mujoco
import numpy as np
import pytest

from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.simulation.rollout import Simulator, diverged, first_true, rising_edges

CONTROL = mujoco.mjtState.mjSTATE_CTRL.value
CONTROL_AND_MOCAP = CONTROL | mujoco.mjtState.mjSTATE_MOCAP_POS.value
FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
STEPS = 60

# An actuated pendulum hits a ball, which bounces on a floor and on a plate moved by the controls.
SCENE = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="plate" mocap="true"><geom name="plate" type="box" size=".2 .2 .02"/></body>
    <body pos="0 0 .6">
      <joint name="hinge" type="hinge" axis="0 1 0" damping="0.05"/>
      <geom name="arm" type="capsule" fromto="0 0 0 .4 0 0" size=".03"/>
    </body>
    <body name="ball" pos=".2 0 .75"><freejoint/><geom name="ball" type="sphere" size=".05"/></body>
  </worldbody>
  <actuator><position joint="hinge" kp="20"/></actuator>
  <sensor>
    <jointpos name="angle" joint="hinge"/>
    <framepos name="ball_pos" objtype="body" objname="ball"/>
    <contact name="ball_floor" geom1="floor" body2="ball" data="found" num="1"/>
    <contact name="ball_arm" geom1="arm" body2="ball" data="found" num="1"/>
  </sensor>
</mujoco>
"""


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(SCENE)


def random_batch(model: mujoco.MjModel, rows: int, steps: int = STEPS) -> tuple[Array, Array]:
    """States around the initial one, and random commands for the joint and the plate."""
    rng, data = stream(0), mujoco.MjData(model)
    states = np.empty((rows, mujoco.mj_stateSize(model, FULL)))
    for row in range(rows):
        mujoco.mj_resetData(model, data)
        data.qvel[:] = rng.normal(0, 1, model.nv)
        mujoco.mj_getState(model, data, states[row], FULL)
    commands = rng.normal(0, 0.5, (rows, steps, 1))
    plates = np.tile(rng.uniform([-0.1, -0.1, 0.05], [0.4, 0.1, 0.3], (rows, 1, 3)), (1, steps, 1))
    return states, np.concatenate([commands, plates], axis=2)


def step_by_step(model: mujoco.MjModel, start: Array, controls: Array) -> tuple[Array, Array]:
    """Computes one row of `Simulator.run` with `mj_step`."""
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, start, FULL)
    states, sensors = np.empty((len(controls), len(start))), np.empty((len(controls), model.nsensordata))
    for step, control in enumerate(controls):
        data.ctrl[:], data.mocap_pos[:] = control[:1], control[1:]
        mujoco.mj_step(model, data)
        mujoco.mj_getState(model, data, states[step], FULL)
        sensors[step] = data.sensordata
    return states, sensors


def test_run_matches_a_loop_of_steps(model: mujoco.MjModel) -> None:
    states, controls = random_batch(model, 5)
    simulator = Simulator(model, CONTROL_AND_MOCAP, workers=2)
    assert (simulator.state_size, simulator.control_size) == (1 + 8 + 7, 4)
    after, sensors = simulator.run(states, controls)
    for row in range(5):
        naive = step_by_step(model, states[row], controls[row])
        np.testing.assert_array_equal(after[row], naive[0])
        np.testing.assert_array_equal(sensors[row], naive[1])
    touches = simulator.sensor(sensors, "ball_arm")
    assert 0 < np.count_nonzero(touches) < touches.size
    np.testing.assert_allclose(after[:, -1, 0], STEPS * 0.005)


def test_sensors_belong_to_the_state_before_the_step(model: mujoco.MjModel) -> None:
    states, controls = random_batch(model, 3)
    simulator = Simulator(model, CONTROL_AND_MOCAP, workers=1)
    after, sensors = simulator.run(states, controls)
    before = np.concatenate([states[:, None], after[:, :-1]], axis=1)
    np.testing.assert_array_equal(simulator.sensor(sensors, "angle"), before[..., 1])
    np.testing.assert_allclose(simulator.sensor(sensors, "ball_pos"), before[..., 2:5], atol=1e-15)
    assert simulator.sensor(sensors, "angle").shape == (3, STEPS)
    assert simulator.sensor(sensors[0, 0], "ball_pos").shape == (3,)


def test_results_do_not_depend_on_workers_or_batch(model: mujoco.MjModel) -> None:
    states, controls = random_batch(model, 7)
    simulator = Simulator(model, CONTROL_AND_MOCAP, workers=1)
    expected = simulator.run(states, controls)
    for workers in (2, 3, 1):
        simulator.workers = workers
        for _ in range(2):  # the second time in reused memory
            for result, rows_expected in zip(simulator.run(states, controls), expected, strict=True):
                np.testing.assert_array_equal(result, rows_expected)
        assert len(simulator._thread_data) == simulator.workers == workers  # a new pool
    rows = np.array([6, 2, 2, 0])
    for result, rows_expected in zip(simulator.run(states[rows], controls[rows]), expected, strict=True):
        np.testing.assert_array_equal(result, rows_expected[rows])
    assert not np.array_equal(expected[0][0], expected[0][1])


def test_workers_default_to_all_cores_and_zero_means_one_thread(
    model: mujoco.MjModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svsl.simulation.rollout.available_cores", lambda: 3)
    simulator = Simulator(model, CONTROL)
    assert (simulator.workers, simulator.control_size) == (3, 1)
    assert Simulator(model, CONTROL, workers=0).workers == 1
    simulator.workers = 0
    assert simulator.workers == 1
    states, controls = random_batch(model, 2, 3)
    assert np.isfinite(simulator.run(states, controls[..., :1])[0]).all()


@pytest.mark.parametrize(("rows", "steps"), [(0, 5), (3, 0), (0, 0)])
def test_empty_batches(model: mujoco.MjModel, rows: int, steps: int) -> None:
    simulator = Simulator(model, CONTROL_AND_MOCAP, workers=1)
    states, controls = random_batch(model, rows, steps)
    after, sensors = simulator.run(states, controls)
    assert after.shape == (rows, steps, simulator.state_size)
    assert sensors.shape == (rows, steps, model.nsensordata)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_diverged_simulation_is_detected_and_does_not_affect_others(model: mujoco.MjModel, workers: int) -> None:
    states, controls = random_batch(model, 6)
    simulator = Simulator(model, CONTROL_AND_MOCAP, workers=workers)
    healthy = simulator.run(states, controls)[0]
    states[1, 9] = 1e12  # speed of the hinge
    states[2, 1] = np.nan
    controls[3, 20, 0] = np.nan  # MuJoCo treats it as 0, warns, and the rollout stops
    controls[4, STEPS - 2, 1:] = np.nan
    after, _ = simulator.run(states, controls)
    due = np.full(6, STEPS * 0.005)
    np.testing.assert_array_equal(diverged(after[:, -1], due, 0.005), [False, True, True, True, True, False])
    np.testing.assert_array_equal(diverged(healthy[:, -1], due, 0.005), [False] * 6)
    for row in (0, 5):
        np.testing.assert_array_equal(after[row], healthy[row])


def test_diverged_on_hand_written_states() -> None:
    states = np.array([[0.5, 1.0], [0.5, np.nan], [0.495, 1.0], [0.5 + 1e-12, 2.0], [0.5, -np.inf], [np.nan, 0.0]])
    np.testing.assert_array_equal(
        diverged(states, np.full(6, 0.5), 0.005), [False, True, True, False, True, True]
    )  # the third is one step short


def test_rising_edges_and_first_true_on_hand_written_flags() -> None:
    contact = np.array([[1, 1, 0, 1, 0, 1, 1], [0, 0, 1, 1, 1, 0, 0], [0] * 7, [1] * 7], dtype=bool)
    edges = np.array([[1, 0, 0, 1, 0, 1, 0], [0, 0, 1, 0, 0, 0, 0], [0] * 7, [1, 0, 0, 0, 0, 0, 0]], dtype=bool)
    np.testing.assert_array_equal(rising_edges(contact), edges)
    np.testing.assert_array_equal(first_true(contact), [0, 2, 7, 0])
    np.testing.assert_array_equal(first_true(~contact), [2, 0, 0, 7])
    np.testing.assert_array_equal(first_true(contact.reshape(2, 2, 7)), [[0, 2], [7, 0]])
    assert contact[0, 1]  # the argument is not modified
