"""What a library does in one context: its skills, their outcomes and their motions over time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svsl.evaluation.metrics import run_finite
from svsl.model.gaussians import Array, BoolArray
from svsl.model.library import SkillLibrary
from svsl.model.mixture import is_active
from svsl.tasks.base import Task, uniform_contexts
from svsl.tasks.presentation import Motion, PlanarScene, Scene, showable

_CONTEXTS_TRIED = 60


@dataclass(frozen=True)
class PlayableSkill:
    """The mean of one component in one context, and its outcome."""

    component: int
    probability: float  # pi(o|c)
    parameters: Array  # (dt,)
    returned: float
    success: bool
    mode: str  # the task's name for the kind of behaviour; empty if it names none

    @property
    def caption(self) -> str:
        """One line about the skill."""
        words = [f"component {self.component}", *filter(None, [self.mode]), f"return {self.returned:.2f}"]
        return " · ".join([*words, "solved" if self.success else "fails"])


def skills_at(
    library: SkillLibrary, task: Task, context: Array, rng: np.random.Generator, components: Sequence[int] | None = None
) -> list[PlayableSkill]:
    """Returns the skills of the given components, or of all that are active in the context, most probable first."""
    gating = library.gating(context, outside="extrapolate")
    if components is None:
        chosen = np.flatnonzero(is_active(gating))
        chosen = chosen[np.argsort(-gating[chosen], kind="stable")]
    else:
        chosen = np.asarray(components, dtype=np.intp)
    contexts = np.repeat(context[None], len(chosen), axis=0)
    parameters = library.mean(contexts, chosen, outside="extrapolate")
    outcome = run_finite(task, contexts, parameters, rng, described=True)
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


def versatile_context(library: SkillLibrary, task: Task, rng: np.random.Generator) -> tuple[Array, list[PlayableSkill]]:
    """Returns the random context that is solved in most modes, then by most components, and its skills.

    The successful skills come first, one of each mode before others of the same mode.
    """
    best, chosen = (-1, -1), (np.empty(0), list[PlayableSkill]())
    for context in uniform_contexts(task, _CONTEXTS_TRIED, rng):
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
    """Returns parameters drawn from a component's expert `(n, dt)`, their returns `(n,)` and successes `(n,)`."""
    contexts = np.repeat(context[None], count, axis=0)
    parameters = library.mixture.sample_parameters(contexts, np.full(count, component, dtype=np.intp), rng)
    outcome = run_finite(task, contexts, parameters, rng, described=True)
    return parameters, outcome.returns, outcome.success


def trimmed_motion(task: Task, context: Array, parameters: Array) -> Motion:
    """Returns an episode over time, until shortly after it is decided or nothing moves any more."""
    return showable(task).motion(context, parameters).trimmed()


def outline(scene: Scene, motion: Motion) -> Array:
    """Returns the line `(n, 3)` that a motion leaves behind: the path of the ball, or the last posture in the plane."""
    return in_space(motion.poses[-1]) if isinstance(scene, PlanarScene) else motion.trail[motion.trail_start :]


def in_space(points: Array) -> Array:
    """Returns points of the plane `(n, 2)` as points in space `(n, 3)`."""
    return np.column_stack([points, np.zeros(len(points))])
