"""Callbacks for experiment trackers; their packages are imported when a callback is created."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from svsl.errors import SvslError
from svsl.runs.callbacks import Callback


class _Tracker(Callback):
    """Logs each row of metrics over episodes."""

    package = ""
    log_options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, **options: Any) -> None:
        try:
            package = import_module(self.package)
        except ImportError as error:
            name = type(self).__name__
            raise SvslError(f"{name}: {error}; pip install 'svsl[{self.package}]' installs what it needs") from None
        self.run: Any = package.init(**options)

    def on_metrics(self, metrics: Mapping[str, float | None]) -> None:
        """Logs one row."""
        numbers = {name: value for name, value in metrics.items() if value is not None}
        self.run.log(numbers, step=int(numbers["episodes"]), **self.log_options)

    def close(self) -> None:
        """Ends the tracker's run."""
        self.run.finish()


class WandbCallback(_Tracker):
    """Logs the metrics to Weights & Biases; needs the extra `wandb`.

    Args:
        **options: Of `wandb.init`, such as `project="throws"` or `mode="offline"`.

    Examples:
        >>> import svsl
        >>> from svsl.runs.trackers import WandbCallback
        >>> follower = WandbCallback(project="throws", mode="offline")
        >>> library = svsl.train("planar-reacher", components=1, iterations=2, callbacks=[follower])
    """

    package = "wandb"
    log_options = MappingProxyType({"commit": True})  # otherwise a row is only kept when the next one comes


class TrackioCallback(_Tracker):
    """Logs the metrics to Trackio, which keeps them on this machine; needs the extra `trackio`.

    Args:
        **options: Of `trackio.init`; `project="throws"` is required.

    Examples:
        >>> import svsl
        >>> from svsl.runs.trackers import TrackioCallback
        >>> follower = TrackioCallback(project="throws")
        >>> library = svsl.train("planar-reacher", components=1, iterations=2, callbacks=[follower])
    """

    package = "trackio"
