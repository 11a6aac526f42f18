"""How long a function takes."""

import time
from collections.abc import Callable
from typing import Any

Timing = dict[str, Any]  # a measurement in the JSON of `svsl bench`: numbers by name, with the unit in the name


def best_ms(work: Callable[[], object], calls: int, repeats: int = 3) -> float:
    """Returns milliseconds per call: the best of `repeats` series of `calls` calls, after one call to warm up."""
    best = float("inf")
    work()
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e3
