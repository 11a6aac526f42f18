"""Movement primitives to choose from: frozen settings that turn a batch of parameters into joint trajectories."""

import functools
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.simulation.primitives import combine, radial_bases, throw

_GRID = 512  # points of the table of a ProDMP's bases per duration
_SCALED_OVER = 6  # durations over which automatic scales look for the largest value of a basis
_NODES, _NODE_WEIGHTS = (np.array(x) for x in np.polynomial.legendre.leggauss(5))


class Primitive(Protocol):
    """Maps parameters of joints to desired trajectories."""

    @property
    def size(self) -> int:
        """Number of parameters of each joint."""
        ...

    def __call__(
        self, weights: Array, start: Array, durations_s: Array, length: int, dt_s: float
    ) -> tuple[Array, Array]:
        """Returns positions and velocities at the times `0, dt_s, 2 dt_s, ...`, each `(n, length, j)`.

        Args:
            weights: `(n, j, size)`, the parameters of each joint.
            start: `(n, j)` or `(j,)`, the posture in which the movement starts, at rest.
            durations_s: `(n,)`, duration of each movement.
            length: Number of times.
            dt_s: Time between them.
        """
        ...


@dataclass(frozen=True)
class Throw:
    """A movement that starts at rest in the start posture, ends in a swing and holds its end (`primitives.throw`).

    Attributes:
        bases: Number of weights of each joint, in the unit of the joint.

    Examples:
        >>> import numpy as np
        >>> from svsl.simulation.movements import Throw
        >>> primitive = Throw(bases=3)
        >>> weights, start = np.ones((1, 7, primitive.size)), np.zeros(7)  # one movement of seven joints
        >>> position, velocity = primitive(weights, start, np.array([1.0]), length=101, dt_s=0.01)
        >>> position.shape
        (1, 101, 7)
        >>> bool(np.allclose(position[0, 0], start))
        True
    """

    bases: int = 3

    def __post_init__(self) -> None:
        _check("Throw", bases=(self.bases, 1))

    @property
    def size(self) -> int:
        """Number of parameters of each joint."""
        return self.bases

    def __call__(
        self, weights: Array, start: Array, durations_s: Array, length: int, dt_s: float
    ) -> tuple[Array, Array]:
        """See `Primitive`; a duration is rounded to steps."""
        steps = np.maximum(2, np.round(durations_s / dt_s)).astype(np.int64)
        offset, velocity = throw(weights, steps, length, dt_s)
        return np.expand_dims(start, -2) + offset, velocity


@dataclass(frozen=True)
class ProMP:
    """Probabilistic movement primitive: the start posture plus a weighted sum of normalised Gaussian bases.

    With N bases in all, the centres are `k / (N - 1)` in the phase `t / T`, which ends at 1. The first `zero_start` and
    the last `zero_goal` bases have no weight. The movement does not begin exactly in the start posture: the tail of
    the first weighted basis is already there, with a share of 0.27 for the default settings. Velocities are the
    differences of successive positions, the last one repeated, as in the benchmarks of movement primitives.

    Attributes:
        bases: Number of weights of each joint.
        zero_start: Bases without weight at the start.
        zero_goal: Bases without weight at the end.
        bandwidth: How narrow the bases are: `bandwidth (N - 1)^2` is the inverse of their variance.
        scale: Factor of all weights.

    Examples:
        >>> import numpy as np
        >>> from svsl.simulation.movements import ProMP
        >>> primitive = ProMP(bases=5)
        >>> weights, start = np.ones((1, 7, primitive.size)), np.zeros(7)  # one movement of seven joints
        >>> position, velocity = primitive(weights, start, np.array([1.0]), length=101, dt_s=0.01)
        >>> position.shape
        (1, 101, 7)
    """

    bases: int = 5
    zero_start: int = 1
    zero_goal: int = 0
    bandwidth: float = 2.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check("ProMP", bases=(self.bases, 1), zero_start=(self.zero_start, 0), zero_goal=(self.zero_goal, 0))
        if self.bases + self.zero_start + self.zero_goal < 2 or not self.bandwidth > 0:
            raise SvslError(f"ProMP: expected two bases or more and a bandwidth > 0, got {self}")

    @property
    def size(self) -> int:
        """Number of parameters of each joint."""
        return self.bases

    def __call__(
        self, weights: Array, start: Array, durations_s: Array, length: int, dt_s: float
    ) -> tuple[Array, Array]:
        """See `Primitive`."""
        last = self.bases + self.zero_start + self.zero_goal - 1
        durations, rows = np.unique(durations_s, return_inverse=True)
        phase = np.clip(dt_s * np.arange(length) / durations[:, None], 0.0, 1.0)
        value, _ = radial_bases(phase, np.arange(last + 1) / last, 1 / (self.bandwidth * last**2))
        moved = value[rows, :, self.zero_start : self.zero_start + self.bases]
        position = np.expand_dims(start, -2) + combine(moved, self.scale * weights)
        velocity = np.diff(position, axis=1) / dt_s
        return position, np.concatenate([velocity, velocity[:, -1:]], axis=1)


@dataclass(frozen=True)
class ProDMP:
    """Probabilistic dynamic movement primitive: a damped spring to a goal, driven by weighted bases that fade out.

    In the time `u = t / T` the position solves `y'' = a^2 (g - y) - 2 a y' + x sum_i w_i phi_i(x)` with `a = alpha / 2`
    and the phase `x = exp(-alpha_x u)`, from the start posture at rest. Its solution is linear in the weights and the
    goal, so the movement starts exactly in the start posture, has exact velocities, and continues after T.

    Attributes:
        bases: Number of weights of each joint.
        goal: Where the movement ends. `relative`: the last parameter of a joint is its goal relative to the start
            posture, so no parameters are no movement; `absolute`: it is the position itself; `start`: there is no
            parameter, and the movement returns to the start posture.
        alpha: Stiffness and damping of the spring; critically damped.
        alpha_x: How fast the phase, and with it the weighted bases, fade out.
        bandwidth: How narrow the bases are.
        weight_scale: Factor of the weights.
        goal_scale: Factor of the goal.
        auto_scale: Divide each weighted basis by its largest effect on the position, so that all weights have the unit
            of the joint. Without it, the effects of early and late bases differ by orders of magnitude.

    Examples:
        >>> import numpy as np
        >>> from svsl.simulation.movements import ProDMP
        >>> primitive = ProDMP(bases=4, goal="relative")
        >>> weights, start = np.ones((1, 7, primitive.size)), np.zeros(7)  # one movement of seven joints
        >>> position, velocity = primitive(weights, start, np.array([1.0]), length=101, dt_s=0.01)
        >>> position.shape
        (1, 101, 7)
        >>> primitive.size  # four weights and the goal
        5
    """

    bases: int = 5
    goal: Literal["relative", "absolute", "start"] = "relative"
    alpha: float = 10.0
    alpha_x: float = 3.0
    bandwidth: float = 3.0
    weight_scale: float = 1.0
    goal_scale: float = 1.0
    auto_scale: bool = True

    def __post_init__(self) -> None:
        _check("ProDMP", bases=(self.bases, 2))
        if self.goal not in ("relative", "absolute", "start"):
            raise SvslError(f"ProDMP: goal: expected relative, absolute or start, got {self.goal!r}")
        if not min(self.alpha, self.alpha_x, self.bandwidth) > 0:
            raise SvslError(f"ProDMP: expected alpha, alpha_x and bandwidth > 0, got {self}")

    @property
    def size(self) -> int:
        """Number of parameters of each joint."""
        return self.bases + (self.goal != "start")

    def __call__(
        self, weights: Array, start: Array, durations_s: Array, length: int, dt_s: float
    ) -> tuple[Array, Array]:
        """See `Primitive`."""
        durations, rows = np.unique(durations_s, return_inverse=True)
        u = dt_s * np.arange(length) / durations[:, None]
        value, slope = self._effects(u)
        value, slope = value[rows], slope[rows] / durations[rows, None, None]
        position, velocity = combine(value[..., : self.size], weights), combine(slope[..., : self.size], weights)
        home = np.expand_dims(start, -2)
        if self.goal == "absolute":  # the start posture fades out with the response of the spring
            response, rate = value[..., -1:], slope[..., -1:]
            return position + (1 - response) * home, velocity - rate * home
        return position + home, velocity

    @property
    def scales(self) -> Array:
        """Factors of the weights `(bases,)`."""
        if not self.auto_scale:
            return np.full(self.bases, self.weight_scale)
        return self.weight_scale / _largest_responses(self._drive)

    @property
    def _drive(self) -> tuple[int, float, float, float]:
        return self.bases, self.alpha, self.alpha_x, self.bandwidth

    def _effects(self, u: Array) -> tuple[Array, Array]:
        """Effects of the weights, the goal and the bare spring on the position `(..., bases + 2)`, and their slopes."""
        a, scales = self.alpha / 2, self.scales
        time, decay = u[..., None], np.exp(-a * u)[..., None]
        springs = 1 - (1 + a * time) * decay, a**2 * time * decay
        responses = zip(_responses(self._drive, u), springs, strict=True)
        value, slope = (np.concatenate([scales * r, self.goal_scale * g, g], axis=-1) for r, g in responses)
        return value, slope


def _responses(drive: tuple[int, float, float, float], u: Array) -> tuple[Array, Array]:
    """Response of the spring to each basis at the times u, and its slope: `(..., bases)`.

    Between the points of the table, cubics that agree with its values and slopes.
    """
    table = _response_table(drive, int(np.ceil(u.max(initial=1.0))))
    cell = np.minimum((u * _GRID).astype(np.int64), len(table) - 2)
    s = (u * _GRID - cell)[..., None, None]
    left, right = table[cell], table[cell + 1]
    keep, rise, fall = 1 - 3 * s**2 + 2 * s**3, (s - 2 * s**2 + s**3) / _GRID, (s**3 - s**2) / _GRID
    curves = (
        keep * left[..., :2, :] + (1 - keep) * right[..., :2, :] + rise * left[..., 1:, :] + fall * right[..., 1:, :]
    )
    return curves[..., 0, :], curves[..., 1, :]


@functools.lru_cache(maxsize=32)
def _largest_responses(drive: tuple[int, float, float, float]) -> Array:
    """Largest response of the spring to each basis: `(bases,)`."""
    return _responses(drive, np.linspace(0.0, _SCALED_OVER, 8 * _SCALED_OVER * _GRID + 1))[0].max(axis=0)


@functools.lru_cache(maxsize=32)
def _response_table(drive: tuple[int, float, float, float], durations: int) -> Array:
    """Response of the spring to each basis, its slope and its curvature on a grid: `(points, 3, bases)`.

    The spring is propagated exactly from point to point; the drive in between is integrated by Gauss's rule.
    """
    bases, alpha, alpha_x, bandwidth = drive
    a, step = alpha / 2, 1 / _GRID
    centres = np.exp(-alpha_x * np.arange(bases + 1) / (bases - 1))
    precisions = bandwidth / np.diff(centres) ** 2
    if bases == 2:
        precisions[-1] /= 4  # as published

    def force(u: Array) -> Array:
        x = np.exp(-alpha_x * u)[..., None]
        exponent = -precisions * (x - centres[:-1]) ** 2 / 2
        activation = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
        return np.asarray(x * activation / activation.sum(axis=-1, keepdims=True))

    grid = np.arange(durations * _GRID + 1) / _GRID
    inside = (_NODES + 1) / 2 * step
    left = step - inside  # time that remains for the response
    pull = np.array([left, 1 - a * left]) * np.exp(-a * left) * _NODE_WEIGHTS * step / 2
    pushes = np.einsum("oq,pqb->pob", pull, force(grid[:-1, None] + inside))
    propagator = np.exp(-a * step) * np.array([[1 + a * step, step], [-(a**2) * step, 1 - a * step]])
    state = np.zeros((len(grid), 2, bases))
    for point, push in enumerate(pushes):
        state[point + 1] = propagator @ state[point] + push
    curvature = force(grid) - 2 * a * state[:, 1] - a**2 * state[:, 0]
    return np.concatenate([state, curvature[:, None]], axis=1)


@dataclass(frozen=True)
class Movement:
    """A primitive for some joints, and its duration, which can be the last parameter.

    Attributes:
        primitive: The primitive of all joints; parameters are ordered joint by joint.
        joints: Number of joints.
        duration_s: Duration of every movement; or the shortest and the longest if the duration is learned: then it is
            the last parameter, and limited to this range.
    """

    primitive: Primitive
    joints: int
    duration_s: float | tuple[float, float]

    def __post_init__(self) -> None:
        shortest, longest = self._range
        if not 0 < shortest <= longest or (self.learned and shortest == longest):
            raise SvslError(
                f"duration_s: expected a positive number, or two of them (shortest, longest), got {self.duration_s}"
            )

    @property
    def learned(self) -> bool:
        """Whether the duration is a parameter."""
        return not isinstance(self.duration_s, int | float)

    @property
    def longest_s(self) -> float:
        """The longest duration."""
        return self._range[1]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.joints * self.primitive.size + self.learned

    def search(self, mean: float | Array, std: Array) -> tuple[Array, Array]:
        """Mean and covariance of an initial search.

        Args:
            mean: `(joints * primitive.size,)`, of the parameters of the primitive, or one number for all.
            std: `(joints,)`, their standard deviations. That of a learned duration is a quarter of its range, around
                its middle.
        """
        stds = np.repeat(std, self.primitive.size)
        means = np.broadcast_to(mean, stds.shape).astype(np.float64)
        if not self.learned:
            return means, np.diag(stds**2)
        shortest, longest = self._range
        return np.append(means, (shortest + longest) / 2), np.diag(np.append(stds, (longest - shortest) / 4) ** 2)

    def trajectories(self, parameters: Array, start: Array, length: int, dt_s: float) -> tuple[Array, Array]:
        """Desired positions and velocities of `parameters (n, size)`, each `(n, length, joints)`; see `Primitive`."""
        shortest, longest = self._range
        weights = parameters[:, : self.joints * self.primitive.size].reshape(-1, self.joints, self.primitive.size)
        durations = np.clip(parameters[:, -1], shortest, longest) if self.learned else np.full(len(weights), longest)
        return self.primitive(weights, start, durations, length, dt_s)

    @property
    def _range(self) -> tuple[float, float]:
        if isinstance(self.duration_s, int | float):
            return self.duration_s, self.duration_s
        shortest, longest = self.duration_s
        return shortest, longest


def _check(name: str, **counts: tuple[int, int]) -> None:
    for field, (count, least) in counts.items():
        if count < least:
            raise SvslError(f"{name}: {field}: expected {least} or more, got {count}")
