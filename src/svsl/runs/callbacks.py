"""Callbacks: what a program sees of a run in training, and how it can stop it."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from svsl.errors import SvslError
from svsl.model.library import SkillLibrary
from svsl.tasks.base import place_of


class Callback:
    """Follows the training of a run; override what you need.

    A method that returns False stops training: the state of the run is saved first, and `svsl.train` returns the
    library learned so far. An error in a method stops it, too, and is raised after the state is saved.

    Examples:
        >>> import svsl
        >>> class Stop(svsl.Callback):
        ...     def on_component(self, library):
        ...         return len(library) < 2  # False stops
        >>> len(svsl.train("planar-reacher", components=5, iterations=2, callbacks=[Stop()]))
        2
    """

    def on_metrics(self, metrics: Mapping[str, float | None]) -> bool | None:
        """Called after each test with its row of `metrics.jsonl`; None stands for a number that is not finite."""

    def on_component(self, library: SkillLibrary) -> bool | None:
        """Called after each test with the library so far: after a component, and when the weights are learned."""

    def on_checkpoint(self, path: Path) -> bool | None:
        """Called after a checkpoint was written to `path`."""

    def close(self) -> None:
        """Called when training ends, however it ends."""


class Callbacks:
    """All callbacks of a run: calls them, and remembers whether one wants to stop and what went wrong.

    Attributes:
        stopping: Whether training should stop after the state is saved.
        error: The first error in a callback, None if there was none.
    """

    def __init__(self, members: Iterable[Callback]) -> None:
        self.members = tuple(members)
        self.stopping, self.error = False, None  # type: bool, SvslError | None

    def metrics(self, row: Mapping[str, float | None]) -> None:
        """Passes on a row of metrics."""
        self._call("on_metrics", lambda member: member.on_metrics(dict(row)))

    def component(self, library: SkillLibrary) -> None:
        """Passes on the library so far."""
        self._call("on_component", lambda member: member.on_component(library))

    def checkpoint(self, path: Path) -> None:
        """Passes on the path of a checkpoint."""
        self._call("on_checkpoint", lambda member: member.on_checkpoint(path))

    def close(self) -> None:
        """Closes all callbacks."""
        for member in self.members:
            with contextlib.suppress(Exception):  # must not hide the error that ended training
                member.close()

    def _call(self, name: str, call: Callable[[Callback], bool | None]) -> None:
        for member in self.members:
            try:
                self.stopping |= call(member) is False
            except Exception as error:  # user code may raise anything
                self.stopping = True
                if self.error is None:
                    self.error = SvslError(f"callback {type(member).__name__}.{name} failed: {place_of(error)}")
                    self.error.__cause__ = error


def checked_callbacks(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    """Returns callbacks as a tuple; rejects anything else."""
    members = tuple(callbacks) if isinstance(callbacks, Iterable) else (callbacks,)
    for member in members:
        if not isinstance(member, Callback):
            got = f"the class {member.__name__}" if isinstance(member, type) else repr(member)
            raise SvslError(f"callbacks: expected objects of svsl.Callback, got {got}")
    return members
