"""The command line as a user types it, right and wrong."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from svsl import SkillLibrary
from svsl.cli import main
from svsl.learners.svsl_config import SVSLConfig
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from svsl.runs.verdict import weight_stage_warning

SMALL = ["--components", "3", "--iterations", "8", "--finetune-every", "4"]


def svsl(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "svsl", *args], capture_output=True, text=True, check=False)


def test_train_eval_plot_from_the_shell() -> None:
    done = svsl("train", "planar-reacher", *SMALL, "--seed", "3")
    assert done.returncode == 0, done.stderr
    run = Path("runs/planar-reacher-seed3")
    for name in ("contexts", "learning", "postures", "success"):
        assert f"figure   {run}/figures/{name}.png" in done.stdout
        assert (run / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "return_mean" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr, "no colours or cursor movements in a pipe"
    assert done.stderr.count("\n") <= 5, "few plain lines when the output is not a terminal"
    assert "component 3/3" in done.stderr

    shown = svsl("eval", str(run), "--json")
    result = json.loads(shown.stdout)
    library = SkillLibrary.load(run / "library.safetensors")
    assert (result["task"], result["seed"], result["components"]) == ("planar-reacher", 3, len(library))
    assert result["episodes"] == int(library.metadata["episodes"])
    for name in ("return_mean", "return_sampled", "success_rate", "mixture_entropy", "coverage", "active_components"):
        assert np.isfinite(result[name])
    assert json.loads(svsl("eval", str(run), "--json").stdout) == result
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["milestone"] for row in rows] == [1, 2, 3, 4]
    assert all(a["episodes"] < b["episodes"] for a, b in pairwise(rows))


def test_an_existing_run_is_replaced_only_with_overwrite(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "toys:Unimodal", *SMALL, "--quiet"]
    assert main(command) == 0
    assert capsys.readouterr() == ("", "")
    assert main(command) == 2
    assert "holds a finished run; choose another --out, or --overwrite to replace it" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    assert main(["resume", "runs/toys.Unimodal-seed0"]) == 0
    assert "nothing to resume" in capsys.readouterr().err


def test_task_options_are_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toys:with_options", "--quiet", *SMALL, "--scale", "2.5", "--kind", "fancy"]) == 0
    config = json.loads(Path("runs/toys.with_options-seed0/config.json").read_text())
    assert config["task_options"] == {"scale": 2.5, "kind": "fancy"}
    assert config["settings"]["components"] == 3
    with pytest.raises(SystemExit) as stop:
        main(["train", "toys:with_options", "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--scale FLOAT" in text
    assert "Stretches the curvature." in text


def test_a_preset_fits_the_task_with_fewer_context_dimensions() -> None:
    small = "--components 1 --iterations 1 --splits 0 --closing-iterations 1 --test-contexts 2 --quiet"
    flags = ["--context-dims", "2", *small.split()]
    assert main(["train", "table-tennis", "--preset", "efficient", *flags]) == 0
    library = SkillLibrary.load("runs/table-tennis-seed0/library.safetensors")
    assert library.context_dim == 2
    config = json.loads(Path("runs/table-tennis-seed0/config.json").read_text())
    assert config["task_options"] == {"context_dims": 2, "distance": "plain"}


def test_presets_are_the_defaults_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "planar-reacher", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert (
        "--components INT Components at the end, if none is removed (the paper's N): added one after the other" in text
    )
    assert "(default: 60)" in text
    assert "(default: 0.0001)" in text
    assert "--free-first-joint" in text


WRONG = {
    "unknown command": (["fly"], "unknown command 'fly'; commands: train, resume"),
    "mistyped command": (["trian"], "unknown command 'trian'; did you mean train?"),
    "no task": (["train"], "train what?"),
    "unknown task": (["train", "planar-reecher"], "unknown task 'planar-reecher': did you mean planar-reacher?"),
    "no module": (["train", "nowhere:thing"], "no module 'nowhere'"),
    "no factory": (["train", "toys:thing"], "module 'toys' has no function or class 'thing'"),
    "no task object": (["train", "toys:not_a_task"], "int has no context_low"),
    "unknown flag": (["train", "planar-reacher", "--componets", "3"], "--componets, 3 (did you mean --components?)"),
    "wrong type": (
        ["train", "planar-reacher", "--components", "many"],
        "expected a whole number, got 'many'",
    ),
    "wrong number": (["train", "planar-reacher", "--alpha", "big"], "--alpha: expected a number, got 'big'"),
    "infinite number": (["train", "planar-reacher", "--alpha", "inf"], "alpha: expected a finite number, got inf"),
    "no number": (["train", "planar-reacher", "--kl-expert", "nan"], "kl_expert: expected a finite number, got nan"),
    "absurd number": (
        ["train", "planar-reacher", "--alpha", "1e300"],
        "alpha: expected at most 1e+12 in magnitude, got 1e+300",
    ),
    "infinite length": (
        ["train", "planar-reacher", "--context-std", "1", "inf"],
        "context_std: expected a finite number, got inf",
    ),
    "fractional seed": (["eval", "planar-reacher", "--seed", "1.5"], "--seed: expected a whole number, got '1.5'"),
    "option that is no switch": (
        ["eval", "planar-reacher", "--task-option", "free_first_joint=maybe"],
        "option free_first_joint: expected true or false, got 'maybe'",
    ),
    "option that is no number": (
        ["eval", "beer-pong", "--task-option", "cup_radius=true"],
        "option cup_radius: expected a number, got True",
    ),
    "too many components": (
        ["train", "planar-reacher", "--components", "1000000000000"],
        "components: expected at most",
    ),
    "too large a batch": (
        ["train", "planar-reacher", "--learner", "hireps", "--batch", "1000000000000"],
        "batch: expected at most 100,000,000, got 1000000000000",
    ),
    "impossible value": (["train", "planar-reacher", "--components", "0"], "components: expected at least 1, got 0"),
    "negative seed": (["train", "planar-reacher", "--seed", "-1"], "seed: expected at least 0, got -1"),
    "small buffer": (["train", "planar-reacher", "--buffer", "50"], "buffer: expected at least the 91 features"),
    "wrong length": (["train", "planar-reacher", "--context-std", "1"], "context_std: expected 2 numbers"),
    "unknown preset": (
        ["train", "table-tennis", "--preset", "lazy"],
        "presets of svsl for table-tennis: paper, efficient",
    ),
    "unknown learner": (["train", "planar-reacher", "--learner", "magic"], "unknown learner 'magic'; known learners"),
    "no run": (["eval", "nowhere"], "nowhere is not a run folder"),
    "no run to resume": (["resume", "nowhere"], "nowhere is not a run folder"),
    "no backend": (["reproduce", "ablation", "--backend", "cloud"], "expected one of local, ray, slurm, got 'cloud'"),
    "no contexts": (["eval", "nowhere", "--contexts", "0"], "contexts: expected at least 1, got 0"),
    "missing argument": (["eval"], "svsl eval --help lists the flags"),
    "module of the task to check": (["check-task", "nowhere:x"], "no module 'nowhere'"),
    "no task to check": (["check-task"], "check what?"),
    "a flag before the task": (
        ["train", "--out", "a:b", "--no-auxiliary", "toys:Unimodal"],
        "TASK comes first: svsl train TASK [OPTIONS], with TASK one of planar-reacher,",
    ),
    "a flag before the task to check": (["check-task", "--scale", "3", "toys:with_options"], "TASK comes first"),
    "a flag before the library": (["extend", "--components", "3", "beer-pong"], "RUN_OR_NAME comes first"),
    "an extra argument": (["train", "planar-reacher", "toys:Unimodal"], "Unrecognized options: toys:Unimodal"),
    "missing value": (["train", "planar-reacher", "--learner"], "Missing value for argument '--learner'"),
    "a setting of another learner": (
        ["train", "planar-reacher", "--kappa", "0.9", "--learner", "hireps", "--learner", "svsl"],
        "Unrecognized options: --kappa, 0.9",
    ),
    "option without default": (["check-task", "toys:needs"], "its option 'size' needs a default"),
    "factory fails": (["train", "toys:fails"], "creating it failed: LinAlgError: Singular matrix (toys.py line"),
    "negative workers": (["train", "planar-reacher", "--workers", "-2"], "workers: expected at least 0, got -2"),
    "negative time": (["resume", "x", "--checkpoint-s", "-1"], "checkpoint_s: expected at least 0, got -1"),
    "prune below 0": (["prune", "beer-pong", "--min-weight", "-2", "--out", "x"], "min_weight: expected from 0"),
    "too much entropy": (
        ["train", "beer-pong", "--learner", "ladips", "--components", "2"],
        "got 3.4; reduce it along with components",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_get_one_line_and_exit_code_2(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    args, message = WRONG[case]
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("svsl: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(Path().iterdir()) == [], "nothing is left behind"


def test_an_unwritable_path_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("not a folder")
    assert main(["train", "toys:Unimodal", *SMALL, "--out", "file/run"]) == 2
    assert capsys.readouterr().err.startswith("svsl: file")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "check-task" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("svsl 0.")
    assert main(["tasks"]) == 0
    assert capsys.readouterr().out.startswith("planar-reacher  Ten unit links")


@pytest.mark.parametrize(("factory", "option"), [("task", "seed"), ("other", "components"), ("third", "learner")])
def test_a_task_option_with_the_name_of_a_flag_is_rejected(
    factory: str, option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "clash", raising=False)
    Path("clash.py").write_text(f"def {factory}({option}=3):\n    return 0\n")
    assert main(["train", f"clash:{factory}"]) == 2
    assert f"its option {option!r} has the name of another flag; rename it" in capsys.readouterr().err


def test_check_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-task", "planar-reacher"]) == 0
    out = capsys.readouterr().out
    assert "error" not in out
    assert "warning" not in out
    assert main(["check-task", "toys:Sloppy"]) == 2
    out = capsys.readouterr().out
    assert "error   evaluate changed its arguments in place" in out
    assert "error   repeatable: the same rng gave other returns" in out
    assert main(["check-task", "toys:Crashes"]) == 2
    assert "evaluate raised ZeroDivisionError: the robot is on fire" in capsys.readouterr().out


def test_check_task_accepts_the_options_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-task", "toys:with_options", "--scale", "3"]) == 0
    assert main(["check-task", "toys:named", "--name", "y"]) == 0
    assert main(["check-task", "toys:with_options", "--scal", "3"]) == 2
    assert "Unrecognized options: --scal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("import nothing_of_the_kind\n", "ModuleNotFoundError: No module named 'nothing_of_the_kind' (mine.py line 1)"),
        ("\n1 / 0\n", "ZeroDivisionError: division by zero (mine.py line 2)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line(
    text: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    Path("mine.py").write_text(text)
    assert main(["train", "mine:Task"]) == 2
    assert capsys.readouterr().err == f"svsl: task 'mine:Task': importing mine failed: {message}\n"


def test_a_value_with_a_colon_is_not_a_task() -> None:
    assert main(["train", "toys:Unimodal", *SMALL, "--quiet", "--out", "runs/planar-reacher:b"]) == 0
    assert Run.open(Path("runs/planar-reacher:b")).config.task == "toys:Unimodal"


def test_the_last_of_repeated_flags_counts() -> None:
    flags = ["--learner", "hireps", "--seed", "1", "--learner=svsl", *SMALL, "--seed=2", "--quiet", "--out", "run"]
    assert main(["train", "toys:Unimodal", *flags]) == 0
    config = Run.open(Path("run")).config
    assert (config.learner, config.seed) == ("svsl", 2)
    assert isinstance(config.settings, SVSLConfig)


def test_an_option_of_the_task_chooses_the_preset(capsys: pytest.CaptureFixture[str]) -> None:
    for reward, iterations in (("dense", 250), ("last2", 800)):
        with pytest.raises(SystemExit):
            main(["train", "reacher5", f"--reward={reward}", "--help"])
        shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert re.search(rf"--iterations INT [^(]*(\([^)]*\))?[^(]*\(default: {iterations}\)", shown)
        assert f"(default: {reward})" in shown


def test_old_names_of_settings_are_accepted_as_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    old_names = {"rounds_each": "iterations", "rivals": "auxiliary"}
    monkeypatch.setattr(SVSLConfig, "old_names", old_names, raising=False)
    for number, flags in enumerate((["--rounds-each", "7"], ["--rounds_each=7"], ["--iterations", "7"])):
        out = f"run{number}"
        arguments = ["--components", "1", "--no-rivals", "--quiet", "--out", out, *flags]
        assert main(["train", "toys:Unimodal", *arguments]) == 0
        settings = Run.open(Path(out)).config.settings
        assert isinstance(settings, SVSLConfig)
        assert (settings.iterations, settings.auxiliary) == (7, False)


def test_the_task_is_created_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "from toys import Unimodal",
        "calls = 0",
        "def task():",
        " global calls",
        " calls += 1",
        " return Unimodal()",
    )
    Path("counting.py").write_text("\n".join(lines))
    monkeypatch.delitem(sys.modules, "counting", raising=False)
    stopped = Run.create(Path("stopped"), RunConfig("counting:task", {}, "svsl", SVSLConfig(1, 3), 0))
    for command in (
        ["train", "counting:task", *SMALL, "--out", "run"],
        ["extend", "run", *SMALL, "--out", "extended"],
        ["resume", str(stopped.folder)],
    ):
        if "counting" in sys.modules:
            monkeypatch.setattr(sys.modules["counting"], "calls", 0)
        assert main(command) == 0
        assert vars(sys.modules["counting"])["calls"] == 1, command


def test_help_names_learners_and_presets(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "beer-pong", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    for learner in ("svsl (paper, efficient, versatile);", "hireps (paper);", "ladips (paper);"):
        assert learner in out
    with pytest.raises(SystemExit):
        main(["extend", "--help"])
    assert "--components INT" in capsys.readouterr().out


def test_a_library_that_no_longer_fits_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toys:Unimodal", *SMALL, "--quiet", "--out", "run"]) == 0
    library = SkillLibrary.load("run")
    for change, message in (
        (
            {"task": "toys:Grown"},
            "2 context dimensions and 3 parameters, but the task 'toys:Grown' with its options has 3",
        ),
        ({"seed": "x"}, "seed in the library's metadata: expected a number of at least 0, got 'x'"),
        ({"task_options": "{"}, "the task's options in the library's metadata cannot be read"),
    ):
        replace(library, metadata={**library.metadata, **change}).save("changed.safetensors")
        assert main(["eval", "changed.safetensors", "--trust-task"]) == 2
        assert message in capsys.readouterr().err


def test_a_weight_stage_that_lowers_success_gets_a_warning() -> None:
    run = Run.create(Path("run"), RunConfig("toys:Unimodal", {}, "svsl", SVSLConfig(), 0))
    assert weight_stage_warning(run) is None
    run.append_metrics({"components": 2, "success_rate": 0.64})
    run.append_metrics({"components": 2, "success_rate": 0.62})
    assert weight_stage_warning(run) is None
    run.append_metrics({"components": 1, "success_rate": 0.28})
    warning = weight_stage_warning(run)
    assert warning is not None
    assert "kept 1 of 2 components, and success fell from 62% to 28% in tests: a larger --beta-weight" in warning


def test_ctrl_c_while_modules_are_imported_gets_one_line() -> None:
    Path("numpy.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    ended = svsl("tasks")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "svsl: interrupted\n")
