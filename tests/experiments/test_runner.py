"""The scheduling loop, on a backend that only pretends."""

import io
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from svsl.backends.base import BACKENDS, Backend, Ending, Program, open_backend
from svsl.backends.local import LocalBackend, ending
from svsl.experiments.catalogue import Arm, Experiment
from svsl.experiments.progress import ReproductionDisplay
from svsl.experiments.reproduction import Reproduction
from svsl.experiments.runner import schedule
from svsl.experiments.worker import train_and_evaluate
from svsl.runs.folder import Run

TINY = {"components": 1, "iterations": 2}
EXPERIMENT = Experiment("Four", (Arm("a", "toys:Unimodal", "svsl", settings=TINY),), 4, (), (), ())


@dataclass
class Pretending:
    """Every program ends as planned for its seed, one ending per start; at most one ends in each call of `wait`."""

    machines: Sequence[int] = (4,)
    planned: dict[str, list[Ending]] = field(default_factory=dict)
    started: list[Program] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    most_running: int = 0
    stopping: bool = False

    def cores(self) -> Sequence[int]:
        return self.machines

    def start(self, program: Program) -> str:
        name = Path(program.args[0]).name
        self.started.append(program)
        self.running.append(name)
        self.most_running = max(self.most_running, len(self.running))
        return name

    def wait(self) -> list[tuple[Hashable, Ending]]:
        name = self.running.pop(0)
        if self.stopping:
            return [(name, Ending("killed", "SIGTERM"))]
        return [(name, self.planned[name].pop(0) if name in self.planned else Ending("finished"))]

    def request_stop(self) -> None:
        self.stopping = True

    def close(self) -> None:
        pass


def run(backend: Backend, workers: int | None = None, stop_after: int = 99) -> Reproduction:
    reproduction, shown = Reproduction("four", EXPERIMENT, Path("out"), 4, 1.0), list[int]()
    with reproduction.open():
        schedule(reproduction, backend, workers, lambda jobs: shown.append(1), lambda: len(shown) >= stop_after)
    return reproduction


@pytest.mark.parametrize(
    ("machines", "workers", "at_once", "cores_each"),
    [
        ((4,), None, 4, 1),
        ((8,), None, 4, 2),  # no more jobs than there are
        ((4,), 2, 2, 2),
        ((4,), 0, 1, 4),  # none besides one
        ((2, 2, 2), 1, 1, 2),  # no more cores than a machine has
    ],
)
def test_jobs_share_the_cores(machines: tuple[int, ...], workers: int | None, at_once: int, cores_each: int) -> None:
    backend = Pretending(machines)
    reproduction = run(backend, workers)
    assert [job.state for job in reproduction.jobs] == ["finished"] * 4
    assert backend.most_running == at_once
    assert {program.cores for program in backend.started} == {cores_each}


def test_killed_jobs_are_restarted_and_failed_ones_are_not() -> None:
    killed = Ending("killed", "SIGKILL")
    planned = {
        "a-seed0": [killed, killed, Ending("finished")],
        "a-seed1": [killed] * 3,
        "a-seed2": [Ending("failed", "svsl: the robot is on fire")],
    }
    jobs = run(Pretending(planned=planned)).jobs
    assert [job.state for job in jobs] == ["finished", "failed", "failed", "finished"]
    assert [job.restarts for job in jobs] == [2, 2, 0, 0]
    assert jobs[1].message == "killed by SIGKILL 3 times (out of memory?); its checkpoint is intact"
    assert jobs[2].message == "the robot is on fire"


def test_a_stop_request_reaches_running_jobs_and_starts_no_others() -> None:
    backend = Pretending()
    jobs = run(backend, workers=2, stop_after=1).jobs
    assert [job.state for job in jobs] == ["finished", "stopped", "stopped", "stopped"]
    assert len(backend.started) == 2


def test_exit_codes_say_how_a_process_ended() -> None:
    assert [ending(code).state for code in (0, 130, 1, 2)] == ["finished", "stopped", "failed", "failed"]
    assert ending(-9) == Ending("killed", "SIGKILL")
    assert isinstance(open_backend("local", Path()), LocalBackend)
    assert set(BACKENDS) == {"local", "ray", "slurm"}


def test_the_evaluation_of_a_worker_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    reproduction, seen = Reproduction("four", EXPERIMENT, Path("out"), 1, 1.0), list[float | None]()
    monkeypatch.setenv("FORCE_COLOR", "1")
    with reproduction.open():
        (job,) = reproduction.jobs
        real = Run.write_progress

        def write(run: Run, progress: Mapping[str, float]) -> None:
            real(run, progress)
            job.refresh()
            seen.append(job.evaluated)

        monkeypatch.setattr(Run, "write_progress", write)
        assert train_and_evaluate(job.run.folder, job.run.config.task, 0, 50, 10.0, lambda: False)
        trained, evaluated = seen.count(None), [share for share in seen if share is not None]
        assert trained > 0
        assert (evaluated[0], evaluated[-1]) == (0.0, 1.0)
        assert evaluated == sorted(evaluated)
        assert (job.work, job.episodes > 0) == (1.0, True), "what was shown before is still there"
        job.state, job.evaluated, file = "running", 0.4, io.StringIO()
        with ReproductionDisplay("toy", file=file) as display:
            display([job])
    assert "evaluation 40%" in file.getvalue()
