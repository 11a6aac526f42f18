"""The backend protocol: programs that run somewhere, and how they ended. `BACKENDS` names the implementations."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol

BACKENDS = {
    "local": "svsl.backends.local:LocalBackend",
    "ray": "svsl.backends.ray_cluster:RayBackend",
    "slurm": "svsl.backends.slurm:SlurmBackend",
}

STOPPED = 130  # exit code of a program that saved its state and stopped on request


@dataclass(frozen=True)
class Program:
    """A Python module to run, with the working directory of this process on its path.

    The module has a `main(args, stop=None)` that returns an exit code (0: finished, `STOPPED`: stopped on request) and
    also runs as `python -m MODULE ARGS`. There it stops on SIGTERM; elsewhere, when `stop()` is true.
    """

    module: str
    args: tuple[str, ...]
    log: Path  # its output is appended
    cores: int


@dataclass(frozen=True)
class Ending:
    """How a program ended; one that was killed can be started again, one that failed would fail again.

    One that is detached has not ended: it goes on, but this process no longer follows it.
    """

    state: Literal["finished", "stopped", "killed", "failed", "detached"]
    reason: str = ""  # why it was killed or failed; empty if only its log says so


@dataclass(frozen=True)
class SlurmJobs:
    """Jobs of Slurm: how many programs share one, and what is asked of Slurm for each (`partition`, `time`, ...)."""

    per_job: int = 1
    options: Mapping[str, object] = field(default_factory=dict)


class Backend(Protocol):
    """Runs programs.

    It is created with the folder of all runs, shared by all machines, and with what says where the programs run: the
    address of a Ray cluster, or `SlurmJobs`.
    """

    def cores(self) -> Sequence[int]:
        """Cores of each machine."""
        ...

    def start(self, program: Program) -> Hashable:
        """Starts a program and returns a handle to it; raises an `OSError` if it cannot be started."""
        ...

    def wait(self) -> list[tuple[Hashable, Ending]]:
        """Returns the programs that have ended since the last call; waits a moment if there are none."""
        ...

    def request_stop(self) -> None:
        """Asks all running programs to save their state and stop, or detaches from them."""
        ...

    def close(self) -> None:
        """Ends all running programs that depend on this process at once and releases the backend."""
        ...


def open_backend(name: str, folder: Path, where: str | SlurmJobs | None = None) -> Backend:
    """Imports and opens the backend called `name` for the runs in `folder`; see `Backend`."""
    module, _, factory = BACKENDS[name].partition(":")
    backend: Backend = getattr(import_module(module), factory)(folder, where)
    return backend
