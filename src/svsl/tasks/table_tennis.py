"""Table tennis: a Barrett WAM returns a served ball to a target on the other side."""

from typing import Literal

import mujoco
import numpy as np

from svsl.model.gaussians import Array, BoolArray, IntArray
from svsl.simulation.arm import JOINTS
from svsl.simulation.primitives import strike
from svsl.simulation.rollout import diverged, first_true
from svsl.simulation.scenes import TABLE_TENNIS_START, TABLE_TENNIS_TABLE_TOP, table_tennis_model
from svsl.tasks.base import Outcome
from svsl.tasks.presentation import Motion
from svsl.tasks.simulated import BALL, BALL_VELOCITY, ArmPlan, ArmTask, running_sum

SERVE_HEIGHT, SERVE_VELOCITY = 1.76, (2.5, 0.0, 1.0)
SUCCESS_DISTANCE = 0.2
# root mean square difference of unit vectors 20 degrees apart: strikes whose rackets differ so much differ clearly
PATH_UNIT = 0.2
FIXED_SERVE = (-0.7, 0.0)
_CONTEXT_NAMES = ("target x [m]", "target y [m]", "serve x [m]", "serve y [m]")
_REST_STEPS = 1000
_CHUNK = 100


class TableTennis(ArmTask):
    """Return a served ball; the context is the target of the return and the start of the serve.

    Parameters: 21 weights (three bases for each of seven joints, joint by joint) and the duration of the strike in
    seconds; the arm then comes to rest within 2 s.

    Return, with `d` a squared distance in metres (or plain, see `distance`):
    no hit `0.2 (1 - tanh(least d of ball and racket))`; a hit `2 (1 - tanh(least d of ball and racket))`, plus, if the
    ball then meets the table, `4 (1 - tanh(d of landing and target))` and 1 if that is on the other side, otherwise
    `1 - tanh(least d of ball and target, seen from above, after the hit)`. Not simulated: a context outside its box
    (`-20` times the squared distance), a duration outside 0.1 to 5 s (`-3` times the difference), a path outside the
    joint limits (minus its mean distance to them).

    An episode ends when the ball lands after the hit or falls on the floor: its return is then decided. Success:
    the ball lands on the other side within 0.2 m of the target. A hit with the green face is a forehand, one with the
    red face a backhand. `info["path"]` is where the red face looks when it is nearest to the ball.

    The return follows the paper's appendix. The published code differs: plain distances; one less for a wrong duration;
    the sum of distances for a wrong context; the ball's distance to the target counts only near the table's height; the
    running reward's maximum over time is returned; and full dynamics are compensated, not gravity alone.

    Args:
        context_dims: 4, or 2 for the target alone with a fixed serve.
        distance: Squared distances as in the paper, or plain ones, whose slope does not vanish two metres away.
    """

    duration_range = (0.1, 5.0)
    penalty = -5.0
    figures = ("ball", "snapshots")

    def __init__(self, context_dims: Literal[2, 4] = 4, distance: Literal["squared", "plain"] = "squared") -> None:
        control_spec = mujoco.mjtState.mjSTATE_CTRL.value
        super().__init__(table_tennis_model(), table_tennis_model(visuals=False), control_spec)
        low, high = np.array([-1.2, -0.6, -1.2, -0.65]), np.array([-0.2, 0.6, -0.2, 0.65])
        self.context_low, self.context_high = low[:context_dims], high[:context_dims]
        self.context_names = _CONTEXT_NAMES[:context_dims]
        self.distance = distance
        self.parameter_dim = 3 * JOINTS + 1
        self.initial_mean, self.initial_cov = np.zeros(self.parameter_dim), np.eye(self.parameter_dim)

    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """One strike to its full length; see `svsl.tasks.presentation.Showable`."""
        full = self._full_contexts(context[None])
        start = self._start(full)
        states, decided = start, 0
        plan = None if parameters is None else self._plan(context[None], parameters[None])
        if plan is not None and len(plan.rows):
            run, sensors = self.simulator.run(start, *plan.movement)
            states, decided = run[0], self._decided_step(sensors[0])
        ball = states[:, BALL]
        target, serve = (np.array([*full[0, part], TABLE_TENNIS_TABLE_TOP]) for part in (slice(0, 2), slice(2, 4)))
        moments = {"hit": turning_step(ball[:decided])}
        return Motion(self.dt_s, states, ball, np.stack([target, serve]), 0, moments, decided)

    def _decided_step(self, sensors: Array) -> int:
        """Steps `evaluate` would simulate of the episode with these sensors `(steps, ns)`: whole chunks."""
        touch = {name: self.simulator.sensor(sensors, f"ball_{name}") > 0 for name in ("racket", "table", "floor")}
        returned = np.arange(len(sensors)) > first_true(touch["racket"])
        last = min(int(first_true(touch["table"] & returned)), int(first_true(touch["floor"])))
        return min(_CHUNK * (last // _CHUNK + 1), len(sensors))

    def steps(self, parameters: Array) -> IntArray:
        """Length of each episode: `(n,)`."""
        return (parameters[:, -1] / self.dt_s).astype(np.intp) + _REST_STEPS

    def _full_contexts(self, contexts: Array) -> Array:
        if contexts.shape[1] == 4:
            return contexts
        return np.concatenate([contexts, np.broadcast_to(FIXED_SERVE, contexts.shape)], axis=1)

    def _desired(self, parameters: Array, steps: IntArray) -> tuple[Array]:
        weights = parameters[:, :-1].reshape(-1, JOINTS, 3)
        return (strike(weights, parameters[:, -1], int(steps.max(initial=0)), self.dt_s) + TABLE_TENNIS_START,)

    def _invalid_returns(self, bad_context: BoolArray, outside: Array, excess: Array) -> Array:
        return np.where(bad_context, -20 * outside**2, -3 * np.abs(excess))

    def _path_returns(self, path: Array, steps: IntArray, low: Array, high: Array) -> Array:
        """Minus the mean distance of each path to the joint limits over its own steps."""
        returns = np.zeros(len(path))
        too_high, too_low = path.max(axis=1, initial=-np.inf) > high, path.min(axis=1, initial=np.inf) < low
        far = np.flatnonzero((too_high | too_low).any(axis=1))
        beyond = path[far] - np.clip(path[far], low, high)
        within = np.arange(path.shape[1]) < steps[far, None]
        distance = np.where(within, np.sqrt((beyond**2).sum(axis=2)), 0.0)
        returns[far] = -running_sum(distance) / steps[far]
        return returns

    def _start(self, contexts: Array) -> Array:
        start = np.zeros((len(contexts), self.simulator.state_size))
        start[:, 1 : 1 + JOINTS], start[:, BALL_VELOCITY] = TABLE_TENNIS_START, SERVE_VELOCITY
        start[:, BALL] = np.column_stack([contexts[:, 2:], np.full(len(contexts), SERVE_HEIGHT)])
        return start

    def evaluate_batch(self, contexts: Array, parameters: Array) -> Outcome:
        """Scores what is not valid and simulates the rest."""
        plan = self._plan(contexts, parameters)
        return plan.completed(_Rally(self, self._full_contexts(contexts[plan.rows]), plan).outcome())


def turning_step(ball: Array) -> int:
    """The step at which a ball `(steps, 3)` comes no farther in the direction it started in: where it is hit."""
    if len(ball) < 2:
        return 0
    return int(((ball - ball[0]) @ (ball[1] - ball[0])).argmax())


class _Rally:
    """The simulation of a batch of strikes, in chunks; an episode drops out as soon as it is decided."""

    def __init__(self, task: TableTennis, contexts: Array, plan: ArmPlan) -> None:
        self.task, self.targets = task, contexts[:, :2]
        (control,), steps, count = plan.movement, plan.steps, len(contexts)
        self.racket_sq, self.target_sq = np.full(count, np.inf), np.full(count, np.inf)
        self.hit, self.landed, self.forehand, self.failed = (np.zeros(count, dtype=bool) for _ in range(4))
        self.facing = np.zeros((count, 3))  # where the red face looks when it is nearest to the ball
        self.landing, self.simulated_steps = np.full((count, 2), np.nan), np.zeros(count, dtype=np.intp)
        state, rows = task._start(contexts), np.arange(count)
        for begin in range(0, control.shape[1], _CHUNK):
            rows = rows[steps[rows] > begin]
            if not len(rows):
                break
            chunk = control[rows, begin : begin + _CHUNK]
            after, sensors = task.simulator.run(state[rows], chunk)
            length = np.minimum(steps[rows] - begin, after.shape[1])
            last = after[np.arange(len(rows)), length - 1]
            self.failed[rows] = diverged(last, (begin + length) * task.dt_s, task.dt_s)
            self.simulated_steps[rows] += length
            decided = self._watch(rows, state[rows], after, sensors, length)
            state[rows] = after[:, -1]
            rows = rows[~decided & ~self.failed[rows]]

    def _watch(self, rows: IntArray, before: Array, after: Array, sensors: Array, length: IntArray) -> BoolArray:
        """Takes a chunk into account, step by step up to the one that decides; returns which are decided."""
        sensor = self.task.simulator.sensor
        # as the sensors: before each step
        ball = np.concatenate([before[:, None, BALL], after[:, :-1, BALL]], axis=1)
        time = np.arange(ball.shape[1])
        touch = {name: sensor(sensors, f"ball_{name}") > 0 for name in ("racket", "table", "floor")}
        hit_at = np.where(self.hit[rows], -1, first_true(touch["racket"]))
        lands_at = first_true(touch["table"] & (time > hit_at[:, None]))
        floor_at = first_true(touch["floor"])
        end = np.minimum(np.minimum(lands_at, floor_at), length - 1)
        counts = time <= end[:, None]

        racket, normal, every = sensor(sensors, "racket_pos"), sensor(sensors, "racket_normal"), np.arange(len(rows))
        racket_sq = np.where(counts, ((ball - racket) ** 2).sum(axis=2), np.inf)
        nearest = racket_sq.argmin(axis=1)
        least_sq = racket_sq[every, nearest]
        closer = least_sq < self.racket_sq[rows]
        self.racket_sq[rows[closer]] = least_sq[closer]
        self.facing[rows[closer]] = normal[every, nearest][closer]
        returned = counts & (time > hit_at[:, None])
        target_sq = np.where(returned, ((ball[..., :2] - self.targets[rows, None]) ** 2).sum(axis=2), np.inf)
        self.target_sq[rows] = np.minimum(self.target_sq[rows], target_sq.min(axis=1))

        new = (hit_at >= 0) & (hit_at <= end)
        at = np.clip(hit_at, 0, len(time) - 1)
        side = ((ball[every, at] - racket[every, at]) * normal[every, at]).sum(axis=1)
        self.forehand[rows] |= new & (side < 0)  # the green face looks along minus the normal
        self.hit[rows] |= new
        lands = (lands_at <= end) & self.hit[rows]
        self.landed[rows] |= lands
        at = np.minimum(lands_at, len(time) - 1)
        self.landing[rows[lands]] = ball[every, at, :2][lands]
        return np.asarray(lands | (floor_at <= end))

    def outcome(self) -> Outcome:
        """The outcome of the episodes."""
        power = 1.0 if self.task.distance == "squared" else 0.5
        near = 1 - np.tanh(self.racket_sq**power)
        landing_sq = ((self.landing - self.targets) ** 2).sum(axis=1)
        error = np.sqrt(landing_sq)
        with np.errstate(invalid="ignore"):
            far_side = self.landing[:, 0] < 0
            placed = 4 * (1 - np.tanh(landing_sq**power)) + far_side
            passed = 1 - np.tanh(self.target_sq**power)
            hit = 2 * near + np.where(self.landed, placed, passed)
            success = self.landed & far_side & (error <= SUCCESS_DISTANCE) & ~self.failed
        returns = np.where(self.failed, self.task.penalty, np.where(self.hit, hit, 0.2 * near))
        info = {
            "success": success,
            "mode": np.where(self.hit, np.where(self.forehand, "forehand", "backhand"), "no hit"),
            "hit": self.hit,
            "landed": self.landed,
            "landing_error": np.where(self.landed, error, np.nan),
            "diverged": self.failed,
            "steps": self.simulated_steps,
            "path": self.facing / PATH_UNIT,
        }
        return Outcome(returns, success, info)
