"""The run folder: configuration, metrics, checkpoint, library, figures. Every file is there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from svsl.errors import SvslError
from svsl.learners.base import Arrays, Learner, below
from svsl.model.files import read_safetensors, remove_leftovers, write_bytes, write_safetensors
from svsl.model.library import SkillLibrary
from svsl.model.version import __version__
from svsl.runs.config import FORMAT, RunConfig, changes, vector
from svsl.runs.locks import folder_lock
from svsl.tasks.base import Task

MetricsRow = dict[str, Any]  # names to numbers, None for one that is not finite


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
        changed = changes(json.loads(header.get("config", "{}")), json.loads(self.config.to_json()))
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
        return SkillLibrary(mixture, vector(task.context_low), vector(task.context_high), metadata)

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
