"""Which components of a library are needed."""

from __future__ import annotations

import numpy as np

from svsl.evaluation.metrics import Repertoire
from svsl.model.gaussians import BoolArray, IntArray


def needed_components(found: Repertoire, tolerance: float = 0.0) -> IntArray:
    """The components that are left when those are dropped, one after the other, without which nothing is lost.

    What counts is the expected success (of a component's mean, drawn by the gating) and the number of ways: pairs of a
    context and a mode in which some component succeeds (contexts, if the task names no modes). Dropping a component
    leaves the gating of the others in proportion, so both are known for every subset without further episodes. Each
    round drops the component whose loss leaves the most ways, then the highest expected success.

    Args:
        found: Every component's outcome in a sample of contexts.
        tolerance: Share of the ways, and of all contexts in expected success, that may be lost in total.
    """
    ways = _ways(found)
    kept = np.arange(found.gating.shape[1])
    least_ways = (1 - tolerance) * ways.any(axis=1).sum()
    least_success = _expected_success(found, kept) - tolerance
    while len(kept) > 1:
        rest = [np.delete(kept, position) for position in range(len(kept))]
        scores = [(int(ways[:, r].any(axis=1).sum()), _expected_success(found, r)) for r in rest]
        best = max(range(len(rest)), key=lambda position: scores[position])
        if scores[best][0] < least_ways or scores[best][1] < least_success - 1e-12:
            break
        kept = rest[best]
    return kept


def _ways(found: Repertoire) -> BoolArray:
    """Which component succeeds in which way, `(contexts * modes, K)`."""
    if found.modes is None:
        return found.success
    names = np.unique(found.modes)
    return np.concatenate([found.success & (found.modes == name) for name in names])


def _expected_success(found: Repertoire, kept: IntArray) -> float:
    gating = found.gating[:, kept]
    total = gating.sum(axis=1)
    share = (gating * found.success[:, kept]).sum(axis=1) / np.where(total > 0, total, 1.0)
    return float(share.mean())
