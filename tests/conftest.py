"""Shared set-up: every test works in a folder of its own, from which the toy tasks can be imported."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in training: the matrices are small, and tests run side by side

import svsl  # before MuJoCo, so that pictures can be drawn without a screen

# what is started in the background may ignore these, and so would the programs that the tests interrupt
for ignorable, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(ignorable) == signal.SIG_IGN:
        signal.signal(ignorable, handler)

TESTS = Path(__file__).parent
assert svsl.__version__


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SVSL_STATE_DIR", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("COLUMNS", "100")
