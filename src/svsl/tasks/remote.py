"""A task whose episodes run on a Ray cluster; imported only on request."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from svsl.backends.ray_cluster import RemoteFunction
from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.model.random import stream
from svsl.tasks.base import Outcome, Task, joined, place_of
from svsl.tasks.registry import make_task

SHARD = 16  # episodes per call; fixed, so that results do not depend on the number of workers

_TASKS: dict[str, Task] = {}  # of a worker process: each is created once


class RayTask:
    """A task whose episodes run on the connected cluster.

    A batch is cut into shards of 16 episodes, each of which is run again if its worker or node is lost; outcomes are
    gathered in order. A task that does not use its `rng` gives exactly what it gives locally. For one that does, each
    shard draws from its own generator, derived from one number of the run's generator and the shard's position:
    repeatable and independent of the number of workers, but different noise than in a local run.
    """

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        self.name, self.options = name, dict(options)
        self.local = make_task(name, **options)
        self._remote = RemoteFunction(_evaluate_shard)

    def __getattr__(self, name: str) -> Any:
        if name == "workers":  # the number of workers is the cluster's
            raise AttributeError(name)
        return getattr(self.local, name)

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Runs one episode per row, on the cluster."""
        seed, starts = int(rng.integers(2**63)), range(0, len(contexts), SHARD)
        if not len(starts):
            return self.local.evaluate(contexts, parameters, rng)
        shards = [(contexts[s : s + SHARD], parameters[s : s + SHARD], (seed, s)) for s in starts]
        parts = self._remote.map([(self.name, self.options, *shard) for shard in shards])
        for part in parts:
            if isinstance(part, str):
                raise SvslError(f"task {self.name!r} failed on a Ray worker: {part}")
        return joined(parts)


def _evaluate_shard(
    name: str, options: dict[str, object], contexts: Array, parameters: Array, key: tuple[int, int]
) -> Outcome | str:
    """Runs one shard on a worker; an error is returned as text, because its class may not exist on the other side."""
    try:
        task = _TASKS.get(repr((name, options)))
        if task is None:
            task = make_task(name, **options)
            if hasattr(task, "workers"):
                task.workers = 1
            _TASKS[repr((name, options))] = task
        return task.evaluate(contexts, parameters, stream(*key))
    except Exception as error:
        return place_of(error)
