"""The process pool: results, dying processes, exceptions, and no process left behind."""

import functools
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from svsl import SvslError
from svsl.backends.process_pool import ProcessPool

Play = Callable[[int], tuple[int, int]]


def playing(act: Callable[[int], int]) -> Play:
    """Called once in each process."""
    return lambda job: (act(job), os.getpid())


def square(job: int) -> int:
    return job * job


def die_once(job: int) -> int:
    """Kills the process of job 5, the first time."""
    if job == 5 and not Path("dead").exists():
        Path("dead").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def die_always(job: int) -> int:
    if job == 5:
        os._exit(3)
    return job


def fail(job: int) -> int:
    return 1 // (job - 7)


def refuse(job: int) -> int:
    raise SvslError("no")


def pool_of(act: Callable[[int], int], workers: int = 2) -> ProcessPool[int, tuple[int, int]]:
    return ProcessPool("toy", functools.partial(playing, act), lambda job: f"job {job}", workers)


def alive(pid: int) -> bool:
    """Whether a process exists, even as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_results_are_in_order_and_processes_persist() -> None:
    pool = pool_of(square)
    first, second = pool.map(range(100)), pool.map(range(3))
    assert [result for result, _ in first] == [job**2 for job in range(100)]
    assert [result for result, _ in second] == [0, 1, 4]
    pids = {pid for _, pid in first}
    assert os.getpid() not in pids
    assert {pid for _, pid in second} <= pids
    assert pool.map([]) == []
    pool.close()
    assert not any(map(alive, pids))
    assert [result for result, _ in pool.map([3])] == [9], "the pool starts new processes"
    pids = {worker.process.pid or 0 for worker in pool._workers}
    del pool
    gc.collect()
    assert not any(map(alive, pids)), "a deleted pool is closed"


def test_a_process_that_dies_is_replaced_and_its_jobs_are_repeated() -> None:
    pool = pool_of(die_once)
    assert [result for result, _ in pool.map(range(20))] == list(range(20))
    assert Path("dead").exists()
    assert pool.replaced == 1
    victim = pool._workers[0].process.pid
    assert victim
    os.kill(victim, signal.SIGKILL)  # while it is idle
    assert [result for result, _ in pool.map(range(20))] == list(range(20))
    assert pool.replaced == 2
    pool.close()


def test_a_job_that_always_kills_its_process_is_named() -> None:
    pool = pool_of(die_always)
    with pytest.raises(SvslError, match=r"toy: one episode ended its process 3 times \(exit code 3\): job 5"):
        pool.map(range(20))
    assert pool._workers == []


@pytest.mark.parametrize("workers", [0, 1])
def test_exceptions_become_one_line(workers: int) -> None:
    message = r"toy failed: ZeroDivisionError: .*by zero \(test_process_pool.py line \d+\); it happened with job 7"
    with pytest.raises(SvslError, match=message):
        pool_of(fail, workers).map(range(20))
    with pytest.raises(SvslError, match=r"^no$"):
        pool_of(refuse, workers).map(range(20))


def test_a_function_that_cannot_be_pickled_is_rejected() -> None:
    with pytest.raises(SvslError, match=r"toy: cannot be sent to other processes .* workers = 0"):
        pool_of(lambda job: job).map([1])
    assert pool_of(lambda job: job, workers=0).map([1]) == [(1, os.getpid())]


def test_a_script_without_a_guard_gets_a_hint() -> None:
    Path("naive.py").write_text(
        "import functools, operator, sys\n"
        "from svsl.backends.process_pool import ProcessPool\n"
        "print(ProcessPool('toy', functools.partial(operator.attrgetter, 'real'), str, 1).map([4]))\n"
    )
    result = subprocess.run([sys.executable, "naive.py"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert 'needs if __name__ == "__main__"' in result.stderr.splitlines()[-1]
    guarded = Path("naive.py").read_text().replace("print", "if __name__ == '__main__': print")
    Path("naive.py").write_text(guarded)
    result = subprocess.run([sys.executable, "naive.py"], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("[4]\n", "")
