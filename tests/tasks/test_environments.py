"""Our tasks as Gymnasium environments, and pictures of their scenes."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from matplotlib import pyplot
from numpy.typing import NDArray

import svsl.environments
from svsl import SvslError, make_task
from svsl.environments.skills import FPS, film_steps
from svsl.model.random import stream
from svsl.show.rendering import make_renderer
from svsl.tasks.presentation import showable
from toys import Bimodal


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[np.uint8]]:
    """The pictures a window shows: matplotlib draws them, only the screen is missing."""
    pictures: list[NDArray[np.uint8]] = []

    def pause(seconds: float) -> None:
        assert 0 < seconds < 1
        pictures.append(np.array(pyplot.gcf().axes[0].images[0].get_array()))

    monkeypatch.setattr(pyplot, "get_backend", lambda: "TkAgg")
    monkeypatch.setattr(pyplot, "pause", pause)
    return pictures


@pytest.mark.parametrize("name", svsl.environments.SKILL_ENVIRONMENTS)
def test_the_checker_of_gymnasium_is_content(name: str, shown: list[NDArray[np.uint8]]) -> None:
    env = gymnasium.make(name).unwrapped
    try:
        make_renderer(make_task(svsl.environments.SKILL_ENVIRONMENTS[name])).close()
    except SvslError as error:
        pytest.skip(str(error))
    with warnings.catch_warnings():
        # actions are skills in their own units; gymnasium.wrappers.RescaleAction makes them -1 to 1
        warnings.filterwarnings("ignore", message=".*normalized space")
        check_env(env)  # no other warning, in all modes of rendering
    assert env.metadata["render_modes"] == ["rgb_array", "human"]
    assert shown, "a window shows the scene without being asked"
    assert np.isfinite(env.action_space.sample()).all()


def test_a_window_shows_the_whole_episode(shown: list[NDArray[np.uint8]]) -> None:
    env = gymnasium.make("svsl/PlanarReacher-v0", render_mode="human")
    env.reset(options={"context": [6.0, 1.0]})
    env.step(np.full(10, 0.2))
    assert env.render() is None
    still = gymnasium.make("svsl/PlanarReacher-v0", render_mode="rgb_array")
    still.reset(options={"context": [6.0, 1.0]})
    np.testing.assert_array_equal(shown[0], still.render())
    still.step(np.full(10, 0.2))
    np.testing.assert_array_equal(shown[-1], still.render())
    assert len(shown) == 1 + 38, "the start, and 75 steps of 20 ms at about 20 frames per second"
    assert (shown[0] != shown[20]).any()
    assert (shown[20] != shown[-1]).any()
    assert pyplot.get_fignums()
    env.close()
    assert not pyplot.get_fignums()


def test_a_film_ends_with_the_last_state() -> None:
    task, context = showable(make_task("beer-pong")), np.array([0.0, -1.7])
    motion = task.motion(context, np.array([*np.full(14, 0.2), 0.3]))
    film = film_steps(motion, 5)
    assert len(film) == 15  # 63 steps and then 500 of 5 ms: 14 intervals of 0.2 s
    assert film[-1] == len(motion.poses) - 1
    assert list(film_steps(task.motion(context), FPS)) == [0]


def test_without_a_screen_a_window_is_refused() -> None:
    with pytest.raises(SvslError, match=r"render_mode 'human' needs a screen.*backend is agg\).*'rgb_array'"):
        gymnasium.make("svsl/PlanarReacher-v0", render_mode="human")


@pytest.mark.parametrize("name", svsl.environments.SKILL_ENVIRONMENTS)
def test_a_step_is_an_episode_of_the_task(name: str) -> None:
    env = gymnasium.make(name)
    task = make_task(svsl.environments.SKILL_ENVIRONMENTS[name])
    context, _ = env.reset(seed=3)
    assert env.observation_space.contains(context)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(context, again)
    chosen = np.asarray(task.context_low) + 0.25 * (np.asarray(task.context_high) - task.context_low)
    context, _ = env.reset(options={"context": chosen})
    np.testing.assert_array_equal(context, chosen)
    action = np.asarray(task.initial_mean) + 0.05
    observation, reward, terminated, truncated, info = env.step(action)
    expected = task.evaluate(chosen[None], action[None], stream(0))
    np.testing.assert_array_equal(observation, chosen)
    assert (reward, terminated, truncated) == (expected.returns[0], True, False)
    assert info["success"] == expected.success[0]


def test_wrong_actions_and_options_are_refused() -> None:
    env = gymnasium.make("svsl/BeerPong-v0").unwrapped
    with pytest.raises(ValueError, match="there is no 'contxt', only 'context'"):
        env.reset(options={"contxt": [0.0, -2.0]})
    with pytest.raises(ValueError, match="context: expected finite numbers"):
        env.reset(options={"context": [np.nan, -2.0]})
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action: expected shape \(15,\), got \(3,\)"):
        env.step(np.zeros(3))


def test_a_context_of_the_wrong_shape_is_refused() -> None:
    env = gymnasium.make("svsl/BeerPong-v0")
    with pytest.raises(ValueError, match=r"context: expected shape \(2,\), got \(3,\)"):
        env.reset(options={"context": np.zeros(3)})


@pytest.mark.parametrize("name", ["beer-pong", "table-tennis"])
def test_pictures_show_the_episode(name: str) -> None:
    task = make_task(name)
    try:
        renderer = make_renderer(task, 160, 120)
    except SvslError as error:
        pytest.skip(str(error))
    context = 0.5 * (np.asarray(task.context_low) + task.context_high)
    parameters = np.asarray(task.initial_mean).copy()
    parameters[:-1], parameters[-1] = 0.3, 0.5
    motion = showable(task).motion(context, parameters)
    first, last = renderer.frame(motion, 0), renderer.frame(motion, len(motion.poses) - 1)
    before = renderer.frame(showable(task).motion(context), 0)
    renderer.close()
    assert first.shape == (120, 160, 3)
    assert first.std() > 10, "not blank"
    assert np.abs(first.astype(int) - last).mean() > 0.2, "the arm has moved"
    assert np.abs(first.astype(int) - before).mean() < 1, "the start looks like the start"


def test_a_task_without_a_scene_cannot_be_drawn() -> None:
    with pytest.raises(SvslError, match="a Bimodal has no motion to show; give it a `scene` and a method `motion`"):
        make_renderer(Bimodal())


def test_a_motion_ends_as_the_episode_did() -> None:
    task = make_task("beer-pong")
    context, parameters = np.array([0.0, -1.7]), np.array([*np.full(14, 0.2), 0.6])
    motion = showable(task).motion(context, parameters)
    info = task.evaluate(context[None], parameters[None], stream(0)).info
    assert len(motion.poses) == np.asarray(info["steps"])[0]
    bottom = np.array([0.0, -1.7 - 0.1337249, 0.865])
    assert np.linalg.norm(motion.trail[-1] - bottom) == pytest.approx(np.asarray(info["final_distance"])[0])
    # the ball is in the hand until it is released, and does not jump there
    jumps = np.linalg.norm(np.diff(motion.trail, axis=0), axis=1)
    assert jumps.max() < 0.1
    assert len(showable(task).motion(context, np.full(15, 9.0)).poses) == 1, "what cannot be run stays at the start"
