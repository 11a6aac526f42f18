"""Files whose values are of a wrong kind, with a right checksum: written by hand, by another program or to do harm."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svsl import SkillLibrary, SvslError, load_pretrained
from svsl.cli import main
from svsl.model.editing import select
from svsl.model.files import read_safetensors, write_safetensors
from svsl.runs.config import make_config
from svsl.runs.evaluation import stored_evaluation
from svsl.runs.folder import Run
from svsl.runs.sources import config_of
from svsl.runs.training import Trainer
from svsl.tasks.planar_reacher import PlanarReacher

DEEP = "[" * 100_000
WRONG: list[Any] = [None, True, -1, 1.5, 10**400, "", DEEP, [], [[1]], {}, {"a": 1}]


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a checkpoint, metrics and no library."""
    config = make_config("planar-reacher", settings={"components": 2, "iterations": 5}, test_contexts=20)
    run = Run.create(tmp_path_factory.mktemp("runs") / "half", config)
    trainer = Trainer(run, checkpoint_s=0)
    trainer.train(lambda status: None, stop=lambda: trainer.training.milestone > 0)
    return run.folder


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Run:
    return Run.open(Path(shutil.copytree(half, tmp_path / "run")))


def other_kinds(value: object) -> list[Any]:
    return [wrong for wrong in WRONG if type(wrong) is not type(value) and value is not None]


def test_a_value_of_a_wrong_kind_in_a_configuration_gets_one_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path = Run.config_path(run.folder)
    config = json.loads(path.read_text())
    for part, names in ((config, set(config) - {"svsl", "format"}), (config["settings"], set(config["settings"]))):
        for name in sorted(names):
            right = part[name]
            for wrong in other_kinds(right):
                if wrong is None and part is not config:
                    continue  # the default of many settings
                if isinstance(right, float) and isinstance(wrong, int) and not isinstance(wrong, bool):
                    continue  # a whole number is a number
                part[name] = wrong
                path.write_text(json.dumps(config))
                with pytest.raises(SvslError, match="not a readable configuration"):
                    Run.open(run.folder)
            part[name] = right
    for text in (DEEP, "5", "[]", "null"):
        path.write_text(text)
        assert main(["resume", str(run.folder)]) == 2
        assert "not a readable configuration" in capsys.readouterr().err


def test_a_value_of_a_wrong_kind_in_a_checkpoint_is_refused(run: Run) -> None:
    arrays, header = read_safetensors(run.checkpoint_path, "checkpoint")
    run.previous_path.unlink(missing_ok=True)
    counters = header["counters"]
    for part, name in [(header, name) for name in header] + [(counters, name) for name in ("episodes", "nonfinite")]:
        right = part[name]
        for wrong in other_kinds(right):
            if isinstance(right, int) and isinstance(wrong, float | bool):
                continue  # cut off to a whole number
            part[name] = wrong
            write_safetensors(run.checkpoint_path, arrays, header)
            with pytest.raises(SvslError):
                run.restore(run.make_training(PlanarReacher()))
        part[name] = right
    write_safetensors(run.checkpoint_path, arrays | {"learner.counters": arrays["learner.counters"][:, None]}, header)
    with pytest.raises(SvslError, match="does not fit the task"):
        run.restore(run.make_training(PlanarReacher()))


def test_metrics_and_evaluations_that_are_none_are_ignored(run: Run) -> None:
    rows, wrong = run.read_metrics(), ["null", "5", DEEP, '{"episodes": 1e300}', '{"episodes": 1, "wall_s": {}}']
    assert rows
    with open(run.metrics_path, "a") as file:
        file.writelines(f"{line}\n" for line in wrong)
    assert run.read_metrics() == rows
    good = stored_evaluation(run, 3)
    stored = json.loads(run.evaluation_path.read_text())
    stored["evaluation"]["return_mean"] = {}
    for content in (*wrong, json.dumps(stored)):
        run.evaluation_path.write_text(content)
        assert stored_evaluation(run, 3) == good


def test_metadata_of_a_wrong_kind_are_refused() -> None:
    library = load_pretrained("planar-reacher")
    library.save("a.safetensors")
    arrays, header = read_safetensors(Path("a.safetensors"), "library")
    wrong: list[Any] = [5, [], {"task": 5}, {"seed": ["1"]}]
    for metadata in wrong:
        write_safetensors(Path("a.safetensors"), arrays, {**header, "metadata": metadata})
        with pytest.raises(SvslError, match="its metadata are not texts by name"):
            SkillLibrary.load("a.safetensors")
    for name in ("config", "task_options"):
        with pytest.raises(SvslError, match="nested too deeply"):
            config_of(replace(library, metadata={**library.metadata, name: DEEP}))
    for numbers in (DEEP, "5", "[1]", '["x"]'):
        with pytest.raises(SvslError, match="expected a list of 80 numbers"):
            select(replace(library, metadata={"kept_components": numbers}), np.array([0]))


@pytest.mark.parametrize(("array", "factor"), [("bias", 1e150), ("cov", 1e-150), ("context_low", 1e200)])
def test_numbers_beyond_all_sense_are_refused(array: str, factor: float) -> None:
    load_pretrained("planar-reacher").save("a.safetensors")
    arrays, header = read_safetensors(Path("a.safetensors"), "library")
    write_safetensors(Path("a.safetensors"), arrays | {array: np.multiply(arrays[array], factor)}, header)
    with pytest.raises(SvslError, match=r"in magnitude|a standard deviation is below"):
        SkillLibrary.load("a.safetensors")
