"""The configuration of a run: task, learner, settings and seed, as one value that is written to the run folder."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any, Self

from svsl.errors import SvslError
from svsl.learners.base import LearnerConfig, SearchSpace, Training
from svsl.learners.registry import find_learner, find_preset, make_training
from svsl.model.files import parse_json
from svsl.model.library import SkillLibrary
from svsl.model.version import __version__
from svsl.runs.arguments import plain_settings, require_count, require_name, require_task, require_types
from svsl.tasks.base import Task
from svsl.tasks.check import check_attributes
from svsl.tasks.registry import REGISTRY, default_options, make_task

FORMAT = 1
_TYPES = {  # in a file
    "task": str, "task_options": dict, "learner": str, "settings": dict, "seed": int, "test_contexts": int,
    "extends": str | None, "freeze": bool,
}  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run computes.

    Attributes:
        task: Name of the task.
        task_options: Options of the task, as JSON values with tuples for lists.
        learner: Name of the learner.
        settings: Settings of the learner.
        seed: Seed of all randomness.
        test_contexts: New contexts per test.
        extends: Source of the library to which the run adds components; the run folder holds a copy of that library.
        freeze: Learn only the weights of the components of that library.
    """

    task: str
    task_options: Mapping[str, object]
    learner: str
    settings: LearnerConfig
    seed: int
    test_contexts: int = 500
    extends: str | None = None
    freeze: bool = False

    def __post_init__(self) -> None:
        require_count("seed", self.seed)
        require_count("test_contexts", self.test_contexts, least=1)
        object.__setattr__(self, "task_options", _json_options(self.task_options))

    @property
    def step_based(self) -> bool:
        """Whether the learner acts step by step and learns a policy instead of a skill library."""
        return self.product == "policy"

    @property
    def product(self) -> str:
        """The result of training: `library` or `policy`."""
        return find_learner(self.learner).product

    def make_task(self, workers: int | None = None) -> Task:
        """Creates the run's task.

        Args:
            workers: Threads or processes of a simulated task (default: all cores, 0: none besides this process).
        """
        task = make_task(self.task, **self.task_options)
        use_workers(task, workers)
        return task

    def make_training(self, task: Task, base: SkillLibrary | None = None, workers: int | None = None) -> Training:
        """Creates the run's learner on its task, at the start.

        Args:
            task: The task.
            base: The library to which the run adds components, if it extends one.
            workers: Simulation threads of a step-based learner (default: all cores, 0: none besides this one).
        """
        assert (base is None) == (self.extends is None)
        if base is not None:
            require_fit(base, task, self.task)
        mixture = None if base is None else base.mixture
        return make_training(self.learner, self.settings, task, self.seed, workers, mixture, self.freeze)

    def check(self, task: Task | None = None, base: SkillLibrary | None = None) -> None:
        """Rejects a configuration that cannot be trained: task, learner, settings or base do not fit together."""
        task = task or self.make_task()
        errors = [finding.text for finding in check_attributes(task) if finding.verdict == "error"]
        if errors:
            raise SvslError(f"task {self.task!r}: {errors[0]}")
        self.make_training(task, base)

    def planned_episodes(self, task: Task | None = None) -> int:
        """Returns the episodes the run asks for; a learner may need fewer if it deletes components."""
        return self.settings.planned_episodes(SearchSpace.of(task or self.make_task()))

    def differences(self, expected: Self) -> list[str]:
        """Returns what differs from the expected configuration, one item per value; empty if nothing does."""
        ours, theirs = _flat(self), _flat(expected)
        if self.learner != expected.learner:  # settings of two learners cannot be compared
            ours, theirs = ({n: v for n, v in flat.items() if n[:9] != "settings."} for flat in (ours, theirs))
        names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        return [f"{name} {ours.get(name)} instead of {theirs.get(name)}" for name in names]

    def to_json(self) -> str:
        """Returns the configuration as JSON text."""
        return json.dumps({"format": FORMAT, "svsl": __version__, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads the output of `to_json`, also of older versions."""
        data = parse_json(text)
        if not isinstance(data, dict):
            raise SvslError("expected a JSON object")
        required = ["format", "svsl", *(f.name for f in fields(cls) if f.default is MISSING)]
        missing = [name for name in required if name not in data]
        if missing:
            raise SvslError(f"{missing[0]} is missing")
        require_types(_TYPES, data)
        kind = find_learner(data["learner"]).config
        settings = {**kind.added, **_new_names(kind, _tuples(data["settings"]))}
        unknown = set(settings) - {f.name for f in fields(kind)}
        if data["format"] != FORMAT or unknown:
            problem = f"unknown setting {min(unknown)}" if unknown else f"unknown format {data['format']}"
            raise SvslError(f"{problem}; written by svsl {data['svsl']}, this is svsl {__version__}")
        own: dict[str, Any] = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        return cls(**own | {"settings": kind(**plain_settings(kind, settings))})


def make_config(
    task: str | Task | SearchSpace,
    learner: str = "svsl",
    preset: str | None = None,
    task_options: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
    seed: int = 0,
    test_contexts: int = 500,
) -> RunConfig:
    """Builds a configuration: a preset with some options and settings changed.

    Args:
        task: Name of the task, or a task object, which already has its options, or only its search space.
        learner: Name of the learner.
        preset: Name of the preset; default the task's first that agrees with the options.
        task_options: Changed options of the task.
        settings: Changed settings of the learner.
        seed: Seed of all randomness.
        test_contexts: New contexts per test.
    """
    require_task(task)
    require_name("learner", learner)
    if task_options is not None and not isinstance(task_options, Mapping):
        raise SvslError(f"task_options: expected a dictionary of options by name, got {task_options!r}")
    name, given_options = task if isinstance(task, str) else name_of(task), task_options or {}
    if not isinstance(task, str) and given_options:
        raise SvslError("task_options: a task object already has its options; leave them out")
    chosen = find_preset(name, learner, preset, given_options)
    changed = _new_names(type(chosen.settings), _tuples(dict(settings or {})))
    known = [f.name for f in fields(chosen.settings)]
    for unknown in [setting for setting in changed if setting not in known]:
        close_matches = difflib.get_close_matches(unknown, known, n=1)
        hint = f"did you mean {close_matches[0]}?" if close_matches else f"its settings: {', '.join(sorted(known))}"
        raise SvslError(f"{learner} has no setting {unknown!r}; {hint}")
    options: dict[str, object] = {}
    if isinstance(task, str):
        options = {**default_options(name), **chosen.task_options, **given_options}
    new_settings = replace(chosen.settings, **plain_settings(type(chosen.settings), changed))
    return RunConfig(name, options, learner, new_settings, require_count("seed", seed), test_contexts)


def name_of(task: Task | SearchSpace) -> str:
    """Returns the name of a task object: where its class is, from which commands can create it without options."""
    place = f"{type(task).__module__}:{type(task).__qualname__}"
    return next((name for name, path in REGISTRY.items() if path == place), place)


def use_workers(task: Task, workers: int | None) -> None:
    """Sets the threads or processes of a task that has several (0: none besides this process; None: no change)."""
    if workers is not None and hasattr(task, "workers"):
        task.workers = workers


def require_fit(library: SkillLibrary, task: Task, name: str) -> None:
    """Rejects a library that has other context dimensions or parameters than the task called `name`."""
    got, expected = (library.context_dim, library.parameter_dim), (len(task.context_low), len(task.initial_mean))
    if got != expected:
        raise SvslError(
            f"a library of {got[0]} context dimensions and {got[1]} parameters, but the task {name!r} with its options "
            f"has {expected[0]} and {expected[1]} now; use the task it was trained on, or train again"
        )


def _json_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Returns task options as they come back from JSON, with tuples for lists: a run must recognise its own file."""
    plain = {}
    for name, value in options.items():
        try:
            plain[name] = _tuples(json.loads(json.dumps(value)))
        except TypeError:
            raise SvslError(f"task option {name}: expected a JSON value, got a {type(value).__name__}") from None
    return plain


def _tuples(value: Any) -> Any:
    """Replaces lists by tuples, also inside dictionaries and lists."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _new_names(kind: type[LearnerConfig], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings under their current names."""
    return {kind.old_names.get(name, name): value for name, value in settings.items()}


def _flat(config: RunConfig) -> dict[str, object]:
    """Returns every value of a configuration, nested ones as `settings.alpha`."""
    flat: dict[str, object] = {}
    for name, value in asdict(config).items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat
