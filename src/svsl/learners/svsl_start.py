"""How new components of SVSL start: at random, or from a stored episode."""

import numpy as np

from svsl.learners.base import SearchSpace
from svsl.learners.buffer import ReplayBuffer
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.gaussians import LinearGaussian
from svsl.model.mixture import Mixture, logsumexp

_CANDIDATES = 3  # random contexts; a warm start is near the least covered one
_NEIGHBOURS = 10  # stored episodes nearest to that context; the best one is taken
_WARM_START_STD = 0.1  # search width of a warm-started expert, relative to the task's initial std

Start = tuple[LinearGaussian, LinearGaussian]  # context distribution and expert, one component each


def start_at_random(config: SVSLConfig, space: SearchSpace, rng: np.random.Generator) -> Start:
    """Returns a component at a random context, with the task's initial search; `config` is resolved."""
    middle = 0.5 * (space.context_low + space.context_high)
    mean = middle + np.array(config.context_start_std) * rng.standard_normal(len(middle))
    contexts = LinearGaussian.unconditional(mean[None], np.diag(np.array(config.context_std))[None])
    gain = np.zeros((1, len(space.initial_mean), len(middle)))
    experts = LinearGaussian.build(gain, space.initial_mean[None], np.linalg.cholesky(space.initial_cov)[None])
    return contexts, experts


def start_at_episode(mixture: Mixture, buffer: ReplayBuffer, space: SearchSpace, rng: np.random.Generator) -> Start:
    """Returns a component centred on the best stored episode near a sparsely covered context.

    Its shape is that of the episode's own component, with a wider search.
    """
    width = space.context_high - space.context_low
    candidates = space.context_low + width * rng.random((_CANDIDATES, len(width)))
    target = candidates[logsumexp(mixture.log_context_joint(candidates)).argmin()]
    distance = (((buffer.contexts - target) / width) ** 2).sum(axis=2)
    distance[np.arange(buffer.size) >= buffer.filled[:, None]] = np.inf
    nearest = np.argsort(distance, axis=None)[:_NEIGHBOURS]
    owner, slot = np.unravel_index(nearest[buffer.returns.ravel()[nearest].argmax()], distance.shape)
    context, parameters = buffer.contexts[owner, slot], buffer.parameters[owner, slot]
    old = mixture.select(np.array([owner]))
    contexts = LinearGaussian.unconditional(context[None], old.contexts.chol)
    bias = parameters - old.experts.gain[0] @ context
    cov = old.experts.cov + _WARM_START_STD**2 * space.initial_cov
    return contexts, LinearGaussian.build(old.experts.gain, bias[None], np.linalg.cholesky(cov))
