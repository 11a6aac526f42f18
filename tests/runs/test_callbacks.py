"""Callbacks: what they see, how they stop a run, what happens if they fail."""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svsl
from svsl import Callback, SkillLibrary, SvslError
from svsl.runs.folder import Run
from svsl.runs.tensorboard import TensorBoardWriter
from svsl.runs.trackers import TrackioCallback, WandbCallback
from toys import Unimodal

SMALL: dict[str, Any] = {"components": 3, "iterations": 8, "weight_iterations": 3}


class Recorder(Callback):
    """Remembers everything; returns False from `method` at its call number `stop_at`."""

    def __init__(self, method: str = "", stop_at: int = 0) -> None:
        self.rows: list[dict[str, float | None]] = []
        self.libraries: list[SkillLibrary] = []
        self.checkpoints: list[Path] = []
        self.closed = 0
        self.method, self.stop_at = method, stop_at

    def _answer(self, method: str, calls: int) -> bool | None:
        return False if (method, calls) == (self.method, self.stop_at) else None

    def on_metrics(self, metrics: Mapping[str, float | None]) -> bool | None:
        self.rows.append(dict(metrics))
        return self._answer("on_metrics", len(self.rows))

    def on_component(self, library: SkillLibrary) -> bool | None:
        self.libraries.append(library)
        return self._answer("on_component", len(self.libraries))

    def on_checkpoint(self, path: Path) -> bool | None:
        self.checkpoints.append(path)
        return self._answer("on_checkpoint", len(self.checkpoints))

    def close(self) -> None:
        self.closed += 1


def test_a_callback_sees_tests_libraries_and_checkpoints() -> None:
    recorder = Recorder()
    library = svsl.train(Unimodal(), out="run", callbacks=[recorder], **SMALL)
    run = Run.open(Path("run"))
    assert recorder.rows == run.read_metrics(), "plain numbers, as in the file"
    assert len(recorder.rows) == len(recorder.libraries) == 4, "three components, then the weights"
    assert [len(seen) for seen in recorder.libraries[:3]] == [1, 2, 3]
    last = recorder.libraries[-1]
    assert np.array_equal(last.mixture.experts.bias, library.mixture.experts.bias)
    assert last.metadata == library.metadata
    assert set(recorder.checkpoints) == {run.checkpoint_path}
    assert recorder.closed == 1
    svsl.train(Unimodal(), out="run", callbacks=[recorder], **SMALL)
    assert recorder.closed == 1, "a finished run is only loaded"


def test_callbacks_change_nothing() -> None:
    plain, followed = svsl.train(Unimodal(), **SMALL), svsl.train(Unimodal(), callbacks=[Recorder()], **SMALL)
    plain.save("plain.safetensors")
    followed.save("followed.safetensors")
    assert Path("plain.safetensors").read_bytes() == Path("followed.safetensors").read_bytes()


@pytest.mark.parametrize("method", ["on_metrics", "on_component"])
def test_false_stops_after_saving_and_the_same_call_continues(method: str) -> None:
    expected = svsl.train(Unimodal(), **SMALL)
    stopper = Recorder(method, stop_at=2)
    partial = svsl.train(Unimodal(), out="run", callbacks=[stopper], **SMALL)
    assert len(partial) == 2
    assert not Run.open(Path("run")).finished
    assert len(stopper.rows) == 2
    assert stopper.closed == 1
    rest = Recorder()
    library = svsl.train(Unimodal(), out="run", callbacks=[rest], **SMALL)
    assert np.array_equal(library.mixture.experts.bias, expected.mixture.experts.bias)
    assert len(rest.rows) == 2, "only the tests after the stop"


def test_false_stops_a_run_without_a_folder() -> None:
    assert len(svsl.train(Unimodal(), callbacks=[Recorder("on_metrics", stop_at=1)], **SMALL)) == 1


def test_stopping_before_the_first_component_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svsl.runs.training.time.monotonic", iter(range(0, 10**6, 100)).__next__)
    with pytest.raises(SvslError, match="stopped training before the first component was trained"):
        svsl.train(Unimodal(), out="run", callbacks=[Recorder("on_checkpoint", stop_at=1)], **SMALL)
    assert Path("run/checkpoint.safetensors").exists()


class Broken(Callback):
    """Fails at its second row."""

    calls = 0

    def on_metrics(self, metrics: Mapping[str, float | None]) -> None:
        self.calls += 1
        if self.calls == 2:
            raise KeyError("colour")


def test_an_error_names_the_callback_after_saving() -> None:
    recorder = Recorder()
    message = r"callback Broken\.on_metrics failed: KeyError: 'colour' \(test_callbacks.py line \d+\)"
    with pytest.raises(SvslError, match=message) as caught:
        svsl.train(Unimodal(), out="run", callbacks=[Broken(), recorder], **SMALL)
    assert isinstance(caught.value.__cause__, KeyError)
    assert len(recorder.rows) == 2, "it stops at once"
    assert not Run.open(Path("run")).finished
    assert recorder.checkpoints
    assert recorder.closed == 1
    library = svsl.train(Unimodal(), out="run", **SMALL)
    assert np.array_equal(library.mixture.experts.bias, svsl.train(Unimodal(), **SMALL).mixture.experts.bias)


@pytest.mark.parametrize("given", [print, [print], [Recorder], Recorder, ["recorder"]])
def test_anything_else_is_rejected(given: Any) -> None:
    with pytest.raises(SvslError, match=r"callbacks: expected objects of svsl\.Callback, got "):
        svsl.train(Unimodal(), callbacks=given, **SMALL)


@pytest.mark.parametrize(("kind", "package"), [(WandbCallback, "wandb"), (TrackioCallback, "trackio")])
def test_a_missing_tracker_says_what_to_install(
    kind: type[Callback], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(SvslError, match=rf"{kind.__name__}: .*{package}.*; pip install 'svsl\[{package}\]'"):
        kind()


def test_tensorboard_is_a_callback_and_survives_numbers_that_are_not_finite(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    loader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    writer = TensorBoardWriter(tmp_path / "events", [{"episodes": 10, "return_mean": -3.0}])
    assert isinstance(writer, Callback)
    writer.on_metrics({"episodes": 20, "return_mean": -1.0, "recent_return": None})
    writer.close()
    events = loader.EventAccumulator(str(tmp_path / "events")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("return_mean")] == [(10, -3.0), (20, -1.0)]


def test_wandb_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    callback = WandbCallback(mode="offline", project="svsl-test", dir=str(tmp_path))
    summaries = list[tuple[float, float, int]]()

    class Reader(Recorder):
        def on_metrics(self, metrics: Mapping[str, float | None]) -> bool | None:
            summary = callback.run.summary
            summaries.append((summary["episodes"], summary["return_mean"], callback.run.step - 1))
            return super().on_metrics(metrics)

    reader = Reader()
    svsl.train(Unimodal(), callbacks=[callback, reader], **SMALL)
    assert summaries == [(row["episodes"], row["return_mean"], row["episodes"]) for row in reader.rows]


def test_trackio_keeps_the_metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio")
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    callback = TrackioCallback(project="svsl-test", name="first", embed=False)
    recorder = Recorder()
    svsl.train(Unimodal(), callbacks=[callback, recorder], **SMALL)
    logs = storage.get_logs("svsl-test", "first")
    assert [log["return_mean"] for log in logs] == [row["return_mean"] for row in recorder.rows]
    assert [log["step"] for log in logs] == [row["episodes"] for row in recorder.rows]


def test_rows_are_json() -> None:
    recorder = Recorder()
    numpys = {"seed": np.int64(3), "components": np.int64(2)}
    svsl.train(Unimodal(), callbacks=[recorder], **(SMALL | numpys))
    assert json.loads(json.dumps(recorder.rows, allow_nan=False)) == recorder.rows
