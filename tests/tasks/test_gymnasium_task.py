"""Black-box and step-based Gymnasium environments as tasks."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import svsl.environments
import toy_environments
from svsl import SvslError, make_task
from svsl.cli import main
from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.simulation.movements import ProMP
from svsl.simulation.primitives import throw
from svsl.tasks.check import check_task
from svsl.tasks.episodes import episode_result
from svsl.tasks.gymnasium_task import EnvironmentTask, GymnasiumTask, stack_diagnostics
from svsl.tasks.movement_task import MovementPrimitiveTask
from svsl.tasks.presentation import showable

T = TypeVar("T", bound=EnvironmentTask)
TOSS = "toy_environments:toy/Toss-v0"


def in_process(task: T) -> T:
    """The task, with episodes run in this process."""
    task.workers = 0
    return task


def return_of(task: EnvironmentTask, context: object, parameters: object, seed: int = 0) -> float:
    """The return of one episode."""
    contexts, rows = (np.atleast_2d(np.asarray(values, dtype=np.float64)) for values in (context, parameters))
    return float(task.evaluate(contexts, rows, stream(seed)).returns[0])


# ---- black-box ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", svsl.environments.SKILL_ENVIRONMENTS)
def test_built_in_environments_match_their_tasks(name: str) -> None:
    task = make_task(svsl.environments.SKILL_ENVIRONMENTS[name])
    wrapped = in_process(GymnasiumTask(f"svsl.environments:{name}"))
    for attribute in ("context_low", "context_high", "initial_mean", "initial_cov"):
        assert_array_equal(getattr(wrapped, attribute), getattr(task, attribute))
    rng = stream(1)
    contexts = rng.uniform(task.context_low, task.context_high, (6, len(task.context_low)))
    parameters = rng.multivariate_normal(task.initial_mean, 0.04 * np.asarray(task.initial_cov), 6)
    expected, outcome = (t.evaluate(contexts, parameters, stream(2)) for t in (task, wrapped))
    assert_array_equal(outcome.returns, expected.returns)
    assert_array_equal(outcome.success, expected.success)
    for diagnostic, values in outcome.info.items():
        assert_array_equal(values, expected.info[diagnostic])
    assert set(outcome.info) <= set(expected.info)


def test_an_episode_is_a_seeded_reset_and_one_step() -> None:
    task = in_process(GymnasiumTask(TOSS, {"noise": 0.5}))
    contexts, parameters = np.array([[0.5], [-0.2]]), np.array([[0.4, -0.5], [2.9, 0.0]])
    outcome = task.evaluate(contexts, parameters, stream(3))
    env, seeds = gymnasium.make("toy/Toss-v0", noise=0.5), stream(3).integers(2**31, size=2)
    for row in range(2):
        env.reset(seed=int(seeds[row]), options={"context": contexts[row]})
        assert outcome.returns[row] == env.step(parameters[row])[1]
    assert_array_equal(outcome.success, [True, False])
    assert_array_equal(outcome.info["mode"], ["right", "right"])
    assert_allclose(np.asarray(outcome.info["distance"]), [0.1, np.sqrt(3.1**2 + 0.2**2)])


def test_the_search_starts_in_the_middle_of_the_action_space_or_as_given() -> None:
    assert_array_equal(GymnasiumTask(TOSS).initial_mean, [0, 0])
    assert_array_equal(GymnasiumTask(TOSS).initial_cov, 1.5**2 * np.eye(2))
    given = GymnasiumTask("toy/Unbounded-v0", initial_mean=(1.0, 2.0), initial_std=(0.5,), context_low=(0.5,))
    assert_array_equal(given.initial_mean, [1, 2])
    assert_array_equal(given.initial_cov, 0.25 * np.eye(2))
    assert_array_equal([given.context_low, given.context_high], [[0.5], [1.0]])


def test_contexts_reach_the_environment_as_they_are() -> None:
    task = in_process(GymnasiumTask(TOSS, {"noise": 0.0}))
    outcome = task.evaluate(np.array([[1.0], [2.0]]), np.array([[1.0, -1.0], [2.0, -2.0]]), stream(0))
    assert_array_equal(outcome.returns, [0, 0])
    assert outcome.success.all()


def test_actions_outside_the_action_space_cost_more_than_the_nearest_inside() -> None:
    task = in_process(GymnasiumTask(TOSS, {"noise": 0.0}, outside_penalty=5.0))
    assert return_of(task, 1.0, [3.0, -1.0]) == -4
    assert return_of(task, 1.0, [6.0, -1.0]) == -4 - 5 * 0.25, "the action space is 6 wide"
    unbounded = in_process(GymnasiumTask("toy/Unbounded-v0", {"noise": 0.0}, initial_mean=(0.0,), initial_std=(1.0,)))
    assert return_of(unbounded, 1.0, [6.0, -1.0]) == -25


def test_success_comes_from_info_or_from_the_return() -> None:
    assert episode_result(1.0, {"success": False, "is_success": True})[1] is False
    assert episode_result(1.0, {"is_success": np.bool_(True)})[1] is True
    assert episode_result(1.0, {})[1] is None
    task = in_process(GymnasiumTask(TOSS, {"noise": 0.0}, success_return=-4.0))
    outcome = task.evaluate(np.zeros((2, 1)), np.array([[2.0, 0.0], [2.1, 0.0]]), stream(0))
    assert_array_equal(outcome.success, [True, False])


def test_diagnostics_of_all_kinds_are_stacked() -> None:
    infos = [
        episode_result(0.0, info)[2]
        for info in (
            {"a": 1, "flag": True, "mode": "x", "path": np.array([1.0, 2.0]), "deep": {"b": 1}, "text": "no"},
            {"a": 2.5, "mode": "long", "path": np.array([3.0, 4.0]), "success": True},
            {"flag": np.bool_(True), "array": np.zeros(3)},
        )
    ]
    table = stack_diagnostics(infos)
    assert set(table) == {"a", "flag", "mode", "path"}
    assert_array_equal(table["a"], [1, 2.5, np.nan])
    assert_array_equal(table["flag"], [True, False, True])
    assert table["flag"].dtype == np.bool_
    assert_array_equal(table["mode"], ["x", "long", ""])
    assert_array_equal(table["path"], [[1, 2], [3, 4], [np.nan, np.nan]])


@pytest.mark.parametrize(
    ("setter", "message"),
    [
        ("set_context", None),
        ("set_quietly", None),
        (toy_environments.Settable.set_context, None),
        (None, r"ignores the context given by reset\(options=.*: expected \[0.25\] in its .*, got .* context_setter$"),
        ("set_wrongly", r"ignores .* its setter 'set_wrongly': expected \[0.25\] in its observation, got \[0.75\]"),
        ("set_nothing", "Settable has no method 'set_nothing'"),
    ],
)
def test_the_context_is_set_and_checked(setter: Any, message: str | None) -> None:
    def task() -> GymnasiumTask:
        return in_process(GymnasiumTask("toy/Settable-v0", {"noise": 0.0}, context_setter=setter, context_low=(-0.5,)))

    if message is None:
        assert return_of(task(), 0.5, [1.5, -0.5]) == -1
    else:
        with pytest.raises(SvslError, match="environment 'toy/Settable-v0'.*" + message):
            task()


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("toy/Buttons-v0", {}, r"expected an action space Box\(low, high, .* got Discrete\(4\); convert it"),
        ("toy/Unbounded-v0", {}, "unbounded; give initial_mean and initial_std, .* 2 entries"),
        ("toy/Unbounded-v0", {"initial_mean": (0.0,)}, "initial_mean and initial_std"),
        ("toy/Wide-v0", {}, r"expected a finite context box .*; give context_low and context_high, 1 numbers each"),
        ("toy/Wide-v0", {"context_low": (0.0,), "context_high": (0.0,)}, r"with low < high, got \[0.0\] to \[0.0\]"),
        ("CartPole-v1", {}, r"action space .*got Discrete\(2\)"),
        ("toy/Numbered-v0", {}, r"expected a Box as observation space, or a Dict of them, got Discrete\(7\)"),
        (TOSS, {"context_low": (0.0, 1.0)}, "context_low: expected 1 numbers"),
        (
            TOSS,
            {"initial_std": (0.0,)},
            r"initial_std: expected 2 positive numbers or one for all, got \[0.0, 0.0\]",
        ),
        (TOSS, {"env_options": {"colour": 3}}, "colour"),
        ("toy/Tos-v0", {}, "toy/Tos.*Toss"),
        ("toy/Stuck-v0", {}, "reset failed: RuntimeError: no power"),
        ("nowhere:Thing-v0", {}, "No module named 'nowhere'.*gym:module:ENV_ID"),
    ],
)
def test_unsuitable_environments_and_options_are_rejected(env: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SvslError, match=message) as error:
        GymnasiumTask(env, **options)
    assert f"environment {env!r}" in str(error.value)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            "toy/Broken-v0",
            r"failed: ZeroDivisionError: the cable came off \(toy_environments.py line \d+\); it happened",
        ),
        ("toy/Endless-v0", "did not end after one step.*MovementPrimitiveTask"),
    ],
)
def test_errors_in_an_episode_are_reported(env: str, message: str) -> None:
    with pytest.raises(SvslError, match=f"environment {env!r} {message}"):
        return_of(in_process(GymnasiumTask(env)), 0.5, [1.0, 2.0])


def test_returns_do_not_depend_on_the_number_or_death_of_processes() -> None:
    task = GymnasiumTask("toy_environments:toy/Mortal-v0")
    rng = stream(5)
    contexts, parameters = rng.uniform(-1, 1, (40, 1)), rng.normal(0, 1, (40, 2))
    expected = in_process(task).evaluate(contexts, parameters, stream(6))
    task.workers = 2
    for killed in (False, True):
        if killed:
            Path("kill").touch()
        outcome = task.evaluate(contexts, parameters, stream(6))
        assert_array_equal(outcome.returns, expected.returns)
        assert_array_equal(outcome.info["distance"], expected.info["distance"])
        assert task._pool.replaced == killed
    task.close()


def test_an_episode_that_always_kills_its_process_is_reported() -> None:
    task = GymnasiumTask("toy_environments:toy/Deadly-v0")
    task.workers = 1
    with pytest.raises(
        SvslError, match=r"Deadly-v0'.* 3 times \(exit code -9\): context \[0.95\], parameters \[1, 0\]"
    ):
        task.evaluate(np.array([[0.0], [0.95], [0.1]]), np.array([[1.0, 0.0]] * 3), stream(0))


@pytest.mark.parametrize("name", ["Hanging", "Sleepy"])
def test_an_episode_that_hangs_is_repeated_and_then_given_up(name: str) -> None:
    task = GymnasiumTask(f"toy_environments:toy/{name}-v0", {"noise": 0.0}, episode_timeout_s=0.3)
    task.workers = 1
    contexts, parameters = np.array([[0.0], [0.95], [0.1]]), np.array([[1.0, 0.0]] * 3)
    expected = task.evaluate(contexts - 0.1, parameters, stream(0)).returns
    assert np.isfinite(expected).all()
    if name == "Sleepy":  # it hangs only once: nothing is lost
        Path("hang").touch()
        assert_array_equal(task.evaluate(contexts - 0.1, parameters, stream(0)).returns, expected)
        assert task._pool.replaced == 1
    else:
        message = r"took longer than 0.3 s, 2 times, and was given up: context \[0.95\], parameters \[1, 0\]"
        with pytest.warns(UserWarning, match=message):
            outcome = task.evaluate(contexts, parameters, stream(0))
        assert_array_equal(np.isnan(outcome.returns), [False, True, False])
        assert not outcome.success[1]
    task.close()
    with pytest.raises(SvslError, match="episode_timeout_s: expected a positive number or None, got 0"):
        GymnasiumTask(TOSS, episode_timeout_s=0)


# ---- goals and pictures -------------------------------------------------------------------------------------------

GOALS: dict[str, Any] = {"context_low": (1.0, 2.0), "context_high": (1.5, 3.0)}


def test_the_desired_goal_is_the_context() -> None:
    task = in_process(GymnasiumTask("toy_environments:toy/OneStepGoal-v0", **GOALS))
    assert_array_equal([task.context_low, task.context_high], [[1, 2], [1.5, 3]])
    assert return_of(task, [1.2, 2.5], [2.0, 1.0]) == pytest.approx(-1.4), "the body starts at 1, 1"
    setter = in_process(GymnasiumTask("toy/FixedGoal-v0", context_setter="set_both", **GOALS))
    assert return_of(setter, [1.2, 2.5], [2.0, 1.0]) == pytest.approx(-1.4)
    with pytest.raises(SvslError, match=r"ignores the context given by its attribute `goal`.* give a context_setter"):
        GymnasiumTask("toy/FixedGoal-v0", **GOALS)
    with pytest.raises(SvslError, match=r"2 numbers each \(in 50 resets, .* ranged from 1\S* 2\S* to 1.\S* [23]\S*\)"):
        GymnasiumTask("toy/OneStepGoal-v0")


def test_movements_reach_desired_goals() -> None:
    options: dict[str, Any] = {"control": "position", "duration_s": 0.8, "bases": 1, **GOALS}
    task = in_process(MovementPrimitiveTask("toy/Goal-v0", None, [4, 5], **options))
    assert_array_equal([task.context_low, task.context_high], [[1, 2], [1.5, 3]])
    context, weights = np.array([1.25, 2.5]), np.array([0.5, 1.0])
    path = -1 + throw(weights.reshape(1, 2, 1), np.array([8]), 13, 0.1)[0][0]  # from minus the body, the observation
    body = 1 + np.cumsum(path[1:11], axis=0) / 10
    assert return_of(task, context, weights) == pytest.approx(-np.abs(body - context).sum())


def test_an_environment_of_many_steps_gets_a_hint() -> None:
    with pytest.raises(SvslError, match=r"Goal-v0' has up to 10 steps per episode.*MovementPrimitiveTask.*own-task.md"):
        GymnasiumTask("toy_environments:toy/Goal-v0")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_gives_pictures_of_an_episode(workers: int) -> None:
    task = GymnasiumTask("toy_environments:toy/Filmed-v0")
    task.workers = workers
    motion = showable(task).motion(np.array([0.5]), np.zeros(2))
    assert motion.poses.shape == (2, 200, 300, 3), "large pictures are made smaller"
    assert_array_equal(motion.poses[:, 7, 9], [[100, 0, 0], [100, 200, 0]])
    assert len(showable(task).motion(np.array([0.5])).poses) == 1
    steps = MovementPrimitiveTask("toy/Goal-v0", None, [4, 5], control="position", steps=5, **GOALS)
    assert_array_equal(in_process(steps).motion(np.array([1.2, 2.5]), np.zeros(6)).poses[:, 0, 0, 0], np.arange(6) * 10)
    task.close()


def make_toss() -> toy_environments.Filmed:
    return toy_environments.Filmed()


def test_an_environment_without_pictures_says_why() -> None:
    with pytest.raises(SvslError, match=r"Toss-v0' gives no pictures: expected the render mode rgb_array, got \[\]$"):
        showable(GymnasiumTask(TOSS))
    with pytest.raises(SvslError, match="the function that creates it does not accept render_mode"):
        showable(GymnasiumTask(make_toss))


# ---- the command line -----------------------------------------------------------------------------------------------

TRAIN = ["train", f"gym:{TOSS}", "--components", "2", "--iterations", "12", "--test-contexts", "20"]


def test_training_gives_the_same_library_with_any_number_of_workers(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--workers", "0", "--quiet"]) == 0
    folder = Path("runs/gym.toy_environments.toy.Toss-v0-seed0")
    library = (folder / "library.safetensors").read_bytes()
    assert main([*TRAIN, "--workers", "2", "--quiet", "--out", "two"]) == 0
    assert Path("two/library.safetensors").read_bytes() == library
    assert main(["eval", str(folder), "--contexts", "50"]) == 0
    assert "gym:toy_environments:toy/Toss-v0" in capfd.readouterr().out
    for args, message in (
        (["train", "gym:toy/Buttons-v0"], "Discrete(4)"),
        (["train", "gym:toy/Deaf-v0", "--workers", "0"], "ignores the context given by reset"),
        (["check-task", "gym:toy/Nothing-v0"], "toy/Nothing"),
    ):
        assert main(args) == 2
        error = capfd.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert [path.name for path in Path("runs").iterdir()] == [folder.name], "rejected commands must not create a folder"


def test_environment_options_are_flags_and_are_saved(capfd: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--env-options",
        "noise",
        "0.0",
        "--context-low",
        "0.2",
        "--success-return",
        "-0.5",
        "--initial-std",
        "0.3",
    ]
    assert main([*TRAIN, *flags, "--workers", "0", "--quiet", "--out", "one"]) == 0
    from svsl.runs.folder import Run

    task = Run.open(Path("one")).config.make_task(0)
    assert_array_equal(task.context_low, [0.2])
    assert_array_equal(task.initial_cov, 0.09 * np.eye(2))
    assert return_of(task, 0.5, [0.5, 0.0]) == -0.25  # type: ignore[arg-type]


def test_ctrl_c_stops_cleanly_and_leaves_no_process() -> None:
    command = [sys.executable, "-m", "svsl", *TRAIN, "--iterations", "400", "--workers", "2", "--out", "cut"]
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stderr is not None
        process.stderr.readline()  # the first line of progress: training has started
        os.killpg(process.pid, signal.SIGINT)  # like a terminal, to all processes
        # a worker that survives holds stderr open, and this times out
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "stopped and saved; svsl resume cut continues" in errors
    assert "Traceback" not in errors


def test_the_checker_reports_no_problem() -> None:
    findings = check_task(in_process(GymnasiumTask(TOSS)))
    assert {finding.verdict for finding in findings} == {"ok"}, findings


# ---- step-based -----------------------------------------------------------------------------------------------------

CART = "toy_environments:toy/Cart-v0"
BOX: dict[str, Any] = {"context_low": [0.2, -1.0], "context_high": [1.0, 1.0]}


def velocities(env: Any) -> Array:
    return np.asarray(env.v)


def naive_cart(context: Array, parameters: Array, seed: int, kp: float, kd: float) -> float:
    """The sum of rewards of a movement of 20 steps, held for 10 more, by a plain loop."""
    env = toy_environments.Cart()
    env.reset(seed=seed, options={"context": context})
    start, total = env.q.copy(), 0.0
    offset, speed = (x[0] for x in throw(parameters.reshape(1, 2, 3), np.array([20]), 31, 0.05))
    for step in range(1, 31):
        torque = kp * (start + offset[step] - env.q) + kd * (speed[step] - env.v)
        total += env.step(np.clip(torque, -40, 40))[1]
    return total


@pytest.mark.parametrize("positions", [[2, 3], "q"])
@pytest.mark.parametrize("speeds", [[4, 5], "v", velocities])
def test_a_movement_is_tracked_and_its_rewards_are_summed(positions: Any, speeds: Any) -> None:
    task = MovementPrimitiveTask(CART, [0, 1], positions, speeds, p_gain=50.0, d_gain=[8.0, 8.0], duration_s=1.0, **BOX)
    assert (task.parameter_dim, task.initial_cov[0, 0]) == (6, 0.25)
    assert_array_equal(task.initial_mean, np.zeros(6))
    rng = stream(1)
    contexts, parameters = rng.uniform(BOX["context_low"], BOX["context_high"], (3, 2)), rng.normal(0, 1, (3, 6))
    outcome = in_process(task).evaluate(contexts, parameters, stream(2))
    seeds = stream(2).integers(2**31, size=3)
    for row in range(3):
        expected = naive_cart(contexts[row], parameters[row], int(seeds[row]), 50.0, 8.0)
        assert outcome.returns[row] == pytest.approx(expected, abs=1e-12)


def test_position_control_follows_the_movement() -> None:
    task = in_process(
        MovementPrimitiveTask(
            CART, [0, 1], [2, 3], control="position", duration_s=1.0, steps=25, env_options={"put": True}, **BOX
        )
    )
    context, target = np.array([0.6, -0.4]), np.array([0, 0, 0.6, 0, 0, -0.4])
    outcome = task.evaluate(context[None], target[None], stream(4))
    start = toy_environments.Cart().reset(seed=int(stream(4).integers(2**31, size=1)[0]))[0][2:4]
    path = start + throw(target.reshape(1, 2, 3), np.array([20]), 26, 0.05)[0][0]
    assert outcome.returns[0] == pytest.approx(-np.linalg.norm(path[1:] - context, axis=1).sum())
    assert np.asarray(outcome.info["near"])[0] == pytest.approx(np.linalg.norm(path[-1] - context))


def test_another_primitive_and_a_learned_duration_follow_the_movement() -> None:
    task = in_process(
        MovementPrimitiveTask(
            CART, [0, 1], [2, 3], control="position", duration_s=(0.4, 1.2), primitive=ProMP(2), initial_mean=0.3,
            env_options={"put": True}, **BOX,
        )
    )  # fmt: skip
    assert_allclose(task.initial_mean, [0.3] * 4 + [0.8])
    assert_allclose(np.diag(task.initial_cov), [0.25] * 4 + [0.04])
    context, weights = np.array([0.6, -0.4]), np.array([0.2, 0.6, -0.9, -0.4])
    outcome = task.evaluate(context[None], np.append(weights, 0.7)[None], stream(4))
    start = toy_environments.Cart().reset(seed=int(stream(4).integers(2**31, size=1)[0]))[0][2:4]
    path = ProMP(2)(weights.reshape(1, 2, 2), start, np.array([0.7]), 31, 0.05)[0][0]  # the environment ends there
    assert outcome.returns[0] == pytest.approx(-np.linalg.norm(path[1:] - context, axis=1).sum())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"joint_velocities": None}, "expected control='position', or control='torque' and joint_velocities"),
        ({"control": "velocity"}, "got 'velocity'"),
        ({"context_indices": [0, 9]}, r"context_indices \(0, 9\) are out of range for 6 observations"),
        ({"p_gain": [1.0, 2.0, 3.0]}, "p_gain: expected 2 numbers or one for all"),
        ({"dt_s": 0.0}, "dt_s > 0"),
        ({"bases": 0}, "Throw: bases: expected 1 or more, got 0"),
        ({"duration_s": (0.5, 0.2)}, "duration_s: expected a positive number, or two"),
        ({"initial_mean": [1.0, 2.0]}, "initial_mean: expected 6 numbers or one for all"),
    ],
)
def test_invalid_arguments_are_rejected(options: dict[str, Any], message: str) -> None:
    valid: dict[str, Any] = {"context_indices": [0, 1], "joint_positions": [2, 3], "joint_velocities": [4, 5], **BOX}
    with pytest.raises(SvslError, match=message):
        MovementPrimitiveTask(CART, **(valid | options))


def test_a_wrong_number_of_joints_is_rejected() -> None:
    task = in_process(MovementPrimitiveTask(CART, [0, 1], [2, 3, 4], [4, 5], **BOX))
    with pytest.raises(SvslError, match=r"expected 2 joints \(one per action\), got 3"):
        return_of(task, [0.5, 0.5], np.zeros(6))
