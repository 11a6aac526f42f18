"""Contexts outside a task's box: drawing until enough are inside, and the scores of the others."""

import numpy as np

from svsl.learners.base import SearchSpace
from svsl.model.gaussians import Array, BoolArray, IntArray, LinearGaussian

_REJECTION_ROUNDS = 20


def draw_until_inside(
    stack: LinearGaussian, index: IntArray, count: int, space: SearchSpace, rng: np.random.Generator
) -> tuple[IntArray, Array]:
    """Draws contexts of each component of `index` until `count` are inside the box or the rounds are used up.

    Returns the component of each context, and the contexts, those outside included.
    """
    drawn: list[list[Array]] = [[] for _ in index]
    missing = np.full(len(index), count)
    for _ in range(_REJECTION_ROUNDS):
        short = np.flatnonzero(missing > 0)
        if not len(short):
            break
        draws = stack.select(index[short]).sample(np.empty((len(short), count, 0)), rng)
        inside = np.cumsum(space.inside(draws), axis=1)
        for row, position in enumerate(short):
            enough = int(np.searchsorted(inside[row], missing[position])) + 1
            drawn[position].append(draws[row, :enough])
            missing[position] -= inside[row, min(enough, count) - 1]
    blocks = [np.concatenate(part) for part in drawn]
    return np.repeat(index, [len(block) for block in blocks]), np.concatenate(blocks)


def score_outside(contexts: Array, targets: Array, outside: BoolArray, space: SearchSpace, beta: float) -> Array:
    """Scores the contexts outside the box: below all targets inside, and falling with the distance to the box.

    The score is `low - scale (1 + d^2)`, with `d` the distance in eighths of the box's width, `low` the lowest target
    inside, and `scale` the standard deviation of the targets inside, but at least `beta`, against which targets are
    traded. It is relative to what the component achieves now: the edge is steep while it searches, later gentle.

    Args:
        contexts: `(K, n, dc)`.
        targets: `(K, n)` targets of K components; any values outside.
        outside: `(K, n)`.
        space: The box.
        beta: Entropy bonus of the context distributions.
    """
    nearest, width = np.clip(contexts, space.context_low, space.context_high), space.context_high - space.context_low
    beyond = 8 * (contexts - nearest) / width
    inside = np.where(outside, np.nan, targets)
    known = ~outside.all(axis=1)
    low, scale = np.zeros(len(targets)), np.full(len(targets), beta or 1.0)
    low[known] = np.nanmin(inside[known], axis=1)
    scale[known] = np.maximum(np.nanstd(inside[known], axis=1), scale[known])
    return np.where(outside, low[:, None] - scale[:, None] * (1 + (beyond**2).sum(axis=2)), targets)
