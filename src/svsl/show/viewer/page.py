"""The page: one independent session per browser tab."""

import contextlib
import io
import socket
import threading
import warnings
from collections.abc import Callable

import viser

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.model.random import PLOT_STREAM, stream
from svsl.runs.sources import seed_of
from svsl.show.plots.contexts import success_rates
from svsl.show.plots.style import counted
from svsl.show.viewer.board import Dims
from svsl.show.viewer.session import Session
from svsl.show.viewer.stage import framed, view_of
from svsl.tasks.base import Task, context_maps
from svsl.tasks.presentation import Showable


def _quiet() -> contextlib.redirect_stdout[io.StringIO]:
    """Hides viser's banners from the terminal."""
    return contextlib.redirect_stdout(io.StringIO())


def _check_host(host: str) -> None:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise SvslError(f"host: expected an address of this machine, got {host!r} ({error.strerror})") from None


class Page:
    """Serves the page of a library until it is closed.

    Each tab gets its own task from `make_task`, so that none waits for another. If `port` is busy, the next free one is
    taken; if it is 0, any free one.
    """

    def __init__(self, library: SkillLibrary, make_task: Callable[[], Task], host: str, port: int) -> None:
        _check_host(host)  # viser would wait forever
        # a tab may be closed at any moment, even while a message is being sent
        warnings.filterwarnings("ignore", "Queued a .* on a closed connection", UserWarning)
        self.library, self.make_task = library, make_task
        self.maps: dict[Dims, Array] = {}
        self._map_state = ("Compute success map", False)  # the button's text, and whether it is disabled
        self._sessions: dict[int, Session] = {}
        self._computing = threading.Lock()
        name = library.metadata.get("task", "skill library")
        with _quiet():
            label = f"{name}: {counted(len(library), 'skill')}"
            self.server = viser.ViserServer(host=host, port=port, label=label, verbose=False)
        self.server.gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(51, 34, 136))
        self.server.gui.main_panel.dock_right()
        task = make_task()
        maps, has_scene = len(context_maps(task)), isinstance(task, Showable)
        self.layout = framed(view_of(task), maps, has_scene)
        view, camera = self.layout.view, self.server.initial_camera
        self.server.scene.set_up_direction(view.up)
        camera.position, camera.look_at, camera.fov = view.eye, view.target, view.fov
        self.server.on_client_connect(self._connect)
        self.server.on_client_disconnect(self._disconnect)

    @property
    def address(self) -> str:
        """The URL of the page."""
        host = self.server.get_host()
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server.get_port()}"

    def close(self) -> None:
        """Closes all sessions and the server."""
        for session in list(self._sessions.values()):
            session.close()
        with _quiet():
            self.server.stop()

    def compute_maps(self) -> None:
        """Computes the success maps, once for all tabs, on a separate task."""
        if self.maps or not self._computing.acquire(blocking=False):
            return
        self._show_map_state("computing the success map ...", disabled=True)
        threading.Thread(target=self._compute_maps, daemon=True).start()

    def _compute_maps(self) -> None:
        try:
            task, rng = self.make_task(), stream(seed_of(self.library), PLOT_STREAM, 2)
            for dims in context_maps(task):
                if len(dims) == 2:
                    self.maps[dims] = success_rates(self.library, task, (dims[0], dims[1]), rng)
                    for session in list(self._sessions.values()):
                        session.draw_maps()
            self._show_map_state("Success map computed", disabled=True)
        except Exception as error:  # the task may be the user's own
            self._show_map_state(f"failed: {type(error).__name__}: {error}"[:80], disabled=False)
        finally:
            self._computing.release()

    def _show_map_state(self, text: str, disabled: bool) -> None:
        self._map_state = (text, disabled)
        for session in list(self._sessions.values()):
            session.controls.success_map.label, session.controls.success_map.disabled = self._map_state

    def _connect(self, client: viser.ClientHandle) -> None:
        session = Session(client, self.library, self.make_task(), self.layout, self.maps)
        session.controls.success_map.on_click(lambda _: self.compute_maps())
        session.controls.success_map.label, session.controls.success_map.disabled = self._map_state
        self._sessions[client.client_id] = session

    def _disconnect(self, client: viser.ClientHandle) -> None:
        session = self._sessions.pop(client.client_id, None)
        if session is not None:
            session.close()
