"""Programs and function calls on a Ray cluster; imported only on request."""

import contextlib
import io
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from svsl.backends.base import Ending, Program
from svsl.backends.local import ending
from svsl.errors import SvslError

try:
    import ray
except ImportError:
    raise SvslError("--backend ray needs Ray: pip install 'svsl[ray]'") from None

RETRIES = 5  # of a program whose node or process was lost
_REACH_S, _POLL_S = 5.0, 0.5
_STOP_FILE = ".stop"


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connects to the cluster at `address` or RAY_ADDRESS, or starts one on this machine; keeps an open connection."""
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == "local":
        settings |= {"include_dashboard": False, "object_store_memory": 200 * 2**20}
    else:
        _check_reachable(address)
    try:
        ray.init(address=address, **settings)
    except Exception as error:  # Ray raises many kinds
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise SvslError(f"Ray cluster {address!r} cannot be used: {reason[0]}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Fails fast if the cluster is unreachable; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        raise SvslError(f"Ray address: expected HOST:PORT, ray://HOST:PORT or auto, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except OSError as error:
        raise SvslError(
            f"Ray cluster {address!r} cannot be reached ({error.strerror or error}); is it up (ray status), and is the "
            "address right (--ray-address, RAY_ADDRESS)?"
        ) from None


class RemoteFunction:
    """A function whose calls run on the connected cluster, each again if its worker or node is lost."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._remote = function, ray.remote(num_cpus=1, max_retries=-1)(_call)

    def map(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Returns the result of each call, given its arguments, in order."""
        results: list[Any] = ray.get([self._remote.remote(os.getcwd(), self._function, *args) for args in calls])
        return results


class RayBackend:
    """Runs each program as a Ray task, which Ray restarts if its node is lost; a file in `folder` stops all of them."""

    def __init__(self, folder: Path, address: str | None = None) -> None:
        self._stop_file = folder.absolute() / _STOP_FILE
        self._stop_file.unlink(missing_ok=True)
        self._running: list[Any] = []
        self._connection = contextlib.ExitStack()
        self._connection.enter_context(connected(address))

    def cores(self) -> Sequence[int]:
        """Cores of each living node."""
        alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        return [int(node["Resources"].get("CPU", 0.0)) for node in alive]

    def start(self, program: Program) -> Any:
        """Submits a task."""
        remote = ray.remote(num_cpus=program.cores, max_retries=RETRIES)(_call)
        self._running.append(remote.remote(os.getcwd(), _run, program, self._stop_file))
        return self._running[-1]

    def wait(self) -> list[tuple[Any, Ending]]:
        """Waits for a task to end."""
        ended, self._running = ray.wait(self._running, timeout=_POLL_S) if self._running else ([], [])
        return [(reference, _ending(reference)) for reference in ended]

    def request_stop(self) -> None:
        """Creates the file that all tasks look for."""
        self._stop_file.touch()

    def close(self) -> None:
        """Disconnects, which ends the tasks, unless the connection existed before."""
        self._connection.close()
        self._stop_file.unlink(missing_ok=True)


def _call(folder: str, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function on a node; modules in `folder`, where the user works, can be imported there."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return function(*args)


def _run(program: Program, stop_file: Path) -> tuple[int, str]:
    """Runs a program on a node; returns its exit code and the last line of its output, all of which is in its log."""
    last_check_s, stop_requested = -1.0, False

    def stop() -> bool:
        nonlocal last_check_s, stop_requested
        if time.monotonic() - last_check_s > _POLL_S:
            last_check_s, stop_requested = time.monotonic(), stop_file.exists()
        return stop_requested

    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            code = int(import_module(program.module).main(program.args, stop))
    except Exception:
        output.write(traceback.format_exc())
        code = 1
    with contextlib.suppress(OSError), open(program.log, "a") as log:
        log.write(output.getvalue())
    return code, (output.getvalue().strip().splitlines() or [""])[-1]


def _ending(reference: Any) -> Ending:
    try:
        code, message = ray.get(reference)
    except Exception as error:  # the node or the worker was lost too often
        first = (str(error).strip().splitlines() or [""])[0]
        return Ending("failed", f"lost {RETRIES + 1} times ({type(error).__name__}: {first})")
    return Ending(ending(code).state, message)
