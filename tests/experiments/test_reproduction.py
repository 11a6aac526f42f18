"""All seeds of an experiment: stopped, killed, crashed, started twice; and the report."""

import csv
import io
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svsl.cli import main
from svsl.experiments.catalogue import EXPERIMENTS, Arm, Claim, Experiment, arm_config, plan, seeds_of
from svsl.experiments.progress import ReproductionDisplay
from svsl.experiments.reproduction import Job, Reproduction, overall_progress
from svsl.experiments.runner import run_jobs
from svsl.learners.hireps import HiREPSConfig
from svsl.learners.ladips import LaDiPSConfig
from svsl.learners.registry import PRESETS, Preset, find_preset
from svsl.learners.svsl_config import SVSLConfig
from svsl.runs.comparison import run_numbers
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from svsl.runs.training import Trainer
from waiting import wait_until

TINY = {"components": 2, "iterations": 12, "finetune_every": 4, "weight_iterations": 3}
HIREPS = {"components": 3, "iterations": 4, "batch": 200}
TOY = Experiment(
    title="Toys <side by side>",
    arms=(Arm("ours", "toys:Bimodal", "svsl", settings=TINY), Arm("theirs", "toys:Bimodal", "hireps", settings=HIREPS)),
    seeds=4,
    claims=(Claim("Ours is better.", ("return_mean",)),),
    figures=("learning", "entropy", "contexts", "modes"),
    metrics=("return_mean", "success_rate", "ways", "episodes"),
)


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)


def one_arm(task: str, **settings: int) -> Experiment:
    arms = (Arm("bad", task, "svsl", settings=TINY | settings), Arm("good", "toys:Unimodal", "svsl", settings=TINY))
    return replace(TOY, arms=arms, figures=("learning",), metrics=("return_mean",))


def straight(arm: Arm, seed: int, folder: str) -> bytes:
    """The library of the same run trained alone, without interruption."""
    run = Run.create(Path(folder), replace(arm_config(arm), seed=seed))
    assert Trainer(run).train(lambda status: None)
    return run.library_path.read_bytes()


def run_all(experiment: Experiment, seeds: int, checkpoint_s: float = 10.0) -> Reproduction:
    reproduction = Reproduction("bad", experiment, Path("out"), seeds, 1.0, checkpoint_s)
    with reproduction.open():
        run_jobs(reproduction, "local", None, 2, lambda jobs: None, lambda: False)
    return reproduction


# ---- experiments ----------------------------------------------------------------------------------------------------


def test_full_size_is_the_papers_and_scale_shrinks_by_the_rule() -> None:
    for arm in EXPERIMENTS["ablation"].arms:
        preset = find_preset(arm.task, arm.learner).settings
        assert arm_config(arm).settings == replace(preset, **arm.settings)
    small = arm_config(EXPERIMENTS["ablation"].arms[0], 0.25)
    assert isinstance(small.settings, SVSLConfig)
    assert (small.settings.components, small.settings.iterations, small.test_contexts) == (15, 175, 250)
    hireps = arm_config(EXPERIMENTS["ablation"].arms[3], 0.25).settings
    assert isinstance(hireps, HiREPSConfig)
    assert (hireps.components, hireps.iterations) == (15, 960 // 8)
    whole = plan(EXPERIMENTS["ablation"], 2, 0.25)
    ours, theirs = (whole[arm][1] for arm in EXPERIMENTS["ablation"].arms[2:])
    assert isinstance(ours.settings, SVSLConfig)
    assert isinstance(theirs.settings, HiREPSConfig)
    assert (ours.settings.components, ours.settings.iterations, ours.seed) == (15, 350, 1)
    assert (theirs.settings.components, theirs.settings.iterations) == (15, 960 // 4)
    for name in ("baselines", "beer-pong", "table-tennis"):
        ladips = next(arm for arm in EXPERIMENTS[name].arms if arm.learner == "ladips")
        full, tiny = arm_config(ladips).settings, arm_config(ladips, 0.01).settings
        assert isinstance(full, LaDiPSConfig)
        assert isinstance(tiny, LaDiPSConfig)
        assert full == find_preset(ladips.task, "ladips").settings
        assert full.gating_entropy is not None
        assert tiny.gating_entropy == pytest.approx(full.gating_entropy * np.log(2) / np.log(full.components))
    assert (seeds_of(EXPERIMENTS["ablation"], 1.0), seeds_of(EXPERIMENTS["ablation"], 0.2)) == (15, 3)
    assert seeds_of(EXPERIMENTS["ablation"], 0.01) == 2


def test_an_arm_has_the_configuration_of_svsl_train() -> None:
    assert main(["train", "planar-reacher", "--components", "1", "--iterations", "1", "--alpha", "0.5", "--quiet"]) == 0
    arm = Arm("x", "planar-reacher", "svsl", settings={"components": 1, "iterations": 1, "alpha": 0.5})
    assert Run.open(Path("runs/planar-reacher-seed0")).config.to_json() == arm_config(arm).to_json()


def test_our_presets_are_experiments_and_follow_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for (task, learner), presets in PRESETS.items():
        experiment = EXPERIMENTS.get(f"presets-{task}")
        own = [name for name in presets if name not in ("paper", "dense", "last10", "last2")]
        if learner != "svsl" or not own:
            continue
        assert experiment is not None
        arms = {arm.label: arm for arm in experiment.arms}
        assert set(own) <= set(arms)
        for name in own:
            config = arm_config(arms[name])
            assert (config.settings, arms[name].settings) == (presets[name].settings, {})
    efficient = EXPERIMENTS["presets-hopper-jump"].arms[0]
    before: Any = PRESETS["hopper-jump", "svsl"]["efficient"].settings
    changed = Preset(replace(before, alpha=0.7))
    monkeypatch.setitem(PRESETS["hopper-jump", "svsl"], "efficient", changed)
    assert arm_config(efficient).settings == changed.settings
    ten = next(arm for arm in EXPERIMENTS["presets-beer-pong"].arms if arm.label == "ten-components")
    preset: Any = PRESETS["beer-pong", "svsl"]["paper"].settings
    assert arm_config(ten).settings == replace(preset, components=10, buffer=512, reject_outside=True)


def test_an_arm_may_have_fewer_seeds() -> None:
    few = replace(TOY, arms=(replace(TOY.arms[0], seeds=2), TOY.arms[1]))
    assert [len(configs) for configs in plan(few, 4, 1.0).values()] == [2, 4]
    assert [len(configs) for configs in plan(few, 1, 1.0).values()] == [1, 1]


def test_planned_episodes_are_exact_and_budgets_can_be_equal() -> None:
    for arm in TOY.arms:
        config = arm_config(arm)
        run = Run.create(Path(arm.label), config)
        Trainer(run).train(lambda status: None)
        assert config.planned_episodes() == run.read_metrics()[-1]["episodes"]
    equal = plan(replace(TOY, equal_budgets=True), 1, 1.0)
    ours, theirs = (configs[0].planned_episodes() for configs in equal.values())
    assert abs(ours - theirs) <= 100
    assert ours == arm_config(TOY.arms[0]).planned_episodes()


def test_every_experiment_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--scale", "0.05"]) == 0
    out = capsys.readouterr().out
    for name in ("ablation", "baselines", "beer-pong", "table-tennis", "step-based"):
        assert re.search(rf"^{name}: .+\n    \d+ seeds of .* million episodes$", out, re.MULTILINE)


# ---- the command ----------------------------------------------------------------------------------------------------


def test_one_command_runs_all_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "toy", "--seeds", "2", "--workers", "2"]
    assert main(command) == 0
    err = capsys.readouterr().err
    assert "toy: 100%, 4 runs: 4 finished" in err
    assert "\x1b" not in err
    folder = Path("runs/toy")
    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == [
        "figures", "ours-seed0", "ours-seed1", "theirs-seed0", "theirs-seed1"
    ]  # fmt: skip
    for seed in (0, 1):
        library = folder / f"ours-seed{seed}" / "library.safetensors"
        assert library.read_bytes() == straight(TOY.arms[0], seed, f"alone{seed}")
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "<script" not in page
    assert "Toys &lt;side by side&gt;" in page
    assert "svsl reproduce toy --seeds 2 --workers 2" in page
    ends = [run_numbers(Run.open(folder / f"ours-seed{seed}"))["return_mean"] for seed in (0, 1)]
    rows = list(csv.DictReader(io.StringIO((folder / "table.csv").read_text())))
    first = next(row for row in rows if row["metric"] == "return_mean")
    assert first["group"] == "ours"
    assert float(first["mean"]) == pytest.approx(np.mean(np.array(ends, dtype=float)))
    assert f"{float(first['mean']):.4g} ±" in page
    assert (folder / "table.md").read_text().count("\n") == 4

    # again: nothing is trained twice; more seeds are added
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("*/library.safetensors")}
    assert main(["reproduce", "toy", "--seeds", "3", "--quiet"]) == 0
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert len(list(folder.glob("*/library.safetensors"))) == 6
    assert capsys.readouterr().err == ""


WRONG = {
    "no name": (["reproduce"], "reproduce what?"),
    "unknown": (["reproduce", "flying"], "unknown experiment 'flying'; experiments: ablation"),
    "scale": (["reproduce", "toy", "--scale", "0"], "scale: expected above 0 and at most 1, got 0"),
    "seeds": (["reproduce", "toy", "--seeds", "0"], "seeds: expected at least 1, got 0"),
    "backend": (["reproduce", "toy", "--backend", "cloud"], "svsl reproduce --help lists the flags"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_get_one_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    args, message = WRONG[case]
    assert main(args) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
    assert list(Path().iterdir()) == []


def test_other_folders_are_rejected_and_not_modified(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("years of work")
    assert main(["reproduce", "toy", "--out", "mine"]) == 2
    assert "mine exists and is not a reproduction" in capsys.readouterr().err
    assert [p.name for p in Path("mine").iterdir()] == ["thesis.tex"]
    reproduction = Reproduction("toy", TOY, Path("out"), 1, 1.0)
    for _ in range(2):
        with reproduction.open():
            assert len(reproduction.jobs) == 2, "opening it again does not double its jobs"
    assert main(["reproduce", "toy", "--out", "out", "--scale", "0.5"]) == 2
    message = "out holds experiment toy scale 1.0, not experiment toy scale 0.5; choose another --out"
    assert message in capsys.readouterr().err
    config = Path("out/ours-seed0/config.json")
    config.write_text(config.read_text().replace('"alpha": 0.001', '"alpha": 0.002'))
    assert main(["reproduce", "toy", "--out", "out"]) == 2
    assert (
        "ours-seed0 was created with other settings (settings.alpha 0.002 instead of 0.001)" in capsys.readouterr().err
    )


# ---- failures -------------------------------------------------------------------------------------------------------


def test_a_crash_of_one_seed_never_stops_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "bad", one_arm("toys:Crashes"))
    assert main(["reproduce", "bad", "--seeds", "2", "--quiet"]) == 1
    out, err = capsys.readouterr()
    for seed in (0, 1):
        assert f"bad-seed{seed} failed: task Crashes failed: ZeroDivisionError: the robot is on fire" in err
        assert Path(f"runs/bad/good-seed{seed}/library.safetensors").exists()
        assert "the robot is on fire" in Path(f"runs/bad/bad-seed{seed}/log.txt").read_text()
    assert "report   runs/bad/report.html" in out
    page = Path("runs/bad/report.html").read_text()
    assert page.count("class=failed") == 2
    assert "good 2 seeds" in page.replace("<br>", " ")


def test_a_diverging_seed_fails_with_the_reason() -> None:
    reproduction = run_all(one_arm("toys:AlwaysNan"), 1)
    assert [job.state for job in reproduction.jobs] == ["failed", "finished"]
    assert "so there is nothing to learn from" in reproduction.jobs[0].message


def test_a_killed_worker_continues_from_its_checkpoint() -> None:
    experiment = one_arm("bad_days:Killed")
    Path("kills").write_text("2")
    reproduction = run_all(experiment, 1, checkpoint_s=0.0)
    assert [(job.state, job.restarts) for job in reproduction.jobs] == [("finished", 2), ("finished", 0)]
    killed = reproduction.jobs[0].run.library_path.read_bytes()
    assert killed == straight(experiment.arms[0], 0, "alone")


def test_a_worker_that_is_always_killed_fails() -> None:
    Path("kills").write_text("100")
    reproduction = run_all(one_arm("bad_days:Killed", iterations=100), 1, checkpoint_s=0.0)
    assert [job.state for job in reproduction.jobs] == ["failed", "finished"]
    assert "killed by SIGKILL 3 times" in reproduction.jobs[0].message
    assert Path("kills").read_text() == "97"
    assert reproduction.jobs[0].run.load_checkpoint() is not None


def test_a_full_disk_is_reported_and_the_same_command_continues() -> None:
    Path("full").touch()
    experiment = one_arm("bad_days:FullDisk")
    reproduction = run_all(experiment, 1, checkpoint_s=0.0)
    assert reproduction.jobs[0].state == "failed"
    assert [group.label for group in reproduction.groups] == ["good"], "only finished runs are reported"
    assert "No space left on device" in reproduction.jobs[0].message
    assert "the last checkpoint is intact" in reproduction.jobs[0].message
    Path("full").unlink()
    reproduction = run_all(experiment, 1)
    assert [job.state for job in reproduction.jobs] == ["finished", "finished"]
    assert reproduction.jobs[0].run.library_path.read_bytes() == straight(experiment.arms[0], 0, "alone")


def test_a_full_disk_for_the_report_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("svsl.experiments.reproduction.write_bytes", no_space)
    assert main(["reproduce", "toy", "--quiet"]) == 2
    err = capsys.readouterr().err
    assert "cannot write to runs/toy (No space left on device)" in err
    assert err.count("\n") == 1


def test_two_reproductions_cannot_share_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    first = Reproduction("toy", TOY, Path("runs/toy"), 2, 1.0)
    with first.open():
        assert main(["reproduce", "toy"]) == 2
    assert "runs/toy: another svsl reproduce is running there" in capsys.readouterr().err


SLOW = """
import sys
from svsl.cli import main
from svsl.experiments.catalogue import EXPERIMENTS, Arm, Experiment
settings = {"components": 40, "iterations": 400, "finetune_every": 50}
arms = (Arm("a", "toys:Unimodal", "svsl", settings=settings),)
EXPERIMENTS["slow"] = Experiment("Slow", arms, 2, (), ("learning",), ())
sys.exit(main(["reproduce", "slow", "--workers", "2", "--checkpoint-s", "1000"]))
"""


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Waits until `condition()` is true; fails if the process ends first."""
    wait_until(lambda: condition() or process.poll() is not None)
    assert process.poll() is None


def test_ctrl_c_saves_every_run_and_a_killed_parent_leaves_no_orphans() -> None:
    folders = [Path(f"runs/slow/a-seed{seed}") for seed in (0, 1)]
    process = subprocess.Popen([sys.executable, "-c", SLOW], stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(process, lambda: all((folder / "metrics.jsonl").exists() for folder in folders))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith("svsl: stopped and saved; the same command continues\n")
    assert "Traceback" not in errors
    before = [Run.open(folder).load_checkpoint() for folder in folders]
    assert all(checkpoint is not None for checkpoint in before), "saved although no checkpoint was due"

    # resume, then kill the parent: its workers notice, save and unlock their runs
    rows = [len(Run.open(folder).read_metrics()) for folder in folders]
    process = subprocess.Popen([sys.executable, "-c", SLOW], stderr=subprocess.DEVNULL, text=True)
    wait_for(process, lambda: all(len(Run.open(f).read_metrics()) > n for f, n in zip(folders, rows, strict=True)))
    process.kill()
    process.wait()
    for folder, old in zip(folders, before, strict=True):
        run = Run.open(folder)
        with run.lock(wait_s=60):
            checkpoint = run.load_checkpoint()
        assert checkpoint is not None
        assert old is not None
        assert checkpoint[1]["episodes"] > old[1]["episodes"]


# ---- display and report ---------------------------------------------------------------------------------------------


def jobs_at(*work: float) -> list[Job]:
    config = RunConfig("toys:Unimodal", {}, "svsl", SVSLConfig(), 0)
    arm = Arm("a", "toys:Unimodal", "svsl")
    return [Job(arm, Run(Path(f"a-seed{n}"), config), 1000.0 * (n + 1), work=w) for n, w in enumerate(work)]


def test_progress_is_weighted_by_episodes_and_lines_are_few() -> None:
    assert overall_progress(jobs_at(1.0, 0.25)) == pytest.approx((1000 + 500) / 3000)
    jobs, file = jobs_at(0.0, 0.0), io.StringIO()
    with ReproductionDisplay("toy", file=file) as display:
        for step in range(50):
            jobs[0].work, jobs[0].state = step / 50, "running"
            display(jobs)
        jobs[0].state, jobs[0].work, jobs[1].state = "finished", 1.0, "failed"
        display(jobs)
    first, last = file.getvalue().splitlines()
    assert "2 runs: 1 running, 1 waiting" in first
    assert "33%, 2 runs: 1 finished, 1 failed" in last
