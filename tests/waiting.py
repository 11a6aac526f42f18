"""Waiting for other processes, with a deadline."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """Returns as soon as `condition()` is true; fails if that takes longer than `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"still waiting after {timeout_s:g} s"
        time.sleep(0.01)
