"""Small tasks with known optima."""

import numpy as np

from svsl import Outcome
from svsl.model.gaussians import Array


class Bimodal:
    """Two ways to solve every context: theta = (1 + c/2, c) or theta = (-1 + c/2, -c), the first a little better.

    The search starts nearer the first way, so that only a reason to be different leads to the second.
    """

    context_low = np.array([-1.0])
    context_high = np.array([1.0])
    scores_outside = True
    parameter_dim = 2
    initial_mean = np.array([0.7, 0.0])
    initial_cov = 0.3 * np.eye(2)

    def solutions(self, contexts: Array) -> Array:
        """Both optima for each context: `(n, 2, 2)`."""
        c = contexts[:, 0]
        return np.stack([np.stack([1 + c / 2, c], 1), np.stack([-1 + c / 2, -c], 1)], 1)

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        squared = ((parameters[:, None] - self.solutions(contexts)) ** 2).sum(axis=2)
        outside = np.abs(contexts[:, 0]) > 1
        returns = -8 * np.minimum(squared[:, 0], squared[:, 1] + 0.02) - 10.0 * outside
        mode = squared.argmin(axis=1)
        return Outcome(returns, (squared.min(axis=1) < 0.05) & ~outside, {"mode": mode})


class Unimodal:
    """One best way, linear in the context: theta = gain c + bias; the return is -(theta - best)^T Q (theta - best)."""

    context_low = np.array([-1.0, 0.0])
    context_high = np.array([1.0, 3.0])
    scores_outside = True
    parameter_dim = 3
    initial_mean = np.zeros(3)
    initial_cov = np.eye(3)
    gain = np.array([[1.0, -0.5], [0.0, 0.3], [2.0, 1.0]])
    bias = np.array([0.5, -1.0, 0.0])
    curvature = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]])

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        error = parameters - contexts @ self.gain.T - self.bias
        outside = ((contexts < self.context_low) | (contexts > self.context_high)).any(axis=1)
        returns = -np.einsum("ni,ij,nj->n", error, self.curvature, error) - 20.0 * outside
        return Outcome(returns, (error**2).sum(axis=1) < 0.01)


class SometimesNan(Unimodal):
    """Some returns are NaN or infinite."""

    penalty = -20.0

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        outcome = super().evaluate(contexts, parameters, rng)
        returns = outcome.returns.copy()
        returns[5::20] = np.nan
        returns[9::20] = np.inf
        return Outcome(returns, outcome.success, outcome.info)


class AlwaysNan(Unimodal):
    """No return is finite."""

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        return Outcome(np.full(len(contexts), np.nan), np.zeros(len(contexts), dtype=bool))


class Crashes(Unimodal):
    """Evaluation raises an exception."""

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        raise ZeroDivisionError("the robot is on fire")


class Sloppy(Unimodal):
    """Modifies its arguments, keeps state, does not penalise contexts outside the box."""

    calls = 0

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        self.calls += 1
        parameters -= 1.0
        return Outcome(-((parameters - self.calls) ** 2).sum(axis=1), np.zeros(len(contexts), dtype=bool))


def with_options(scale: float = 1.0, kind: str = "plain") -> Unimodal:
    """A factory with options.

    Args:
        scale: Stretches the curvature.
        kind: Any word.
    """
    task = Unimodal()
    task.curvature = task.curvature * scale
    return task


def with_sequences(place: tuple[float, ...] = (0.0, 0.0), nested: dict[str, object] | None = None) -> Unimodal:
    """A factory whose options are sequences, of which it insists on tuples."""
    assert isinstance(place, tuple)
    return Unimodal()


def not_a_task() -> int:
    """Returns something that is not a task."""
    return 3


def moved(shift: float = 0.0) -> Unimodal:
    """The unimodal task with its optimum elsewhere.

    Args:
        shift: How far all parameters of the optimum are moved.
    """
    task = Unimodal()
    task.bias = task.bias + shift
    return task


class Grown(Unimodal):
    """The unimodal task with one more context dimension."""

    context_low = np.array([-1.0, 0.0, 0.0])
    context_high = np.array([1.0, 3.0, 1.0])


def needs(size: int) -> Unimodal:
    """A task with an option that has no default."""
    return Unimodal()


def named(name: str = "x") -> Unimodal:
    """A task with an option called like an argument of ours."""
    return Unimodal()


def fails() -> Unimodal:
    """A task that cannot be created; the error is not raised in this file."""
    np.linalg.inv(np.zeros((2, 2)))
    return Unimodal()


class Twins:
    """Two equally good ways in every context: theta = 1 + c/2 or theta = -1 - c/2, described by what they reach."""

    context_low = np.array([-1.0])
    context_high = np.array([1.0])
    scores_outside = True
    parameter_dim = 1
    initial_mean = np.array([0.2])
    initial_cov = np.array([[1.0]])

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        way = np.sign(parameters[:, 0])
        error = parameters[:, 0] - way * (1 + contexts[:, 0] / 2)
        outside = np.abs(contexts[:, 0]) > 1
        info = {"mode": np.where(way > 0, "up", "down"), "path": 2 * parameters}
        return Outcome(-8 * error**2 - 10.0 * outside, (np.abs(error) < 0.2) & ~outside, info)


class Parabola:
    """One best way, theta = c^2: linear experts have to be fitted where they are used."""

    context_low, context_high = np.array([-1.0]), np.array([1.0])
    parameter_dim, initial_mean, initial_cov = 1, np.array([0.5]), np.array([[0.2]])
    scores_outside = True

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        error = parameters[:, 0] - contexts[:, 0] ** 2
        outside = np.abs(contexts[:, 0]) > 1
        return Outcome(-20 * error**2 - 10.0 * outside, (np.abs(error) < 0.1) & ~outside)
