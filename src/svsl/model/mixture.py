"""The mixture of experts: weights, context distributions and experts, computed in log space."""

from dataclasses import dataclass, fields
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from svsl.model.gaussians import Array, BoolArray, IntArray, LinearGaussian

ACTIVE_PROBABILITY = 0.01


@dataclass(frozen=True, repr=False)
class Mixture:
    """`pi(o)`, `pi(c|o)` and `pi(theta|c,o)` of K components.

    Attributes:
        log_weights: `(K,)`, `log pi(o)`; -inf disables a component.
        contexts: `pi(c|o)`, a stack without input.
        experts: `pi(theta|c,o)`, a stack with the context as input, or its `monomials` if their means are quadratic.
    """

    log_weights: Array
    contexts: LinearGaussian
    experts: LinearGaussian

    def __repr__(self) -> str:
        return f"Mixture(contexts={self.contexts!r}, experts={self.experts!r})"

    def __len__(self) -> int:
        return len(self.log_weights)

    def select(self, index: IntArray) -> "Mixture":
        """Returns the mixture of the components `index`, with renormalised weights."""
        log_weights = log_normalised(self.log_weights[index])
        return Mixture(log_weights, self.contexts.select(index), self.experts.select(index))

    def with_quadratic_experts(self) -> "Mixture":
        """Returns the same mixture with experts whose means may be quadratic in the context."""
        experts, missing = self.experts, input_count(self.contexts.bias.shape[1], 2) - self.experts.gain.shape[2]
        gain = np.pad(experts.gain, ((0, 0), (0, 0), (0, missing)))
        return Mixture(self.log_weights, self.contexts, LinearGaussian.build(gain, experts.bias, experts.chol))

    @property
    def expert_degree(self) -> Literal[1, 2]:
        """Degree of the experts' means as polynomials of the context: 1 or 2."""
        return 1 if self.experts.gain.shape[2] == self.contexts.bias.shape[1] else 2

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Returns all arrays of the mixture by name, for a checkpoint."""
        arrays: dict[str, NDArray[np.generic]] = {"log_weights": self.log_weights}
        for prefix, stack in (("contexts", self.contexts), ("experts", self.experts)):
            arrays |= {f"{prefix}.{field.name}": getattr(stack, field.name) for field in fields(LinearGaussian)}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[np.generic]]) -> Self:
        """Restores a mixture from the result of `to_arrays`, bit for bit."""

        def stack(prefix: str) -> LinearGaussian:
            return LinearGaussian(
                **{f.name: np.array(arrays[f"{prefix}.{f.name}"], dtype=np.float64) for f in fields(LinearGaussian)}
            )

        return cls(np.array(arrays["log_weights"], dtype=np.float64), stack("contexts"), stack("experts"))

    def inputs(self, contexts: Array) -> Array:
        """The inputs of the experts in contexts `(..., dc)`: the contexts themselves, or their monomials."""
        return contexts if self.expert_degree == 1 else monomials(contexts)

    def log_likelihood(self, contexts: Array, parameters: Array) -> Array:
        """`log pi(theta|c,o)` for rows of contexts and parameters: `(n, K)`."""
        return self.experts.log_prob(self.inputs(contexts), parameters)

    def log_context_joint(self, contexts: Array) -> Array:
        """`log pi(o) pi(c|o)` for rows of contexts: `(n, K)`."""
        return self.contexts.log_prob(contexts[:, :0], contexts) + self.log_weights

    def log_joint(self, contexts: Array, parameters: Array) -> Array:
        """`log pi(o) pi(c|o) pi(theta|c,o)` for rows of contexts and parameters: `(n, K)`."""
        return self.log_context_joint(contexts) + self.log_likelihood(contexts, parameters)

    def log_gating(self, contexts: Array) -> Array:
        """`log pi(o|c)`: `(n, K)`."""
        return log_normalised(self.log_context_joint(contexts))

    def log_responsibilities(self, contexts: Array, parameters: Array) -> Array:
        """`log pi(o|c,theta)`: `(n, K)`."""
        return log_normalised(self.log_joint(contexts, parameters))

    def log_prob(self, contexts: Array, parameters: Array) -> Array:
        """`log pi(theta|c)` of the whole mixture: `(n,)`."""
        context_joint = self.log_context_joint(contexts)
        joint = context_joint + self.log_likelihood(contexts, parameters)
        return logsumexp(joint) - logsumexp(context_joint)

    def sample_components(self, contexts: Array, rng: np.random.Generator) -> IntArray:
        """Draws `o ~ pi(o|c)` for each row: `(n,)`."""
        return sample_rows(np.exp(self.log_gating(contexts)), rng)

    def component_means(self, contexts: Array, components: IntArray) -> Array:
        """Mean parameters of the given component in each row: `(n, dt)`."""
        gain, bias = self.experts.gain[components], self.experts.bias[components]
        return np.einsum("nij,nj->ni", gain, self.inputs(contexts)) + bias

    def sample_parameters(self, contexts: Array, components: IntArray, rng: np.random.Generator) -> Array:
        """Draws `theta ~ pi(theta|c,o)` from the given component in each row: `(n, dt)`."""
        noise = rng.standard_normal((len(contexts), self.experts.bias.shape[1]))
        deviation = np.einsum("nij,nj->ni", self.experts.chol[components], noise)
        return self.component_means(contexts, components) + deviation


def input_count(context_dim: int, degree: int) -> int:
    """Returns the number of inputs of experts whose means are linear (degree 1) or quadratic (2) in the context."""
    return context_dim if degree == 1 else context_dim * (context_dim + 3) // 2


def monomials(contexts: Array) -> Array:
    """The monomials of degree one and two of contexts `(..., dc)`: `c_i`, then `c_i c_j` with `i <= j`."""
    first, second = np.triu_indices(contexts.shape[-1])
    return np.concatenate([contexts, contexts[..., first] * contexts[..., second]], axis=-1)


def logsumexp(log_values: Array) -> Array:
    """`log sum exp` over the last axis; -inf rows stay -inf."""
    top = np.maximum(log_values.max(axis=-1), np.finfo(np.float64).min)
    shifted = log_values - top[..., None]
    with np.errstate(divide="ignore"):
        return np.log(np.exp(shifted, out=shifted).sum(axis=-1)) + top


def log_normalised(log_values: Array) -> Array:
    """Normalises log values so that the values sum to one over the last axis, also where they are huge."""
    shifted = log_values - np.maximum(log_values.max(axis=-1), np.finfo(np.float64).min)[..., None]
    with np.errstate(divide="ignore"):
        shifted -= np.log(np.exp(shifted).sum(axis=-1))[..., None]
    return shifted


def sample_rows(probabilities: Array, rng: np.random.Generator) -> IntArray:
    """Draws one index per row of `probabilities (n, K)`, whose rows sum to one."""
    cumulative = np.cumsum(probabilities, axis=1)
    threshold = rng.random((len(probabilities), 1)) * cumulative[:, -1:]
    return np.asarray((cumulative <= threshold).sum(axis=1), dtype=np.intp)


def is_active(gating: Array, least: float = ACTIVE_PROBABILITY) -> BoolArray:
    """Returns which components are active, given gating probabilities `(..., K)`.

    Active means a probability of at least `least` or, where hundreds of components share a context so that none reaches
    it, the highest one there.
    """
    return np.asarray(gating >= np.minimum(least, gating.max(axis=-1, keepdims=True)))
