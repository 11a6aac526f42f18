"""Tasks that fail in their 20th batch if a file in the current directory says so."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from svsl import Outcome
from svsl.model.gaussians import Array
from toys import Unimodal


class Counts(Unimodal):
    """Calls `bad_day` in its 20th batch."""

    batches = 0

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        self.batches += 1
        if self.batches == 20:
            self.bad_day()
        return super().evaluate(contexts, parameters, rng)

    def bad_day(self) -> None:
        """The failure."""


class Killed(Counts):
    """The process is killed, as by a system short of memory; the file `kills` holds how many times."""

    def bad_day(self) -> None:
        left = int(Path("kills").read_text())
        Path("kills").write_text(str(left - 1))
        if left > 0:
            os.kill(os.getpid(), signal.SIGKILL)


class FullDisk(Counts):
    """Nothing can be written any more, if the file `full` exists."""

    def bad_day(self) -> None:
        def no_space(handle: int) -> None:
            raise OSError(28, "No space left on device")

        if Path("full").exists():
            os.fsync = no_space  # type: ignore[assignment]


class Exits(Counts):
    """The task ends the program, as some simulators do, if the file `exit` exists."""

    def bad_day(self) -> None:
        if Path("exit").exists():
            sys.exit(0)
