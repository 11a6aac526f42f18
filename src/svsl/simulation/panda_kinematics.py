"""Inverse kinematics of the Panda as the published box pushing uses it to start above the box, for whole batches."""

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from svsl.model.gaussians import Array
from svsl.simulation.panda import FLANGE_POS, HAND_QUAT, PANDA, TCP_POS

# joint positions beyond these and joint velocities above those are penalised, too
JOINT_LOW = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
JOINT_HIGH = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
_DOWN = np.array([0.0, 1.0, 0.0, 0.0])

_FIRST_GUESS = np.array([0, 0, 0, -1.5, 0, 1.5, 0])
_HOME = np.array([0, 0.17453292, 0, -0.87266463, 0, 1.22173047, 0.78539813])
_GAIN = np.array([33.94037134, 30.94037134, 33.94037134, 27.69370239, 33.98706171, 30.91855319])
_HOME_GAIN = 5 * np.array([7.67551977, 2.67693548, 8.53904016, 1.27044636, 8.87752182, 2.18678223, 4.41443258])
_LIMIT_GAIN, _LIMIT_MARGIN = 20.0, 0.1
_LARGEST_ERROR = np.array([0.1] * 3 + [0.5] * 3)
_RIDGE, _FIRST_STEP, _GROWTH, _SHRINKAGE = 1e-6, 1e-3, 1.025, 0.7
_CLOSE, _MOST_ITERATIONS = 1e-5, 1000


def _multiply(a: Array, b: Array) -> Array:
    """Products of quaternions `(..., 4)`."""
    vector = a[..., :1] * b[..., 1:] + b[..., :1] * a[..., 1:] + np.cross(a[..., 1:], b[..., 1:])
    scalar = a[..., 0] * b[..., 0] - (a[..., 1:] * b[..., 1:]).sum(axis=-1)
    return np.concatenate([scalar[..., None], vector], axis=-1)


def _rotate(quat: Array, vector: Array) -> Array:
    """Vectors `(..., 3)` rotated by unit quaternions `(..., 4)`."""
    twice = 2 * np.cross(quat[..., 1:], vector)
    return np.asarray(vector + quat[..., :1] * twice + np.cross(quat[..., 1:], twice))


def tcp_pose(joints: Array) -> tuple[Array, Array, Array]:
    """Position `(n, 3)`, quaternion `(n, 4)` and Jacobian `(n, 6, 7)` (position, rotation) of the hand's tcp."""
    count = len(joints)
    pos, quat = np.zeros((count, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (count, 1))
    origins, axes = np.empty((2, count, len(PANDA), 3))
    for number, link in enumerate(PANDA):
        pos = pos + _rotate(quat, np.array(link.pos, dtype=np.float64))
        quat = _multiply(quat, np.array(link.quat, dtype=np.float64))
        origins[:, number], axes[:, number] = pos, _rotate(quat, np.array([0.0, 0.0, 1.0]))
        half, turn = joints[:, number] / 2, np.zeros((count, 4))
        turn[:, 0], turn[:, 3] = np.cos(half), np.sin(half)
        quat = _multiply(quat, turn)
    pos = pos + _rotate(quat, np.array(FLANGE_POS, dtype=np.float64) + TCP_POS)
    quat = _multiply(quat, np.array(HAND_QUAT) / np.linalg.norm(HAND_QUAT))
    jacobian = np.concatenate([np.cross(axes, pos[:, None] - origins), axes], axis=2).transpose(0, 2, 1)
    return pos, quat, jacobian


def reach_posture(points: Array) -> Array:
    """Joint angles `(n, 7)` with which the tcp is at `points (n, 3)`, pointing down.

    Not the exact solution but where the published iteration stops, because that is where its episodes start.
    """
    joints = np.tile(_FIRST_GUESS, (len(points), 1))
    velocity, accepted = np.zeros_like(joints), joints.copy()
    step, least = np.full((len(points), 1), _FIRST_STEP), np.full(len(points), np.inf)
    rows = np.arange(len(points))
    for _ in range(_MOST_ITERATIONS):
        joints[rows] = np.clip(accepted[rows] + step[rows] * velocity[rows], JOINT_LOW, JOINT_HIGH)
        pos, quat, jacobian = tcp_pose(joints[rows])
        quat *= np.where(quat[:, 1:2] < 0, -1.0, 1.0)  # the sign that is nearer to pointing down
        turn = quat[:, :1] * _DOWN[1:] - _DOWN[0] * quat[:, 1:] - np.cross(_DOWN[1:], quat[:, 1:])
        error = np.clip(np.concatenate([points[rows] - pos, turn], axis=1), -_LARGEST_ERROR, _LARGEST_ERROR)
        size = (error[:, :3] ** 2).sum(axis=1) + ((quat - _DOWN) ** 2).sum(axis=1)
        better = size <= least[rows]
        step[rows] *= np.where(better, _GROWTH, _SHRINKAGE)[:, None]
        moved, error, jacobian = rows[better], error[better], jacobian[better]
        accepted[moved], least[moved] = joints[moved], size[better]
        velocity[moved] = _velocity(joints[moved], error, jacobian)
        rows = rows[~better | (size >= _CLOSE)]
        if not len(rows):
            break
    return accepted


def _velocity(joints: Array, error: Array, jacobian: Array) -> Array:
    """Joint velocities `(n, 7)` that reduce an error `(n, 6)`; in its null space, towards home and off the limits."""
    rest = _HOME_GAIN * (_HOME - joints)
    low, high = JOINT_LOW + _LIMIT_MARGIN, JOINT_HIGH - _LIMIT_MARGIN
    rest += _LIMIT_GAIN * (np.clip(joints, low, high) - joints)
    transposed = jacobian.transpose(0, 2, 1)
    wanted = (_GAIN * error)[..., None] - jacobian @ rest[..., None]
    solved = np.linalg.solve(jacobian @ transposed + _RIDGE * np.eye(6), wanted)
    return np.asarray((transposed @ solved)[..., 0] + rest)


class StartPostures:
    """Joint angles to start with above a box anywhere in a rectangle: `reach_posture` by interpolation.

    The iteration takes as long as the simulation; products of 16 and 40 Chebyshev polynomials differ from it by less
    than 4e-6 rad.

    Args:
        low: `(2,)`, lower corner of the positions.
        high: `(2,)`, upper corner.
        height: Height of the tcp.
    """

    _DEGREES = (16, 40)

    def __init__(self, low: Array, high: Array, height: float) -> None:
        self._low, self._high = low, high
        angles = [np.pi * (np.arange(count) + 0.5) / count for count in self._DEGREES]
        x, y = np.meshgrid(*map(np.cos, angles), indexing="ij")
        unit = np.stack([x.ravel(), y.ravel()], axis=1)
        points = np.column_stack([low + (high - low) * (unit + 1) / 2, np.full(len(unit), height)])
        self._coefficients = np.linalg.solve(self._bases(unit), reach_posture(points)).T.copy()

    def _bases(self, unit: Array) -> Array:
        """Products of the polynomials `(n, 640)` at points `(n, 2)` of the square from -1 to 1."""
        x, y = (chebvander(unit[:, axis], count - 1) for axis, count in enumerate(self._DEGREES))
        return np.ascontiguousarray(x[:, :, None] * y[:, None, :]).reshape(len(unit), x.shape[1] * y.shape[1])

    def __call__(self, positions: Array) -> Array:
        """Joint angles `(n, 7)` for positions `(n, 2)`, rounded alike in every batch."""
        bases = self._bases(2 * (positions - self._low) / (self._high - self._low) - 1)
        return np.stack([(bases * row).sum(axis=1) for row in self._coefficients], axis=1)
