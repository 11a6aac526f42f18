"""Training of an episodic learner: runs the episodes it proposes, repairs and counts their returns."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from svsl.errors import SvslError
from svsl.evaluation.metrics import diagnostics, execute, mixture_entropy, repertoire, several_kinds, ways
from svsl.learners.base import Arrays, Counters, Learner, Progress, SearchSpace, add_prefix, strip_prefix
from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.model.random import TASK_STREAM, TEST_STREAM, rng_from_array, rng_to_array, stream
from svsl.model.version import __version__
from svsl.tasks.base import LARGEST_RETURN, Task, run_episodes


class TaskError(SvslError):
    """An error in the code of a task: training can continue from its checkpoint once the task is fixed."""


class EpisodicTraining:
    """An episodic learner at work on a task; see `svsl.learners.base.Training` for the contract."""

    def __init__(self, learner: Learner, task: Task, seed: int) -> None:
        self.learner, self.task, self.seed = learner, task, seed
        self.task_rng = stream(seed, TASK_STREAM)
        penalty = getattr(task, "penalty", None)
        self.penalty = None if penalty is None else float(penalty)
        self.episodes, self.simulated, self.nonfinite = 0, 0, 0
        self.flagged: dict[str, int] = {}
        self.worst_return = np.inf

    @property
    def diverged(self) -> int:
        """Episodes whose simulation diverged."""
        return self.flagged.get("diverged", 0)

    @property
    def done(self) -> bool:
        """Whether training is over."""
        return self.learner.done

    @property
    def milestone(self) -> int:
        """Number of points worth a test that training has passed."""
        return self.learner.milestone

    @property
    def progress(self) -> Progress:
        """Progress of training."""
        return self.learner.progress

    def advance(self) -> None:
        """Runs one batch of episodes and learns from it."""
        episodes = self.learner.ask()
        if not len(episodes.contexts):  # the last contexts were all outside the box, and the learner is done
            return
        with _task_errors():
            outcome = run_episodes(
                self.task, episodes.contexts, episodes.parameters, self.task_rng, described=episodes.described
            )
        returns = outcome.returns
        self.episodes += len(returns)
        simulated = outcome.info.get("simulated")
        self.simulated += len(returns) if simulated is None else int(np.count_nonzero(simulated))
        for name, flags in outcome.info.items():
            if name == "diverged" or name.startswith("invalid_"):
                self.flagged[name] = self.flagged.get(name, 0) + int(np.count_nonzero(flags))
        behaviours = outcome.info.get("path") if episodes.described else None
        self.learner.tell(self.finite(returns), None if behaviours is None else behaviours.astype(np.float64))

    def finite(self, returns: Array) -> Array:
        """Counts NaN and infinite returns, and replaces them by the task's penalty.

        Without a penalty such episodes are lost (NaN), and the learner does without them. If most of a batch is lost,
        the reason is probably what was tried, and they count as the worst return so far.
        """
        finite = np.isfinite(returns)
        if finite.any():
            self.worst_return = min(self.worst_return, float(returns[finite].min()))
        if finite.all():
            return returns
        self.nonfinite += int((~finite).sum())
        most = 2 * np.count_nonzero(finite) < len(finite)
        replacement = self.penalty if self.penalty is not None else self.worst_return
        if not abs(replacement) <= LARGEST_RETURN:
            raise SvslError(
                f"{type(self.task).__name__}: all of its first {len(returns)} returns are NaN, infinite or beyond "
                f"{LARGEST_RETURN:g}, so there is nothing to learn from; run svsl check-task for details, or give the "
                "task a finite `penalty`"
            )
        return np.where(finite, returns, replacement if most or self.penalty is not None else np.nan)

    def measure(self, contexts: int) -> dict[str, float] | None:
        """Tests the components trained so far on new contexts."""
        mixture = self.learner.mixture()
        if mixture is None:
            return None
        rng = stream(self.seed, TEST_STREAM, self.milestone)
        with _task_errors():
            result = execute(mixture, self.task, contexts, rng)
            kinds = {}
            if "mode" in result.mean.info or hasattr(self.task, "describe"):  # else no episodes for nothing
                own_rng = stream(self.seed, TEST_STREAM, self.milestone, 1)
                # improbable components would change little and cost most of the episodes
                behaviours = repertoire(mixture, self.task, result.contexts[:50], own_rng, min_gating=1e-4)
                kinds = {"ways": ways(behaviours), "two_kinds": several_kinds(behaviours, 2)}
        progress = self.progress
        return {
            **diagnostics(result.mean),
            "episodes": self.episodes,
            "episodes_simulated": self.simulated,
            "milestone": self.milestone,
            "components": len(mixture),
            "return_mean": float(result.mean.returns.mean()),
            "success_rate": float(result.mean.success.mean()),
            "return_sampled": float(result.sampled.returns.mean()),
            "mixture_entropy": float(mixture_entropy(mixture, result.contexts[:50], 100, rng).mean()),
            **{name: float(values.mean()) for name, values in kinds.items() if values is not None},
            "recent_return": progress.recent_return,
            **progress.counts,
            "nonfinite_returns": self.nonfinite,
            **self.flagged,
        }

    def state(self) -> tuple[Arrays, Counters]:
        """Returns the arrays and counters that `restore` needs."""
        arrays = add_prefix("learner.", self.learner.state()) | {"task_rng": rng_to_array(self.task_rng)}
        names = ("episodes", "simulated", "nonfinite", "flagged", "worst_return")
        return arrays, {name: getattr(self, name) for name in names}

    def restore(self, arrays: Arrays, counters: Mapping[str, Any]) -> None:
        """Continues from a `state`."""
        self.learner.restore(strip_prefix("learner.", arrays))
        self.task_rng = rng_from_array(arrays["task_rng"].astype(np.uint64))
        self.episodes, self.simulated = int(counters["episodes"]), int(counters["simulated"])
        self.nonfinite, self.flagged = int(counters["nonfinite"]), dict(counters["flagged"])
        self.worst_return = float(counters["worst_return"])

    def library(self, origin: Mapping[str, object]) -> SkillLibrary | None:
        """Returns the components trained so far as a library; None before the first is finished."""
        mixture = self.learner.mixture()
        if mixture is None:
            return None
        metadata = {
            "task": str(origin["task"]),
            "task_options": json.dumps(origin["task_options"]),
            "learner": str(origin["learner"]),
            "seed": str(origin["seed"]),
            "episodes": str(self.episodes),
            "episodes_simulated": str(self.simulated),
            "svsl": __version__,
            "config": str(origin["config"]),
        }
        space = SearchSpace.of(self.task)
        return SkillLibrary(mixture, space.context_low, space.context_high, metadata)

    def save(self, path: Path, origin: Mapping[str, object]) -> None:
        """Writes the library."""
        library = self.library(origin)
        assert library is not None
        library.save(path)


@contextmanager
def _task_errors() -> Iterator[None]:
    """Marks errors in the code of a task."""
    try:
        yield
    except SvslError as error:
        raise TaskError(str(error)) from error
