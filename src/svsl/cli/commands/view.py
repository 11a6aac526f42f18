"""`svsl view`."""

import time
import webbrowser
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec

from svsl.cli.parsing import SourceName, Switch, require_range
from svsl.cli.task_choice import TaskFlags
from svsl.errors import SvslError
from svsl.runs.sources import open_source
from svsl.runs.training import stop_on_signals


@dataclass(frozen=True)
class Options(TaskFlags):
    """Open a web page on which you choose a context and watch the skills for it."""

    source: SourceName
    """A run folder (finished or still training), a library file, or the name of a shipped library."""
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
    for package in ("viser", "mjviser"):
        if find_spec(package) is None:
            raise SvslError(f"svsl view needs {package}: pip install 'svsl[viewer]'")
    source = open_source(options.source, options.choice)
    library = source.library
    source.make_task()  # report a mistake before serving anything
    from svsl.show.viewer.page import Page

    with stop_on_signals() as stop, closing(Page(library, source.make_task, options.host, options.port)) as page:
        print(f"{page.address}  (Ctrl-C ends)", flush=True)
        if options.open:
            webbrowser.open(page.address)
        while not stop():
            time.sleep(0.1)
