"""The metrics as TensorBoard events, if TensorBoard is installed."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from svsl.runs.callbacks import Callback
from svsl.runs.folder import MetricsRow


class TensorBoardWriter(Callback):
    """Writes the values of each row as scalars over episodes; does nothing without TensorBoard.

    Every run folder has one.

    Args:
        folder: Folder of the events; existing ones are replaced.
        rows: Rows written before a resume.
    """

    def __init__(self, folder: Path, rows: Iterable[MetricsRow] = ()) -> None:
        self._writer = None
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            return
        if folder.exists():
            shutil.rmtree(folder)
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer = EventFileWriter(str(folder))
        for row in rows:
            self.on_metrics(row)

    def on_metrics(self, metrics: Mapping[str, float | None]) -> None:
        """Adds one row."""
        if self._writer is None:
            return
        numbers = {name: value for name, value in metrics.items() if name != "episodes" and value is not None}
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        step = int(metrics["episodes"] or 0)
        self._writer.add_event(self._event(step=step, summary=self._summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        """Closes the file of events."""
        if self._writer is not None:
            self._writer.close()
