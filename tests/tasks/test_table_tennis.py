"""Table tennis against a plain Python loop over `mj_step` and the paper's formulas."""

from dataclasses import dataclass
from math import ceil, tanh

import mujoco
import numpy as np
import pytest

from svsl.model.gaussians import Array, IntArray
from svsl.model.random import stream
from svsl.simulation.primitives import strike
from svsl.tasks.base import Outcome
from svsl.tasks.check import check_task
from svsl.tasks.table_tennis import PATH_UNIT, TableTennis, turning_step


def numbers(text: str) -> Array:
    return np.array([float(word) for word in text.split()])


# Cross-entropy searches (28 rounds of 150 strikes, the best 12 kept, hits of the other face left out) at SERVED ended
# around BACKHAND and SHORT; 30 more rounds led from SHORT to FOREHAND. OUT is a neighbour of BACKHAND.
BACKHAND = numbers(  # lands on the other side
    "-0.18 -0.05 0.06 -0.28 -0.24 0.46 -0.12 -0.17 0.0 -0.19 -0.44 -0.3"
    " 0.83 -1.85 -0.39 -0.19 0.29 0.1 -0.07 0.17 -1.14 1.2"
)
FOREHAND = numbers(  # lands on the other side
    "-0.15 -0.1 0.05 -0.71 0.04 0.51 0.31 -0.01 0.04 0.82 -0.08 -0.42"
    " 0.99 1.61 0.89 0.19 0.2 -0.39 0.03 1.64 -0.07 1.32"
)
SHORT = numbers(  # a forehand that lands on its own side
    "-0.17 -0.02 0.02 -0.08 0.24 0.19 0.21 0.01 -0.01 1.13 -0.07 -0.43 0.97 1.75 0.91 0.02 0.2 0.19 0.02 1.6 -0.07 1.3"
)
OUT = numbers(  # hits, but the ball misses the table
    "-0.22 0.11 0.04 -0.34 -0.35 0.38 -0.15 -0.23 -0.07 -0.23 -0.45 -0.21"
    " 0.73 -1.88 -0.45 -0.28 0.21 0.05 -0.03 0.16 -1.17 1.24"
)
STILL = np.array([*[0.0] * 21, 0.5])
SERVED = np.array([-0.7, 0.1, -0.7, 0.0])

START = np.array([0, 0, 0, 1.5, 0, 0, 1.5])
LOW = np.array([-2.6, -2, -2.8, -0.9, -4.8, -1.6, -2.2])
HIGH = np.array([2.6, 2, 2.8, 3.1, 1.3, 1.6, 2.2])
CHUNK = 100


@pytest.fixture(scope="module")
def task() -> TableTennis:
    return TableTennis()


def evaluate(task: TableTennis, contexts: object, parameters: Array) -> Outcome:
    """One row of parameters or of contexts serves all of the other."""
    contexts, parameters = np.atleast_2d(np.asarray(contexts, dtype=np.float64)), np.atleast_2d(parameters)
    count = max(len(contexts), len(parameters))
    contexts = np.broadcast_to(contexts, (count, contexts.shape[1]))
    return task.evaluate(contexts.copy(), np.broadcast_to(parameters, (count, 22)).copy(), stream(9))


@dataclass
class Naive:
    """One strike as the loop saw it, step by step to its full length."""

    returns: float
    mode: str
    landing: Array | None
    decided: int  # step
    length: int
    ball: Array  # (length, 3), after each step
    facing: Array  # where the red face looks when the racket is nearest to the ball


def ball_touches(model: mujoco.MjModel, data: mujoco.MjData) -> set[str]:
    """Names of the geoms that the ball touches."""
    names = [{model.geom(int(i)).name for i in contact.geom} for contact in data.contact]
    return {name for pair in names if "ball" in pair for name in pair - {"ball"}}


def faces(model: mujoco.MjModel, data: mujoco.MjData) -> dict[str, Array]:
    """The centres of the racket's faces, by colour."""
    rows = {colour: model.geom_matid == model.material(f"racket_{colour}").id for colour in ("red", "green")}
    return {colour: data.geom_xpos[int(np.flatnonzero(row)[0])].copy() for colour, row in rows.items()}


def naive_strike(task: TableTennis, context: Array, parameters: Array, power: int = 2) -> Naive:
    """Serves, strikes, and scores what happened up to the decision, though the loop runs on to the end."""
    model, data = task.model, mujoco.MjData(task.model)
    duration, length = parameters[-1], int(parameters[-1] / 0.002) + 1000
    control = START + strike(parameters[:21].reshape(1, 7, 3), parameters[-1:], length, 0.002)[0]
    for step in range(0, int(duration / 0.002), 25):  # facts 2.4
        t = step * 0.002
        activation = np.exp(-((t - np.array([0, duration / 2, duration])) ** 2) / (2 * (duration / 2) ** 2))
        fade = 1 / (1 + np.exp(-(12 * t / duration - 6)))
        weights = parameters[:21].reshape(7, 3)
        np.testing.assert_allclose(control[step], START + weights @ activation / activation.sum() * fade, atol=1e-12)
    data.qpos[:7], data.qpos[7:] = START, (context[2], context[3], 1.76)
    data.qvel[7:] = (2.5, 0, 1)
    path = np.empty((length, 3))
    racket_distance, target_distance = np.inf, np.inf
    hit_at, decided, mode = None, None, "no hit"
    landing: Array | None = None
    facing = np.zeros(3)
    for step in range(length):
        if step % CHUNK == 0:
            data.qacc_warmstart[:] = 0  # a new call of mujoco.rollout
        ball = data.qpos[7:].copy()
        data.ctrl[:] = control[step]
        mujoco.mj_step(model, data)  # its contacts and positions are those before it
        path[step] = data.qpos[7:]
        if decided is not None:
            continue
        now = ball_touches(model, data)
        centres, distance = faces(model, data), float(np.linalg.norm(ball - data.site("racket").xpos))
        if distance < racket_distance:
            racket_distance, facing = distance, centres["red"] - centres["green"]
        if hit_at is not None:
            target_distance = min(target_distance, float(np.linalg.norm(ball[:2] - context[:2])))
        if hit_at is not None and "table" in now:
            landing, decided = ball[:2], step
        elif hit_at is None and "bat" in now:
            hit_at = step
            far = {colour: float(np.linalg.norm(centre - ball)) for colour, centre in centres.items()}
            mode = "forehand" if far["green"] < far["red"] else "backhand"
        if "floor" in now:
            decided = step
    if hit_at is None:
        value = 0.2 * (1 - tanh(racket_distance**power))
    elif landing is None:
        value = 2 * (1 - tanh(racket_distance**power)) + 1 - tanh(target_distance**power)
    else:
        error = float(np.linalg.norm(landing - context[:2]))
        value = 2 * (1 - tanh(racket_distance**power)) + 4 * (1 - tanh(error**power)) + (landing[0] < 0)
    facing /= np.linalg.norm(facing)
    return Naive(value, mode, landing, length - 1 if decided is None else decided, length, path, facing)


def varied_strikes() -> tuple[Array, Array]:
    """Strikes of every kind, with long and short movements."""
    rng = stream(0)
    parameters = np.concatenate([[BACKHAND, FOREHAND, SHORT, OUT, STILL], BACKHAND + rng.normal(0, 0.04, (7, 22))])
    parameters = np.concatenate([parameters, [[*rng.normal(0, 0.02, 21), 0.1], [*rng.normal(0, 0.2, 21), 1.9]]])
    contexts = np.tile(SERVED, (len(parameters), 1))
    contexts[4, 3] = 0.5  # beyond the racket that waits
    contexts[5:, :2] = rng.uniform([-1.2, -0.6], [-0.2, 0.6], (len(parameters) - 5, 2))
    contexts[5:, 2:] += rng.normal(0, 0.03, (len(parameters) - 5, 2))
    return contexts, parameters


def test_returns_are_those_of_a_plain_loop(task: TableTennis) -> None:
    contexts, parameters = varied_strikes()
    outcome, plain = evaluate(task, contexts, parameters), evaluate(TableTennis(distance="plain"), contexts, parameters)
    assert outcome.info["simulated"].all()
    kinds: set[str] = set()
    for row, (context, theta) in enumerate(zip(contexts, parameters, strict=True)):
        naive = naive_strike(task, context, theta)
        info = {name: values[row] for name, values in outcome.info.items()}
        assert outcome.returns[row] == pytest.approx(naive.returns, abs=1e-9)
        assert info["mode"] == naive.mode
        np.testing.assert_allclose(info["path"], naive.facing / PATH_UNIT, atol=1e-9)
        assert info["hit"] == (naive.mode != "no hit")
        assert info["landed"] == (naive.landing is not None)
        error = np.nan if naive.landing is None else np.linalg.norm(naive.landing - context[:2])
        assert float(info["landing_error"]) == pytest.approx(error, abs=1e-9, nan_ok=True)
        assert outcome.success[row] == (naive.landing is not None and naive.landing[0] < 0 and error <= 0.2)
        # stopped at the end of the chunk in which it was decided
        assert info["steps"] == min(ceil((naive.decided + 1) / CHUNK) * CHUNK, naive.length)
        side = "" if naive.landing is None else ("far" if naive.landing[0] < 0 else "near")
        kinds.add(f"{naive.mode} {side}".strip())
        for name, values in plain.info.items():
            np.testing.assert_array_equal(values, outcome.info[name])
    assert kinds >= {"no hit", "backhand far", "forehand far", "forehand near", "backhand"}
    assert (outcome.info["steps"].astype(int) < 1000).any()
    for row in (0, 2, 3, 4):
        assert plain.returns[row] == pytest.approx(
            naive_strike(task, contexts[row], parameters[row], 1).returns, abs=1e-9
        )
        assert plain.returns[row] != outcome.returns[row]


def test_the_returns_of_one_strike_by_hand(task: TableTennis) -> None:
    """The target moves nothing: the return follows its distance to the landing."""
    landing = naive_strike(task, SERVED, BACKHAND).landing
    assert landing is not None
    contexts = np.tile(SERVED, (4, 1))
    contexts[:, :2] = landing + np.array([[0, 0], [-0.199, 0], [0, -0.201], [-0.3, 0.4]])
    assert ((contexts > task.context_low) & (contexts < task.context_high)).all()
    outcome = evaluate(task, contexts, BACKHAND)
    np.testing.assert_array_equal(outcome.success, [True, True, False, False])
    np.testing.assert_allclose(outcome.info["landing_error"].astype(float), [0, 0.199, 0.201, 0.5], atol=1e-9)
    lost = outcome.returns[0] - outcome.returns
    np.testing.assert_allclose(lost, 4 * np.tanh(np.array([0, 0.199, 0.201, 0.5]) ** 2), atol=1e-9)
    assert 5 + 2 * (1 - tanh(0.12**2)) < outcome.returns[0] < 7  # a hit is nearer than the racket is wide


RACKET, TARGET = np.array([1.0, 0.0, 1.0]), SERVED[:2]


def scripted(
    task: TableTennis, monkeypatch: pytest.MonkeyPatch, ball: dict[int, list[float]], touches: dict[int, str]
) -> Outcome:
    """An episode in which the ball is where we say, from step to step, and touches what we say; the racket rests."""
    path = np.tile([3.0, 3.0, 3.0], (1600, 1))  # far from everything by default
    for step, point in ball.items():
        path[step] = point
    model, size = task.simulator.model, task.simulator.state_size

    def run(states: Array, controls: Array) -> tuple[Array, Array]:
        count = controls.shape[1]
        begin = round(states[0, 0] / 0.002)
        after, sensors = np.zeros((1, count, size)), np.zeros((1, count, model.nsensordata))
        after[0, :, 0] = (begin + 1 + np.arange(count)) * 0.002
        after[0, :, 8:11] = path[begin + 1 : begin + 1 + count]
        for name, value in (("racket_pos", RACKET), ("racket_normal", np.array([1.0, 0, 0]))):
            first = model.sensor(name).adr[0]
            sensors[0, :, first : first + 3] = value
        for step, names in touches.items():
            if begin <= step < begin + count:
                for name in names.split():
                    sensors[0, step - begin, model.sensor(f"ball_{name}").adr[0]] = 1
        return after, sensors

    monkeypatch.setattr(task.simulator, "run", run)
    return evaluate(task, SERVED, changed(STILL, 1.0))


def near(distance: float) -> float:
    return 1 - tanh(distance**2)


FRONT, LAND, ON_TARGET = [1.1, 0.0, 1.0], [-0.7, 0.4, 0.8], [-0.7, 0.1, 0.8]  # distances 0.1, 0.3 and 0
NEARER = [1.05, 0.0, 1.0]  # 0.05 from the racket


@pytest.mark.parametrize(
    ("ball", "touches", "returns", "mode", "landed"),
    [
        # the first landing after the hit decides
        ({10: FRONT, 20: LAND, 21: ON_TARGET}, {10: "racket", 20: "table", 21: "table"}, (0.1, 0.3), "backhand", True),
        ({10: FRONT, 20: LAND, 25: NEARER}, {10: "racket", 20: "table"}, (0.1, 0.3), "backhand", True),
        # whatever happens on the table before the hit, or with it
        ({50: FRONT, 60: LAND}, {40: "table", 50: "racket", 60: "table"}, (0.1, 0.3), "backhand", True),
        ({50: FRONT, 60: LAND}, {50: "racket table", 60: "table"}, (0.1, 0.3), "backhand", True),
        # in another chunk than the hit
        ({99: FRONT, 100: LAND}, {99: "racket", 100: "table"}, (0.1, 0.3), "backhand", True),
        ({100: FRONT, 1450: LAND}, {0: "table", 100: "racket", 1450: "table"}, (0.1, 0.3), "backhand", True),
        # no table: the nearest way past the target after the hit and before the floor
        ({5: ON_TARGET, 10: FRONT, 20: LAND}, {10: "racket", 30: "floor"}, (0.1, 0.3), "backhand", False),
        (
            {10: FRONT, 20: LAND, 40: ON_TARGET},
            {10: "racket", 30: "floor", 40: "table"},
            (0.1, 0.3),
            "backhand",
            False,
        ),
        ({10: FRONT, 20: LAND, 99: ON_TARGET}, {10: "racket", 30: "floor"}, (0.1, 0.3), "backhand", False),
        # a hit by the other face, and a second one by the first
        (
            {9: [0.9, 0, 1.0], 20: FRONT, 30: LAND},
            {9: "racket", 20: "racket", 30: "table"},
            (0.1, 0.3),
            "forehand",
            True,
        ),
        # no hit: the nearest before the floor
        ({10: FRONT, 20: NEARER}, {15: "floor", 20: "racket", 30: "table"}, (0.1,), "no hit", False),
        ({10: FRONT, 120: NEARER}, {15: "floor", 120: "racket"}, (0.1,), "no hit", False),
        ({10: FRONT, 120: NEARER}, {5: "table", 130: "table"}, (0.05,), "no hit", False),
    ],
)
def test_the_rules_by_hand(
    task: TableTennis,
    monkeypatch: pytest.MonkeyPatch,
    ball: dict[int, list[float]],
    touches: dict[int, str],
    returns: tuple[float, ...],
    mode: str,
    landed: bool,
) -> None:
    outcome = scripted(task, monkeypatch, ball, touches)
    if mode == "no hit":
        expected = 0.2 * near(returns[0])
    elif landed:
        expected = 2 * near(returns[0]) + 4 * near(returns[1]) + 1
    else:
        expected = 2 * near(returns[0]) + near(returns[1])
    assert outcome.returns[0] == pytest.approx(expected, abs=1e-12)
    assert (outcome.info["mode"][0], outcome.info["landed"][0]) == (mode, landed)


def test_a_ball_that_lands_on_its_own_side_is_no_success(task: TableTennis) -> None:
    wide = TableTennis()
    wide.context_high = np.array([1.4, 0.8, -0.2, 0.65])
    landing = naive_strike(task, SERVED, SHORT).landing
    assert landing is not None
    assert landing[0] > 0
    outcome = evaluate(wide, [*landing, *SERVED[2:]], SHORT)
    assert outcome.info["landed"][0]
    assert float(outcome.info["landing_error"][0]) == pytest.approx(0, abs=1e-9)
    assert not outcome.success[0]
    assert 4 + 1.9 < outcome.returns[0] < 6


def test_forehand_and_backhand(task: TableTennis) -> None:
    contexts = np.tile(SERVED, (4, 1))
    contexts[3, 3] = 0.5
    outcome = evaluate(task, contexts, np.array([BACKHAND, FOREHAND, SHORT, STILL]))
    assert outcome.info["mode"].tolist() == ["backhand", "forehand", "forehand", "no hit"]


@pytest.mark.parametrize("distance", ["squared", "plain"])
def test_two_context_dimensions_are_four_with_the_fixed_serve(distance: str) -> None:
    two, four = (TableTennis(context_dims=dims, distance=distance) for dims in (2, 4))  # type: ignore[arg-type]
    assert two.context_low.tolist() == [-1.2, -0.6]
    assert two.context_high.tolist() == [-0.2, 0.6]
    targets = np.array([[-0.7, 0.1], [-1.1, -0.5], [-0.3, 0.6], [-0.1, 0.7]])  # the last is 0.1 and 0.1 outside
    parameters = np.array([BACKHAND, SHORT, OUT, BACKHAND])
    first = evaluate(two, targets, parameters)
    second = evaluate(four, np.hstack([targets, np.tile([-0.7, 0.0], (4, 1))]), parameters)
    same(first, second, slice(None))
    assert first.returns[3] == pytest.approx(-20 * 0.02)
    assert first.info["simulated"].tolist() == [True] * 3 + [False]
    np.testing.assert_array_equal(
        two.motion(targets[0], OUT).poses, four.motion(np.array([*targets[0], -0.7, 0.0]), OUT).poses
    )


REACH = np.zeros(22)
REACH[[9, 10, 11, 21]] = 3.0, 3.0, 3.0, 1.0  # the elbow beyond 3.1
TWIST = REACH.copy()
TWIST[18:21] = -5.0  # and the palm below -2.2


def changed(parameters: Array, duration: float) -> Array:
    return np.array([*parameters[:-1], duration])


def mean_excess(parameters: Array) -> float:
    """The mean over the steps of the distance of the joints to their limits."""
    length = int(parameters[-1] / 0.002) + 1000
    path = START + strike(parameters[:21].reshape(1, 7, 3), parameters[-1:], length, 0.002)[0]
    total = 0.0
    for angles in path:
        total += sum(max(0.0, a - h, lo - a) ** 2 for a, lo, h in zip(angles, LOW, HIGH, strict=True)) ** 0.5
    return total / length


def test_what_is_invalid_is_scored_without_a_simulation(task: TableTennis, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    run = task.simulator.run

    def count(states: Array, controls: Array) -> tuple[Array, Array]:
        rows.append(len(states))
        return run(states, controls)

    monkeypatch.setattr(task.simulator, "run", count)
    outside = SERVED + np.array([0.6, 0.0, 0.0, -0.85])  # 0.1 and 0.2 beyond
    cases = [
        (outside, BACKHAND, -20 * 0.05, "invalid_context"),
        (outside, changed(BACKHAND, 7.0), -20 * 0.05, "invalid_context"),
        (outside, REACH, -20 * 0.05, "invalid_context"),
        (SERVED, changed(BACKHAND, 7.0), -3 * 2.0, "invalid_duration"),
        (SERVED, changed(BACKHAND, -0.4), -3 * 0.5, "invalid_duration"),
        (SERVED, changed(REACH, 5.5), -3 * 0.5, "invalid_duration"),
        (SERVED, REACH, -mean_excess(REACH), "invalid_path"),
        (SERVED, TWIST, -mean_excess(TWIST), "invalid_path"),
        (SERVED, changed(REACH, 0.1), -mean_excess(changed(REACH, 0.1)), "invalid_path"),
    ]
    contexts, parameters = np.array([c[0] for c in cases]), np.array([c[1] for c in cases])
    outcome = evaluate(task, contexts, parameters)
    np.testing.assert_allclose(outcome.returns, np.array([c[2] for c in cases]), rtol=1e-10)
    assert outcome.returns[7] < outcome.returns[6] < -0.1
    flags = ("invalid_context", "invalid_duration", "invalid_path")
    for row, case in enumerate(cases):
        assert {name for name in flags if outcome.info[name][row]} == {case[3]}
    assert not outcome.info["simulated"].any()
    assert not outcome.success.any()
    assert not any(rows)

    mixed = evaluate(task, np.vstack([contexts, SERVED]), np.vstack([parameters, BACKHAND]))
    assert mixed.info["simulated"].tolist() == [False] * 9 + [True]
    np.testing.assert_array_equal(mixed.returns[:9], outcome.returns)
    assert set(rows) <= {0, 1}


def test_the_edges_of_the_box_and_of_the_durations_are_valid(task: TableTennis) -> None:
    contexts = np.array([task.context_low, task.context_high])
    info = evaluate(task, contexts, np.array([changed(STILL, 0.1), changed(STILL, 5.0)])).info
    assert info["simulated"].all()


def same(first: Outcome, second: Outcome, rows: IntArray | slice) -> None:
    np.testing.assert_array_equal(first.returns, second.returns[rows])
    np.testing.assert_array_equal(first.success, second.success[rows])
    assert first.info.keys() == second.info.keys()
    for name in first.info:
        np.testing.assert_array_equal(first.info[name], second.info[name][rows])


def test_an_episode_does_not_depend_on_threads_and_batches(task: TableTennis) -> None:
    contexts, parameters = varied_strikes()
    contexts = np.concatenate([contexts, contexts[:6]])
    parameters = np.concatenate([parameters, [REACH, TWIST, changed(OUT, 9.0), changed(OUT, -1.0), OUT, OUT]])
    contexts[-2:, 0] = 3.0
    order = stream(4).permutation(len(contexts))
    contexts, parameters = contexts[order], parameters[order]
    before = contexts.copy(), parameters.copy()
    outcome = evaluate(task, contexts, parameters)
    np.testing.assert_array_equal(contexts, before[0])
    np.testing.assert_array_equal(parameters, before[1])
    names = ("simulated", "invalid_context", "invalid_duration", "invalid_path")
    assert [int(outcome.info[name].astype(int).sum()) for name in names] == [14, 2, 2, 2]
    same(evaluate(task, contexts, parameters), outcome, slice(None))  # repeatable
    workers_before = task.workers
    for workers in (1, 3):
        task.workers = workers
        same(evaluate(task, contexts, parameters), outcome, slice(None))
    task.workers = workers_before
    for rows in (slice(0, 1), slice(5, 9), np.array([19, 2, 2, 11])):
        same(evaluate(task, contexts[rows], parameters[rows]), outcome, rows)
    for row in range(0, 20, 3):
        same(evaluate(task, contexts[row], parameters[row]), outcome, np.array([row]))


def test_an_empty_batch(task: TableTennis) -> None:
    outcome = task.evaluate(np.empty((0, 4)), np.empty((0, 22)), stream(0))
    assert outcome.returns.shape == outcome.success.shape == (0,)


@pytest.mark.parametrize("chunk", [0, 7])
def test_a_simulation_that_stops_gets_the_penalty(
    task: TableTennis, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    run = task.simulator.run
    calls: list[int] = []

    def stops(states: Array, controls: Array) -> tuple[Array, Array]:
        after, sensors = run(states, controls)
        if len(calls) == chunk:
            after[1, 20:] = after[1, 19]  # MuJoCo repeats the last state
        calls.append(len(states))
        return after, sensors

    healthy = evaluate(task, SERVED, np.array([BACKHAND] * 3))
    monkeypatch.setattr(task.simulator, "run", stops)
    outcome = evaluate(task, SERVED, np.array([BACKHAND] * 3))
    np.testing.assert_array_equal(outcome.info["diverged"], [False, True, False])
    assert outcome.returns[1] == task.penalty == -5.0
    assert not outcome.success[1]
    np.testing.assert_array_equal(outcome.returns[[0, 2]], healthy.returns[[0, 2]])
    assert calls[chunk : chunk + 2] == [3, 2]  # it is given up


def test_a_simulation_that_blows_up_gets_the_penalty() -> None:
    task = TableTennis()
    task.simulator.model.actuator_biasprm[:, 1] *= -1e6  # servos that push away from where they should go
    outcome = evaluate(task, SERVED, np.array([BACKHAND] * 2))
    assert outcome.info["diverged"].all()
    np.testing.assert_array_equal(outcome.returns, -5.0)


def test_a_motion_is_the_episode_to_its_full_length(task: TableTennis) -> None:
    motion, naive = task.motion(SERVED, BACKHAND), naive_strike(task, SERVED, BACKHAND)
    assert motion.poses.shape == (1600, 21)
    assert (motion.dt_s, motion.trail_start) == (0.002, 0)
    np.testing.assert_allclose(motion.poses[:, 0], np.arange(1, 1601) * 0.002)
    np.testing.assert_array_equal(motion.trail, motion.poses[:, 8:11])
    np.testing.assert_allclose(motion.trail[: naive.decided], naive.ball[: naive.decided], atol=1e-4)
    np.testing.assert_array_equal(motion.markers, [[-0.7, 0.1, 0.77], [-0.7, 0.0, 0.77]])


def test_a_motion_is_decided_when_the_evaluation_stops(task: TableTennis) -> None:
    for parameters in (BACKHAND, OUT):
        steps = task.evaluate_batch(SERVED[None], parameters[None]).info["steps"]
        assert task.motion(SERVED, parameters).decided_step == steps[0]


def test_the_hit_is_where_the_ball_turns_back() -> None:
    forth_and_back = np.column_stack([[0.0, 1.0, 2.0, 3.0, 1.0, -2.0, -9.0], np.zeros((7, 2))])
    assert turning_step(forth_and_back) == 3
    assert turning_step(forth_and_back[:1]) == 0


def test_the_checker_has_nothing_to_say(task: TableTennis) -> None:
    assert [f.text for f in check_task(task) if f.verdict != "ok"] == []
