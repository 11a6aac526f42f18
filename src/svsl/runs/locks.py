"""Locks against a second process in one folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from svsl.errors import SvslError


@contextlib.contextmanager
def folder_lock(folder: Path, busy: str, wait_s: float = 0.0) -> Iterator[None]:
    """Locks a folder against other processes, as far as its file system has locks.

    The system releases the lock when the process ends, however it ends.

    Args:
        folder: An existing folder; its lock file is `.lock`.
        busy: The error message if another process holds the lock.
        wait_s: How long to wait for that process.

    Raises:
        SvslError: If another process holds the lock.
    """
    (folder / ".lock").touch()  # a folder that cannot be written is an error, one that cannot be locked is not
    # no fallback to a marker file: one left by a killed process would block the folder
    lock = FileLock(folder / ".lock", timeout=wait_s, fallback_to_soft=False)
    with contextlib.suppress(OSError):  # a file system without locks, as on some clusters
        try:
            lock.acquire()
        except Timeout:
            raise SvslError(busy) from None
    try:
        yield
    finally:
        lock.release()
