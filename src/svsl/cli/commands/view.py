"""`svsl view`."""

import socket
import time
import webbrowser
from contextlib import closing
from dataclasses import dataclass

from svsl.cli.parsing import SourceName, Switch, require_range
from svsl.cli.task_choice import TaskFlags
from svsl.errors import complain
from svsl.runs.sources import open_source
from svsl.runs.training import stop_on_signals

_EVERY_INTERFACE = ("", "0.0.0.0", "::")  # to listen on; a browser needs the address of this machine


@dataclass(frozen=True)
class Options(TaskFlags):
    """Open a web page on which you choose a context and watch the skills for it."""

    source: SourceName
    """A run folder (finished or still training), a library file, the name of a shipped library, or hf:user/name."""
    host: str = "127.0.0.1"
    """Address to listen on; the default is this machine only, 0.0.0.0 everyone who can reach it."""
    port: int = 8080
    """Port to listen on; if it is busy, the next free one is used. 0 means any free port."""
    open: Switch = False
    """Open the page in the browser."""

    def __post_init__(self) -> None:
        require_range(0, 65535, port=self.port)


def main(options: Options) -> None:
    """Serves the page until Ctrl-C."""
    source = open_source(options.source, options.choice)
    library = source.library
    source.make_task()  # report a mistake before serving anything
    from svsl.show.viewer.page import Page

    with (
        stop_on_signals(message="") as stop,
        closing(Page(library, source.make_task, options.host, options.port)) as page,
    ):
        address = page.address
        if options.host in _EVERY_INTERFACE:
            address = f"http://{_own_address()}:{page.server.get_port()}"
        if not _only_here(options.host):
            complain("everybody on the network can use this page: it asks for no password, and runs episodes here")
        print(f"{address}  (Ctrl-C ends)", flush=True)
        if options.open:
            webbrowser.open(address)
        while not stop():
            time.sleep(0.1)


def _only_here(host: str) -> bool:
    """Returns whether only this machine can reach a server at `host`."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _own_address() -> str:
    """Returns the address of this machine in its network; that for itself if there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: the system only chooses the address it would send from
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
