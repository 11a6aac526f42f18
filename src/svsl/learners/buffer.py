"""Replay buffers of all components, as one stack."""

import numpy as np

from svsl.learners.base import Arrays
from svsl.model.gaussians import Array, BoolArray, IntArray


class ReplayBuffer:
    """One ring buffer of `size` episodes per component; new episodes replace the oldest.

    `behaviours` are stored from the first described episodes on; NaN for those without a description.
    """

    def __init__(self, size: int, context_dim: int, parameter_dim: int, components: int = 0) -> None:
        self.size = size
        self.contexts: Array = np.zeros((components, size, context_dim))
        self.parameters: Array = np.zeros((components, size, parameter_dim))
        self.returns: Array = np.zeros((components, size))
        self.behaviours: Array | None = None
        self.cursor: IntArray = np.zeros(components, dtype=np.intp)
        self.filled: IntArray = np.zeros(components, dtype=np.intp)

    def append_component(self) -> None:
        """Adds an empty ring."""
        for name, old in self.state().items():
            setattr(self, name, np.concatenate([old, np.zeros((1, *old.shape[1:]), dtype=old.dtype)]))

    def select(self, index: IntArray) -> None:
        """Keeps only the rings `index`."""
        for name, old in self.state().items():
            setattr(self, name, old[index])

    def append(
        self, owners: IntArray, contexts: Array, parameters: Array, returns: Array, behaviours: Array | None = None
    ) -> None:
        """Stores episodes, each in the ring of its owner; `owners (n,)` are sorted component indices."""
        counts = np.bincount(owners, minlength=len(self.cursor))
        rank = np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners]
        slot = (self.cursor[owners] + rank) % self.size
        if counts.max(initial=0) > self.size:  # later episodes would overwrite earlier ones: keep the newest
            keep = rank >= counts[owners] - self.size
            owners, slot = owners[keep], slot[keep]
            contexts, parameters, returns = contexts[keep], parameters[keep], returns[keep]
            behaviours = None if behaviours is None else behaviours[keep]
        self.contexts[owners, slot] = contexts
        self.parameters[owners, slot] = parameters
        self.returns[owners, slot] = returns
        if behaviours is not None and self.behaviours is None:
            self.behaviours = np.full((*self.returns.shape, behaviours.shape[1]), np.nan)
        if self.behaviours is not None:
            self.behaviours[owners, slot] = np.nan if behaviours is None else behaviours
        self.cursor = (self.cursor + counts) % self.size
        self.filled = np.minimum(self.filled + counts, self.size)

    def mean_returns(self) -> Array:
        """Returns the mean return of each ring, `(K,)`; NaN for an empty ring."""
        used = np.arange(self.size) < self.filled[:, None]
        with np.errstate(invalid="ignore"):
            return np.where(used, self.returns, 0.0).sum(axis=1) / self.filled

    def recent_return(self, of_all: bool) -> float:
        """Returns the mean return of the newest ring, or the median of the means of all; NaN if there are none."""
        means = self.mean_returns() if of_all else self.mean_returns()[-1:]
        known = means[~np.isnan(means)]
        return float(np.median(known)) if len(known) else float("nan")

    def full(self, index: IntArray) -> BoolArray:
        """Returns which of the rings `index` have no empty slot left."""
        return np.asarray(self.filled[index] == self.size)

    def state(self) -> Arrays:
        """Returns the arrays that `restore` needs."""
        names = ("contexts", "parameters", "returns", "cursor", "filled")
        arrays: Arrays = {name: getattr(self, name) for name in names}
        return arrays if self.behaviours is None else arrays | {"behaviours": self.behaviours}

    def restore(self, state: Arrays) -> None:
        """Continues from a `state`."""
        for name, own in self.state().items():
            expected, got = own.shape[1:], state[name].shape[1:]
            if got != expected:
                raise ValueError(f"{name}: expected rows of shape {expected}, got {got}")
            setattr(self, name, state[name].copy())
        if "behaviours" in state:
            self.behaviours = np.array(state["behaviours"], dtype=np.float64)
