"""A thread that serves the newest request only, so that a slow one never holds up what was asked after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class NewestFirst(Generic[T]):
    """Calls `work(request)` in a thread of its own; requests that are overtaken while they wait are dropped.

    Args:
        work: Does the work. If it takes long it should look at `overtaken` now and then, and return when that is true.
    """

    def __init__(self, work: Callable[[T], None]) -> None:
        self._work, self._waiting, self._closed = work, list[T](), False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask(self, request: T) -> None:
        """Puts a request in place of the one that waits."""
        with self._changed:
            self._waiting = [request]
            self._changed.notify()

    @property
    def overtaken(self) -> bool:
        """Whether something newer waits, or nobody wants the result any more."""
        return self._closed or bool(self._waiting)

    def close(self) -> None:
        """Ends the thread after the work at hand."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.overtaken)
                if self._closed:
                    return
                request = self._waiting.pop()
            self._work(request)
