"""`svsl view`."""

import time
import webbrowser
from dataclasses import dataclass
from importlib.util import find_spec

from svsl.cli.parsing import Source, Switch, parse
from svsl.errors import SvslError
from svsl.runs.sources import open_source


@dataclass(frozen=True)
class Options:
    """Open a web page on which you choose a context and watch the skills for it."""

    source: Source
    """A run folder (finished or still training), a library file, or the name of a shipped library."""
    host: str = "127.0.0.1"
    """Address to listen on; default this machine only (0.0.0.0: everyone who can reach it)."""
    port: int = 8080
    """Port to listen on; if it is busy, the next free one is taken. 0 takes any free one."""
    open: Switch = False
    """Open the page in the browser."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise SvslError(f"setting port: expected 0 to 65535, got {self.port}")


def main(args: list[str]) -> int:
    """Serves the page until Ctrl-C."""
    options = parse(Options, args, "svsl view")
    for package in ("viser", "mjviser"):
        if find_spec(package) is None:
            raise SvslError(f"svsl view needs {package}: pip install 'svsl[viewer]'")
    source = open_source(options.source)
    source.task()  # report a mistake before anything is served
    from svsl.runs.training import stop_on_signals
    from svsl.show.viewer.page import Page

    with stop_on_signals() as stop:
        page = Page(source.library, source.task, options.host, options.port)
        try:
            print(f"{page.address}  (Ctrl-C ends)", flush=True)
            if options.open:
                webbrowser.open(page.address)
            while not stop():
                time.sleep(0.1)
        finally:
            page.close()
    return 0
