"""Shared by several tests: random stacks, mixtures and models, and training of learners."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from hypothesis import settings
from numpy.typing import NDArray

from svsl import SkillLibrary, Task, make_task
from svsl.bench.reference import Component
from svsl.learners.base import Learner, SearchSpace
from svsl.learners.surrogates import Quadratic
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.mixture import Mixture, input_count
from svsl.model.random import stream

Matrices = NDArray[np.float64]


def few_examples(count: int) -> settings:
    """Hypothesis settings under which a test is the same every time."""
    return settings(derandomize=True, deadline=None, database=None, max_examples=count)


def random_cov(rng: np.random.Generator, dim: int, condition: float = 20.0) -> Array:
    """A covariance with randomly turned axes, variances over a ratio of `condition` and at most 1."""
    axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    variance = rng.uniform(0.3, 1) * condition ** -np.linspace(0, 1, dim)
    cov = (axes * variance) @ axes.T
    return np.asarray(0.5 * (cov + cov.T))


def random_stack(
    rng: np.random.Generator, count: int, dim_y: int, dim_x: int, condition: float = 20.0
) -> LinearGaussian:
    """`count` random linear Gaussians."""
    chol = np.linalg.cholesky(np.stack([random_cov(rng, dim_y, condition) for _ in range(count)]))
    return LinearGaussian.build(rng.standard_normal((count, dim_y, dim_x)), rng.standard_normal((count, dim_y)), chol)


def random_mixture(
    rng: np.random.Generator, count: int, dim_context: int, dim_parameters: int, degree: int = 1
) -> Mixture:
    """A mixture whose components overlap and have unequal weights."""
    return Mixture(
        np.log(rng.dirichlet(np.full(count, 2.0))),
        random_stack(rng, count, dim_context, 0),
        random_stack(rng, count, dim_parameters, input_count(dim_context, degree)),
    )


def kl_divergence(new: LinearGaussian, old: LinearGaussian, x: Array) -> Array:
    """`KL(new_k || old_k)` of each component, averaged over its inputs `x (K, n, dx)`: `(K,)`."""
    dim = old.bias.shape[1]
    inverse = np.linalg.inv(old.chol)
    factor = inverse @ new.chol
    shift = x @ (new.gain - old.gain).transpose(0, 2, 1) + (new.bias - old.bias)[:, None]
    z = shift @ inverse.transpose(0, 2, 1)
    log_det = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    return 0.5 * ((factor**2).sum((1, 2)) - dim + (z**2).sum(2).mean(1)) - log_det


def components_of(mixture: Mixture) -> list[Component]:
    """The mixture in the form of the reference implementation."""
    contexts, experts = mixture.contexts, mixture.experts
    return [
        Component(contexts.bias[o], contexts.cov[o], experts.gain[o], experts.bias[o], experts.cov[o])
        for o in range(len(mixture))
    ]


def whitened_model(old: LinearGaussian, q: Array, a: Array, b: Array, x: Array) -> Quadratic:
    """The model `-1/2 y^T Q y + y^T (A x + b)` in the coordinates of `old`.

    Args:
        old: K distributions.
        q: `(K, dy, dy)`.
        a: `(K, dy, dx)`.
        b: `(K, dy)`.
        x: `(K, n, dx)`.
    """
    turned = old.chol.transpose(0, 2, 1)
    gradient_bias = b - (q @ old.bias[:, :, None])[:, :, 0]
    slope = turned @ np.concatenate([a - q @ old.gain, gradient_bias[:, :, None]], axis=2)
    inputs = np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2)
    return Quadratic(turned @ q @ old.chol, slope, inputs.transpose(0, 2, 1) @ inputs / x.shape[1], np.zeros(len(q)))


def small_library(task_name: str, context_means: Array, context_std: float, parameters: Array) -> SkillLibrary:
    """A library of a task whose components are centred at given contexts `(K, dc)`.

    Their means are the `parameters (K, dt)` in every context, their standard deviations there 0.01.
    """
    task, count, (dim, dim_context) = (
        make_task(task_name),
        len(parameters),
        (parameters.shape[1], context_means.shape[1]),
    )
    contexts = LinearGaussian.unconditional(context_means, np.stack([context_std * np.eye(dim_context)] * count))
    chol = np.stack([0.01 * np.eye(dim)] * count)
    experts = LinearGaussian.build(np.zeros((count, dim, dim_context)), parameters, chol)
    mixture = Mixture(np.log(np.full(count, 1 / count)), contexts, experts)
    return SkillLibrary(mixture, task.context_low, task.context_high, {"task": task_name})


def space_of(task: Task) -> SearchSpace:
    """The search space of a task."""
    return SearchSpace.of(task)


def advance(learner: Learner, task: Task) -> int:
    """Runs one batch of episodes; returns how many."""
    episodes = learner.ask()
    outcome = task.evaluate(episodes.contexts, episodes.parameters, stream(9))
    behaviours = outcome.info.get("path") if episodes.described else None
    learner.tell(outcome.returns, None if behaviours is None else np.asarray(behaviours, dtype=np.float64))
    return len(episodes.contexts)


AnyLearner = TypeVar("AnyLearner", bound=Learner)


def trained(learner: AnyLearner, task: Task) -> AnyLearner:
    """Trains a learner to its end."""
    while not learner.done:
        advance(learner, task)
    return learner


def assert_continues_bit_for_bit(make: Callable[[int], Learner], task: Task) -> None:
    """A learner restored into a new one of another seed before each batch ends like one that never was."""
    straight, moving = trained(make(4), task), make(4)
    while not moving.done:
        state = moving.state()
        moving = make(77)
        moving.restore({name: array.copy() for name, array in state.items()})
        advance(moving, task)
    expected, got = straight.state(), moving.state()
    assert expected.keys() == got.keys()
    for name in expected:
        np.testing.assert_array_equal(expected[name], got[name], err_msg=name)
