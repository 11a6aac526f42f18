"""The 5-link reacher: its physics, rewards and contexts, and its two forms against each other."""

import warnings
from pathlib import Path
from typing import get_args

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from svsl import SvslError, make_task
from svsl.environments.reacher5 import Reacher5Env
from svsl.evaluation.metrics import success_map
from svsl.learners.registry import find_preset
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.library import SkillLibrary
from svsl.model.mixture import Mixture
from svsl.model.random import stream
from svsl.show.rendering import make_renderer
from svsl.simulation.primitives import reach
from svsl.simulation.reacher import (
    GEAR,
    KD,
    KP,
    LINKS,
    START,
    arm_points,
    reacher5_model,
    tip_position,
)
from svsl.tasks.base import uniform_contexts
from svsl.tasks.reacher5 import (
    STEPS,
    Reacher5,
    ReacherArms,
    Reward,
    distance_to_half_disc,
    start_states,
    step_rewards,
)
from svsl.tasks.steps import step_form

REWARDS: tuple[Reward, ...] = get_args(Reward)


def some_goals(count: int, seed: int = 0) -> Array:
    return uniform_contexts(make_task("reacher5"), count, stream(seed))


# ---- physics --------------------------------------------------------------------------------------------------------


def test_the_arm_is_gymnasiums_reacher_with_five_links() -> None:
    folder = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    theirs = mujoco.MjModel.from_xml_path(str(folder / "reacher.xml"))
    ours = reacher5_model("motor", visuals=False)
    assert (ours.nq, ours.nv, ours.nu) == (5, 5, 5)
    for joint in range(LINKS):
        their = min(joint, 1)
        assert ours.dof_armature[joint] == theirs.dof_armature[their]
        assert ours.dof_damping[joint] == theirs.dof_damping[their]
        assert ours.jnt_limited[joint] == theirs.jnt_limited[their]
        if joint:
            np.testing.assert_array_equal(ours.jnt_range[joint], theirs.jnt_range[their])
        np.testing.assert_array_equal(ours.actuator_gear[joint], theirs.actuator_gear[their])
        np.testing.assert_array_equal(ours.actuator_ctrlrange[joint], theirs.actuator_ctrlrange[their])
        link, their_link = ours.body(f"link_{joint + 1}"), theirs.body(f"body{their}")
        if joint == 0:  # their second body also carries the fingertip's marker in a body of its own
            assert link.mass == pytest.approx(their_link.mass)
            np.testing.assert_allclose(link.inertia, their_link.inertia)
    assert ours.opt.timestep == 2 * theirs.opt.timestep


def test_the_tip_is_where_mujoco_has_it() -> None:
    model = reacher5_model("motor")
    data = mujoco.MjData(model)
    for joints in [np.array(START), *stream(0).uniform(-3, 3, (20, LINKS))]:
        data.qpos[:] = joints
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(tip_position(joints), data.site("tip").xpos[:2], atol=1e-14)
        bodies = np.array([data.body(f"link_{i}").xpos[:2] for i in range(1, LINKS + 1)])
        np.testing.assert_allclose(arm_points(joints)[:-1], bodies, atol=1e-14)
        np.testing.assert_allclose(arm_points(joints)[-1], tip_position(joints), atol=1e-14)
    np.testing.assert_allclose(tip_position(np.array(START)), [-0.5, 0.0], atol=1e-15)


def test_the_servos_are_a_pd_controller_with_limited_actions() -> None:
    task = Reacher5()
    parameters = 12 * stream(1).standard_normal((1, task.parameter_dim))  # wild enough to reach the limits
    states, actions = task._simulate(parameters)
    assert (np.abs(actions) == 1).any(), "the limits matter here"
    position, velocity = reach(parameters.reshape(1, LINKS, -1), STEPS, task.dt_s)
    before = np.concatenate([start_states(1)[:, None], states[:, :-1]], axis=1)
    expected = KP * (position + START - before[..., 1:6]) + KD * (velocity - before[..., 6:])
    np.testing.assert_allclose(actions, np.clip(expected, -1, 1), atol=1e-12)


def test_one_euler_step_is_less_than_a_step_from_gymnasiums_two_runge_kutta_steps() -> None:
    fine = reacher5_model("motor", visuals=False)
    fine.opt.timestep, fine.opt.integrator = 0.01, mujoco.mjtIntegrator.mjINT_RK4
    data, arms = mujoco.MjData(fine), ReacherArms("dense", 1, workers=1)
    data.qpos[:] = START
    apart, tips = [], [tip_position(np.array(START))]
    for step in range(STEPS):
        action = 0.05 * np.sin(0.05 * step + np.arange(LINKS))
        arms.step(action[None])
        data.ctrl[:] = action
        mujoco.mj_step(fine, data, 2)
        tips.append(tip_position(data.qpos))
        apart.append(np.linalg.norm(tips[-1] - tip_position(arms.states[0, 1:6])))
    assert np.linalg.norm(np.array(tips) - tips[0], axis=1).max() > 0.5
    assert max(apart) < 0.7 * np.linalg.norm(np.diff(tips, axis=0), axis=1).max()


def test_simulated_without_the_looks_the_motion_is_the_same() -> None:
    task = Reacher5("last2")
    goals, parameters = some_goals(5), stream(2).standard_normal((5, task.parameter_dim))
    returns = task.evaluate(goals, parameters, stream(0)).returns
    task.simulator.model = task.model
    np.testing.assert_array_equal(task.evaluate(goals, parameters, stream(0)).returns, returns)


# ---- rewards and contexts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", REWARDS)
def test_rewards_are_the_papers_equations(kind: Reward) -> None:
    rng = stream(3)
    actions, velocities = rng.standard_normal((STEPS, LINKS)), rng.standard_normal((STEPS, LINKS))
    distance = rng.uniform(0, 1, STEPS)
    rewards = step_rewards(kind, np.arange(STEPS), distance, actions, velocities)
    for t in range(STEPS):
        a2, v2, d = float(actions[t] @ actions[t]), float(velocities[t] @ velocities[t]), float(distance[t])
        if kind == "dense":
            expected = -d - a2
        elif kind == "last10":
            expected = -a2 if t < 190 else -d - a2
        else:
            expected = -a2 - v2 if t < 198 else -500 * d - a2 - 1000 * v2
        assert rewards[t] == pytest.approx(expected, rel=1e-12)


def test_the_distance_to_the_half_disc_is_the_least_over_its_points() -> None:
    radius, angle = np.meshgrid(np.linspace(0, 0.5, 201), np.linspace(-np.pi / 2, np.pi / 2, 721))
    disc = np.stack([(radius * np.cos(angle)).ravel(), (radius * np.sin(angle)).ravel()], axis=1)
    points = stream(4).uniform(-1.2, 1.2, (200, 2))
    brute = np.array([np.linalg.norm(disc - p, axis=1).min() for p in points])
    exact = distance_to_half_disc(points)
    np.testing.assert_allclose(exact, brute, atol=4e-3)
    inside = (points[:, 0] >= 0) & (np.hypot(*points.T) <= 0.5)
    assert inside.any()
    np.testing.assert_array_equal(exact == 0, inside)


@pytest.mark.parametrize(("kind", "factor"), [("dense", 1000), ("last10", 1000), ("last2", 50000)])
def test_goals_outside_cost_the_squared_distance(kind: Reward, factor: float) -> None:
    task = Reacher5(kind)
    still = np.zeros((2, task.parameter_dim))  # the arm does not move: the rest of the return is known
    goals = np.array([[0.6, 0.0], [-0.2, 0.3]])
    returns = task.evaluate(goals, still, stream(0)).returns
    distance = np.linalg.norm(goals - [-0.5, 0.0], axis=1)
    weight = {"dense": STEPS, "last10": 10, "last2": 1000}[kind]
    np.testing.assert_allclose(returns, -weight * distance - factor * np.array([0.1, 0.2]) ** 2, rtol=1e-9)


def test_tests_draw_from_the_half_disc_and_maps_leave_the_rest_out() -> None:
    task = Reacher5()
    goals = some_goals(2000)
    assert (distance_to_half_disc(goals) == 0).all()
    # uniform: the share within half the radius is a quarter
    assert (np.hypot(*goals.T) < 0.25).mean() == pytest.approx(0.25, abs=0.03)
    library = _still_library(task)
    image = success_map(library, task, (0, 1), 10, stream(0))
    assert np.isnan(image[0, 9])
    assert image[5, 2] == 0
    assert 0.15 < np.isnan(image).mean() < 0.3, "a box around a half disc is 21 % empty"


def _still_library(task: Reacher5) -> SkillLibrary:
    dim = task.parameter_dim
    contexts = LinearGaussian.unconditional(np.array([[0.2, 0.0]]), 0.2 * np.eye(2)[None])
    experts = LinearGaussian.build(np.zeros((1, dim, 2)), np.zeros((1, dim)), 0.1 * np.eye(dim)[None])
    return SkillLibrary(Mixture(np.zeros(1), contexts, experts), task.context_low, task.context_high, {})


def test_nan_stays_in_its_row_and_the_batch_does_not_matter() -> None:
    task = Reacher5("last10")
    goals, parameters = some_goals(300), stream(5).standard_normal((300, task.parameter_dim))
    clean = task.evaluate(goals, parameters, stream(0))
    alone = [task.evaluate(goals[i : i + 1], parameters[i : i + 1], stream(0)).returns[0] for i in (0, 150, 299)]
    np.testing.assert_array_equal(clean.returns[[0, 150, 299]], alone)
    broken, far = parameters.copy(), goals.copy()
    broken[7, 3], far[9] = np.nan, np.inf
    outcome = task.evaluate(far, broken, stream(0))
    rest = np.delete(np.arange(300), [7, 9])
    np.testing.assert_array_equal(outcome.returns[rest], clean.returns[rest])
    assert np.isnan(outcome.returns[[7, 9]]).all()
    assert not outcome.success[[7, 9]].any()
    assert len(task.motion(goals[0], broken[7]).poses) == 1


def test_success_is_a_tip_that_ends_near_a_valid_goal() -> None:
    task = Reacher5()
    parameters = stream(6).standard_normal((40, task.parameter_dim))
    end = np.stack([task.motion(np.zeros(2), p).trail[-1, :2] for p in parameters])
    near = end + np.array([0.0, 0.049])
    outcome = task.evaluate(near, parameters, stream(0))
    np.testing.assert_array_equal(outcome.success, distance_to_half_disc(near) == 0)
    assert outcome.success.any()
    np.testing.assert_allclose(np.asarray(outcome.info["distance"]), 0.049)
    assert not task.evaluate(end + np.array([0.0, 0.051]), parameters, stream(0)).success.any()


def test_an_unknown_reward_is_refused() -> None:
    for make in (lambda: make_task("reacher5", reward="last3"), lambda: ReacherArms("last3", 1)):  # type: ignore[arg-type]
        with pytest.raises(SvslError, match="option reward: expected one of dense, last10, last2, got 'last3'"):
            make()


def test_the_reward_chooses_the_preset_unless_one_is_named() -> None:
    assert find_preset("reacher5").task_options == {"reward": "dense"}
    last2 = find_preset("reacher5", task_options={"reward": "last2", "seed": "1"})
    assert last2.task_options == {"reward": "last2"}
    assert (last2.settings.alpha, last2.settings.beta, last2.settings.iterations) == (1.0, 25.0, 800)  # type: ignore[attr-defined]
    named = find_preset("reacher5", name="last10", task_options={"reward": "dense"})
    assert named.settings.alpha == 0.01  # type: ignore[attr-defined]
    assert find_preset("table-tennis", task_options={"distance": "plain"}).task_options == {}, "the first that agrees"


# ---- the step-based form --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", REWARDS)
@pytest.mark.parametrize("wildness", [1.0, 8.0])  # the second runs into the limits of joints and actions
def test_the_same_torques_give_the_same_return_in_both_forms(kind: Reward, wildness: float) -> None:
    task, env = Reacher5(kind), Reacher5Env(kind)
    goals, parameters = some_goals(3), wildness * stream(7).standard_normal((3, task.parameter_dim))
    states, actions = task._simulate(parameters)
    returns = task.evaluate(goals, parameters, stream(0)).returns
    if wildness > 1:
        assert np.abs(states[..., 2:6]).max() > 2.99
    for goal, torques, path, expected in zip(goals, actions, states, returns, strict=True):
        env.reset(options={"context": goal})
        total = 0.0
        for step, action in enumerate(torques):
            _, reward, terminated, truncated, _ = env.step(action)
            total += reward
            np.testing.assert_array_equal(env.arms.states[0], path[step])
            assert (terminated or truncated) == (step == STEPS - 1)
        assert total == expected


@pytest.mark.parametrize("kind", REWARDS)
def test_the_checker_of_gymnasium_is_content_with_single_steps(kind: Reward) -> None:
    with warnings.catch_warnings():
        # as in Gymnasium's own Reacher, observations have no bounds
        warnings.filterwarnings("ignore", message=".*Box observation space.*")
        check_env(gymnasium.make("svsl/Reacher5-v0", reward=kind).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("kind", REWARDS)
def test_the_observation_is_reachers_and_the_time_for_sparse_rewards(kind: Reward) -> None:
    env = gymnasium.make("svsl/Reacher5-v0", reward=kind)
    first, _ = env.reset(seed=4, options={"context": np.array([0.2, -0.1])})
    assert env.observation_space.contains(first)
    model = reacher5_model("motor")
    data = mujoco.MjData(model)
    data.qpos[:] = START
    for step in range(3):
        data.ctrl[:] = [0.5, -0.3, 2.0, 0.0, -0.1]  # the third is limited to 1
        mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        seen, reward, *_, info = env.step(data.ctrl.copy())
        tip = data.site("tip").xpos[:2]
        expected = [*np.cos(data.qpos), *np.sin(data.qpos), 0.2, -0.1, *data.qvel, *(tip - [0.2, -0.1])]
        np.testing.assert_allclose(seen, expected + ([] if kind == "dense" else [step + 1]), atol=1e-12)
        assert info["distance"] == pytest.approx(np.linalg.norm(tip - [0.2, -0.1]))
    effort = 0.5**2 + 0.3**2 + 1 + 0.1**2
    speed = float(data.qvel @ data.qvel)
    expected_reward = {"dense": -info["distance"] - effort, "last10": -effort, "last2": -effort - speed}[kind]
    assert reward == pytest.approx(expected_reward)


def test_time_ends_sparse_episodes_and_cuts_dense_ones() -> None:
    for kind in REWARDS:
        env = Reacher5Env(kind)
        env.reset(seed=0)
        flags = [env.step(np.zeros(LINKS))[2:4] for _ in range(STEPS)]
        assert set(flags[:-1]) == {(False, False)}
        assert flags[-1] == ((False, True) if kind == "dense" else (True, False))


def test_a_nan_action_is_no_action() -> None:
    arms = ReacherArms("dense", 2, workers=1)
    rewards, over = arms.step(np.array([[np.nan] * LINKS, [0.0] * LINKS]))
    assert rewards[0] == rewards[1]
    assert not over.any()


def test_other_tasks_have_no_step_based_form() -> None:
    with pytest.raises(SvslError, match="a PlanarReacher has no step-based form"):
        step_form(make_task("planar-reacher"), 4)


def test_pictures_show_the_arm_and_the_goal() -> None:
    task = Reacher5()
    try:
        make_renderer(task, 64, 64).close()
    except SvslError as error:
        pytest.skip(str(error))
    env = Reacher5Env(render_mode="rgb_array")
    env.reset(options={"context": np.array([0.3, 0.2])})
    picture = env.render()
    assert picture is not None
    height, width = picture.shape[:2]
    scale = height / (2 * 1.38 * np.tan(np.radians(22.5)))  # pixels per metre at the height of the arm
    x, y = round(width / 2 + 0.3 * scale), round(height / 2 - 0.2 * scale)
    red = picture[y, x].astype(int)
    assert red[0] > red[1] + 60, "the goal is red"
    blue = picture[height // 2, round(width / 2 - 0.25 * scale)].astype(int)
    assert blue[2] > blue[0] + 60, "the arm is on the left"
    before = picture.copy()
    for _ in range(20):
        env.step(np.full(LINKS, 0.3))
    after = env.render()
    assert after is not None
    assert (np.abs(before.astype(int) - after).max(axis=2) > 60).mean() > 0.005, "the arm has moved"
    env.close()


def test_gear_is_part_of_the_motion() -> None:
    # one step from rest: the joint velocity is torque / armature * dt, but for the light links and the damping
    arms = ReacherArms("dense", 1, workers=1)
    arms.step(np.array([[0.01, 0, 0, 0, 0]]))
    assert arms.states[0, 6] == pytest.approx(0.01 * GEAR * 0.02, rel=0.1)


assert "svsl/Reacher5-v0" in gymnasium.registry
