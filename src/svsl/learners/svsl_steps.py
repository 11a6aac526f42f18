"""The components of SVSL: how they start, and their trust-region steps.

A component starts at random, or from a stored episode (or with all others, see `svsl.learners.spreading`). In a step
returns plus entropy terms become targets, targets a model, the model a step.
"""

from collections.abc import Callable

import numpy as np

from svsl.learners.base import SearchSpace, require
from svsl.learners.buffer import ReplayBuffer
from svsl.learners.gating import expected_values, gating_unit, priced_gating_step, standard_errors, with_gating_of
from svsl.learners.outside import score_outside
from svsl.learners.surrogates import fit_quadratic
from svsl.learners.svsl_config import SVSLConfig
from svsl.learners.trust_region import gaussian_step
from svsl.model.gaussians import Array, IntArray, LinearGaussian, clip_std
from svsl.model.mixture import Mixture, input_count, logsumexp
from svsl.tasks.base import uniform_contexts

_BLOCK = 16  # components updated together
_CONTEXT_STD_LIMITS = (5e-5, 3.0)  # in units of the context scale
_CANDIDATES = 3  # random contexts; a warm start is near the least covered one
_NEIGHBOURS = 10  # stored episodes nearest to that context, or of each component; the best one is taken
_FAILURES = 0.25  # share of the tested contexts, those with the lowest returns, near which a component may start
_WARM_START_STD = 0.1  # search width of a warm-started expert, relative to the task's initial std
_ERROR_PRICE = 0.1  # least price of a gating step, relative to the standard error of its models
_GATING_CONTEXTS = 1000  # uniform contexts on which the divergence of a gating step is measured

Start = tuple[LinearGaussian, LinearGaussian]  # context distribution and expert, one component each
Stepped = tuple[LinearGaussian, int]  # the new distributions, and how many of them could not be updated
# contexts, parameters and behaviours `(n, ...)` to the log likelihood of each row under every component, `(n, K)`
Likelihood = Callable[[Array, Array, Array | None], Array]
Step = Callable[[Mixture, ReplayBuffer, IntArray, SVSLConfig, Likelihood], Stepped]


def extensible(base: Mixture, config: SVSLConfig, freeze: bool) -> Mixture:
    """Returns the components of a library as the settings can extend them; rejects settings that cannot."""
    require(config.curriculum, "curriculum", "True, to extend a library", config.curriculum)
    require(config.splits == 0, "splits", "0, to extend a library", config.splits)
    # gating steps move all context distributions
    require(not (freeze and config.learns_gating), "kl_gating", "None, to keep the base as it is", config.kl_gating)
    if base.expert_degree == config.expert_degree:
        return base
    require(base.expert_degree == 1, "expert_degree", "2, as in the library to extend", config.expert_degree)
    return base.with_quadratic_experts()


def failing_context(contexts: Array, returns: Array, rng: np.random.Generator) -> Array | None:
    """Returns one of the tested contexts with the lowest returns; None if all tests were lost."""
    worst = np.argsort(returns, kind="stable")[: max(1, round(_FAILURES * len(returns)))]
    # any of them: the very worst may be impossible
    return contexts[rng.choice(worst)] if len(worst) else None


def start_at_random(
    config: SVSLConfig, space: SearchSpace, rng: np.random.Generator, target: Array | None = None
) -> Start:
    """Returns a component at a context, by default a random one, with the task's initial search.

    `config` is resolved.
    """
    middle = 0.5 * (space.context_low + space.context_high)
    mean = target
    if mean is None:
        mean = middle + np.array(config.context_start_std) * rng.standard_normal(len(middle))
        if config.reject_outside or not space.scores_outside:
            mean = np.clip(mean, space.context_low, space.context_high)
    contexts = LinearGaussian.unconditional(mean[None], np.diag(np.array(config.context_std))[None])
    return contexts, initial_experts(1, config, space)


def initial_experts(count: int, config: SVSLConfig, space: SearchSpace) -> LinearGaussian:
    """Returns experts with the task's initial search in every context."""
    dim, inputs = len(space.initial_mean), input_count(len(space.context_low), config.expert_degree)
    bias, chol = np.tile(space.initial_mean, (count, 1)), np.tile(np.linalg.cholesky(space.initial_cov), (count, 1, 1))
    return LinearGaussian.build(np.zeros((count, dim, inputs)), bias, chol)


def start_at_episode(
    mixture: Mixture,
    buffer: ReplayBuffer,
    config: SVSLConfig,
    likelihood: Likelihood,
    space: SearchSpace,
    rng: np.random.Generator,
    target: Array | None = None,
) -> Start:
    """Returns a component centred on the best stored episode near a context, by default a sparsely covered one.

    If behaviours are stored, the best is the one that a new component would gain most from, of any component's nearest.
    The shape is that of the episode's own component, with a wider search, unless the settings have another for the
    contexts.
    """
    width = space.context_high - space.context_low
    if target is None:
        candidates = space.context_low + width * rng.random((_CANDIDATES, len(width)))
        target = candidates[logsumexp(mixture.log_context_joint(candidates)).argmin()]
    distance = (((buffer.contexts - target) / width) ** 2).sum(axis=2)
    distance[np.arange(buffer.size) >= buffer.filled[:, None]] = np.inf
    if buffer.behaviours is None:
        owners, slots = np.unravel_index(np.argsort(distance, axis=None)[:_NEIGHBOURS], distance.shape)
        values = buffer.returns[owners, slots]
    else:
        nearest = np.argsort(distance, axis=1)[:, :_NEIGHBOURS]
        owners, slots = np.repeat(np.arange(len(nearest)), nearest.shape[1]), nearest.ravel()
        values = _gains(mixture, buffer, owners, slots, config, likelihood)
        values[np.isinf(distance[owners, slots])] = -np.inf
    best = values.argmax()
    owner, slot = owners[best], slots[best]
    context, parameters = buffer.contexts[owner, slot], buffer.parameters[owner, slot]
    old = mixture.select(np.array([owner]))
    narrow = config.warm_start_std
    contexts = LinearGaussian.unconditional(
        context[None], old.contexts.chol if narrow is None else np.diag(narrow)[None]
    )
    bias = parameters - old.experts.gain[0] @ mixture.inputs(context)
    cov = old.experts.cov + _WARM_START_STD**2 * space.initial_cov
    return contexts, LinearGaussian.build(old.experts.gain, bias[None], np.linalg.cholesky(cov))


def _gains(
    mixture: Mixture,
    buffer: ReplayBuffer,
    owners: IntArray,
    slots: IntArray,
    config: SVSLConfig,
    likelihood: Likelihood,
) -> Array:
    """Returns `R - gamma log p(b|c) - beta log p(c)` of stored episodes: what a new component would gain from them.

    It is much where the library rarely does what they did, or has few components at all.
    """
    assert buffer.behaviours is not None
    contexts = buffer.contexts[owners, slots]
    context_joint = mixture.log_context_joint(contexts)
    density = logsumexp(context_joint)
    known = likelihood(contexts, buffer.parameters[owners, slots], buffer.behaviours[owners, slots])
    rarity = density - logsumexp(context_joint + known)
    gains: Array = buffer.returns[owners, slots] + config.distinction_price * rarity - config.beta * density
    return gains


def newest_is_stuck(mean_returns: Array, delete_factor: float | None) -> bool:
    """Returns whether the newest component ended in a local optimum (line 13 of Algorithm 1).

    `mean_returns (K,)` are those of the components' episodes; NaN for one without episodes inside the box.
    """
    if delete_factor is None or len(mean_returns) < 2:
        return False
    *others, newest = mean_returns
    if np.isnan(newest) or np.isnan(others).all():
        return bool(np.isnan(newest))
    expected = np.nanmean(others)
    return bool(newest < expected - (delete_factor - 1) * abs(expected))


def context_step(
    mixture: Mixture,
    buffer: ReplayBuffer,
    index: IntArray,
    config: SVSLConfig,
    likelihood: Likelihood,
    space: SearchSpace,
) -> Stepped:
    """Updates `pi(c|o)` of the components `index`, whose buffers are full.

    The targets are `R + gamma log pi(o|c,theta) + (beta - gamma) log pi(o|c)`. The constant `alpha H[expert]` of the
    paper's target is left out: it does not change the step. Contexts without a return are scored here.
    """
    old, contexts, targets = mixture.contexts.select(index), buffer.contexts[index], buffer.returns[index]
    if config.auxiliary:
        gamma = config.distinction_price
        context_joint, joint = _log_joints(mixture, buffer, index, likelihood)
        targets += gamma * _own_share(index, joint)
        targets += (config.beta - gamma) * _own_share(index, context_joint)
    outside = np.isnan(targets)
    if outside.any():
        targets = score_outside(contexts, targets, outside, space, config.beta)
    model = fit_quadratic(old, contexts[:, :, :0], contexts, targets)
    new, info = gaussian_step(old, model, config.beta, config.kl_context)
    return clip_std(new, np.array(config.context_scale), *_CONTEXT_STD_LIMITS), int((~info.ok).sum())


def expert_step(
    mixture: Mixture, buffer: ReplayBuffer, index: IntArray, config: SVSLConfig, likelihood: Likelihood
) -> Stepped:
    """Updates `pi(theta|c,o)` of the components `index`, whose buffers are full, on `R + gamma log pi(o|c,theta)`.

    The model is shrunk and the loss of entropy bounded if the settings say so.
    """
    old, targets = mixture.experts.select(index), _expert_targets(mixture, buffer, index, config, likelihood)
    samples = mixture.inputs(buffer.contexts[index]), buffer.parameters[index], targets
    model = fit_quadratic(old, *samples, shrinkage=config.shrinkage, input_products=mixture.expert_degree == 1)
    change = None if config.entropy_loss is None else np.full(len(index), -config.entropy_loss * old.bias.shape[1])
    new, info = gaussian_step(old, model, config.alpha, config.kl_expert, change)
    return new, int((~info.ok).sum())


def gating_update(
    mixture: Mixture,
    buffer: ReplayBuffer,
    config: SVSLConfig,
    likelihood: Likelihood,
    space: SearchSpace,
    rng: np.random.Generator,
) -> tuple[Mixture, int]:
    """Makes a step of the gating `pi(o|c)` on the experts' targets plus `alpha H[expert]`, with a bonus for entropy.

    What a component is worth in a context is a quadratic fitted to its episodes. One whose buffer is not full yet, or
    whose model is not finite, is worth what the others are on average, so that only the bonus changes its share. The
    bonus is `gamma`, or a share of the standard error of the models: what they cannot tell must not decide for good.
    Also returns how many models were not finite.
    """
    full = np.flatnonzero(buffer.full(np.arange(len(mixture))))
    if not len(full):
        return mixture, 0
    assert config.kl_gating is not None
    unit, contexts = gating_unit(space), buffer.contexts[full]
    blocks = [full[start : start + _BLOCK] for start in range(0, len(full), _BLOCK)]
    targets = np.concatenate([_expert_targets(mixture, buffer, block, config, likelihood) for block in blocks])
    targets += config.alpha * mixture.experts.entropy[full][:, None]
    own = fit_quadratic(unit.select(np.zeros(len(full), np.intp)), contexts[:, :, :0], contexts, targets)
    points = uniform_contexts(space, _GATING_CONTEXTS, rng)
    finite = np.isfinite(expected_values(own, unit, points)).all(axis=0)
    if not finite.any():
        return mixture, len(full)
    together = contexts[finite].reshape(1, -1, contexts.shape[2])
    shared = fit_quadratic(unit, together[:, :, :0], together, targets[finite].reshape(1, -1))
    values = shared.select(np.zeros(len(mixture), np.intp)).replace(full[finite], own.select(np.flatnonzero(finite)))
    log_gating, expected = mixture.log_gating(points), expected_values(values, unit, points)
    if not np.isfinite(expected).all():
        return mixture, len(full)
    use = np.exp(log_gating).mean(axis=0)[full[finite]] + 1e-12
    errors = standard_errors(own.select(np.flatnonzero(finite)), unit, contexts[finite], targets[finite])
    price = max(config.distinction_price, _ERROR_PRICE * float(np.sqrt(np.average(errors**2, weights=use))))
    step = priced_gating_step(log_gating, expected, config.kl_gating, price)
    return with_gating_of(mixture, values, unit, step), int((~finite).sum())


def _expert_targets(
    mixture: Mixture, buffer: ReplayBuffer, index: IntArray, config: SVSLConfig, likelihood: Likelihood
) -> Array:
    """Returns `R + gamma log pi(o|c,theta)` of the episodes of the components `index`."""
    targets = buffer.returns[index]
    if config.auxiliary:
        targets += config.distinction_price * _own_share(index, _log_joints(mixture, buffer, index, likelihood)[1])
    return targets


def step_in_blocks(
    step: Step,
    mixture: Mixture,
    stack: LinearGaussian,
    buffer: ReplayBuffer,
    index: IntArray,
    config: SVSLConfig,
    likelihood: Likelihood,
) -> Stepped:
    """Steps those of the components `index` whose buffers are full, in blocks whose arrays fit in the cache.

    Returns the whole `stack` and the number of components that could not be updated.
    """
    ready = index[buffer.full(index)]
    failed = len(index) - len(ready)
    for start in range(0, len(ready), _BLOCK):
        block = ready[start : start + _BLOCK]
        new, failures = step(mixture, buffer, block, config, likelihood)
        stack = stack.replace(block, new)
        failed += failures
    return stack, failed


def _log_joints(mixture: Mixture, buffer: ReplayBuffer, index: IntArray, likelihood: Likelihood) -> tuple[Array, Array]:
    """Returns `log pi(o) pi(c|o)` and `log pi(o) pi(c|o) pi(theta|c,o)` of the episodes of `index`, `(rows, K)`."""

    def rows(values: Array) -> Array:
        return values[index].reshape(-1, values.shape[2])

    contexts, behaviours = rows(buffer.contexts), None if buffer.behaviours is None else rows(buffer.behaviours)
    context_joint = mixture.log_context_joint(contexts)
    return context_joint, likelihood(contexts, rows(buffer.parameters), behaviours) + context_joint


def _own_share(index: IntArray, log_joint: Array) -> Array:
    """Returns the log share of each episode's own component in the joint, `(len(index), n)`."""
    own = log_joint.reshape(len(index), -1, log_joint.shape[1])[np.arange(len(index)), :, index]
    return own - logsumexp(log_joint).reshape(len(index), -1)
