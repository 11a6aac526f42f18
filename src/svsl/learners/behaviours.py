"""Models of what the components do, to tell them apart by their behaviour instead of their parameters."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from svsl.learners.buffer import ReplayBuffer
from svsl.model.gaussians import Array
from svsl.model.mixture import Mixture

_MIN_VARIANCE = 1 / 8  # of a behaviour, whose unit is a clear difference
_UNKNOWN_VARIANCE = 1e3  # of a component with too few described episodes to say what it does


@dataclass(frozen=True)
class BehaviourModel:
    """One component's behaviour as a linear function `weights [x, 1]` of its expert's inputs, and its mean variance."""

    weights: Array  # (db, dx + 1)
    variance: float


class BehaviourModels:
    """The models of all components; each is fitted again only after its episodes have changed."""

    def __init__(self) -> None:
        self._models: dict[int, BehaviourModel] = {}

    def forget(self, components: Iterable[int]) -> None:
        """Notes that the episodes of these components have changed."""
        for component in components:
            self._models.pop(int(component), None)

    def log_likelihoods(self, mixture: Mixture, buffer: ReplayBuffer, contexts: Array, behaviours: Array) -> Array:
        """Returns the log likelihood `(n, K)` of behaviours under every component, given their stored episodes."""
        assert buffer.behaviours is not None
        for component in range(len(mixture)):
            if component not in self._models:
                known = component, slice(buffer.filled[component])
                self._models[component] = fit_behaviour(
                    mixture.inputs(buffer.contexts[known]), buffer.behaviours[known]
                )
        models = [self._models[component] for component in range(len(mixture))]
        return log_likelihoods(models, mixture.inputs(contexts), behaviours)


def fit_behaviour(inputs: Array, behaviours: Array) -> BehaviourModel:
    """Fits behaviours `(n, db)`, those that are finite, to inputs of an expert `(n, dx)` by least squares."""
    described = np.isfinite(behaviours).all(axis=1)
    inputs, behaviours = _with_one(inputs[described]), behaviours[described]
    if len(inputs) < 2 * inputs.shape[1]:
        return BehaviourModel(np.zeros((behaviours.shape[1], inputs.shape[1])), _UNKNOWN_VARIANCE)
    ridge = 1e-9 * len(inputs) * np.eye(inputs.shape[1])
    weights = np.asarray(np.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ behaviours).T, dtype=np.float64)
    variance = float(((behaviours - inputs @ weights.T) ** 2).mean())
    return BehaviourModel(weights, variance + _MIN_VARIANCE)


def log_likelihoods(models: list[BehaviourModel], inputs: Array, behaviours: Array) -> Array:
    """Returns `-mean((b - b_o(c))^2) / (2 v_o) - log(v_o) / 2` of rows under every component: `(n, K)`.

    `inputs` are those of the experts.

    The mean over a behaviour's dimensions keeps long descriptions from deciding everything. Rows that are not finite,
    of episodes without a behaviour, are equally likely under all components.
    """
    described = np.asarray(np.isfinite(behaviours).all(axis=1))
    observed, inputs = np.where(described[:, None], behaviours, 0.0), _with_one(inputs)
    weights = np.stack([model.weights for model in models])  # (K, db, dx + 1)
    variance = np.array([model.variance for model in models])
    flat = weights.transpose(1, 0, 2).reshape(observed.shape[1], -1)  # all components in one product
    projected = (observed @ flat).reshape(len(inputs), len(models), -1)
    gram = weights.transpose(0, 2, 1) @ weights
    predicted = np.einsum("ni,kij,nj->nk", inputs, gram, inputs, optimize=True)
    squared = (observed**2).sum(axis=1)[:, None] - 2 * (projected * inputs[:, None]).sum(axis=2) + predicted
    result = -0.5 * squared / (observed.shape[1] * variance) - 0.5 * np.log(variance)
    return np.where(described[:, None], result, 0.0)


def _with_one(inputs: Array) -> Array:
    return np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
