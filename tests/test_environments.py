"""Our tasks as Gymnasium environments, and pictures of their scenes."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import svsl.environments
from svsl import SvslError, make_task
from svsl.random import stream
from svsl.simulation.rendering import SceneRenderer
from svsl.tasks.simulated import SimulatedTask


@pytest.mark.parametrize("name", svsl.environments.NAMES)
def test_the_checker_of_gymnasium_is_content(name: str) -> None:
    env = gymnasium.make(name).unwrapped
    with warnings.catch_warnings():
        # parameters have no bounds; the learner's search distribution says where to look
        warnings.filterwarnings("ignore", message=".*Box action space.*")
        check_env(env, skip_render_check=True)


@pytest.mark.parametrize("name", svsl.environments.NAMES)
def test_a_step_is_an_episode_of_the_task(name: str) -> None:
    env = gymnasium.make(name)
    task = make_task(svsl.environments.NAMES[name])
    context, _ = env.reset(seed=3)
    assert env.observation_space.contains(context)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(context, again)
    wanted = np.asarray(task.context_low) + 0.25 * (np.asarray(task.context_high) - task.context_low)
    context, _ = env.reset(options={"context": wanted})
    np.testing.assert_array_equal(context, wanted)
    action = np.asarray(task.initial_mean) + 0.05
    observation, reward, terminated, truncated, info = env.step(action)
    expected = task.evaluate(wanted[None], action[None], stream(0))
    np.testing.assert_array_equal(observation, wanted)
    assert (reward, terminated, truncated) == (expected.returns[0], True, False)
    assert info["success"] == expected.success[0]


def test_a_context_of_the_wrong_shape_is_refused() -> None:
    env = gymnasium.make("svsl/BeerPong-v0")
    with pytest.raises(ValueError, match=r"context: expected shape \(2,\), got \(3,\)"):
        env.reset(options={"context": np.zeros(3)})


@pytest.mark.parametrize("name", ["beer-pong", "table-tennis"])
def test_pictures_show_the_episode(name: str) -> None:
    task = make_task(name)
    assert isinstance(task, SimulatedTask)
    try:
        renderer = SceneRenderer(task, 160, 120)
    except SvslError as error:
        pytest.skip(str(error))
    context = 0.5 * (np.asarray(task.context_low) + task.context_high)
    parameters = np.asarray(task.initial_mean).copy()
    parameters[:-1], parameters[-1] = 0.3, 0.5
    path = task.trajectory(context, parameters)
    first, last = renderer.frame(path, 0), renderer.last_frame(context, parameters)
    before = renderer.last_frame(context, None)
    renderer.close()
    assert first.shape == (120, 160, 3)
    assert first.std() > 10, "not blank"
    assert np.abs(first.astype(int) - last).mean() > 0.2, "the arm has moved"
    assert np.abs(first.astype(int) - before).mean() < 1, "the start looks like the start"


def test_only_simulated_tasks_can_be_drawn() -> None:
    with pytest.raises(SvslError, match="a PlanarReacher has no MuJoCo model to render"):
        SceneRenderer(make_task("planar-reacher"))


def test_a_trajectory_ends_as_the_episode_did() -> None:
    task = make_task("beer-pong")
    assert isinstance(task, SimulatedTask)
    context, parameters = np.array([0.0, -1.7]), np.array([*np.full(14, 0.2), 0.6])
    path = task.trajectory(context, parameters)
    info = task.evaluate(context[None], parameters[None], stream(0)).info
    assert len(path.states) == np.asarray(info["steps"])[0]
    bottom = np.array([0.0, -1.7 - 0.1337249, 0.865])
    assert np.linalg.norm(path.ball[-1] - bottom) == pytest.approx(np.asarray(info["final_distance"])[0])
    # the ball is in the hand until it is released, and does not jump there
    jumps = np.linalg.norm(np.diff(path.ball, axis=0), axis=1)
    assert jumps.max() < 0.1
    assert len(task.trajectory(context, np.full(15, 9.0)).states) == 1, "what cannot be run stays at the start"
