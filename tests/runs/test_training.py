"""Runs on disk: interruption at any moment, bad returns, full disks, broken files."""

import errno
import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from svsl import Outcome, SkillLibrary, SvslError
from svsl.cli import main
from svsl.evaluation.metrics import execute
from svsl.learners.episodic import EpisodicTraining
from svsl.learners.registry import find_preset
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.gaussians import Array
from svsl.model.random import TEST_STREAM, stream
from svsl.runs.config import RunConfig
from svsl.runs.evaluation import evaluate_run
from svsl.runs.folder import MetricsRow, Run
from svsl.runs.training import Status, Trainer, stop_on_signals
from svsl.tasks.base import run_episodes
from svsl.tasks.check import check_task
from svsl.tasks.steps import step_form
from toys import Bimodal, Sloppy, Unimodal
from waiting import wait_until

SMALL = SVSLConfig(components=3, iterations=12, finetune_every=4, weight_iterations=5, kl_expert=0.1)


def config(task: str = "toys:Unimodal", seed: int = 0, settings: SVSLConfig = SMALL) -> RunConfig:
    return RunConfig(task, {}, "svsl", settings, seed)


def silent(status: Status) -> None:
    pass


def train(folder: Path, run_config: RunConfig) -> Run:
    run = Run.create(folder, run_config)
    assert Trainer(run).train(silent)
    return run


def timeless(rows: list[MetricsRow]) -> list[MetricsRow]:
    return [{name: value for name, value in row.items() if name != "wall_s"} for row in rows]


def stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def test_the_same_seed_gives_the_same_library_and_another_seed_another_one(tmp_path: Path) -> None:
    first, second = train(tmp_path / "a", config()), train(tmp_path / "b", config())
    assert first.library_path.read_bytes() == second.library_path.read_bytes()
    assert timeless(first.read_metrics()) == timeless(second.read_metrics())
    third = train(tmp_path / "c", config(seed=1))
    assert first.library_path.read_bytes() != third.library_path.read_bytes()


def test_stopped_after_any_batch_it_ends_the_same(tmp_path: Path) -> None:
    straight = train(tmp_path / "straight", config())
    run = Run.create(tmp_path / "stopped", config())
    rounds = 0
    while not Trainer(run).train(silent, stop=lambda: True):  # one batch at a time, each in a new trainer
        rounds += 1
        run = Run.open(run.folder)
    assert rounds > 60
    assert run.library_path.read_bytes() == straight.library_path.read_bytes()
    assert timeless(run.read_metrics()) == timeless(straight.read_metrics())


def wait_for_change(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Waits until a file is written or the process has ended."""
    seen = stamp(path)
    wait_until(lambda: stamp(path) != seen or process.poll() is not None)


def test_killed_at_random_moments_it_ends_the_same(tmp_path: Path) -> None:
    flags = ["--components", "10", "--iterations", "60", "--quiet", "--checkpoint-s", "0.02"]
    command = [sys.executable, "-m", "svsl"]
    train_command = [*command, "train", "toys:Unimodal", *flags]
    subprocess.run([*train_command, "--out", "straight"], check=True)
    chance, checkpoint = random.Random(0), Path("killed/checkpoint.safetensors")
    process = subprocess.Popen([*train_command, "--out", "killed"])
    for _ in range(5):
        wait_for_change(checkpoint, process)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.wait()
        assert not Path("killed/library.safetensors").exists(), "it finished before it could be killed"
        process = subprocess.Popen([*command, "resume", "killed", "--quiet", "--checkpoint-s", "0.02"])
    assert process.wait() == 0
    straight, killed = Run.open(Path("straight")), Run.open(Path("killed"))
    assert killed.library_path.read_bytes() == straight.library_path.read_bytes()
    assert timeless(killed.read_metrics()) == timeless(straight.read_metrics())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_resume_continues(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "svsl"]
    flags = ["--components", "400", "--iterations", "400", "--checkpoint-s", "1000"]
    process = subprocess.Popen(
        [*command, "train", "toys:Unimodal", *flags], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    metrics = Path("runs/toys.Unimodal-seed0/metrics.jsonl")

    def tested() -> bool:
        return metrics.exists() and metrics.read_text().count("\n") >= 2

    wait_until(lambda: tested() or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert ("finishing the current batch; press Ctrl-C again to stop now" in errors) == (number == signal.SIGINT)
    assert "stopped and saved; svsl resume runs/toys.Unimodal-seed0 continues" in errors
    assert "Traceback" not in errors
    run = Run.open(Path("runs/toys.Unimodal-seed0"))
    trainer = Trainer(run)
    assert trainer.rows >= 2
    episodes = trainer.training.episodes
    assert not trainer.train(silent, stop=lambda: True)
    assert trainer.training.episodes > episodes > 0


def test_nohup_keeps_training_when_the_terminal_is_closed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_task_that_ends_the_program_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    straight = train(Path("straight"), config("bad_days:Exits"))
    Path("exit").touch()
    flags = ["--components", "3", "--iterations", "12", "--finetune-every", "4", "--weight-iterations", "5"]
    flags += ["--kl-expert", "0.1", "--checkpoint-s", "0", "--quiet", "--out", "run"]
    assert main(["train", "bad_days:Exits", *flags]) == 2
    error = capsys.readouterr().err
    assert re.search(r"task Exits failed: SystemExit: 0 \(bad_days.py line \d+\); fix it, then svsl resume run", error)
    assert error.count("\n") == 1
    Path("exit").unlink()
    assert main(["resume", "run", "--quiet"]) == 0
    assert Path("run/library.safetensors").read_bytes() == straight.library_path.read_bytes()


@pytest.mark.parametrize(("code", "doing"), [("raise SystemExit(0)", "importing"), ("", "creating it")])
def test_a_module_that_ends_the_program_is_named(code: str, doing: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"leaves_{doing[:2]}"
    Path(f"{name}.py").write_text(f"import sys\n{code}\ndef task():\n    sys.exit(0)\n")
    assert main(["train", f"{name}:task"]) == 2
    error = capsys.readouterr().err
    assert f"{doing}" in error
    assert "failed: SystemExit: 0" in error


def test_a_task_cannot_change_its_arguments() -> None:
    contexts, parameters = np.zeros((4, 2)), np.zeros((4, 3))
    with pytest.raises(SvslError, match=r"Sloppy failed: ValueError: .*read-only.*must not change its arguments: copy"):
        run_episodes(Sloppy(), contexts, parameters, stream(0))
    assert contexts.flags.writeable
    assert parameters.flags.writeable


class Huge(Unimodal):
    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        good = super().evaluate(contexts, parameters, rng)
        far = np.abs(parameters[:, 0] - self.initial_mean[0]) > 1.5
        return Outcome(np.where(far, rng.choice([-1e307, 1e200, 1e308], len(far)), good.returns), good.success)


def test_returns_that_are_too_large_to_compute_with_are_counted(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config())
    assert Trainer(run, task=Huge()).train(silent)
    last = run.read_metrics()[-1]
    assert 0 < last["nonfinite_returns"] < last["episodes"] / 2
    assert np.isfinite([last["return_mean"], last["return_sampled"]]).all()
    evaluation = evaluate_run(run, 50, task=Huge())
    assert abs(evaluation.metrics["return_sampled"] or np.nan) < 1e6
    assert any("returns are NaN, infinite or beyond 1e100" in finding.text for finding in check_task(Huge()))


def test_the_first_ctrl_c_says_what_happens_and_the_second_stops_now(capsys: pytest.CaptureFixture[str]) -> None:
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert capsys.readouterr().err == "svsl: finishing the current batch; press Ctrl-C again to stop now\n"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capsys.readouterr().err == ""


def test_bad_returns_are_counted_and_never_learned_from(tmp_path: Path) -> None:
    run = train(tmp_path / "run", config("toys:SometimesNan", settings=replace(SMALL, components=1, iterations=150)))
    last = run.read_metrics()[-1]
    bad_share = last["nonfinite_returns"] / last["episodes"]
    assert 0.04 < bad_share < 0.2
    library = SkillLibrary.load(run.library_path)
    assert np.isfinite(library.mixture.experts.bias).all()
    # it learned all the same: the initial distribution returns about -40
    assert last["return_sampled"] > -15


def test_bad_returns_are_lost_or_replaced_by_the_penalty_of_the_task(tmp_path: Path) -> None:
    training = Trainer(Run.create(tmp_path / "run", config())).training
    assert isinstance(training, EpisodicTraining)
    returns = np.array([-1.0, np.nan, -7.0, np.inf])
    np.testing.assert_array_equal(training.finite(returns), [-1, np.nan, -7, np.nan])
    mostly_bad = np.array([-np.inf, -2.0, np.nan])
    np.testing.assert_array_equal(training.finite(mostly_bad), [-7, -2, -7], err_msg="the worst so far")
    assert training.nonfinite == 4
    training.penalty = -50.0
    np.testing.assert_array_equal(training.finite(returns), [-1, -50, -7, -50])


def test_a_task_without_any_finite_return_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SvslError, match="nothing to learn from"):
        train(tmp_path / "run", config("toys:AlwaysNan"))


def test_an_error_in_the_task_names_the_place_and_keeps_the_run(tmp_path: Path) -> None:
    with pytest.raises(SvslError, match=r"ZeroDivisionError: the robot is on fire \(toys.py line \d+\)"):
        train(tmp_path / "run", config("toys:Crashes"))
    assert not Run.open(tmp_path / "run").finished


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path / "run", config())
    Trainer(run).train(silent, stop=lambda: True)
    before = run.checkpoint_path.read_bytes()

    def no_space(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(SvslError, match=r"No space left on device.*the last checkpoint is intact"):
        Trainer(run).train(silent, stop=lambda: True)
    monkeypatch.undo()
    assert run.checkpoint_path.read_bytes() == before
    assert [p.name for p in run.folder.iterdir() if p.name.startswith(".checkpoint")] == []
    assert Trainer(run).train(silent)


def test_broken_checkpoints_and_configs_are_rejected(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config())
    Trainer(run).train(silent, stop=lambda: True)
    whole = run.checkpoint_path.read_bytes()
    run.checkpoint_path.write_bytes(whole[:200])
    with pytest.raises(SvslError, match="not a readable checkpoint"):
        Trainer(run)
    run.checkpoint_path.write_bytes(whole)
    other = json.loads((run.folder / "config.json").read_text())
    other["task"] = "planar-reacher"
    (run.folder / "config.json").write_text(json.dumps(other))
    with pytest.raises(
        SvslError, match=r"was changed since the checkpoint \(task planar-reacher instead of toys:Unimodal"
    ):
        Trainer(Run.open(run.folder))
    with pytest.raises(SvslError, match="does not fit the task toys:Unimodal as it is now"):
        Trainer(run, task=Bimodal())
    changed = replace(run.config, seed=5, settings=replace(SMALL, alpha=3.0))
    with pytest.raises(SvslError, match=r"\(settings.alpha 3.0 instead of 0.001; seed 5 instead of 0\)"):
        Trainer(Run(run.folder, changed))
    for text, message in (("{", "Expecting property name"), ("{}", "format is missing"), ("1", "a JSON object")):
        (run.folder / "config.json").write_text(text)
        with pytest.raises(SvslError, match=rf"not a readable configuration \(.*{message}"):
            Run.open(run.folder)
    other["settings"]["no_such_setting"] = 1
    (run.folder / "config.json").write_text(json.dumps(other))
    with pytest.raises(SvslError, match=r"unknown setting no_such_setting; written by svsl .*, this is svsl"):
        Run.open(run.folder)


def test_the_checkpoint_before_is_used_if_the_newest_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straight = train(tmp_path / "straight", config())
    assert not straight.previous_path.exists(), "nothing is kept of a finished run"
    run = Run.create(tmp_path / "run", config())
    for _ in range(30):
        Trainer(run).train(silent, stop=lambda: True)
    assert run.previous_path.read_bytes() != run.checkpoint_path.read_bytes()
    whole, before = run.checkpoint_path.read_bytes(), run.previous_path.read_bytes()
    for damaged in (None, whole[:200], whole[:-9] + b"\x01" + whole[-8:]):
        run.checkpoint_path.unlink(missing_ok=True)
        if damaged is not None:
            run.checkpoint_path.write_bytes(damaged)
        trainer = Trainer(Run.open(run.folder))
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "checkpoint.safetensors: " in error
        assert "the checkpoint before is used, only the time since then is lost" in error
        assert trainer.training.episodes > 0
    trainer.train(silent, stop=lambda: True)
    assert run.previous_path.read_bytes() == before, "a damaged checkpoint never replaces a good one"
    assert Trainer(Run.open(run.folder)).train(silent)
    assert run.library_path.read_bytes() == straight.library_path.read_bytes()
    assert timeless(run.read_metrics()) == timeless(straight.read_metrics())
    assert capsys.readouterr().err == ""


def test_a_run_that_lost_its_checkpoint_says_that_it_starts_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straight, run = train(tmp_path / "straight", config()), Run.create(tmp_path / "run", config())
    trainer = Trainer(run)
    assert capsys.readouterr().err == "", "a new run has no checkpoint yet"
    trainer.train(silent, stop=lambda: trainer.training.milestone >= 2)
    run.checkpoint_path.unlink()
    run.previous_path.unlink(missing_ok=True)
    again = Trainer(Run.open(run.folder))
    assert "run has no checkpoint, although 2 tests were made: training starts again from the beginning" in (
        capsys.readouterr().err
    )
    assert again.train(silent)
    assert run.library_path.read_bytes() == straight.library_path.read_bytes()
    assert timeless(run.read_metrics()) == timeless(straight.read_metrics())


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config())
    with run.lock(), pytest.raises(SvslError, match="being trained by another process"):
        Trainer(run).train(silent)


def test_metrics_of_a_killed_process_may_end_in_half_a_line(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config())
    run.append_metrics({"episodes": 1, "return_mean": float("nan")})
    with open(run.metrics_path, "a") as file:
        file.write('{"episodes": 2')
    assert run.read_metrics() == [{"episodes": 1, "return_mean": None}]
    run.truncate_metrics(1)
    assert run.metrics_path.read_text().count("\n") == 1


def test_a_power_cut_loses_no_row_that_a_checkpoint_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path / "run", config())
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    run.append_metrics({"episodes": 1})
    assert run.metrics_path.stat().st_ino in synced
    with open(run.metrics_path, "ab") as file:
        file.write(b"\0" * 40 + b"\n" + b'{"episodes": 3}\n')
    assert [row["episodes"] for row in run.read_metrics()] == [1, 3]


def test_leftovers_of_a_killed_write_are_removed(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config())
    for name in (".checkpoint.safetensors.x7_a", ".metrics.jsonl.b", ".library.safetensors.c"):
        (run.folder / name).write_text("half")
    Trainer(run).train(silent)
    assert sorted(p.name for p in run.folder.iterdir() if p.name.startswith(".")) == [".lock"]


def test_a_file_system_without_locks_is_not_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path / "run", config())

    def flock(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert Trainer(run).train(silent)


class Tuple(Unimodal):
    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        return cast("Any", (np.zeros(len(contexts)), np.zeros(len(contexts), bool)))


class OnlyInTests(Unimodal):
    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        if len(contexts) == 500:
            raise ZeroDivisionError("in a test")
        return super().evaluate(contexts, parameters, rng)


class Lists(Unimodal):
    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        good = super().evaluate(contexts, parameters, rng)
        return Outcome(cast("Any", good.returns.tolist()), cast("Any", good.success.tolist()))


def test_task_errors_are_reported_in_one_line(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "tuple", config())
    with pytest.raises(SvslError, match=r"Tuple: evaluate returned a tuple; return svsl.Outcome.* svsl resume"):
        Trainer(run, task=Tuple()).train(silent)
    run = Run.create(tmp_path / "tests", config())
    with pytest.raises(SvslError, match=r"ZeroDivisionError: in a test \(test_training.py line \d+\).* svsl resume"):
        Trainer(run, task=OnlyInTests()).train(silent)
    assert Trainer(Run.create(tmp_path / "lists", config()), task=Lists()).train(silent)
    task = Unimodal()
    task.initial_cov = np.zeros((3, 3))
    with pytest.raises(SvslError, match="initial_cov is a covariance: expected a symmetric, positive definite matrix"):
        config().check(task)


def test_a_folder_with_other_things_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(SvslError, match="is not a run folder"):
            Run.create(tmp_path, config(), overwrite=overwrite)
    run = train(tmp_path / "run", config())
    (run.folder / "notes.txt").write_text("mine")
    Run.create(run.folder, config(), overwrite=True)
    assert (run.folder / "notes.txt").read_text() == "mine"
    assert not run.finished
    assert os.listdir(tmp_path / "run") != []


def test_an_unfinished_run_already_has_a_library(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config())
    with pytest.raises(SvslError, match="no trained component yet"):
        run.load_library()
    trainer = Trainer(run)
    trainer.train(silent, stop=lambda: trainer.training.milestone >= 2)
    library = run.load_library()
    assert len(library) == 2
    assert library.metadata["episodes"] == str(trainer.training.episodes)


def test_episodes_that_were_not_simulated_are_counted_separately(tmp_path: Path) -> None:
    settings = find_preset("beer-pong").settings
    assert isinstance(settings, SVSLConfig)
    tiny = replace(settings, components=1, iterations=2, weight_iterations=0)
    run = train(tmp_path / "run", RunConfig("beer-pong", {}, "svsl", tiny, 0))
    row = run.read_metrics()[-1]
    rejected = [row[name] for name in ("invalid_context", "invalid_duration", "invalid_path")]
    assert min(rejected) > 0
    assert row["episodes"] == row["episodes_simulated"] + sum(rejected)
    assert row["diverged"] == 0
    assert SkillLibrary.load(run.library_path).metadata["episodes_simulated"] == str(row["episodes_simulated"])


def test_tests_during_training_measure_the_tasks_diagnostics(tmp_path: Path) -> None:
    run = train(tmp_path / "run", config("toys:Bimodal"))
    row = run.read_metrics()[-1]
    rng = stream(run.config.seed, TEST_STREAM, row["milestone"])
    result = execute(run.load_library().mixture, Bimodal(), run.config.test_contexts, rng)
    assert row["mode"] == result.mean.info["mode"].mean()
    assert row["success_rate"] == result.mean.success.mean()


@pytest.mark.parametrize(("workers", "threads"), [(None, 3), (0, 1), (1, 1), (2, 2)])
def test_zero_workers_means_this_thread_and_none_means_all_cores(
    workers: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svsl.simulation.rollout.available_cores", lambda: 3)
    task: Any = RunConfig("reacher5", {}, "svsl", SMALL, 0).make_task(workers)
    assert task.workers == threads
    form: Any = step_form(task, 4, workers)
    assert form.simulator.workers == threads
    task.workers = workers
    assert task.workers == threads
