"""Scale-out on Ray: the seeds of a reproduction as Ray tasks, or the episodes of one run spread over a cluster.

This module is imported only where `--backend ray` asks for it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from svsl.errors import SvslError
from svsl.experiments.reproduction import Job, Reproduction, Show, last_line
from svsl.experiments.worker import Work, train_and_evaluate
from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.tasks.base import Outcome, Task, joined, place_of
from svsl.tasks.registry import make_task

try:
    import ray
except ImportError:
    raise SvslError("--backend ray needs Ray: pip install 'svsl[ray]'") from None

SHARD = 16  # episodes of a Ray task; fixed, so that results do not depend on the number of workers
RETRIES = 5  # of a seed whose node or process was lost
_REACH_S, _POLL_S = 5.0, 0.5
_STOP = ".stop"


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connects to the cluster at `address` or RAY_ADDRESS, or starts one on this machine; or keeps what is connected.

    Raises:
        SvslError: If the cluster cannot be reached.
    """
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == "local":
        quiet |= {"include_dashboard": False, "object_store_memory": 200 * 2**20}
    else:
        _reach(address)
    try:
        ray.init(address=address, **quiet)
    except Exception as error:  # Ray raises many kinds
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise SvslError(f"Ray cluster {address!r} cannot be used: {reason[0]}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Knocks at the cluster's door: Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        if address != "auto":
            raise SvslError(f"Ray address: expected HOST:PORT, ray://HOST:PORT or auto, got {address!r}")
        return
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except OSError as error:
        raise SvslError(
            f"Ray cluster {address!r} cannot be reached ({error.strerror or error}); is it up (ray status), and is the "
            "address right (--ray-address, RAY_ADDRESS)?"
        ) from None


# ---- seeds ----------------------------------------------------------------------------------------------------------


def run_on_ray(
    made: Reproduction, address: str | None, workers: int | None, show: Show, stop: Callable[[], bool]
) -> None:
    """Works on all unfinished jobs as Ray tasks, in a folder that all nodes share.

    A task whose node is lost is started again by Ray elsewhere and goes on from the run's last checkpoint.
    """
    wish = made.folder / _STOP
    wish.unlink(missing_ok=True)
    if not made.unfinished:
        show(made.jobs)
        return
    with connected(address):
        alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        nodes = [node["Resources"].get("CPU", 0.0) for node in alive]
        at_once = max(1, min(workers or int(sum(nodes)), len(made.unfinished)))
        threads = max(1, min(int(max(nodes)), int(sum(nodes)) // at_once))
        remote = ray.remote(num_cpus=threads, max_retries=RETRIES)(_work_remotely)
        waiting, running = list(made.unfinished), dict[Any, Job]()
        while waiting or running:
            if stop() and not wish.exists():
                wish.touch()
            while waiting and len(running) < at_once and not wish.exists():
                job = waiting.pop(0)
                running[remote.remote(made.work(job, threads), os.getcwd())] = job
            done, _ = ray.wait(list(running), timeout=_POLL_S) if running else ([], [])
            for reference in done:
                _settle(running.pop(reference), reference)
            for job in running.values():
                job.refresh()
                job.state = "running"
            show(made.jobs)
            if wish.exists() and not running:
                break
        for job in waiting:
            job.settle("stopped")
        wish.unlink(missing_ok=True)


def _work_remotely(work: Work, folder: str) -> str:
    """One seed on some node: an empty string if it finished, else what happened; details are in the run's log."""
    if folder not in sys.path:
        sys.path.insert(0, folder)  # a user's `module:factory` lies there
    wish, looked, found = Path(work.folder).parent / _STOP, -np.inf, False

    def stop() -> bool:
        nonlocal looked, found
        if time.monotonic() - looked > _POLL_S:
            looked, found = time.monotonic(), wish.exists()
        return found

    try:
        return "" if train_and_evaluate(work, stop) else "stopped"
    except SvslError as error:
        text = f"svsl: {error}\n"
    except Exception:
        text = traceback.format_exc()
    log = Path(work.folder) / "log.txt"
    with contextlib.suppress(OSError), open(log, "a") as file:
        file.write(text)
    return "failed: " + text.strip().splitlines()[-1].removeprefix("svsl: ")


def _settle(job: Job, reference: Any) -> None:
    try:
        told = ray.get(reference)
    except Exception as error:  # the node or the worker was lost too often
        first = (str(error).strip().splitlines() or [""])[0]
        job.settle("failed", f"lost {RETRIES + 1} times ({type(error).__name__}: {first})")
        return
    if told.startswith("failed: "):
        job.settle("failed", told.removeprefix("failed: ") or last_line(job.run.folder / "log.txt"))
    else:
        job.settle("stopped" if told else "finished")


# ---- episodes -------------------------------------------------------------------------------------------------------

_TASKS: dict[str, Task] = {}  # of a worker process: made once


class RayTask:
    """A task whose episodes run on a Ray cluster.

    A batch is cut into shards of 16 episodes, each a Ray task that is run again if its worker or node is lost; outcomes
    are gathered in order. A task that does not use its `rng` gives exactly what it gives locally. For one that does,
    each shard draws from a generator of its own, made from one number of the run's generator and the shard's position:
    repeatable and independent of the number of workers, but other noise than in a local run.

    Args:
        name: The task's name.
        options: Passed to its factory.
    """

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        self.name, self.options = name, dict(options)
        self.local = make_task(name, **options)
        self._remote = ray.remote(num_cpus=1, max_retries=-1)(_evaluate_shard)

    def __getattr__(self, name: str) -> Any:
        if name == "workers":  # the threads are the cluster's
            raise AttributeError(name)
        return getattr(self.local, name)

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Runs one episode per row, on the cluster."""
        seed, starts = int(rng.integers(2**63)), range(0, len(contexts), SHARD)
        if not len(starts):
            return self.local.evaluate(contexts, parameters, rng)
        found: list[Any] = ray.get(
            [
                self._remote.remote(
                    self.name, self.options, contexts[s : s + SHARD], parameters[s : s + SHARD], (seed, s), os.getcwd()
                )
                for s in starts
            ]
        )
        for part in found:
            if isinstance(part, str):
                raise SvslError(f"task {self.name!r} failed on a Ray worker: {part}")
        return joined(found)


def _evaluate_shard(
    name: str, options: dict[str, object], contexts: Array, parameters: Array, key: tuple[int, int], folder: str
) -> Outcome | str:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        task = _TASKS.get(repr((name, options)))
        if task is None:
            task = make_task(name, **options)
            if hasattr(task, "workers"):
                task.workers = 1
            _TASKS[repr((name, options))] = task
        return task.evaluate(contexts, parameters, stream(*key))
    except Exception as error:  # as text: the error's own class may not exist on the other side
        return place_of(error)
