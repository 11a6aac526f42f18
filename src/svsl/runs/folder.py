"""The run folder: configuration, metrics, checkpoint, library, figures. Files are written completely or not at all."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout

from svsl.errors import SvslError, complain
from svsl.learners.base import Arrays, Training
from svsl.learners.episodic import EpisodicTraining
from svsl.model.files import parse_json, read_safetensors, remove_leftovers, write_bytes, write_safetensors
from svsl.model.library import SkillLibrary
from svsl.model.version import __version__
from svsl.runs.config import FORMAT, RunConfig, use_workers
from svsl.runs.trust import NamedTask, TaskChoice
from svsl.tasks.base import Task, is_stored_number

MetricsRow = dict[str, Any]  # names to numbers, None for a number that is not finite


@dataclass(frozen=True)
class Record:
    """How the numbers of a run were made, in a folder that has its configuration, metrics and evaluation only."""

    svsl: str  # version that trained the run
    commit: str  # of its sources, or "unknown"
    episodes: int  # run so far
    finished: bool

    def to_json(self) -> str:
        """Returns the content of `record.json`."""
        return json.dumps(asdict(self), indent=2) + "\n"


class Run:
    """A run on disk.

    Attributes:
        folder: The folder; `config.json` holds `config`.
        metrics_path: One row per test.
        checkpoint_path: Everything needed to resume.
        previous_path: The checkpoint before, used if the newest cannot be read.
        library_path: The skill library, the product of most learners.
        product_path: The library, or the policy of a step-based learner. Written last: the run is finished.
        base_path: The library that the run extends, if it does.
        evaluation_path: Evaluation of the product.
        behaviour_path: What it does in chosen contexts, for reports.
        record: How the run was made, if only its numbers are here, as in `docs/results/data`.
        record_path: The file that says so.
        log_path: Output of a worker process that trains the run.
        figures: Folder of figures.
        tensorboard: Folder of TensorBoard events.
        choice: What the user says about the task.
    """

    def __init__(
        self, folder: Path, config: RunConfig, choice: TaskChoice | None = None, record: Record | None = None
    ) -> None:
        self.folder, self.config, self.choice, self.record = folder, config, choice or TaskChoice(), record
        self.metrics_path = folder / "metrics.jsonl"
        self.checkpoint_path = folder / "checkpoint.safetensors"
        self.previous_path = folder / "checkpoint.previous.safetensors"
        self.library_path = folder / "library.safetensors"
        self.product_path = folder / f"{config.product}.safetensors"
        self.base_path = folder / "base.safetensors"
        self.evaluation_path = folder / "evaluation.json"
        self.behaviour_path = folder / "behaviour.json"
        self.record_path = folder / "record.json"
        self.log_path = folder / "log.txt"
        self.figures, self.tensorboard = folder / "figures", folder / "tensorboard"
        self._progress_path = folder / ".progress.json"
        self._newest_is_good = True  # as far as known, or it would not be kept when the next is written

    @staticmethod
    def config_path(folder: Path) -> Path:
        """Returns the file that makes a folder a run folder."""
        return folder / "config.json"

    @classmethod
    def create(
        cls,
        folder: Path,
        config: RunConfig,
        overwrite: bool = False,
        base: SkillLibrary | None = None,
        remember: bool = True,
    ) -> Self:
        """Creates a run folder.

        Args:
            folder: The folder.
            config: The configuration.
            overwrite: Replace a run that is already there.
            base: The library that the run extends, if it does.
            remember: Record that the user trusts the task of this folder; False for a folder that will not stay.
        """
        run = cls(folder, config, TaskChoice(trust=True))  # its task is the user's: nothing was read from a file
        if cls.config_path(folder).exists():
            if not overwrite:
                state = "a finished run" if run.finished else "an unfinished run (svsl resume continues it)"
                raise SvslError(f"{folder} holds {state}; choose another --out, or --overwrite to replace it")
            with run.lock():
                run._delete()
        elif folder.exists() and (not folder.is_dir() or any(map(run._foreign, folder.iterdir()))):
            raise SvslError(f"{folder} exists and is not a run folder; choose another --out")
        if base is not None:
            base.save(run.base_path)
        write_bytes(cls.config_path(folder), config.to_json().encode())
        if remember:
            run.named_task.remember()
        return run

    @classmethod
    def open(cls, folder: Path, choice: TaskChoice | None = None) -> Self:
        """Opens an existing run; `choice` is what the user says about its task."""
        path = cls.config_path(folder)
        if not path.is_file():
            raise SvslError(f"{folder} is not a run folder (it has no {path.name}); svsl train creates one")
        try:
            run = cls(folder, RunConfig.from_json(path.read_text()), choice)
        except (ValueError, TypeError) as error:
            raise SvslError(f"{path}: not a readable configuration ({error})") from None
        if run.record_path.exists():
            try:
                run.record = Record(**parse_json(run.record_path.read_text()))
            except (ValueError, TypeError) as error:
                raise SvslError(f"{run.record_path}: not a readable record ({error})") from None
        return run

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is anything to resume from."""
        return self.checkpoint_path.exists() or self.previous_path.exists()

    @property
    def finished(self) -> bool:
        """Whether training is over: its product is written, or the record of its numbers says so."""
        return self.product_path.exists() if self.record is None else self.record.finished

    def require_files(self) -> None:
        """Rejects a folder that holds only the numbers of a run, where its checkpoint or product is needed."""
        if self.record is not None:
            raise SvslError(
                f"{self.folder} holds the numbers of a run, not what it learned ({self.record_path.name} says how they "
                "were made); svsl train and svsl reproduce train it again"
            )

    def lock(self, wait_s: float = 0.0) -> contextlib.AbstractContextManager[None]:
        """Locks the folder against other processes that train in it."""
        return folder_lock(self.folder, f"{self.folder} is being trained by another process", wait_s)

    # ---- training -----------------------------------------------------------------------------------------------

    @property
    def named_task(self) -> NamedTask:
        """The task as the configuration names it."""
        return NamedTask(self.config.task, self.config.task_options, self.folder)

    def make_task(self, workers: int | None = None) -> Task:
        """Creates the run's task, if it is shipped or the user trusts it, with `workers` as in `use_workers`."""
        self.require_files()
        task = self.named_task.create(self.choice)
        use_workers(task, workers)
        return task

    def make_training(self, task: Task, workers: int | None = None) -> Training:
        """Creates the run's learner on its task, at the start."""
        self.require_files()
        return self.config.make_training(task, self.load_base(), workers)

    def restore(self, training: Training) -> dict[str, Any] | None:
        """Restores a new training to the checkpoint; returns the checkpoint's counters, or None if there is none."""
        checkpoint = self.load_checkpoint()
        if checkpoint is None:
            if self.metrics_path.exists():  # it is created at the start of training
                rows = f", although {len(self.read_metrics())} tests were made" if self.read_metrics() else ""
                complain(f"{self.folder} has no checkpoint{rows}: training starts again from the beginning")
            return None
        try:
            training.restore(*checkpoint)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise SvslError(
                f"{self.checkpoint_path} does not fit the task {self.config.task} as it is now ({error!r})"
            ) from None
        return checkpoint[1]

    def save_checkpoint(self, arrays: Arrays, counters: Mapping[str, object]) -> None:
        """Replaces the checkpoint; the one before is kept."""
        header = {"format": FORMAT, "counters": dict(counters), "config": self.config.to_json()}
        if self._newest_is_good and self.checkpoint_path.exists():
            second_name = self.folder / f".{self.checkpoint_path.name}.previous"  # a leftover if we are killed here
            second_name.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # a file system without links: no checkpoint is kept
                os.link(self.checkpoint_path, second_name)
                os.replace(second_name, self.previous_path)
        write_safetensors(self.checkpoint_path, arrays, header)
        self._newest_is_good = True

    def load_checkpoint(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Returns the arrays and counters of the checkpoint, or None if it does not exist yet.

        If the newest is missing or cannot be read, the one before is used, and a line says so.
        """
        if not self.has_checkpoint:
            return None
        try:
            arrays, header = read_safetensors(self.checkpoint_path, "checkpoint")
        except SvslError as error:
            if not self.previous_path.exists():
                raise
            self._newest_is_good = False
            arrays, header = read_safetensors(self.previous_path, "checkpoint")
            complain(f"{error}; the checkpoint before is used, only the time since then is lost")
        if header.get("format") != FORMAT or not {"config", "counters"} <= header.keys():
            raise SvslError(f"{self.checkpoint_path}: not a checkpoint of this svsl ({__version__})")
        try:
            changed = self.config.differences(RunConfig.from_json(header["config"]))
        except (ValueError, TypeError) as error:
            raise SvslError(f"{self.checkpoint_path}: its configuration cannot be read ({error})") from None
        if changed:
            raise SvslError(
                f"{self.config_path(self.folder)} was changed since the checkpoint ({'; '.join(changed)}); the "
                "configuration of a run cannot change during training: undo the change, or start a new run"
            )
        return arrays, header["counters"]

    @property
    def origin(self) -> dict[str, object]:
        """What the product records of its run."""
        config = self.config
        return {
            "task": config.task,
            "task_options": dict(config.task_options),
            "learner": config.learner,
            "seed": config.seed,
            "config": config.to_json(),
        }

    def load_base(self) -> SkillLibrary | None:
        """Returns the library that the run extends, if it does."""
        return None if self.config.extends is None else SkillLibrary.load(self.base_path)

    def load_library(self) -> SkillLibrary:
        """Returns the finished library, or that of the checkpoint of an unfinished run."""
        self.require_files()
        if self.config.step_based:
            raise SvslError(
                f"{self.folder} holds a {self.config.product} of {self.config.learner}, not a skill library"
            )
        if self.finished:
            return SkillLibrary.load(self.library_path)
        if self.has_checkpoint:
            own = TaskChoice() if self.named_task.trusted else self.choice  # it was trained on the unchanged task
            training = self.make_training(self.named_task.create(own))
            assert isinstance(training, EpisodicTraining)
            self.restore(training)
            library = training.library(self.origin)
            if library is not None:
                return library
        raise SvslError(f"{self.folder} has no trained component yet; svsl resume {self.folder} continues it")

    # ---- metrics and progress -----------------------------------------------------------------------------------

    def append_metrics(self, row: MetricsRow) -> None:
        """Appends a row to the metrics; it is on disk before any checkpoint that counts it."""
        with open(self.metrics_path, "a") as file:
            file.write(json.dumps(finite_numbers(row)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> list[MetricsRow]:
        """Returns all complete rows written so far."""
        if not self.metrics_path.exists():
            return []
        rows = []
        for line in self.metrics_path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # cut off, or garbage after a power cut
                rows.append(parse_json(line))
        return [row for row in rows if _is_metrics_row(row)]

    def truncate_metrics(self, rows: int) -> None:
        """Removes rows written after the checkpoint that is being resumed, and incomplete files."""
        kept = self.read_metrics()[:rows]
        write_bytes(self.metrics_path, "".join(json.dumps(row) + "\n" for row in kept).encode())
        for path in (self.metrics_path, self.checkpoint_path, self.product_path):
            remove_leftovers(path)

    def write_progress(self, progress: Mapping[str, float]) -> None:
        """Writes progress for the parent process, if the disk permits."""
        temporary = self.folder / f"{self._progress_path.name}.new"
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(progress))
            os.replace(temporary, self._progress_path)

    def read_progress(self) -> dict[str, float]:
        """Returns the newest progress; empty if there is none."""
        try:
            return dict(parse_json(self._progress_path.read_text()))
        except (OSError, ValueError, TypeError):
            return {}

    @property
    def progress_age_s(self) -> float | None:
        """How long ago the newest progress was written; None if there is none."""
        try:
            return max(0.0, time.time() - self._progress_path.stat().st_mtime)
        except OSError:
            return None

    # ---- overwriting --------------------------------------------------------------------------------------------

    def _foreign(self, path: Path) -> bool:
        """Returns whether a file in a folder without configuration is not a leftover of a killed start."""
        return not path.name.startswith(".") and path != self.base_path

    def _delete(self) -> None:
        """Removes a run's own files and nothing else; first its product, which marks it as finished."""
        for product in ("library", "policy"):
            (self.folder / f"{product}.safetensors").unlink(missing_ok=True)
        for path in (
            self.checkpoint_path, self.previous_path, self.metrics_path, self.base_path,
            self.evaluation_path, self.behaviour_path, self.record_path, self.log_path, self._progress_path,
        ):  # fmt: skip
            path.unlink(missing_ok=True)
        for folder in (self.figures, self.tensorboard):
            if folder.exists():
                shutil.rmtree(folder)


def _is_metrics_row(row: object) -> bool:
    """Whether a line of a file is what `append_metrics` writes."""
    return isinstance(row, dict) and all(map(is_stored_number, row.values()))


def finite_numbers(row: MetricsRow) -> MetricsRow:
    """Returns a row with None for each number that is not finite."""
    return {name: value if np.isfinite(value) else None for name, value in row.items()}


@contextlib.contextmanager
def folder_lock(folder: Path, busy: str, wait_s: float = 0.0) -> Iterator[None]:
    """Locks a folder against other processes, as far as its file system has locks.

    The system releases the lock when the process ends, however it ends. If another process still holds it after
    `wait_s`, the error message is `busy`.
    """
    (folder / ".lock").touch()  # a folder that cannot be written is an error, one that cannot be locked is not
    # no fallback to a marker file: one left by a killed process would block the folder
    lock = FileLock(folder / ".lock", timeout=wait_s, fallback_to_soft=False)
    with contextlib.suppress(OSError):  # a file system without locks, as on some clusters
        try:
            lock.acquire()
        except Timeout:
            raise SvslError(busy) from None
    try:
        yield
    finally:
        lock.release()
