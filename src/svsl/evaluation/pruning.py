"""Selection of the components a library needs."""

import numpy as np

from svsl.evaluation.metrics import Repertoire, expected_success
from svsl.model.gaussians import BoolArray, IntArray


def needed_components(repertoire: Repertoire, tolerance: float = 0.0) -> IntArray:
    """Drops components one by one as long as nothing is lost, and returns the indices of the rest.

    What counts is the expected success (of a component's mean, drawn by the gating) and the number of solutions: pairs
    of a context and a mode in which some component succeeds (contexts, if the task names no modes). Dropping a
    component leaves the gating of the others in proportion, so both are known for every subset without further
    episodes. Each round drops the component whose removal leaves the most solutions, then the highest expected success.

    Args:
        repertoire: Every component's outcome in a sample of contexts.
        tolerance: Share of the solutions, and absolute loss of expected success, allowed in total.
    """
    gating, success, solutions = repertoire.gating, repertoire.success, _solutions(repertoire)
    kept = np.arange(gating.shape[1])
    min_solutions = (1 - tolerance) * solutions.any(axis=1).sum()
    min_success = expected_success(gating, success).mean() - tolerance
    while len(kept) > 1:
        candidates = [np.delete(kept, position) for position in range(len(kept))]
        scores = [
            (int(solutions[:, c].any(axis=1).sum()), expected_success(gating[:, c], success[:, c]).mean())
            for c in candidates
        ]
        best = max(range(len(candidates)), key=lambda position: scores[position])
        if scores[best][0] < min_solutions or scores[best][1] < min_success - 1e-12:
            break
        kept = candidates[best]
    return kept


def _solutions(repertoire: Repertoire) -> BoolArray:
    """Which component succeeds in which mode of which context, `(contexts * modes, K)`."""
    if repertoire.modes is None:
        return repertoire.success
    names = np.unique(repertoire.modes)
    return np.concatenate([repertoire.success & (repertoire.modes == name) for name in names])
