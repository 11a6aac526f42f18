"""How long something takes."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_ms(work: Callable[[], object], calls: int, repeats: int = 3) -> float:
    """Milliseconds per call: the best of some repeats of `calls` calls, after one call to warm up."""
    best = float("inf")
    work()
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e3
