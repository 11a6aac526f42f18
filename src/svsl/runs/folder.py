"""The run folder: configuration, metrics, checkpoint, library, figures. Files are written completely or not at all."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout

from svsl.errors import SvslError
from svsl.learners.base import Arrays, Training
from svsl.learners.episodic import EpisodicTraining
from svsl.model.files import read_safetensors, remove_leftovers, write_bytes, write_safetensors
from svsl.model.library import SkillLibrary
from svsl.model.version import __version__
from svsl.runs.config import FORMAT, RunConfig
from svsl.tasks.base import Task

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
        library_path: The skill library, the product of most learners.
        product_path: The library, or the policy of a step-based learner. Written last: the run is finished.
        base_path: The library that the run extends, if it does.
        evaluation_path: Evaluation of the product.
        record: How the run was made, if only its numbers are here, as in `docs/results/data`.
        record_path: The file that says so.
        log_path: Output of a worker process that trains the run.
        figures: Folder of figures.
        tensorboard: Folder of TensorBoard events.
    """

    def __init__(self, folder: Path, config: RunConfig, record: Record | None = None) -> None:
        self.folder, self.config, self.record = folder, config, record
        self.metrics_path = folder / "metrics.jsonl"
        self.checkpoint_path = folder / "checkpoint.safetensors"
        self.library_path = folder / "library.safetensors"
        self.product_path = folder / f"{config.product}.safetensors"
        self.base_path = folder / "base.safetensors"
        self.evaluation_path = folder / "evaluation.json"
        self.record_path = folder / "record.json"
        self.log_path = folder / "log.txt"
        self.figures, self.tensorboard = folder / "figures", folder / "tensorboard"
        self._progress_path = folder / ".progress.json"

    @staticmethod
    def config_path(folder: Path) -> Path:
        """Returns the file that makes a folder a run folder."""
        return folder / "config.json"

    @classmethod
    def create(cls, folder: Path, config: RunConfig, overwrite: bool = False, base: SkillLibrary | None = None) -> Self:
        """Creates a run folder.

        Args:
            folder: The folder.
            config: The configuration.
            overwrite: Replace a run that is already there.
            base: The library that the run extends, if it does.
        """
        run = cls(folder, config)
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
        return run

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Opens an existing run."""
        path = cls.config_path(folder)
        if not path.is_file():
            raise SvslError(f"{folder} is not a run folder (it has no {path.name}); svsl train creates one")
        try:
            run = cls(folder, RunConfig.from_json(path.read_text()))
        except (ValueError, TypeError) as error:
            raise SvslError(f"{path}: not a readable configuration ({error})") from None
        if run.record_path.exists():
            try:
                run.record = Record(**json.loads(run.record_path.read_text()))
            except (ValueError, TypeError) as error:
                raise SvslError(f"{run.record_path}: not a readable record ({error})") from None
        return run

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

    def make_training(self, task: Task, workers: int | None = None) -> Training:
        """Creates the run's learner on its task, at the start."""
        self.require_files()
        base = None if self.config.extends is None else SkillLibrary.load(self.base_path)
        return self.config.make_training(task, base, workers)

    def restore(self, training: Training) -> dict[str, Any] | None:
        """Restores a new training to the checkpoint; returns the checkpoint's counters, or None if there is none."""
        checkpoint = self.load_checkpoint()
        if checkpoint is None:
            return None
        try:
            training.restore(*checkpoint)
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            raise SvslError(
                f"{self.checkpoint_path} does not fit the task {self.config.task} as it is now ({error!r})"
            ) from None
        return checkpoint[1]

    def save_checkpoint(self, arrays: Arrays, counters: Mapping[str, object]) -> None:
        """Replaces the checkpoint."""
        header = {"format": FORMAT, "counters": dict(counters), "config": self.config.to_json()}
        write_safetensors(self.checkpoint_path, arrays, header)

    def load_checkpoint(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Returns the arrays and counters of the checkpoint, or None if it does not exist yet."""
        if not self.checkpoint_path.exists():
            return None
        arrays, header = read_safetensors(self.checkpoint_path, "checkpoint")
        if header.get("format") != FORMAT:
            raise SvslError(f"{self.checkpoint_path}: not a checkpoint of this svsl ({__version__})")
        changed = self.config.differences(RunConfig.from_json(header["config"]))
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

    def load_library(self) -> SkillLibrary:
        """Returns the finished library, or that of the checkpoint of an unfinished run."""
        self.require_files()
        if self.config.step_based:
            raise SvslError(
                f"{self.folder} holds a {self.config.product} of {self.config.learner}, not a skill library"
            )
        if self.finished:
            return SkillLibrary.load(self.library_path)
        if self.checkpoint_path.exists():
            training = self.make_training(self.config.make_task())
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
            file.write(json.dumps({k: v if np.isfinite(v) else None for k, v in row.items()}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> list[MetricsRow]:
        """Returns all complete rows written so far."""
        if not self.metrics_path.exists():
            return []
        rows = []
        for line in self.metrics_path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # cut off, or garbage after a power cut
                rows.append(json.loads(line))
        return rows

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
            return dict(json.loads(self._progress_path.read_text()))
        except (OSError, ValueError, TypeError):
            return {}

    # ---- overwriting --------------------------------------------------------------------------------------------

    def _foreign(self, path: Path) -> bool:
        """Returns whether a file in a folder without configuration is not a leftover of a killed start."""
        return not path.name.startswith(".") and path != self.base_path

    def _delete(self) -> None:
        """Removes a run's own files and nothing else; first its product, which marks it as finished."""
        for product in ("library", "policy"):
            (self.folder / f"{product}.safetensors").unlink(missing_ok=True)
        for path in (
            self.checkpoint_path, self.metrics_path, self.base_path,
            self.evaluation_path, self.record_path, self.log_path, self._progress_path,
        ):  # fmt: skip
            path.unlink(missing_ok=True)
        for folder in (self.figures, self.tensorboard):
            if folder.exists():
                shutil.rmtree(folder)


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
