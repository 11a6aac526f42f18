"""What a run computes: task, learner, settings and seed, as one value that is written to the run folder."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svsl.errors import SvslError
from svsl.learners.base import Learner, SearchSpace
from svsl.learners.registry import STEP_LEARNERS, LearnerConfig, config_type, find_preset, make_learner
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.model.random import stream
from svsl.model.version import __version__
from svsl.tasks.base import Task
from svsl.tasks.check import check_attributes
from svsl.tasks.registry import default_options, make_task

FORMAT = 1
# independent randomness under one seed
LEARNER_STREAM, TASK_STREAM, TEST_STREAM, EVAL_STREAM, PLOT_STREAM, PRUNE_STREAM = range(6)


@dataclass(frozen=True)
class RunConfig:
    """All that decides what a run computes.

    `extends` says where the library came from to which the run adds components (the run folder holds a copy of it), and
    `freeze` that only the weights of those it had are learned.
    """

    task: str
    task_options: Mapping[str, object]
    learner: str
    settings: LearnerConfig
    seed: int
    test_contexts: int = 500
    extends: str | None = None
    freeze: bool = False

    def make_task(self, workers: int | None = None) -> Task:
        """The run's task, on so many threads if it simulates on several (all cores unless told)."""
        task = make_task(self.task, **self.task_options)
        if workers is not None and hasattr(task, "workers"):
            task.workers = workers
        return task

    def make_learner(self, task: Task, base: SkillLibrary | None = None) -> Learner:
        """The run's learner, at its start: for a run that extends a library, `base` is that library.

        Raises:
            SvslError: If the settings or the base do not fit the task.
        """
        space = SearchSpace(
            *(vector(getattr(task, name)) for name in ("context_low", "context_high", "initial_mean", "initial_cov"))
        )
        assert (base is None) == (self.extends is None)
        if base is None:
            return make_learner(self.learner, self.settings, space, stream(self.seed, LEARNER_STREAM))
        assert isinstance(self.settings, SVSLConfig)
        require_fit(base, task, self.task)
        # not the stream of the run it extends: its components would start in the same places again
        rng = stream(self.seed, LEARNER_STREAM, len(base))
        return SVSL(self.settings, space, rng, base.mixture, self.freeze)

    @property
    def step_based(self) -> bool:
        """Whether the learner acts step by step and learns a policy instead of a skill library."""
        return self.learner in STEP_LEARNERS

    def check(self, task: Task | None = None) -> None:
        """Refuses what cannot be trained, on the run's task unless another object is given.

        Raises:
            SvslError: If task, learner and settings do not go together, or an extra is not installed.
        """
        task = task or self.make_task()
        wrong = [finding.text for finding in check_attributes(task) if finding.verdict == "error"]
        if wrong:
            raise SvslError(f"task {self.task!r}: {wrong[0]}")
        if self.step_based:
            import_ppo().step_form(task, 1)
        else:
            self.make_learner(task)

    def to_json(self) -> str:
        """The configuration as JSON text."""
        return json.dumps({"format": FORMAT, "svsl": __version__, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Reads what `to_json` wrote."""
        data = json.loads(text)
        settings = config_type(data["learner"])
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data["settings"].items()}
        unknown = set(values) - {f.name for f in fields(settings)}
        if data["format"] != FORMAT or unknown:
            raise SvslError(f"written by svsl {data['svsl']}, which this svsl {__version__} cannot continue")
        own: dict[str, Any] = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        return cls(**own | {"settings": settings(**values)})


def preset_config(
    task: str,
    learner: str,
    preset: str | None,
    task_options: Mapping[str, object],
    settings: Mapping[str, Any],
    seed: int = 0,
    complete: bool = True,
) -> RunConfig:
    """A preset with some options and settings changed.

    Args:
        task: Its name.
        learner: The method's name.
        preset: Its name; default the task's first.
        task_options: Changed options of the task.
        settings: Changed settings of the learner.
        seed: The run's.
        complete: Write down all options of the task, not only those that are told.

    Raises:
        SvslError: If the task, the learner, the preset or a setting is not there.
    """
    found = find_preset(task, learner, preset, task_options)
    known = {f.name for f in fields(found.settings)}
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"its settings: {', '.join(sorted(known))}"
            raise SvslError(f"{learner} has no setting {name!r}; {hint}")
    options: dict[str, object] = {}
    if complete:
        options = {**default_options(task), **found.task_options, **task_options}
    values: Any = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}
    return RunConfig(task, options, learner, replace(found.settings, **values), seed)


def require_fit(library: SkillLibrary, task: Task, name: str) -> None:
    """Refuses a library that is of another task than the one called `name`.

    Raises:
        SvslError: If it has not as many context dimensions and parameters.
    """
    got, wanted = (library.context_dim, library.parameter_dim), (len(task.context_low), len(task.initial_mean))
    if got != wanted:
        raise SvslError(
            f"a library of {got[0]} context dimensions and {got[1]} parameters, but the task {name!r} with its options "
            f"has {wanted[0]} and {wanted[1]} now; take the task it was trained on, or train again"
        )


def changes(old: Mapping[str, Any], new: Mapping[str, Any], above: str = "") -> list[str]:
    """In what two configurations differ, as far as the old one tells; not in the svsl that wrote them."""
    changed: list[str] = []
    for name in sorted(set(old) & set(new) - {"svsl"}):
        if isinstance(old[name], Mapping) and isinstance(new[name], Mapping):
            changed += changes(old[name], new[name], f"{name}.")
        elif old[name] != new[name]:
            changed.append(f"{above}{name} from {old[name]} to {new[name]}")
    return changed


def import_ppo() -> ModuleType:
    """The module `svsl.learners.ppo.trainer`, the only one that needs PyTorch.

    Raises:
        SvslError: If the extra is not installed.
    """
    try:
        return import_module("svsl.learners.ppo.trainer")
    except ModuleNotFoundError as error:
        raise SvslError(f"PPO needs {error.name}: pip install 'svsl[ppo]'") from None


def vector(values: ArrayLike) -> Array:
    """A copy of the values as floats."""
    return np.array(values, dtype=np.float64)
