"""The metrics as TensorBoard events, if TensorBoard is installed."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from svsl.runs.folder import MetricsRow


class TensorBoardWriter:
    """Writes the values of each row as scalars over episodes; does nothing without TensorBoard.

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
            self.add(row)

    def add(self, row: MetricsRow) -> None:
        """Adds one row."""
        if self._writer is None:
            return
        values = [
            self._summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "episodes"
        ]
        self._writer.add_event(self._event(step=int(row["episodes"]), summary=self._summary(value=values)))
        self._writer.flush()
