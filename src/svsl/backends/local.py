"""Programs as processes on this machine."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from svsl.backends.base import STOPPED, Ending, Program
from svsl.backends.process_pool import available_cores

_POLL_S = 0.1
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class LocalBackend:
    """Runs each program in its own process; see `Backend`."""

    def __init__(self, folder: Path, address: str | None = None) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def cores(self) -> Sequence[int]:
        """Cores of this machine."""
        return [available_cores()]

    def start(self, program: Program) -> int:
        """Starts a process whose output goes to the program's log."""
        with open(program.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", program.module, *program.args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | _ONE_THREAD,
                start_new_session=True,  # Ctrl-C reaches only this process, which then asks each program to stop
            )
        self._processes[process.pid] = process
        return process.pid

    def wait(self) -> list[tuple[int, Ending]]:
        """Looks for processes that have ended."""
        ended = {pid: process.returncode for pid, process in self._processes.items() if process.poll() is not None}
        if not ended:
            time.sleep(_POLL_S)
        for pid in ended:
            del self._processes[pid]
        return [(pid, ending(code)) for pid, code in ended.items()]

    def request_stop(self) -> None:
        """Sends SIGTERM."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)

    def join(self, timeout_s: float) -> None:
        """Waits until all processes have ended, but for each not longer than this; a signal handler may call it."""
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)

    def close(self) -> None:
        """Kills all processes; their last checkpoints remain."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()


def ending(code: int) -> Ending:
    """Returns how a program with this exit code (negative: killed by a signal) ended."""
    if code < 0:
        return Ending("killed", signal.Signals(-code).name)
    return Ending({0: "finished", STOPPED: "stopped"}.get(code, "failed"))  # type: ignore[arg-type]
