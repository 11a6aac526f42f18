"""Beer pong against a plain Python loop over `mj_step` and the paper's formulas."""

from dataclasses import dataclass

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from svsl import SvslError, load_pretrained
from svsl.model.gaussians import Array, IntArray
from svsl.model.random import stream
from svsl.simulation.primitives import throw
from svsl.tasks.base import Outcome
from svsl.tasks.beer_pong import BeerPong, _mode
from svsl.tasks.check import check_task

# A cross-entropy search (25 rounds of 120 throws, the best 12 kept) at the cup (0.05, -1.7) ended around this throw. It
# goes into cups at several places, in different ways; cups a few centimetres away are hit, too.
THROW = np.array([-0.09, 1.5, 0.22, -2.28, 0.02, 2.83, -0.15, -0.07, -0.67, 0.34, 1.15, -0.03, -0.17, 0.67, 0.62])
HITS = {"direct": (0.055, -1.66), "table-wall": (0.09, -2.14)}
LIKED = HITS["direct"]

START = np.array([0, 1.35, 0, 1.18, 0, -0.786, -1.59])
P_GAIN = np.array([200, 300, 100, 100, 10, 10, 2.5])
D_GAIN = np.array([3.5, 7.5, 2.5, 1.25, 0.15, 0.15, 0.025])
AXIS_OFFSET = np.array([0.0, -0.1337249])


@pytest.fixture(scope="module")
def task() -> BeerPong:
    return BeerPong()


def evaluate(task: BeerPong, contexts: object, parameters: Array) -> Outcome:
    """One row of parameters serves all contexts."""
    contexts = np.atleast_2d(np.asarray(contexts, dtype=np.float64))
    return task.evaluate(contexts, np.broadcast_to(parameters, (len(contexts), 15)).copy(), stream(9))


def random_throws(count: int, seed: int) -> tuple[Array, Array]:
    """Contexts and parameters of which nearly all are valid."""
    rng = stream(seed)
    weights, durations = rng.normal(0, 1.5, (count, 14)), rng.uniform(0.2, 1.2, (count, 1))
    return rng.uniform([-0.32, -2.2], [0.32, -1.2], (count, 2)), np.hstack([weights, durations])


@dataclass
class Naive:
    """One throw as the loop saw it."""

    returns: float
    in_cup: bool
    touched_table: bool
    mode: str
    final_distance: float
    torque: float
    ball: Array  # (N + 500, 3), after each step


def desired(parameters: Array, steps: int) -> tuple[Array, Array]:
    """Joint angles and speeds by `throw`, so that they have the same bits, compared with the formula.

    The formula: four normalised bases, of which the last two have weights; the speed by a complex step.
    """
    weights = np.sqrt(0.02) * parameters[:14].reshape(2, 7)

    def angles(phase: complex) -> NDArray[np.complex128]:
        activation = np.exp(-((phase - np.linspace(-0.01, 1.01, 4)) ** 2) / (2 * 0.01))
        return np.asarray(START + (activation[2] * weights[0] + activation[3] * weights[1]) / activation.sum())

    offset, speed = (x[0] for x in throw(weights.T[None], np.array([steps]), steps + 1, 0.005))
    for step in range(0, steps, 10):
        phase = step / (steps - 1)
        np.testing.assert_allclose(START + offset[step], angles(phase).real, atol=1e-12)
        exact = angles(phase + 1e-30j).imag / 1e-30 / ((steps - 1) * 0.005)
        np.testing.assert_allclose(speed[step], exact, atol=1e-10)
    return offset + START, speed


def touched(model: mujoco.MjModel, data: mujoco.MjData) -> set[str]:
    """Names of the geoms that the ball touches."""
    names = [{model.geom(int(i)).name for i in contact.geom} for contact in data.contact]
    return {name for pair in names if "ball" in pair for name in pair - {"ball"}}


def naive_throw(task: BeerPong, context: Array, parameters: Array, velocity_share: float = 1.0) -> Naive:
    """Moves the arm, puts the ball at the hand's site with the hand's velocity, lets it fly, and scores it."""
    model, data = task.model, mujoco.MjData(task.model)
    steps = int(3.5 * (parameters[-1] / 0.0175 + 1))
    axis = context + AXIS_OFFSET
    data.qpos[:7], data.qpos[7:] = START, (0, 0, 100)
    data.mocap_pos[0] = (*axis, 0)
    torque, ball = 0.0, np.empty((steps + 500, 3))
    position, velocity = desired(parameters, steps)
    control = position + velocity_share * D_GAIN / P_GAIN * velocity
    for step in range(steps):
        if step % 50 == 0:
            data.qacc_warmstart[:] = 0  # a new call of mujoco.rollout
        data.ctrl[:] = control[step]
        mujoco.mj_step(model, data)
        torque += float((data.qfrc_actuator[:7] ** 2).sum())
        mujoco.mj_kinematics(model, data)
        ball[step] = data.site("release").xpos
    mujoco.mj_forward(model, data)
    jacobian = np.empty((3, model.nv))
    mujoco.mj_jacSite(model, data, jacobian, None, model.site("release").id)
    hand_velocity = data.sensor("release_vel").data
    np.testing.assert_allclose(hand_velocity, jacobian @ data.qvel, atol=1e-12)
    data.qpos[7:], data.qvel[7:] = data.site("release").xpos, hand_velocity
    data.qacc_warmstart[:] = 0
    data.ctrl[:] = position[-1]
    events: list[str] = []
    before: set[str] = set()
    seen: set[str] = set()
    for step in range(500):
        mujoco.mj_step(model, data)
        now = touched(model, data)
        if "cup_bottom" not in seen | now:
            events += sorted((now - before) & {"table", "wall"})
        before, seen = now, seen | now
        torque += float((data.qfrc_actuator[:7] ** 2).sum())
        ball[steps + step] = data.qpos[7:]
    top, bottom = np.array([*axis, 0.950]), np.array([*axis, 0.865])
    least_sq = min(float(((point - top) ** 2).sum()) for point in ball)
    final_sq = float(((ball[-1] - bottom) ** 2).sum())
    tau = torque / (steps + 500)
    x, y, z = ball[-1]
    in_cup = "cup_bottom" in seen and np.hypot(x - axis[0], y - axis[1]) < 0.0701 and z < 0.946
    if in_cup:
        value = -final_sq - 1.5e-4 * tau
    else:
        value = (-2 if "table" in seen else -4) - least_sq - 0.5 * final_sq - 1e-4 * tau
    mode = "-".join(events[:4]) or "direct"
    return Naive(value, bool(in_cup), "table" in seen, mode, final_sq**0.5, tau, ball)


def check_against_naive(task: BeerPong, contexts: Array, parameters: Array, velocity_share: float) -> list[Naive]:
    outcome = evaluate(task, contexts, parameters)
    assert outcome.info["simulated"].all()
    naive = [naive_throw(task, c, p, velocity_share) for c, p in zip(contexts, parameters, strict=True)]
    np.testing.assert_allclose(outcome.returns, [n.returns for n in naive], rtol=1e-12)
    np.testing.assert_allclose(outcome.info["torque"].astype(float), np.array([n.torque for n in naive]), rtol=1e-12)
    distances = np.array([n.final_distance for n in naive])
    np.testing.assert_allclose(outcome.info["final_distance"].astype(float), distances, rtol=1e-12)
    np.testing.assert_array_equal(outcome.success, [n.in_cup for n in naive])
    np.testing.assert_array_equal(outcome.info["in_cup"], outcome.success)
    np.testing.assert_array_equal(outcome.info["mode"], [n.mode for n in naive])
    assert not outcome.info["diverged"].any()
    return naive


def test_returns_are_those_of_a_plain_loop(task: BeerPong) -> None:
    rng = stream(1)
    contexts, parameters = random_throws(8, 1)
    near_hits = THROW + 0.05 * rng.standard_normal((8, 15))
    near_hits[0, -1] = 0.733  # 150 steps: the release is the first step of a chunk
    near_cups = np.clip(rng.normal(LIKED, 0.2, (8, 2)), task.context_low, task.context_high)
    contexts = np.concatenate([contexts, near_cups, list(HITS.values())])
    parameters = np.concatenate([parameters, near_hits, [THROW] * 2])
    naive = check_against_naive(task, contexts, parameters, 1.0)
    assert len({(n.in_cup, n.touched_table) for n in naive if not n.in_cup} | {n.in_cup for n in naive}) == 4
    assert len({n.mode for n in naive}) >= 3
    durations = parameters[:, -1]
    assert durations.max() - durations.min() > 0.5  # different release steps in one batch


def test_the_controller_may_be_given_a_share_of_the_velocity(task: BeerPong) -> None:
    slow = BeerPong(velocity_share=1 / 6)
    contexts, parameters = random_throws(3, 2)
    check_against_naive(slow, contexts, parameters, 1 / 6)
    assert (evaluate(task, contexts, parameters).returns != evaluate(slow, contexts, parameters).returns).all()


@pytest.mark.parametrize("mode", HITS)
def test_a_throw_into_the_cup(task: BeerPong, mode: str) -> None:
    outcome = evaluate(task, HITS[mode], THROW)
    info = outcome.info
    assert outcome.success[0]
    assert info["in_cup"][0]
    assert info["mode"][0] == mode
    assert (info["table_bounces"][0], info["wall_bounces"][0]) == (mode.count("table"), mode.count("wall"))
    tau, distance = float(info["torque"][0]), float(info["final_distance"][0])
    assert 0.02 < distance < 0.0701  # the centre of the ball is a radius above the bottom
    assert outcome.returns[0] == pytest.approx(-(distance**2) - 1.5e-4 * tau, rel=1e-12)
    assert outcome.returns[0] > -0.2


def test_a_miss_counts_all_its_bounces(task: BeerPong) -> None:
    outcome = evaluate(task, [LIKED, (0.3, -1.2)], THROW)  # the same flight, once with a cup in its way
    np.testing.assert_array_equal(outcome.success, [True, False])
    np.testing.assert_array_equal(outcome.info["table_bounces"].astype(bool), [False, True])


def test_bounces_after_the_cup_do_not_count(task: BeerPong, monkeypatch: pytest.MonkeyPatch) -> None:
    run = task.simulator.run
    column = task.simulator.model.sensor("ball_table").adr[0]

    def touches(states: Array, controls: Array) -> tuple[Array, Array]:
        after, sensors = run(states, controls)
        if controls.shape[1] == 500:
            sensors[0, 480, column] = sensors[1, [3, 480], column] = 1
        return after, sensors

    monkeypatch.setattr(task.simulator, "run", touches)
    info = evaluate(task, [LIKED] * 2, THROW).info
    assert info["in_cup"].all()
    assert info["mode"].tolist() == ["direct", "table"]
    assert info["table_bounces"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("table", "wall", "mode"),
    [
        ((), (), "direct"),
        ((7,), (), "table"),
        ((7, 9), (8,), "table-wall-table"),
        ((), (0, 499), "wall-wall"),
        ((20,), (3,), "wall-table"),
        ((1, 2, 3, 4, 5), (6,), "table-table-table-table"),  # not more than four
        ((5,), (5,), "table-wall"),
    ],
)
def test_modes_by_hand(table: tuple[int, ...], wall: tuple[int, ...], mode: str) -> None:
    flags = np.zeros((2, 500), dtype=bool)
    flags[0, list(table)] = flags[1, list(wall)] = True
    assert _mode(flags[0], flags[1]) == mode


LIFT, BEND = np.zeros(15), np.zeros(15)
LIFT[[8, 14]] = 20.0, 0.5  # sqrt(0.02) * 20 = 2.8 rad more of joint two, whose upper limit is at 1.985
BEND[[10, 14]] = -20.0, 0.5  # and less of joint four, whose lower limit is at -0.9


def changed(parameters: Array, duration: float) -> Array:
    return np.array([*parameters[:-1], duration])


def test_what_is_invalid_is_scored_without_a_simulation(task: BeerPong, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[list[int]] = []
    run = task.simulator.run

    def count(states: Array, controls: Array) -> tuple[Array, Array]:
        rows.append([len(states), controls.shape[1]])
        return run(states, controls)

    monkeypatch.setattr(task.simulator, "run", count)
    inside, outside = (0.1, -1.5), (0.42, -2.4)  # 0.1 and 0.2 beyond
    cases = [
        (outside, THROW, -30 - 0.05, "invalid_context"),
        ((0.0, -1.1), THROW, -30 - 0.01, "invalid_context"),
        (outside, changed(THROW, 2.3), -30 - 0.05, "invalid_context"),
        (outside, changed(LIFT, -0.4), -30 - 0.05, "invalid_context"),
        (outside, LIFT, -30 - 0.05, "invalid_context"),
        (inside, changed(THROW, 2.3), -30 - 10.0, "invalid_duration"),
        (inside, changed(THROW, -0.4), -30 - 2.5, "invalid_duration"),
        (inside, changed(LIFT, 1.5), -30 - 0.4, "invalid_duration"),
        (inside, LIFT, -30.0, "invalid_path"),
        (inside, BEND, -30.0, "invalid_path"),
    ]
    contexts, parameters = np.array([c[0] for c in cases]), np.array([c[1] for c in cases])
    outcome = evaluate(task, contexts, parameters)
    np.testing.assert_allclose(outcome.returns, [c[2] for c in cases], rtol=1e-12)
    flags = ("invalid_context", "invalid_duration", "invalid_path")
    for row, case in enumerate(cases):
        assert {name for name in flags if outcome.info[name][row]} == {case[3]}
    assert not outcome.info["simulated"].any()
    assert not outcome.success.any()
    assert not any(count for count, _ in rows)

    mixed = evaluate(task, np.vstack([contexts, [inside]]), np.vstack([parameters, THROW]))
    assert mixed.info["simulated"].tolist() == [False] * 10 + [True]
    np.testing.assert_array_equal(mixed.returns[:10], outcome.returns)
    assert {count for count, _ in rows} <= {0, 1}
    assert sum(steps for count, steps in rows if count) == 128 + 500  # int(3.5 (0.62 / 0.0175 + 1)) = 127, and one


def test_the_edges_of_the_box_and_of_the_durations_are_valid(task: BeerPong) -> None:
    corners = np.array([[-0.32, -2.2], [0.32, -1.2], [0.0, -1.5], [0.0, -1.5]])
    still = np.zeros((4, 15))
    still[:, -1] = [0.5, 0.5, 0.1, 1.3]
    assert evaluate(task, corners, still).info["simulated"].all()


def mixed_batch() -> tuple[Array, Array]:
    """40 throws, some invalid in every way, in no order."""
    contexts, parameters = random_throws(40, 3)
    parameters[10:16, :] = THROW
    contexts[10:12] = list(HITS.values())
    contexts[16:18, 0] = 0.5
    parameters[18:24, -1] = [1.31, 3.0, 0.09, -1.0, 0.1, 1.3]
    parameters[24:28] = LIFT
    order = stream(4).permutation(40)
    return contexts[order], parameters[order]


def same(first: Outcome, second: Outcome, rows: IntArray | slice) -> None:
    np.testing.assert_array_equal(first.returns, second.returns[rows])
    np.testing.assert_array_equal(first.success, second.success[rows])
    assert first.info.keys() == second.info.keys()
    for name in first.info:
        np.testing.assert_array_equal(first.info[name], second.info[name][rows])


def test_an_episode_does_not_depend_on_threads_and_batches(task: BeerPong) -> None:
    contexts, parameters = mixed_batch()
    before = contexts.copy(), parameters.copy()
    outcome = evaluate(task, contexts, parameters)
    np.testing.assert_array_equal(contexts, before[0])
    np.testing.assert_array_equal(parameters, before[1])
    info = outcome.info
    assert 15 < np.count_nonzero(info["simulated"]) < 35
    for name in ("invalid_context", "invalid_duration", "invalid_path", "in_cup"):
        assert info[name].any()
    parts = sum(info[name].astype(int) for name in ("simulated", "invalid_context", "invalid_duration", "invalid_path"))
    np.testing.assert_array_equal(parts, 1)
    same(evaluate(task, contexts, parameters), outcome, slice(None))  # repeatable
    workers_before = task.workers
    for workers in (1, 3):
        task.workers = workers
        same(evaluate(task, contexts, parameters), outcome, slice(None))
    task.workers = workers_before
    for rows in (slice(0, 1), slice(11, 14), np.array([30, 2, 2, 39, 17])):
        same(evaluate(task, contexts[rows], parameters[rows]), outcome, rows)
    simulated = np.flatnonzero(info["simulated"])[:4]
    for row in simulated:
        same(evaluate(task, contexts[row], parameters[row]), outcome, np.array([row]))


def test_large_batches_are_split_and_put_together(task: BeerPong) -> None:
    contexts, parameters = random_throws(514, 5)
    contexts[:, 0] = 1.0 + np.arange(514) / 514  # invalid, each in its own way
    contexts[[3, 300, 513]] = LIKED
    parameters[[3, 300, 513]] = THROW
    outcome = evaluate(task, contexts, parameters)
    assert np.flatnonzero(outcome.info["simulated"]).tolist() == [3, 300, 513]
    assert outcome.success.sum() == 3
    invalid = outcome.info["invalid_context"].astype(bool)
    distance = np.maximum(contexts[invalid, 0] - 0.32, 0)
    np.testing.assert_allclose(outcome.returns[invalid], -30 - distance**2)


def test_an_empty_batch(task: BeerPong) -> None:
    outcome = task.evaluate(np.empty((0, 2)), np.empty((0, 15)), stream(0))
    assert outcome.returns.shape == outcome.success.shape == (0,)


@pytest.mark.parametrize("phase", ["arm", "flight"])
def test_a_simulation_that_stops_gets_the_penalty(task: BeerPong, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    run = task.simulator.run

    def stops(states: Array, controls: Array) -> tuple[Array, Array]:
        after, sensors = run(states, controls)
        starts = {"arm": states[0, 0] == 0, "flight": controls.shape[1] == 500}
        if starts[phase]:
            after[1, 20:] = after[1, 19]  # MuJoCo repeats the last state
        return after, sensors

    healthy = evaluate(task, [LIKED] * 3, THROW)
    monkeypatch.setattr(task.simulator, "run", stops)
    outcome = evaluate(task, [LIKED] * 3, THROW)
    np.testing.assert_array_equal(outcome.info["diverged"], [False, True, False])
    np.testing.assert_array_equal(outcome.success, [True, False, True])
    assert outcome.returns[1] == task.penalty == -100.0
    np.testing.assert_array_equal(outcome.returns[[0, 2]], healthy.returns[[0, 2]])


def test_a_motion_is_the_episode(task: BeerPong) -> None:
    context = np.array(LIKED)
    motion, naive = task.motion(context, THROW), naive_throw(task, context, THROW)
    assert motion.moments == {"release": 126}
    assert motion.trail_start == 126
    assert motion.poses.shape == (127 + 500, 21)
    assert motion.dt_s == 0.005
    np.testing.assert_allclose(motion.poses[:, 0], np.arange(1, 628) * 0.005)
    np.testing.assert_array_equal(motion.trail[127:], motion.poses[127:, 8:11])
    np.testing.assert_allclose(motion.trail[127:], naive.ball[127:], atol=1e-6)
    np.testing.assert_allclose(motion.markers, [[*(context + AXIS_OFFSET), 0.0]])


def test_a_motion_has_the_ball_in_the_hand_until_its_release(task: BeerPong) -> None:
    motion, naive = task.motion(np.array(LIKED), THROW), naive_throw(task, np.array(LIKED), THROW)
    np.testing.assert_allclose(motion.trail[:127], naive.ball[:127], atol=1e-6)
    np.testing.assert_allclose(motion.poses[:127, 8:11], naive.ball[:127], atol=1e-6)


def test_the_ball_does_not_touch_the_hand_that_carries_it(task: BeerPong) -> None:
    """Otherwise rounding decides whether it is pushed away at the release."""
    model, data = task.model, mujoco.MjData(task.model)
    data.qpos[:7] = START
    mujoco.mj_kinematics(model, data)
    data.qpos[7:] = data.site("release").xpos
    mujoco.mj_forward(model, data)
    for pair in range(model.npair):
        first, second = int(model.pair_geom1[pair]), int(model.pair_geom2[pair])
        names = {model.geom(first).name, model.geom(second).name}
        if "ball" in names:
            assert mujoco.mj_geomDistance(model, data, first, second, 1.0, None) > 1e-3, names


def test_what_lay_in_memory_does_not_matter(task: BeerPong, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short throws in a batch with long ones leave parts of the buffers unwritten."""
    empty = np.empty

    used: list[Array] = []

    def dirty(shape: tuple[int, ...]) -> Array:
        used.append(empty(shape))
        used[-1].fill(1e300)
        return used[-1]

    parameters = np.array([THROW, changed(THROW, 1.2)])
    clean = evaluate(task, [LIKED] * 2, parameters)
    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", dirty)
        try:
            again = evaluate(task, [LIKED] * 2, parameters)
        finally:
            for array in used:
                array.fill(0.0)  # or the next test might find them
    np.testing.assert_array_equal(again.returns, clean.returns)
    assert len(used) > 2


def test_the_checker_has_nothing_to_say(task: BeerPong) -> None:
    assert [f.text for f in check_task(task) if f.verdict != "ok"] == []


def test_the_first_draws_are_often_valid(task: BeerPong) -> None:
    """The initial distribution is the published one: some durations and paths are out, enough are in."""
    rng = stream(6)
    variance = np.diag(task.initial_cov)
    np.testing.assert_allclose(variance, [*([0.25, 5, 0.25, 5, 0.25, 5, 0.25] * 2), 0.25])
    parameters = task.initial_mean + rng.standard_normal((30, 15)) * np.sqrt(variance)
    info = evaluate(task, rng.uniform(task.context_low, task.context_high, (30, 2)), parameters).info
    assert 5 <= np.count_nonzero(info["simulated"]) <= 28
    np.testing.assert_array_equal(info["invalid_duration"], (parameters[:, -1] < 0.1) | (parameters[:, -1] > 1.3))


def test_a_simulation_that_blows_up_gets_the_penalty() -> None:
    task = BeerPong()
    task.simulator.model.actuator_biasprm[:, 1] *= -1e6  # servos that push away from where they should go
    outcome = evaluate(task, [LIKED] * 2, THROW)
    assert outcome.info["diverged"].all()
    np.testing.assert_array_equal(outcome.returns, -100.0)
    assert not outcome.success.any()


def test_a_cup_of_another_size() -> None:
    for radius in (0.03, 0.05, 0.1):
        task = BeerPong(cup_radius=radius)
        for model in (task.model, task.simulator.model):
            wall, bottom = model.geom("cup_0"), model.geom("cup_bottom")
            assert wall.pos[0] - wall.size[0] == pytest.approx(radius), "the inner side of the wall"
            assert bottom.size[0] == pytest.approx(radius, abs=2e-4)
    same, plain = BeerPong(cup_radius=0.0701).model, BeerPong().model
    np.testing.assert_array_equal(same.geom_size, plain.geom_size)
    np.testing.assert_array_equal(same.geom_pos, plain.geom_pos)
    library = load_pretrained("beer-pong")
    contexts = np.random.default_rng(0).uniform(library.context_low, library.context_high, (60, 2))
    means = library.mean(contexts, library.gating(contexts).argmax(axis=1))
    share = [BeerPong(cup_radius=r).evaluate_batch(contexts, means).success.mean() for r in (0.03, 0.05, 0.0701)]
    assert share[0] < share[1] <= share[2]
    for radius in (0.025, 0.2):
        with pytest.raises(SvslError, match=r"cup_radius: expected more than the ball's 0.025 and at most 0.1402"):
            BeerPong(cup_radius=radius)
