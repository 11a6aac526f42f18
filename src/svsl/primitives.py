"""Movement primitives: parameters and a duration become desired joint trajectories, for whole batches."""

from __future__ import annotations

import numpy as np

from svsl.gaussians import Array


def radial_bases(phase: Array, centres: Array, variance: float) -> tuple[Array, Array]:
    """Normalised Gaussian bases and their derivatives by the phase.

    Args:
        phase: `(...)`.
        centres: `(b,)`.
        variance: Of each Gaussian, in squared phase.

    Returns:
        Values `(..., b)`, which sum to one, and derivatives `(..., b)`.
    """
    offset = phase[..., None] - centres
    exponent = offset**2 / (-2 * variance)
    activation = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
    value = activation / activation.sum(axis=-1, keepdims=True)
    score = offset / -variance
    return value, value * (score - (value * score).sum(axis=-1, keepdims=True))


def throw(weights: Array, steps: Array, length: int, dt_s: float) -> tuple[Array, Array]:
    """Offsets from the start posture that leave it at rest and end in a swing (beer pong).

    Four normalised bases with centres from -0.01 to 1.01 in the phase `k / (steps - 1)`; the first two have no weight.

    Args:
        weights: `(n, j, 2)` of the last two bases for each joint.
        steps: `(n,)`, number of steps of each movement, at least 2.
        length: Number of steps to return; after its own steps a movement holds its last position.
        dt_s: Length of a step.

    Returns:
        Position and velocity offsets `(n, length, j)`.
    """
    count = np.arange(length)
    last = (steps - 1)[:, None]
    value, derivative = radial_bases(np.minimum(count / last, 1.0), np.linspace(-0.01, 1.01, 4), 0.01)
    moving = (count <= last)[..., None]
    rate = moving / (last[..., None] * dt_s)
    return _combine(value[..., 2:], weights), _combine(derivative[..., 2:] * rate, weights)


def strike(weights: Array, durations: Array, length: int, dt_s: float) -> Array:
    """Offsets from the start posture for a strike that then slows down evenly to rest within 2 s (table tennis).

    Three normalised bases with centres 0, T/2 and T and width T/2, faded in by a sigmoid of `12 t/T - 6`.

    Args:
        weights: `(n, j, 3)`.
        durations: `(n,)`, T of each strike in seconds.
        length: Number of steps to return.
        dt_s: Length of a step.

    Returns:
        Position offsets `(n, length, j)`.
    """
    time = np.arange(length) * dt_s
    phase = time / durations[:, None]
    value, _ = _faded(np.minimum(phase, 1.0))
    end_value, end_slope = _faded(np.ones((len(durations), 1)))
    after = np.clip(time - durations[:, None], 0.0, _REST_S)
    glide = (after - after**2 / (2 * _REST_S)) / durations[:, None]
    value = np.where((phase > 1)[..., None], end_value + end_slope * glide[..., None], value)
    return _combine(value, weights)


_REST_S = 2.0


def _combine(bases: Array, weights: Array) -> Array:
    """`sum_b bases (n, length, b) weights (n, j, b)`, rounded alike whatever the length (BLAS would not be)."""
    return sum(bases[..., b, None] * weights[:, None, :, b] for b in range(bases.shape[-1]))  # type: ignore[return-value]


def _faded(phase: Array) -> tuple[Array, Array]:
    """The bases of a strike and their derivatives by the phase."""
    value, slope = radial_bases(phase, np.array([0.0, 0.5, 1.0]), 0.25)
    fade = 1 / (1 + np.exp(6 - 12 * phase))[..., None]
    return fade * value, fade * slope + 12 * fade * (1 - fade) * value
