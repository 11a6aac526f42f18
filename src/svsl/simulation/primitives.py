"""Movement primitives: map batches of parameters to desired joint trajectories."""

import numpy as np

from svsl.model.gaussians import Array, IntArray

_FADE_S = 0.2  # fade-in of a reach
_REST_S = 2.0  # from the end of a strike to rest
_ROWS_PER_BLOCK = 8  # keeps the arrays of a block in the cache


def radial_bases(phase: Array, centres: Array, variance: float) -> tuple[Array, Array]:
    """Normalised Gaussian bases and their derivatives with respect to the phase.

    Args:
        phase: `(...)`.
        centres: `(b,)`.
        variance: Variance of each Gaussian, in squared phase.

    Returns:
        Values `(..., b)`, which sum to one, and derivatives `(..., b)`.
    """
    offset = phase[..., None] - centres
    exponent = offset**2 / (-2 * variance)
    activation = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
    value = activation / activation.sum(axis=-1, keepdims=True)
    score = offset / -variance
    return value, value * (score - (value * score).sum(axis=-1, keepdims=True))


def throw(weights: Array, steps: IntArray, length: int, dt_s: float) -> tuple[Array, Array]:
    """Offsets from the start posture for a movement that starts at rest and ends in a swing (beer pong).

    Normalised bases with centres from -0.01 to 1.01 in the phase `k / (steps - 1)`, two more than there are weights:
    the first two have no weight. The width of a basis is 0.3 times the distance between neighbours.

    Args:
        weights: `(n, j, b)` of the last b bases for each joint; beer pong has two.
        steps: `(n,)`, number of steps of each movement, at least 2.
        length: Number of steps to return; a movement holds its last position after its own steps.
        dt_s: Length of a step.

    Returns:
        Position and velocity offsets `(n, length, j)`.
    """
    count = np.arange(length)
    last = (steps - 1)[:, None]
    bases = weights.shape[2] + 2
    centres, variance = np.linspace(-0.01, 1.01, bases), 0.01 * (3 / (bases - 1)) ** 2
    value, derivative = radial_bases(np.minimum(count / last, 1.0), centres, variance)
    moving = (count <= last)[..., None]
    rate = moving / (last[..., None] * dt_s)
    return combine(value[..., 2:], weights), combine(derivative[..., 2:] * rate, weights)


def throw_steps(durations: Array) -> IntArray:
    """Number of 5 ms steps in a throw of each duration `(n,)` in seconds: `(n,)` (beer pong)."""
    return (3.5 * (durations / 0.0175 + 1)).astype(np.int64)


def throw_parameters(parameters: Array, steps: IntArray, length: int, dt_s: float) -> tuple[Array, Array]:
    """Computes the `throw` for `parameters (n, 2 j + 1)` of beer pong.

    They are weights, basis by basis, in units of sqrt(0.02), and the duration, which only affects the result through
    `steps`: `throw_steps` for steps of 5 ms, more for a faster controller.
    """
    joints = parameters.shape[1] // 2
    weights = np.sqrt(0.02) * parameters[:, :-1].reshape(-1, 2, joints).transpose(0, 2, 1)
    return throw(weights, steps, length, dt_s)


def strike(weights: Array, durations: Array, length: int, dt_s: float) -> Array:
    """Offsets from the start posture for a strike that then decelerates uniformly to rest within 2 s (table tennis).

    Three normalised bases with centres 0, T/2 and T and width T/2, faded in by a sigmoid of `12 t/T - 6`.

    Args:
        weights: `(n, j, 3)`.
        durations: `(n,)`, duration T of each strike in seconds.
        length: Number of steps to return.
        dt_s: Length of a step.

    Returns:
        Position offsets `(n, length, j)`.
    """
    offsets, time = np.empty((*weights.shape[:2], length)), dt_s * np.arange(length, dtype=np.float64)
    for start in range(0, len(weights), _ROWS_PER_BLOCK):
        rows = slice(start, start + _ROWS_PER_BLOCK)
        _fill_strikes(offsets[rows], weights[rows], durations[rows, None], time)
    return offsets.transpose(0, 2, 1)


def _fill_strikes(offsets: Array, weights: Array, durations: Array, time: Array) -> None:
    """Writes the offsets `(n, j, length)` of a few strikes, joint by joint along contiguous time."""
    phase = np.minimum(time / durations, 1.0)
    after = np.clip(time - durations, 0.0, _REST_S)
    glide = (after - after**2 / (2 * _REST_S)) / durations
    growth = np.exp(2 * phase)  # ratios of the bases are powers of it
    squared = growth * growth
    second, third = np.exp(-0.5) * growth, np.exp(-2.0) * squared
    scale = 1 / ((1 + second + third) * (1 + np.exp(6.0) / (squared * squared * squared)))
    end_slope = _slope_at_end()
    scratch = np.empty_like(growth)
    for joint in range(weights.shape[1]):
        first_weight, second_weight, third_weight = weights[:, joint, :, None].transpose(1, 0, 2)
        path = offsets[:, joint]
        np.multiply(second, second_weight, out=path)
        path += first_weight
        path += np.multiply(third, third_weight, out=scratch)
        path *= scale
        path += np.multiply(glide, (weights[:, joint] * end_slope).sum(axis=1, keepdims=True), out=scratch)


def reach(weights: Array, length: int, dt_s: float) -> tuple[Array, Array]:
    """Offsets from the start posture for a movement that starts at rest and ends nearly at rest (5-link reacher).

    `fade(t) sum_b w_b phi_b(t)`: normalised bases with centres from the start to the end of the movement, faded in by
    `1 - exp(-t^2 / 2 s^2)` with s = 0.2 s.

    Args:
        weights: `(n, j, b)`.
        length: Number of steps.
        dt_s: Length of a step.

    Returns:
        Position and velocity offsets `(n, length, j)`.
    """
    duration = length * dt_s
    time: Array = dt_s * np.arange(length, dtype=np.float64)
    centres = np.linspace(0.0, 1.0, weights.shape[2])
    value, slope = radial_bases(time / duration, centres, (0.5 * centres[1]) ** 2)
    rest = np.exp(-0.5 * (time / _FADE_S) ** 2)[:, None]
    rate = rest * (time / _FADE_S**2)[:, None]
    position, velocity = (1 - rest) * value, (1 - rest) * slope / duration + rate * value
    return combine(position[None], weights), combine(velocity[None], weights)


def _slope_at_end() -> Array:
    """Derivatives of the three faded bases of a strike with respect to the phase, at its end."""
    value, slope = radial_bases(np.array(1.0), np.array([0.0, 0.5, 1.0]), 0.25)
    fade = 1 / (1 + np.exp(-6.0))
    return np.asarray(fade * slope + 12 * fade * (1 - fade) * value)


def combine(bases: Array, weights: Array) -> Array:
    """`sum_b bases (n, length, b) weights (n, j, b)`, with rounding independent of the length (unlike BLAS)."""
    return sum(bases[..., b, None] * weights[:, None, :, b] for b in range(bases.shape[-1]))  # type: ignore[return-value]
