"""Slurm through submitit: the same results as on one machine, also when a job is killed or put back into the queue.

The jobs run in submitit's local executor, which handles a job and its signals as on a cluster, and on a real Slurm of
one node where it is installed. What is asked of Slurm is also seen by stand-ins of its commands.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("submitit")

from slurm_cluster import INSTALLED, running_slurm
from svsl import SvslError
from svsl.backends import slurm
from svsl.backends.base import Ending, Program, SlurmJobs
from svsl.cli import main
from svsl.experiments.catalogue import EXPERIMENTS, Arm, Experiment, arm_config
from svsl.experiments.reproduction import Reproduction
from svsl.experiments.runner import run_jobs
from svsl.runs.folder import Run
from svsl.runs.training import Trainer
from waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore")  # submitit does not wait for the end of its own processes
SETTINGS = {"components": 3, "iterations": 25, "finetune_every": 10}
EXPERIMENT = Experiment(
    title="On a cluster",
    arms=(Arm("a", "slow_task:Slow", "svsl", settings=SETTINGS),),
    seeds=2,
    claims=(),
    figures=("learning",),
    metrics=("return_mean",),
)
SLOW_TASK = """
import os
import time
from pathlib import Path
from toys import Unimodal

FOLDER = Path(__file__).parent

class Slow(Unimodal):
    "Leaves the process in which it runs as a file, and is slow in the processes that are to be ended."
    def evaluate(self, contexts, parameters, rng):
        (FOLDER / f"worker-{os.getpid()}").touch()
        ended = FOLDER / "ended"
        if not ended.exists() or str(os.getpid()) in ended.read_text().split():
            time.sleep(0.5)
        return super().evaluate(contexts, parameters, rng)
"""
HERE = {"cluster": "local"}


@pytest.fixture
def real_slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not INSTALLED:
        pytest.skip("Slurm is not installed (Debian's slurm-wlm and munge)")
    monkeypatch.setattr(slurm, "_QUEUE_S", 0.5)
    with running_slurm() as config:
        monkeypatch.setenv("SLURM_CONF", str(config))
        yield


def queue(*states: str) -> list[str]:
    """The jobs in real Slurm's queue."""
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--states={','.join(states) or 'all'}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def interrupt(workers: list[int]) -> None:
    """What submitit asks Slurm for before the time limit, and Slurm does before it preempts a job."""
    for job in {parent(worker) for worker in workers}:
        os.kill(job, signal.SIGUSR2)


def kill(workers: list[int]) -> None:
    """A node is lost: job and workers end at once."""
    for process in {parent(worker) for worker in workers} | set(workers):
        os.kill(process, signal.SIGKILL)


def interrupt_on_slurm(workers: list[int]) -> None:
    """What Slurm itself does before the time limit."""
    subprocess.run(["scancel", "--signal=USR2", *queue("RUNNING")], check=True)


def preempt(workers: list[int]) -> None:
    """Slurm ends jobs without a signal that submitit knows, and puts them back into the queue."""
    subprocess.run(["scontrol", "requeue", ",".join(queue("RUNNING"))], check=True)


@pytest.mark.parametrize(
    ("where", "end_job", "per_job", "restarts"),
    [
        ("local", interrupt, 1, 0),
        ("local", kill, 2, 1),
        ("slurm", interrupt_on_slurm, 1, 0),
        ("slurm", preempt, 1, 0),
        ("slurm", kill, 2, 1),
    ],
)
def test_a_job_that_is_ended_in_the_middle_continues_to_the_same_libraries(
    where: str, end_job: Callable[[list[int]], None], per_job: int, restarts: int, request: pytest.FixtureRequest
) -> None:
    if where == "slurm":
        request.getfixturevalue("real_slurm")
    Path("slow_task.py").write_text(SLOW_TASK)
    reproduction, ended = Reproduction("slurm", EXPERIMENT, Path("out"), 2, 1.0, checkpoint_s=0.1), list[float]()

    def show(jobs: Any) -> None:
        if not ended and all(job.run.checkpoint_path.exists() for job in jobs):
            workers = [int(path.name.partition("-")[2]) for path in Path().glob("worker-*")]
            assert len(workers) == 2
            ended.extend(job.work for job in jobs)
            Path("ended").write_text(" ".join(map(str, workers)))
            end_job(workers)
        elif ended and where == "slurm":
            for job in queue("PENDING"):  # Slurm lets requeued jobs wait for two minutes
                subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=False)

    with reproduction.open():
        run_jobs(reproduction, "slurm", SlurmJobs(per_job, HERE if where == "local" else {}), None, show, lambda: False)
    assert ended, "both runs were at work"
    assert max(ended) < 1
    assert [(job.state, job.message) for job in reproduction.jobs] == [("finished", ""), ("finished", "")]
    assert [job.restarts for job in reproduction.jobs] == [restarts] * 2
    assert len(list(Path().glob("worker-*"))) == 4, "each run was continued by a second process"
    for seed, job in enumerate(reproduction.jobs):
        alone = Run.create(Path(f"alone{seed}"), replace(arm_config(EXPERIMENT.arms[0]), seed=seed))
        sys.path.insert(0, str(Path.cwd()))
        assert Trainer(alone).train(lambda status: None)
        assert job.run.library_path.read_bytes() == alone.library_path.read_bytes()
        assert job.run.evaluation_path.exists()


def test_the_command_line_reports_a_failed_run_and_shows_how_far_all_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Arm("bad", "toys:Crashes", "svsl", settings=SETTINGS)
    good = Arm("good", "toys:Unimodal", "svsl", settings={"components": 1, "iterations": 3})
    monkeypatch.setitem(EXPERIMENTS, "x", replace(EXPERIMENT, arms=(crash, good), seeds=1))
    assert main(["reproduce", "x", "--status"]) == 2
    assert "runs/x is not a reproduction; without --status, the same command starts it" in capsys.readouterr().err
    assert main(["reproduce", "x", "--backend", "slurm", "--slurm-option", "cluster=local", "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert "bad-seed0 failed: task Crashes failed: ZeroDivisionError: the robot is on fire" in err
    assert "report   runs/x/report.html" in out
    files = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
    assert main(["reproduce", "x", "--seeds", "2", "--status"]) == 0
    assert {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()} == files, "only a look"
    out = capsys.readouterr().out
    assert "good-seed0 │ finished" in out
    assert "4 runs: 1 finished, 0 begun, 3 not begun" in out
    assert main(["reproduce", "x", "--scale", "0.5", "--status"]) == 2
    assert "choose another --out" in capsys.readouterr().err


PROGRAM = """
import sys
from pathlib import Path

def main(args, stop=None):
    "Is stopped the first time."
    path = Path(args[0])
    path.write_text(path.read_text() + "started " if path.exists() else "started ")
    return 0 if path.read_text().count("started") > 1 else 130

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def test_a_program_that_slurm_stops_continues_if_its_job_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), os.environ["PYTHONPATH"]]))
    monkeypatch.setattr(slurm, "_GRACE_S", 0.0)
    programs = [Program("program", (f"ran{k}",), Path(f"log{k}"), 1) for k in range(2)]
    Path("done.json").write_text("{}")
    slurm.Pack(programs, [Path("ending.json"), Path("done.json")])()
    assert json.loads(Path("ending.json").read_text()) == {"state": "finished", "reason": ""}
    assert Path("ran0").read_text() == "started started "
    assert not Path("ran1").exists(), "one that had ended before is not started again"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins of Slurm's commands: the file `queue` holds the states of its jobs."""
    folder = Path("bin").absolute()
    folder.mkdir()
    scripts = {
        "sbatch": "cat $1 >> submitted; echo Submitted batch job 7",
        "squeue": "test ! -s queue || for i in 7 7_0 7_1 7_2; do echo $i $(cat queue); done",
        "srun": "true",
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    return folder


def test_what_slurm_is_asked_for_and_what_its_answers_mean(commands: Path) -> None:
    programs = [Program("program", (), Path(f"log{k}").absolute(), 2) for k in range(5)]
    options = {"partition": "small", "time": 30, "cpus_per_task": 4, "array_parallelism": 2}
    backend = slurm.SlurmBackend(Path(), SlurmJobs(2, options))
    assert set(backend.cores()) == {2}
    Path("queue").write_text("PENDING")
    handles = [backend.start(program) for program in programs]
    assert backend.wait() == []
    script = Path("submitted").read_text()
    asked = {"--array=0-2%2", "--partition=small", "--time=30", "--cpus-per-task=4", "--signal=USR2@90"}
    assert asked <= {line.removeprefix("#SBATCH ") for line in script.splitlines()}

    # the process that submitted them ends, another one follows the same jobs
    Path("queue").write_text("RUNNING")
    again = slurm.SlurmBackend(Path(), SlurmJobs(2, options))
    assert [again.start(program) for program in programs] == handles
    assert again.wait() == []
    assert Path("submitted").read_text() == script, "nothing is submitted twice"
    record = json.loads(Path("slurm/jobs.json").read_text())
    assert [record[handle]["job"] for handle in handles] == ["7_0", "7_0", "7_1", "7_1", "7_2"]
    Path(record[handles[3]]["ending"]).write_text('{"state": "failed", "reason": "why"}')
    assert again.wait() == [(handles[3], Ending("failed", "why"))]
    again.request_stop()
    assert again.wait() == [(handle, Ending("detached", "Slurm")) for handle in handles if handle != handles[3]]

    for state, ending in (
        ("CANCELLED", Ending("stopped")),
        ("NODE_FAIL", Ending("killed", "Slurm (NODE_FAIL)")),
        ("", Ending("killed", "Slurm (forgotten)")),
    ):
        Path("queue").write_text("RUNNING")
        backend = slurm.SlurmBackend(Path(), SlurmJobs())
        handle = backend.start(programs[4])
        Path("queue").write_text(state)
        wait_until(lambda backend=backend, handle=handle, ending=ending: backend.wait() == [(handle, ending)])  # type: ignore[misc]
    Path("queue").write_text("")
    assert slurm.SlurmBackend(Path()).start(programs[4]) == handles[4]
    assert Path("submitted").read_text() == script, "only `wait` submits"


def test_jobs_go_on_when_the_user_leaves(
    commands: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "x", replace(EXPERIMENT, arms=(Arm("a", "toys:Unimodal", "svsl"),)))
    Path("queue").write_text("PENDING")
    real = slurm.SlurmBackend.wait

    def wait(backend: slurm.SlurmBackend) -> object:
        ended = real(backend)
        signal.raise_signal(signal.SIGINT) if not ended else None
        return ended

    monkeypatch.setattr(slurm.SlurmBackend, "wait", wait)
    command = ["reproduce", "x", "--backend", "slurm", "--workers", "3", "--runs-per-job", "2"]
    assert main(command) == 130
    assert "the runs go on in Slurm; the same command follows them again" in capsys.readouterr().err
    assert main(command) == 130
    assert Path("submitted").read_text().count("#SBATCH --cpus-per-task=2") == 1, "one job, once, of two runs"


def test_mistakes_are_one_line(
    commands: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm_flags = ["reproduce", "ablation", "--backend", "slurm", "--quiet"]
    (commands / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: no such partition' >&2; exit 1\n")
    for words, message in (
        ([*slurm_flags, "--slurm-option", "partitoin=x"], "slurm_option: Unknown argument 'partitoin'"),
        ([*slurm_flags, "--slurm-option", "time=long"], "slurm_option time: expected a whole number of minutes"),
        ([*slurm_flags, "--slurm-option", "time"], "slurm_option: expected NAME=VALUE, got 'time'"),
        ([*slurm_flags, "--runs-per-job", "0"], "setting runs_per_job: expected at least 1, got 0"),
        (slurm_flags, "Slurm rejects the jobs (sbatch: error: no such partition); see --slurm-option"),
        (["reproduce", "ablation", "--runs-per-job", "2"], "slurm_option and runs_per_job are for --backend slurm"),
    ):
        assert main(words) == 2, words
        error = capsys.readouterr().err
        assert error.startswith(f"svsl: {message}"), error
        assert error.count("\n") == 1, error
    (commands / "squeue").write_text("#!/bin/sh\necho 'squeue: error: timed out' >&2; exit 1\n")
    assert main(slurm_flags) == 2
    assert capsys.readouterr().err == "svsl: Slurm does not answer: squeue: error: timed out\n"
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SvslError, match="sbatch not found: run this where jobs are submitted"):
        slurm.SlurmBackend(Path())


def test_without_submitit_there_is_one_line_and_nothing_else_imports_it() -> None:
    code = """
import sys
import svsl.cli.commands.reproduce, svsl.experiments.worker
assert "submitit" not in sys.modules
sys.modules["submitit"] = None
sys.exit(svsl.cli.main(["reproduce", "ablation", "--scale", "0.01", "--backend", "slurm"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "svsl: --backend slurm needs submitit: pip install 'svsl[slurm]'\n"
