"""The 10-link planar reacher of the paper's ablation: reach a point behind obstacles."""

import numpy as np
from numpy.typing import NDArray

from svsl.model.gaussians import Array, BoolArray
from svsl.tasks.base import Outcome
from svsl.tasks.presentation import Motion, PlanarScene

LINKS = 10
SUCCESS_DISTANCE = 0.25
PATH_UNIT = 0.5  # postures whose joints are this far apart are clearly different
SWEEP_S, SWEEP_DT_S = 1.5, 0.02
# the highest first; x from, to; y from, to
OBSTACLES = np.array([[3.0, 3.8, 2.5, 3.5], [2.5, 3.3, -0.5, 0.5], [2.7, 3.5, -3.5, -2.5]])


class PlanarReacher:
    """Ten unit links from the origin; the parameters are the joint angles, the context is the goal of the tip.

    Return: `- |angles|^2 - 2 |tip - goal|^2 - 3 [a link crosses an obstacle] - 10 [the goal is outside its box]`,
    with the angles wrapped to `[-pi, pi]`. The paper's formula counts all ten angles, but its figures show postures
    that are cheap only if the first joint is free, so by default the sum runs over the joints 2 to 10.

    Args:
        free_first_joint: Exclude the first angle from the regularisation.
    """

    context_low = np.array([4.5, -6.0])
    context_high = np.array([7.0, 6.0])
    context_names = ("goal x", "goal y")
    parameter_dim = LINKS
    initial_mean = np.zeros(LINKS)
    initial_cov = np.diag([5.0] + [0.19] * (LINKS - 1))
    scores_outside = True
    obstacles = OBSTACLES
    scene = PlanarScene(OBSTACLES, context_low, context_high, (-2.5, 8.5), (-7.2, 7.2), (-3.5, 10.5))
    figures = ("postures",)

    def __init__(self, free_first_joint: bool = True) -> None:
        self.free_first_joint = free_first_joint

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Scores a batch of postures; deterministic."""
        joints = self.joints(parameters)
        distance_sq = ((joints[:, -1] - contexts) ** 2).sum(axis=1)
        collision = links_cross_boxes(joints, self.obstacles)
        outside = np.any((contexts < self.context_low) | (contexts > self.context_high), axis=1)
        angles = parameters - 2 * np.pi * np.round(parameters / (2 * np.pi))
        effort = (angles[:, 1 if self.free_first_joint else 0 :] ** 2).sum(axis=1)
        returns = -effort - 2 * distance_sq - 3.0 * collision - 10.0 * outside
        distance = np.sqrt(distance_sq)
        success = (distance <= SUCCESS_DISTANCE) & ~collision & ~outside
        return Outcome(returns, success, {"distance": distance, "collision": collision, "effort": effort})

    def describe(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """As `evaluate`, with the sides on which the obstacles are passed as the mode, and the posture as the path."""
        outcome, joints = self.evaluate(contexts, parameters, rng), self.joints(parameters)
        outcome.info["mode"] = sides_passed(joints, self.obstacles)
        outcome.info["path"] = joints.reshape(len(joints), -1) / PATH_UNIT
        return outcome

    def joints(self, parameters: Array) -> Array:
        """Positions of the base, the joints and the tip: `(n, 11, 2)`."""
        heading = np.cumsum(parameters, axis=1)
        points = np.zeros((len(parameters), LINKS + 1, 2))
        np.cumsum(np.cos(heading), axis=1, out=points[:, 1:, 0])
        np.cumsum(np.sin(heading), axis=1, out=points[:, 1:, 1])
        return points

    def motion(self, context: Array, parameters: Array | None = None) -> Motion:
        """An episode is a posture: the arm moves there from straight, all joints together, slow at both ends."""
        share = np.linspace(0, 1, round(SWEEP_S / SWEEP_DT_S) + 1)
        smooth = share * share * (3 - 2 * share)
        joints = self.joints(np.zeros((1, LINKS)) if parameters is None else smooth[:, None] * parameters)
        tip, goal = (np.column_stack([points, np.zeros(len(points))]) for points in (joints[:, -1], context[None]))
        return Motion(SWEEP_DT_S, joints, tip, goal)


def sides_passed(points: Array, boxes: Array) -> NDArray[np.str_]:
    """How each chain of `points (n, p, 2)` passes the `boxes (b, 4)`: `over-under-over` and the like.

    Seen from a box's centre, the way from the base on its left to the tip on its right turns clockwise above it and
    counterclockwise below it.
    """
    centres = boxes.reshape(-1, 2, 2).mean(axis=2)
    seen = points[:, :, None] - centres
    angles = np.diff(np.arctan2(seen[..., 1], seen[..., 0]), axis=1)
    turned = (angles - 2 * np.pi * np.round(angles / (2 * np.pi))).sum(axis=1)
    weights = 2 ** np.arange(len(boxes))[::-1]
    names = np.array(["-".join(("under", "over")[bit] for bit in bits) for bits in np.ndindex(*(2,) * len(boxes))])
    return names[(turned < 0) @ weights]


def links_cross_boxes(points: Array, boxes: Array) -> BoolArray:
    """Whether any segment of each chain of `points (n, p, 2)` touches any of the `boxes (b, 4)`: `(n,)` bool.

    A segment meets a box if the parameter intervals in which it is inside the box's x and y ranges overlap in [0, 1].
    """
    axes = points.transpose(2, 0, 1)
    step = np.diff(axes, axis=2)
    step[np.abs(step) < 1e-12] = 1e-12  # an axis-parallel link: its interval is then all or nothing
    inverse = 1 / step
    reach = np.abs(inverse)
    offset = axes[:, :, :-1] * inverse
    hit = np.zeros(step.shape[1:], dtype=bool)
    for box in boxes.reshape(-1, 2, 2, 1, 1):
        middle = 0.5 * (box[:, 0] + box[:, 1]) * inverse - offset
        width = 0.5 * (box[:, 1] - box[:, 0]) * reach
        enter, leave = middle - width, middle + width
        hit |= np.maximum(np.maximum(enter[0], enter[1]), 0.0) <= np.minimum(np.minimum(leave[0], leave[1]), 1.0)
    return np.asarray(hit.any(axis=1))
