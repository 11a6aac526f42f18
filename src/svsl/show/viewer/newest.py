"""A thread that serves only the newest request, so that a slow one never delays those after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class NewestFirst(Generic[T]):
    """Calls `work(request)` in a separate thread; requests that are overtaken while they wait are dropped.

    Args:
        work: Handles a request. If it takes long it should check `overtaken` regularly and return when that is true.
    """

    def __init__(self, work: Callable[[T], None]) -> None:
        self._work, self._waiting, self._closed = work, list[T](), False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask(self, request: T) -> None:
        """Replaces the waiting request."""
        with self._changed:
            self._waiting = [request]
            self._changed.notify()

    @property
    def overtaken(self) -> bool:
        """Whether a newer request waits, or the worker is closed."""
        return self._closed or bool(self._waiting)

    def close(self) -> None:
        """Ends the thread after the current request."""
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
