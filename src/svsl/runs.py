"""The run folder: configuration, metrics, checkpoint, library, figures. Every file is there whole or not at all."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svsl import __version__
from svsl.errors import SvslError
from svsl.files import folder_lock, read_safetensors, remove_leftovers, write_bytes, write_safetensors
from svsl.gaussians import Array
from svsl.learners.base import Arrays, Learner, SearchSpace, below
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.library import SkillLibrary
from svsl.presets import STEP_LEARNERS, LearnerConfig, config_type, find_preset, make_learner
from svsl.pretrained import load_pretrained, pretrained_names
from svsl.random import stream
from svsl.task_check import check_attributes
from svsl.tasks import Task, default_options, make_task

FORMAT = 1
# independent randomness under one seed
LEARNER_STREAM, TASK_STREAM, TEST_STREAM, EVAL_STREAM, PLOT_STREAM, PRUNE_STREAM = range(6)

MetricsRow = dict[str, Any]  # names to numbers, None for one that is not finite


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
            *(_vector(getattr(task, name)) for name in ("context_low", "context_high", "initial_mean", "initial_cov"))
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


class Run:
    """A run on disk.

    Files: `config.json`, `metrics.jsonl` (one row per evaluation), `checkpoint.safetensors` (all a resume needs),
    `library.safetensors`, or `policy.safetensors` of a step-based learner (written last: the run is finished),
    `evaluation.json` (numbers of what was learned), `figures/`, `tensorboard/`; of a run that extends a library also
    `base.safetensors`, that library.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.config = folder, config
        self.metrics_path, self.figures = folder / "metrics.jsonl", folder / "figures"
        self.checkpoint_path, self.library_path = folder / "checkpoint.safetensors", folder / "library.safetensors"
        self.base_path = folder / "base.safetensors"
        self.product_path = folder / "policy.safetensors" if config.step_based else self.library_path

    @classmethod
    def create(cls, folder: Path, config: RunConfig, overwrite: bool = False, base: SkillLibrary | None = None) -> Run:
        """Starts a run folder; `base` is the library it extends, if it does.

        Raises:
            SvslError: If something is there that must not be lost.
        """
        run = cls(folder, config)
        if (folder / "config.json").exists():
            if not overwrite:
                state = "a finished run" if run.finished else "an unfinished run (svsl resume continues it)"
                raise SvslError(f"{folder} holds {state}; choose another --out, or --overwrite to replace it")
            with run.lock():
                run._delete()
        elif folder.exists() and (not folder.is_dir() or any(map(run._foreign, folder.iterdir()))):
            raise SvslError(f"{folder} exists and is no run folder; choose another --out")
        if base is not None:
            base.save(run.base_path)
        write_bytes(folder / "config.json", config.to_json().encode())
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Opens an existing run.

        Raises:
            SvslError: If the folder holds none or its configuration cannot be read.
        """
        path = folder / "config.json"
        if not path.is_file():
            raise SvslError(f"{folder} is no run folder (it has no config.json); svsl train makes one")
        try:
            return cls(folder, RunConfig.from_json(path.read_text()))
        except (SvslError, ValueError, KeyError, TypeError) as error:
            raise SvslError(f"{path}: not a readable configuration ({error})") from None

    @property
    def finished(self) -> bool:
        """Whether training is over and what it made is there."""
        return self.product_path.exists()

    def make_learner(self, task: Task) -> Learner:
        """The run's learner, at its start."""
        base = None if self.config.extends is None else SkillLibrary.load(self.base_path)
        return self.config.make_learner(task, base)

    def lock(self, wait_s: float = 0.0) -> contextlib.AbstractContextManager[None]:
        """Keeps a second process from training in the same folder."""
        return folder_lock(self.folder, f"{self.folder} is being trained by another process", wait_s)

    def save_checkpoint(self, arrays: Arrays, counters: Mapping[str, object]) -> None:
        """Replaces the checkpoint."""
        header = {"format": FORMAT, "counters": dict(counters), "config": self.config.to_json()}
        write_safetensors(self.checkpoint_path, arrays, header)

    def load_checkpoint(self) -> tuple[Arrays, dict[str, Any]] | None:
        """The checkpoint's arrays and counters, or None if there is none yet.

        Raises:
            SvslError: If it cannot be read, or the configuration is not the one it was written with.
        """
        if not self.checkpoint_path.exists():
            return None
        arrays, header = read_safetensors(self.checkpoint_path, "checkpoint")
        if header.get("format") != FORMAT:
            raise SvslError(f"{self.checkpoint_path}: not a checkpoint of this svsl ({__version__})")
        changed = _changes(json.loads(header.get("config", "{}")), json.loads(self.config.to_json()))
        if changed:
            raise SvslError(
                f"{self.folder / 'config.json'} was changed since the checkpoint ({'; '.join(changed)}); what a run "
                "computes cannot change on the way: undo it, or start a new run"
            )
        return arrays, header["counters"]

    def restore_learner(self, learner: Learner, arrays: Arrays) -> None:
        """Puts a fresh learner where the checkpoint was.

        Raises:
            SvslError: If the checkpoint does not belong to this configuration.
        """
        try:
            learner.restore(below(arrays, "learner."))
        except (KeyError, ValueError, IndexError) as error:
            raise SvslError(
                f"{self.checkpoint_path} does not fit the task {self.config.task} as it is now ({error!r})"
            ) from None

    def append_metrics(self, row: MetricsRow) -> None:
        """Adds a row to the metrics; it is on the disk before any checkpoint that counts it."""
        with open(self.metrics_path, "a") as file:
            file.write(json.dumps({k: v if np.isfinite(v) else None for k, v in row.items()}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> list[MetricsRow]:
        """All whole rows written so far."""
        if not self.metrics_path.exists():
            return []
        rows = []
        for line in self.metrics_path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # cut off, or what a power cut left
                rows.append(json.loads(line))
        return rows

    def truncate_metrics(self, rows: int) -> None:
        """Forgets rows written after the checkpoint that is being resumed, and half-written files."""
        kept = self.read_metrics()[:rows]
        write_bytes(self.metrics_path, "".join(json.dumps(row) + "\n" for row in kept).encode())
        for path in (self.metrics_path, self.checkpoint_path, self.product_path):
            remove_leftovers(path)

    def save_library(self, learner: Learner, task: Task, episodes: int, simulated: int) -> None:
        """Writes the library and thereby finishes the run."""
        self._library(learner, task, episodes, simulated).save(self.library_path)

    def load_library(self) -> SkillLibrary:
        """The finished library, or what the checkpoint of an unfinished run already knows.

        Raises:
            SvslError: If no component is trained yet, or the learner makes no library.
        """
        if self.config.step_based:
            raise SvslError(f"{self.folder} holds a policy of {self.config.learner}, not a skill library")
        if self.finished:
            return SkillLibrary.load(self.library_path)
        checkpoint = self.load_checkpoint()
        if checkpoint is not None:
            task = self.config.make_task()
            learner = self.make_learner(task)
            self.restore_learner(learner, checkpoint[0])
            if learner.mixture() is not None:
                counters = checkpoint[1]
                return self._library(learner, task, int(counters["episodes"]), int(counters["simulated"]))
        raise SvslError(f"{self.folder} has no trained component yet; svsl resume {self.folder} continues it")

    def _library(self, learner: Learner, task: Task, episodes: int, simulated: int) -> SkillLibrary:
        mixture = learner.mixture()
        assert mixture is not None
        config = self.config
        metadata = {
            "task": config.task,
            "task_options": json.dumps(dict(config.task_options)),
            "learner": config.learner,
            "seed": str(config.seed),
            "episodes": str(episodes),
            "episodes_simulated": str(simulated),
            "svsl": __version__,
            "config": config.to_json(),
        }
        return SkillLibrary(mixture, _vector(task.context_low), _vector(task.context_high), metadata)

    def _foreign(self, path: Path) -> bool:
        """Whether a file in a folder without configuration is somebody else's, not what a killed start left."""
        return not path.name.startswith(".") and path != self.base_path

    def _delete(self) -> None:
        """Removes a run's own files, the finishing mark first, and nothing else."""
        products = (self.library_path, self.folder / "policy.safetensors")
        for path in (*products, self.checkpoint_path, self.metrics_path, self.base_path):
            path.unlink(missing_ok=True)
        for name in ("evaluation.json", "log.txt", ".progress.json"):
            (self.folder / name).unlink(missing_ok=True)
        for folder in (self.figures, self.folder / "tensorboard"):
            if folder.exists():
                shutil.rmtree(folder)


def import_ppo() -> ModuleType:
    """The module `svsl.ppo`, the only one that needs PyTorch.

    Raises:
        SvslError: If the extra is not installed.
    """
    try:
        return import_module("svsl.ppo")
    except ModuleNotFoundError as error:
        raise SvslError(f"PPO needs {error.name}: pip install 'svsl[ppo]'") from None


def open_library(where: str) -> tuple[SkillLibrary, Run | None]:
    """The library of a run folder, of a file, or of a shipped name, and the run if there is one.

    Raises:
        SvslError: If there is nothing of the kind.
    """
    path = Path(where)
    if path.is_file():
        return SkillLibrary.load(path), None
    if not path.exists():
        if where in pretrained_names():
            return load_pretrained(where), None
        shipped = ", ".join(pretrained_names())
        raise SvslError(f"{where} is no run folder, no library file and no shipped library ({shipped})")
    run = Run.open(path)
    return run.load_library(), run


def config_of(library: SkillLibrary, run: Run | None = None) -> RunConfig:
    """The configuration a library was trained with; where neither its run nor its metadata tells, the task's preset.

    Raises:
        SvslError: If the library does not even name its task, or its configuration cannot be read.
    """
    told = library.metadata
    if run is not None:
        return run.config
    if "config" in told:
        try:
            return RunConfig.from_json(told["config"])
        except (SvslError, ValueError, KeyError, TypeError) as error:
            raise SvslError(f"the configuration in the library's metadata cannot be read ({error})") from None
    if "task" not in told:
        raise SvslError("the library's metadata names no task; metadata={'task': NAME} tells it when saving")
    options = json.loads(told.get("task_options", "{}"))
    return RunConfig(told["task"], options, "svsl", find_preset(told["task"]).settings, seed_of(library))


def seed_of(library: SkillLibrary) -> int:
    """The seed a library was trained with; 0 if its metadata does not tell.

    Raises:
        SvslError: If what it tells is no number.
    """
    try:
        return int(library.metadata.get("seed", 0))
    except ValueError:
        raise SvslError(
            f"seed in the library's metadata: expected a number, got {library.metadata['seed']!r}"
        ) from None


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


def task_of(library: SkillLibrary, workers: int | None = None) -> Task:
    """The task a library was trained on, on so many threads if it simulates on several (all cores unless told).

    Raises:
        SvslError: If the library does not say, or does not fit it any more.
    """
    if "task" not in library.metadata:
        raise SvslError("the library's metadata names no task; metadata={'task': NAME} tells it when saving")
    try:
        options = dict(json.loads(library.metadata.get("task_options", "{}")))
    except ValueError as error:
        raise SvslError(f"the task's options in the library's metadata cannot be read ({error})") from None
    task = make_task(library.metadata["task"], **options)
    require_fit(library, task, library.metadata["task"])
    if workers is not None and hasattr(task, "workers"):
        task.workers = workers
    return task


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], above: str = "") -> list[str]:
    """In what two configurations differ, as far as the old one tells; not in the svsl that wrote them."""
    changed: list[str] = []
    for name in sorted(set(old) & set(new) - {"svsl"}):
        if isinstance(old[name], Mapping) and isinstance(new[name], Mapping):
            changed += _changes(old[name], new[name], f"{name}.")
        elif old[name] != new[name]:
            changed.append(f"{above}{name} from {old[name]} to {new[name]}")
    return changed


def _vector(values: ArrayLike) -> Array:
    return np.array(values, dtype=np.float64)
