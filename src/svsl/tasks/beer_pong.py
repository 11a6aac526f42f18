"""Beer pong: a Barrett WAM throws a ball into a cup on a table."""

from dataclasses import dataclass

import mujoco
import numpy as np

from svsl.errors import SvslError
from svsl.model.gaussians import Array, BoolArray, IntArray
from svsl.simulation import scenes
from svsl.simulation.arm import JOINTS
from svsl.simulation.primitives import throw_parameters, throw_steps
from svsl.simulation.rollout import diverged, first_true, rising_edges
from svsl.simulation.wam import BEER_PONG_ARM
from svsl.tasks.base import Outcome
from svsl.tasks.presentation import Motion
from svsl.tasks.simulated import BALL, BALL_VELOCITY, ArmPlan, ArmTask, running_sum

FLIGHT_STEPS = 500
_CUP_GOAL_Z = 0.950  # the opening; the bottom is at `CUP_FLOOR`
_CHUNK = 50
_PATH_STRIDE = 20  # a tenth of a second
PATH_UNIT = 0.1  # metres: ball paths this far apart are clearly different
_FAR_AWAY = (0.0, 0.0, 100.0)  # where the ball waits until it is released
_CONTROL = mujoco.mjtState.mjSTATE_CTRL.value | mujoco.mjtState.mjSTATE_MOCAP_POS.value


@dataclass(frozen=True)
class _Throws:
    """The simulation of n throws."""

    flight: Array  # (n, 500, state): after each step
    sensors: Array  # (n, 500, ns)
    torque_cost: Array  # (n,), mean over the episode of the summed squared torques
    arm_states: Array  # (n, steps, state), valid until each release
    arm_sensors: Array  # (n, steps, ns), valid until each release
    diverged: BoolArray  # (n,)
    steps: IntArray  # (n,), of the whole episode


class BeerPong(ArmTask):
    """Throw a ball into a cup; the context is the position of the cup, the parameters are a throw and its duration.

    Parameters: 14 weights (two bases for each of seven joints, basis by basis, times sqrt(0.02)) and the duration in
    seconds. The hand holds the ball until the movement ends; then it flies for 2.5 s while the arm holds still.

    Return, with squared distances in metres and `tau` the mean over the episode of the summed squared joint torques:
    in the cup `-(final distance to its bottom) - 1.5e-4 tau`; otherwise
    `-2 - (least distance to its opening) - 0.5 (final distance to its bottom) - 1e-4 tau`, and 2 less if the ball never
    touched the table. Not simulated: a cup outside its box (`-30 -` squared distance), a duration outside 0.1 to 1.3 s
    (`-30 - 10` squared difference), a path outside the joint limits (`-30`).

    The return follows the paper's appendix (whose third case lacks its minus sign). The published code differs: there a
    touch of the cup or the wall also counts as a touch of the table; an arm that hits the table gets -500 (here it
    cannot reach it); desired velocities are about a sixth of the true ones; full dynamics are compensated, not gravity
    alone. Kept from it: the cup's axis is 13.4 cm behind its context.

    Args:
        velocity_share: Share of the desired velocity that is passed to the controller.
        cup_radius: Inner radius of the cup in metres; the ball's is 0.025.
    """

    context_low = np.array([-0.32, -2.2])
    context_high = np.array([0.32, -1.2])
    context_names = ("cup x [m]", "cup y [m]")
    parameter_dim = 2 * JOINTS + 1
    initial_mean = np.array(2 * JOINTS * [0.0] + [0.5])
    initial_cov = np.diag(2 * [5 * v for v in (0.05, 1, 0.05, 1, 0.05, 1, 0.05)] + [0.25])
    duration_range = (0.1, 1.3)
    penalty = -100.0
    figures = ("ball", "snapshots")

    def __init__(self, velocity_share: float = 1.0, cup_radius: float = scenes.CUP_INNER_RADIUS) -> None:
        ball, largest = scenes.BALL_RADIUS, 2 * scenes.CUP_INNER_RADIUS
        if not ball < cup_radius <= largest:
            expected = f"more than the ball's {ball} and at most {largest}"
            raise SvslError(f"cup_radius: expected {expected}, got {cup_radius}")
        self.velocity_share, self.cup_radius = velocity_share, cup_radius
        super().__init__(scenes.beer_pong_model(True, cup_radius), scenes.beer_pong_model(False, cup_radius), _CONTROL)

    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """One throw, with the ball in the hand until its release; see `svsl.tasks.presentation.Showable`."""
        plan = None if parameters is None else self._plan(context[None], parameters[None])
        runs = plan is not None and len(plan.rows) == 1
        if plan is None or not runs:  # any valid throw from the start posture
            still = np.array([*np.zeros(2 * JOINTS), self.duration_range[0]])
            plan = self._plan(self.context_low[None], still[None])
        throws = self._simulate(context[None], plan)
        release = int(plan.steps[0])
        arm = throws.arm_states[0, :release].copy()
        # the sensors of a state come with the step after it
        held = throws.arm_sensors[0, 1 : release + 1]
        arm[:, BALL] = self.simulator.sensor(held, "release_pos")
        arm[:, BALL_VELOCITY] = self.simulator.sensor(held, "release_vel")
        states = np.concatenate([arm, throws.flight[0]]) if runs else arm[:1]
        cup = np.array([*(context + scenes.CUP_AXIS_OFFSET), 0.0])
        last_held = min(release, len(states)) - 1
        moments = {"release": last_held}
        return Motion(self.dt_s, states, states[:, BALL], cup[None], last_held, moments, decided_step=len(states))

    def steps(self, parameters: Array) -> IntArray:
        """Steps of each movement: `(n,)`."""
        return throw_steps(parameters[:, -1])

    def _desired(self, parameters: Array, steps: IntArray) -> tuple[Array, Array]:
        position, velocity = throw_parameters(parameters, steps, int(steps.max(initial=2)) + 1, self.dt_s)
        return position + scenes.BEER_PONG_START, velocity

    def _invalid_returns(self, bad_context: BoolArray, outside: Array, excess: Array) -> Array:
        return np.where(bad_context, -30 - outside**2, -30 - 10 * excess**2)

    def _path_returns(self, path: Array, steps: IntArray, low: Array, high: Array) -> Array:
        return np.where(((path > low) & (path < high)).all(axis=(1, 2)), 0.0, -30.0)

    def evaluate_batch(self, contexts: Array, parameters: Array) -> Outcome:
        """Scores what is not valid and simulates the rest."""
        plan = self._plan(contexts, parameters)
        cups = contexts[plan.rows]
        return plan.completed(self._score(cups, self._simulate(cups, plan)))

    def _simulate(self, contexts: Array, plan: ArmPlan) -> _Throws:
        """Moves the arm to its release, puts the ball there, and lets it fly."""
        gain = self.velocity_share * np.array(BEER_PONG_ARM.kv) / np.array(BEER_PONG_ARM.kp)
        (position, velocity), steps = plan.movement, plan.steps
        count, length = position.shape[:2]
        control = np.empty((count, length, JOINTS + 3))
        control[..., :JOINTS] = position + gain * velocity
        control[..., JOINTS:-1] = (contexts + scenes.CUP_AXIS_OFFSET)[:, None]
        control[..., -1] = 0.0
        start = np.zeros((count, self.simulator.state_size))
        start[:, 1 : 1 + JOINTS], start[:, BALL] = scenes.BEER_PONG_START, _FAR_AWAY
        arm = np.zeros((count, length, self.simulator.state_size))
        sensors = np.zeros((count, length, self.model.nsensordata))
        state = start
        for begin in range(0, length, _CHUNK):
            rows = np.flatnonzero(steps >= begin)  # one step more than the movement: its sensors are the release
            chunk = slice(begin, begin + _CHUNK)
            arm[rows, chunk], sensors[rows, chunk] = self.simulator.run(state[rows], control[rows, chunk])
            state = arm[:, min(begin + _CHUNK, length) - 1]
        every = np.arange(count)
        released = arm[every, steps - 1].copy()
        released[:, BALL] = self.simulator.sensor(sensors[every, steps], "release_pos")
        released[:, BALL_VELOCITY] = self.simulator.sensor(sensors[every, steps], "release_vel")
        hold = np.repeat(control[:, -1:], FLIGHT_STEPS, axis=1)
        flight, flight_sensors = self.simulator.run(released, hold)
        moving = np.arange(length) < steps[:, None]
        arm_cost = running_sum(np.where(moving, self._squared_torque(sensors), 0.0))
        cost = (arm_cost + running_sum(self._squared_torque(flight_sensors))) / (steps + FLIGHT_STEPS)
        failed = diverged(released, steps * self.dt_s, self.dt_s)
        failed |= diverged(flight[:, -1], (steps + FLIGHT_STEPS) * self.dt_s, self.dt_s)
        return _Throws(flight, flight_sensors, cost, arm, sensors, failed, steps + FLIGHT_STEPS)

    def _squared_torque(self, sensors: Array) -> Array:
        first = self.model.sensor("torque_1").adr[0]
        torque = sensors[..., first : first + JOINTS]
        return np.einsum("ntj,ntj->nt", torque, torque)

    def _score(self, contexts: Array, throws: _Throws) -> Outcome:
        axis = contexts + scenes.CUP_AXIS_OFFSET
        ball, final = throws.flight[:, :, BALL], throws.flight[:, -1, BALL]
        top, bottom = (np.column_stack([axis, np.full(len(axis), z)]) for z in (_CUP_GOAL_Z, scenes.CUP_FLOOR))
        held = self.simulator.sensor(throws.arm_sensors, "release_pos")
        moving = np.arange(held.shape[1]) <= (throws.steps - FLIGHT_STEPS)[:, None]
        held_sq = np.where(moving, ((held - top[:, None]) ** 2).sum(axis=2), np.inf).min(axis=1)
        gap = ball - top[:, None]
        least_sq = np.minimum(held_sq, np.einsum("nti,nti->nt", gap, gap).min(axis=1))
        final_sq = ((final - bottom) ** 2).sum(axis=1)
        names = ("table", "wall", "cup_bottom")
        touch = {name: self.simulator.sensor(throws.sensors, f"ball_{name}") > 0 for name in names}
        in_cup = touch["cup_bottom"].any(axis=1) & (final[:, 2] < scenes.CUP_TOP)
        in_cup &= ((final[:, :2] - axis) ** 2).sum(axis=1) < self.cup_radius**2
        missed = -2.0 - 2.0 * ~touch["table"].any(axis=1) - least_sq - 0.5 * final_sq - 1e-4 * throws.torque_cost
        returns = np.where(in_cup, -final_sq - 1.5e-4 * throws.torque_cost, missed)
        arrival = first_true(touch["cup_bottom"])
        before = np.arange(FLIGHT_STEPS) < arrival[:, None]
        bounces = {name: rising_edges(touch[name]) & before for name in ("table", "wall")}
        in_cup &= ~throws.diverged
        modes = [_mode(*pair) for pair in zip(bounces["table"], bounces["wall"], strict=True)]
        info = {
            "in_cup": in_cup,
            "diverged": throws.diverged,
            "mode": np.array(modes, dtype="U24"),
            "table_bounces": bounces["table"].sum(axis=1),
            "wall_bounces": bounces["wall"].sum(axis=1),
            "arm_hits_table": (self.simulator.sensor(throws.sensors, "arm_table") > 0).any(axis=1),
            "final_distance": np.sqrt(final_sq),
            "torque": throws.torque_cost,
            "steps": throws.steps,
            "path": ball[:, ::_PATH_STRIDE].reshape(len(ball), 3 * FLIGHT_STEPS // _PATH_STRIDE) / PATH_UNIT,
        }
        return Outcome(np.where(throws.diverged, self.penalty, returns), in_cup, info)


def _mode(table: BoolArray, wall: BoolArray) -> str:
    """The order of the first bounces, such as "direct", "table" or "table-wall"."""
    events = sorted([(t, "table") for t in np.flatnonzero(table)] + [(t, "wall") for t in np.flatnonzero(wall)])
    return "-".join(name for _, name in events[:4]) or "direct"
