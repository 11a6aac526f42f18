"""Train on a task in plain NumPy: a context box, an initial search distribution and a function that scores a batch.

Throw at a bucket 2 to 6 m away. Both a flat throw and a lob reach it, and the library learns both.

    svsl check-task 01_batch_task:Throw                             # in the folder of this file
    svsl train 01_batch_task:Throw --components 10 --alpha 0.03

or, with the same settings, `python 01_batch_task.py`. It takes a few seconds.
"""

from __future__ import annotations

import sys

import numpy as np

from svsl import Outcome
from svsl.model.gaussians import Array


class Throw:
    """Throw at a bucket with about 8.5 m/s; the context is its distance, the parameters are speed and angle."""

    context_low, context_high = np.array([2.0]), np.array([6.0])
    parameter_dim = 2
    initial_mean, initial_cov = np.array([8.5, 0.8]), np.diag([1.0, 0.2])  # speed [m/s], angle [rad]

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Scores n throws at once: contexts `(n, 1)`, parameters `(n, 2)`."""
        speed, angle = parameters.T
        miss = speed**2 * np.sin(2 * angle) / 9.81 - contexts[:, 0]
        returns = -(miss**2) - 0.1 * (speed - 8.5) ** 2
        mode = np.where(angle > np.pi / 4, "lob", "flat")  # used to measure how versatile the library is
        return Outcome(returns, np.abs(miss) < 0.1, {"mode": mode})


def main(args: list[str]) -> int:
    """Trains with the settings above; `args` are further flags of `svsl train`."""
    from svsl.cli import main as svsl

    return svsl(["train", "01_batch_task:Throw", "--components", "10", "--alpha", "0.03", *args])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
