"""The backend protocol: programs that run somewhere, and how they ended. `BACKENDS` names the implementations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol

BACKENDS = {
    "local": "svsl.backends.local:LocalBackend",
    "ray": "svsl.backends.ray_cluster:RayBackend",
}

STOPPED = 130  # exit code of a program that saved its state and stopped on request


@dataclass(frozen=True)
class Program:
    """A Python module to run, with the working directory of this process on its path.

    Attributes:
        module: Has a `main(args, stop=None)` that returns an exit code (0: finished, `STOPPED`: stopped on request) and
            also runs as `python -m MODULE ARGS`. There it stops on SIGTERM; elsewhere, when `stop()` is true.
        args: Its arguments.
        log: File to which its output is appended.
        cores: Cores it uses.
    """

    module: str
    args: tuple[str, ...]
    log: Path
    cores: int


@dataclass(frozen=True)
class Ending:
    """How a program ended.

    Attributes:
        state: `killed` means that it can be started again; a failed one would fail again.
        reason: Why, if it was killed or failed; empty if only its log says so.
    """

    state: Literal["finished", "stopped", "killed", "failed"]
    reason: str = ""


class Backend(Protocol):
    """Runs programs. It is created with the folder of all runs, shared by all machines, and the cluster's address."""

    def cores(self) -> Sequence[int]:
        """Cores of each machine."""
        ...

    def start(self, program: Program) -> Hashable:
        """Starts a program and returns a handle to it.

        Raises:
            OSError: If it cannot be started.
        """
        ...

    def wait(self) -> list[tuple[Hashable, Ending]]:
        """Returns the programs that have ended since the last call; waits a moment if there are none."""
        ...

    def request_stop(self) -> None:
        """Asks all running programs to save their state and stop."""
        ...

    def close(self) -> None:
        """Ends what is still running, at once, and releases the backend."""
        ...


def open_backend(name: str, folder: Path, address: str | None = None) -> Backend:
    """Opens the backend called `name`, importing its module.

    Args:
        name: A key of `BACKENDS`.
        folder: The folder of all runs.
        address: Address of the cluster, for a backend that has one.

    Raises:
        SvslError: If its package is not installed or its cluster cannot be reached.
    """
    module, _, factory = BACKENDS[name].partition(":")
    backend: Backend = getattr(import_module(module), factory)(folder, address)
    return backend
