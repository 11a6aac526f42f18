"""What a library does in one context, to be looked at: its skills, and their motions over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svsl.errors import SvslError
from svsl.evaluation.metrics import ACTIVE_PROBABILITY
from svsl.model.gaussians import Array, BoolArray
from svsl.model.library import SkillLibrary
from svsl.tasks.base import Outcome, Task, finite_outcome, run_episodes, uniform_contexts
from svsl.tasks.planar_reacher import PlanarReacher
from svsl.tasks.simulated import SimulatedTask, Trajectory

SWEEP_S, SWEEP_DT_S = 1.5, 0.02
_AFTERWARDS_S = 0.5  # shown after the ball has come to rest or the episode is decided
_REST_DISTANCE = 0.01


@dataclass(frozen=True)
class PlayableSkill:
    """The mean of one component in one context, and what became of it.

    Attributes:
        component: Its number.
        probability: `pi(o|c)`.
        parameters: `(dt,)`.
        returned: The return of the episode.
        success: Whether it solved the task.
        mode: The task's name for the kind of behaviour; empty if it has none.
    """

    component: int
    probability: float
    parameters: Array
    returned: float
    success: bool
    mode: str

    @property
    def caption(self) -> str:
        """All of it in one line."""
        words = [f"component {self.component}", *filter(None, [self.mode]), f"return {self.returned:.2f}"]
        return " · ".join([*words, "solved" if self.success else "fails"])


@dataclass(frozen=True)
class Motion:
    """An episode over time.

    Attributes:
        dt_s: Time between poses.
        poses: `(steps, ...)`, what moves: MuJoCo states, or the joints `(steps, 11, 2)` of the planar arm.
        trail: `(steps, 3)`, the ball, or the tip of the planar arm.
        trail_start: Step from which the trail is drawn.
        trajectory: The simulated episode that the poses were taken from, if it was simulated.
    """

    dt_s: float
    poses: Array
    trail: Array
    trail_start: int
    trajectory: Trajectory | None = None

    @property
    def duration_s(self) -> float:
        """Time from the first pose to the last."""
        return self.dt_s * (len(self.poses) - 1)

    @property
    def outline(self) -> Array:
        """What is left to see at the end, `(n, 3)`: the path of the ball, or the posture of the planar arm."""
        if self.trajectory is None:
            return in_plane(self.poses[-1])
        return self.trail[self.trail_start :]

    @property
    def turning_step(self) -> int:
        """The release of the ball, or the moment when it comes no farther in the direction it started in."""
        if self.trail_start or len(self.trail) < 2:
            return self.trail_start
        return int(((self.trail - self.trail[0]) @ (self.trail[1] - self.trail[0])).argmax())

    def step_at(self, time_s: float) -> int:
        """The step at a time; the first or last one outside."""
        return int(np.clip(round(time_s / self.dt_s), 0, len(self.poses) - 1))


def skills_at(
    library: SkillLibrary, task: Task, context: Array, rng: np.random.Generator, components: Sequence[int] | None = None
) -> list[PlayableSkill]:
    """The skills of the given components, or of all with a gating probability of at least 0.01, most probable first."""
    gating = library.gating(context)
    if components is None:
        chosen = np.flatnonzero(gating >= min(ACTIVE_PROBABILITY, gating.max()))  # hundreds may share a context
        chosen = chosen[np.argsort(-gating[chosen], kind="stable")]
    else:
        chosen = np.asarray(components, dtype=np.intp)
    contexts = np.repeat(context[None], len(chosen), axis=0)
    parameters = library.mean(contexts, chosen)
    outcome = _outcome(task, contexts, parameters, rng)
    modes = outcome.info.get("mode")
    return [
        PlayableSkill(
            component=int(k),
            probability=float(gating[k]),
            parameters=parameters[row],
            returned=float(outcome.returns[row]),
            success=bool(outcome.success[row]),
            mode="" if modes is None else str(modes[row]),
        )
        for row, k in enumerate(chosen)
    ]


def versatile_context(
    library: SkillLibrary, task: Task, rng: np.random.Generator, tries: int = 60
) -> tuple[Array, list[PlayableSkill]]:
    """Among random contexts, the one solved in most modes and then by most components, and its skills.

    The skills that succeed come first, one of each mode before others of the same.
    """
    best, chosen = (-1, -1), (np.empty(0), list[PlayableSkill]())
    for context in uniform_contexts(task, tries, rng):
        skills = skills_at(library, task, context, rng)
        modes = Counter[str]()
        order = dict[int, tuple[bool, int]]()
        for skill in skills:
            order[skill.component] = (not skill.success, modes[skill.mode])
            modes[skill.mode] += skill.success
        score = (sum(count > 0 for count in modes.values()), modes.total())
        if score > best:
            best, chosen = score, (context, sorted(skills, key=lambda skill: order[skill.component]))
    return chosen


def draws_around(
    library: SkillLibrary, task: Task, context: Array, component: int, count: int, rng: np.random.Generator
) -> tuple[Array, Array, BoolArray]:
    """Parameters drawn from a component's expert `(n, dt)`, their returns `(n,)` and successes `(n,)`."""
    contexts = np.repeat(context[None], count, axis=0)
    parameters = library.mixture.sample_parameters(contexts, np.full(count, component, dtype=np.intp), rng)
    outcome = _outcome(task, contexts, parameters, rng)
    return parameters, outcome.returns, outcome.success


def _outcome(task: Task, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
    outcome = run_episodes(task, contexts, parameters, rng, described=True)
    return finite_outcome(outcome, getattr(task, "penalty", None))


def has_motion(task: Task) -> bool:
    """Whether `motion` knows how the task moves."""
    return isinstance(task, (SimulatedTask, PlanarReacher))


def motion(task: Task, context: Array, parameters: Array) -> Motion:
    """How an episode looks over time.

    Raises:
        SvslError: If the task can only be scored, not watched.
    """
    if isinstance(task, SimulatedTask):
        return _simulated(task, context, parameters)
    if isinstance(task, PlanarReacher):
        return _sweep(task, parameters)
    raise SvslError(f"a {type(task).__name__} has no motion to show: only simulated tasks and the planar reacher have")


def _simulated(task: SimulatedTask, context: Array, parameters: Array) -> Motion:
    path = task.trajectory(context, parameters)
    end = len(path.states)
    steps = task.evaluate_batch(context[None], parameters[None]).info.get("steps")  # of tasks that end early
    if steps is not None:
        away = np.flatnonzero(np.linalg.norm(path.ball - path.ball[-1], axis=1) > _REST_DISTANCE)
        rest = int(away[-1]) if len(away) else 0
        end = min(end, min(rest, int(steps[0])) + round(_AFTERWARDS_S / path.dt_s))
    return Motion(path.dt_s, path.states[:end], path.ball[:end], max(path.release - 1, 0), path)


def _sweep(task: PlanarReacher, parameters: Array) -> Motion:
    """An episode is a posture: the arm goes there from straight, all joints alike, slow at both ends."""
    share = np.linspace(0, 1, round(SWEEP_S / SWEEP_DT_S) + 1)
    smooth = share * share * (3 - 2 * share)
    joints = task.joints(smooth[:, None] * parameters)
    return Motion(SWEEP_DT_S, joints, in_plane(joints[:, -1]), 0)


def in_plane(points: Array) -> Array:
    """Points `(n, 2)` of the planar arm in space: `(n, 3)`."""
    return np.column_stack([points, np.zeros(len(points))])
