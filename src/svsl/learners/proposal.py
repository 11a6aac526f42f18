"""The episodes a learner has proposed: some are not run, and some of the others are lost."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from svsl.model.gaussians import Array, BoolArray, IntArray


@dataclass(frozen=True)
class Proposal:
    """Episodes of the components `owners (n,)`, the first of them for the current stage, the others for the next."""

    owners: IntArray
    contexts: Array
    parameters: Array
    first: int
    run: BoolArray  # the others are outside the box, and scored by the learner itself

    def without(self, lost: BoolArray) -> Self:
        """Leaves out the lost ones, a mask of the episodes that were run."""
        kept = np.ones(len(self.run), dtype=bool)
        kept[np.flatnonzero(self.run)[lost]] = False
        rows = self.owners[kept], self.contexts[kept], self.parameters[kept]
        return type(self)(*rows, int(kept[: self.first].sum()), self.run[kept])


def with_unrun(run: BoolArray, values: Array) -> Array:
    """Returns values `(n, ...)` of all episodes, given those of the episodes that were run; NaN for the others."""
    if run.all():
        return values
    full = np.full((len(run), *values.shape[1:]), np.nan)
    full[run] = values
    return full
