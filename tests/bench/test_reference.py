"""The learner's own updates against the straightforward reference, one whole iteration at a time."""

import numpy as np

from helpers import components_of
from svsl.bench import reference
from svsl.learners.base import Episodes, SearchSpace
from svsl.learners.buffer import ReplayBuffer
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.gaussians import Array
from svsl.model.mixture import Mixture

SPACE = SearchSpace(
    np.array([-1.0, 0.0]), np.array([1.0, 3.0]), np.array([0.2, -0.1, 0.0]), np.diag([1.0, 0.3, 2.0]), None, True
)


def returns(episodes: Episodes) -> Array:
    """An asymmetric bowl that moves with the context, with ripples, and a penalty outside the box."""
    goal = np.stack(
        [episodes.contexts.sum(axis=1), -episodes.contexts[:, 0], np.full(len(episodes.contexts), 0.5)], axis=1
    )
    miss = ((episodes.parameters - goal) ** 2) @ [1.0, 3.0, 0.2]
    return np.asarray(-miss + 0.2 * np.sin(4 * episodes.parameters[:, 1]) - 10.0 * ~SPACE.inside(episodes.contexts))


def mixture_of(learner: SVSL) -> Mixture:
    state = learner.state()
    return Mixture.from_arrays({k.removeprefix("mixture."): v for k, v in state.items() if k.startswith("mixture.")})


def samples(buffer: ReplayBuffer, index: list[int]) -> list[reference.Samples]:
    """Copies, because the buffer is written in place."""
    arrays = buffer.contexts.copy(), buffer.parameters.copy(), buffer.returns.copy()
    return [reference.Samples(*(array[o] for array in arrays)) for o in index]


def test_an_iteration_of_the_learner_is_that_of_the_reference() -> None:
    config = SVSLConfig(components=3, iterations=4, finetune_every=2, alpha=0.05, beta=0.4, kl_context=0.02)
    learner = SVSL(config, SPACE, np.random.default_rng(0))
    compared: set[tuple[int, ...]] = set()
    while learner.stage not in ("weights", "done"):
        if learner.stage == "fill":
            learner.tell(returns(learner.ask()))
            continue
        count = len(mixture_of(learner))
        index = list(range(count)) if learner.iteration % 2 == 0 else [count - 1]
        before = mixture_of(learner)
        learner.tell(returns(learner.ask()))
        context_samples = samples(learner.context_buffer, index)
        middle = mixture_of(learner)
        np.testing.assert_array_equal(middle.experts.bias, before.experts.bias)
        learner.tell(returns(learner.ask()))
        expert_samples = samples(learner.expert_buffer, index)
        after = mixture_of(learner).select(np.arange(count))  # without the one that may have been added
        expected = reference.update_components(
            components_of(before),
            before.log_weights,
            index,
            context_samples,
            expert_samples,
            alpha=config.alpha,
            beta=config.beta,
            kl_context=config.kl_context,
            kl_expert=config.kl_expert,
            context_scale=np.array(learner.config.context_scale),
        )
        for got, want in zip(components_of(after), expected, strict=True):
            for name in ("context_mean", "context_cov", "gain", "bias", "cov"):
                np.testing.assert_allclose(getattr(got, name), getattr(want, name), atol=1e-5, err_msg=name)
        moved = np.flatnonzero((after.experts.bias != before.experts.bias).any(axis=1))
        assert moved.tolist() == index
        compared.add(tuple(index))
    assert compared == {(0,), (1,), (2,), (0, 1), (0, 1, 2)}
