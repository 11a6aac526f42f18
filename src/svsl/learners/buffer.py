"""Replay buffers of all components, as one stack."""

import numpy as np

from svsl.learners.base import Arrays
from svsl.model.gaussians import Array, BoolArray, IntArray

_ARRAYS = ("contexts", "parameters", "returns", "cursor", "filled")


class ReplayBuffer:
    """One ring buffer of `size` episodes per component; new episodes replace the oldest."""

    def __init__(self, size: int, context_dim: int, parameter_dim: int, components: int = 0) -> None:
        self.size = size
        self.contexts: Array = np.zeros((components, size, context_dim))
        self.parameters: Array = np.zeros((components, size, parameter_dim))
        self.returns: Array = np.zeros((components, size))
        self.cursor: IntArray = np.zeros(components, dtype=np.intp)
        self.filled: IntArray = np.zeros(components, dtype=np.intp)

    def append_component(self) -> None:
        """Adds an empty ring."""
        for name in _ARRAYS:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((1, *old.shape[1:]), dtype=old.dtype)]))

    def select(self, index: IntArray) -> None:
        """Keeps only the rings `index`."""
        for name in _ARRAYS:
            setattr(self, name, getattr(self, name)[index])

    def append(self, owners: IntArray, contexts: Array, parameters: Array, returns: Array) -> None:
        """Stores episodes, each in the ring of its owner; `owners (n,)` are sorted component indices."""
        counts = np.bincount(owners, minlength=len(self.cursor))
        rank = np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners]
        slot = (self.cursor[owners] + rank) % self.size
        if counts.max(initial=0) > self.size:  # later episodes would overwrite earlier ones: keep the newest
            keep = rank >= counts[owners] - self.size
            owners, slot = owners[keep], slot[keep]
            contexts, parameters, returns = contexts[keep], parameters[keep], returns[keep]
        self.contexts[owners, slot] = contexts
        self.parameters[owners, slot] = parameters
        self.returns[owners, slot] = returns
        self.cursor = (self.cursor + counts) % self.size
        self.filled = np.minimum(self.filled + counts, self.size)

    def mean_returns(self) -> Array:
        """Returns the mean return of each ring, `(K,)`; NaN for an empty ring."""
        used = np.arange(self.size) < self.filled[:, None]
        with np.errstate(invalid="ignore"):
            return np.where(used, self.returns, 0.0).sum(axis=1) / self.filled

    def full(self, index: IntArray) -> BoolArray:
        """Returns which of the rings `index` have no empty slot left."""
        return np.asarray(self.filled[index] == self.size)

    def state(self) -> Arrays:
        """Returns the arrays that `restore` needs."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def restore(self, state: Arrays) -> None:
        """Continues from a `state`."""
        for name in _ARRAYS:
            expected, got = getattr(self, name).shape[1:], state[name].shape[1:]
            if got != expected:
                raise ValueError(f"{name}: expected rows of shape {expected}, got {got}")
            setattr(self, name, state[name].copy())
