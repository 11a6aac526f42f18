"""SVSL: versatile skill libraries by local mixtures of experts (Celik et al., CoRL 2021, Algorithm 1).

Components are added one at a time. Each one is trained by trust-region steps on quadratic models of the return,
augmented by how responsible the component is for a sample: what others already cover pays less. At the end the
component weights, uniform until then, are learned and light components are removed. A learner may also start with the
components of a finished library and add to them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from svsl.learners.base import Arrays, Episodes, Progress, SearchSpace, above, below
from svsl.learners.buffer import ReplayBuffer
from svsl.learners.surrogates import fit_quadratic
from svsl.learners.svsl_config import SVSLConfig
from svsl.learners.trust_region import categorical_step, gaussian_step
from svsl.learners.weighting import WeightRewards
from svsl.model.gaussians import Array, IntArray, LinearGaussian, clip_std
from svsl.model.mixture import Mixture, logsumexp
from svsl.model.random import rng_from_array, rng_to_array

Stage = Literal["fill", "context", "expert", "weights", "done"]
_STAGES = get_args(Stage)
_CONTEXT_STD_LIMITS = (5e-5, 3.0)  # in units of the context scale
_REJECTION_ROUNDS = 20
_BLOCK = 16  # components updated together
_GOALS = 3  # random contexts, of which a new component starts next to the one that is covered least
_NEAR = 10  # stored episodes, of which it starts at the best
_SEARCH = 0.1  # of the task's initial standard deviation is how wide it searches around that


class SVSL:
    """The learner; see `svsl.learners.base.Learner` for the contract.

    Args:
        config: Its settings.
        space: The task, as far as a learner knows it.
        rng: All its randomness.
        base: Components to start with. They take part as if they had been trained here, their buffers filled with
            fresh episodes, and are never removed, however light they become.
        freeze: Leave the experts and contexts of `base` as they are and learn their weights only.
    """

    def __init__(
        self,
        config: SVSLConfig,
        space: SearchSpace,
        rng: np.random.Generator,
        base: Mixture | None = None,
        freeze: bool = False,
    ) -> None:
        config = config.resolved(space)
        assert config.buffer is not None
        assert config.context_batch is not None
        assert config.expert_batch is not None
        self.config, self.space, self.rng = config, space, rng
        self.batch_sizes = {
            "fill": config.buffer,
            "context": config.context_batch,
            "expert": config.expert_batch,
            "weights": config.buffer,
        }
        dims = len(space.context_low), len(space.initial_mean)
        self.context_buffer = ReplayBuffer(config.buffer, *dims)
        self.expert_buffer = ReplayBuffer(config.buffer, *dims)
        self.stage: Stage = "fill"
        self.component, self.iteration, self.finished = 1, 0, 0
        self.failed_steps, self.deleted = 0, 0
        self._mixture = base
        self.base = len(base) if base is not None else 0
        self.frozen = self.base if freeze else 0
        for _ in range(self.base):
            self.context_buffer.append_component()
            self.expert_buffer.append_component()
        self._asked: tuple[IntArray, Episodes, int] | None = None
        if not (self.base and self._seeded(1)):
            self._add_component()  # otherwise as soon as there are episodes to start from

    # ---- the protocol -------------------------------------------------------------------------------------------

    def ask(self) -> Episodes:
        """Draws new episodes of the components whose turn it is."""
        index = self._turn()
        stages: list[Stage] = ["context", "expert"] if self._together else [self.stage]
        drawn = [self._draw_contexts(index, stage) for stage in stages]
        owners, contexts = (np.concatenate(part) for part in zip(*drawn, strict=True))
        parameters = self._current.sample_parameters(contexts, owners, self.rng)
        self._asked = owners, Episodes(contexts, parameters), len(drawn[0][0])
        return self._asked[1]

    def tell(self, returns: Array) -> None:
        """Stores the returns, makes the steps they were drawn for, and moves on."""
        assert self._asked is not None, "tell without ask"
        owners, episodes, first = self._asked
        self._asked = None
        index = self._turn()
        if self.stage == "weights":
            self._update_weights(owners, episodes, returns)
            self.stage, self.finished = "done", self.finished + 1
            return
        self._store(owners[:first], episodes, returns, slice(None, first))
        if self.stage == "fill":
            self.stage, self.iteration = "context", 1
            self.finished += self.base > 0 and self.finished == 0
            if len(self._current) == self.base:
                self._add_component()
            return
        if self.stage == "context":
            self._update_contexts(index)
            self.stage = "expert"
            if first == len(owners):
                return
            self._store(owners[first:], episodes, returns, slice(first, None))
        self._update_experts(index)
        self.stage = "context"
        if self.iteration == self.iterations_of(self.component):
            self._finish_component()
        else:
            self.iteration += 1

    @property
    def done(self) -> bool:
        """Whether the weights are learned and the light components gone."""
        return self.stage == "done"

    @property
    def milestone(self) -> int:
        """Components finished, one more after the weight update; the components of the start count as one."""
        return self.finished

    @property
    def progress(self) -> Progress:
        """Where training stands."""
        last = self.config.components
        total, planned = self.planned_episodes(last, self.iterations_of(last)), 0
        if self.stage in ("weights", "done"):
            planned = total
        else:
            planned = self.planned_episodes(self.component, self.iteration - (self.stage in ("context", "expert")))
        recent = self.expert_buffer.mean_returns()
        counts = {"failed_steps": self.failed_steps, "deleted": self.deleted}
        newest = float(recent[-1]) if len(recent) else float("nan")
        return Progress(
            self.component, last, self.iteration, self.iterations_of(self.component), planned / total, newest, counts
        )

    def mixture(self) -> Mixture | None:
        """The finished components; uniform weights until the last update."""
        if self.stage in ("weights", "done"):
            return self._mixture
        trained = len(self._current) - (len(self._current) > self.base)
        return self._current.select(np.arange(trained)) if trained else None

    def state(self) -> Arrays:
        """All arrays and counters; between `tell` and `ask`."""
        assert self._asked is None, "no state between ask and tell"
        counters = [
            _STAGES.index(self.stage), self.component, self.iteration, self.finished, self.failed_steps, self.deleted
        ]  # fmt: skip
        state: Arrays = {"rng": rng_to_array(self.rng), "counters": np.array(counters, dtype=np.int64)}
        state |= above("mixture.", self._current.to_arrays())
        state |= above("context_buffer.", self.context_buffer.state())
        return state | above("expert_buffer.", self.expert_buffer.state())

    def restore(self, state: Arrays) -> None:
        """Goes on from `state`."""
        stage, self.component, self.iteration, self.finished, self.failed_steps, self.deleted = (
            int(value) for value in state["counters"]
        )
        self.stage = _STAGES[stage]
        self.rng = rng_from_array(state["rng"].astype(np.uint64))
        self._mixture = Mixture.from_arrays(below(state, "mixture."))
        self.context_buffer.restore(below(state, "context_buffer."))
        self.expert_buffer.restore(below(state, "expert_buffer."))
        self._asked = None

    # ---- adding and removing components -------------------------------------------------------------------------

    @property
    def _current(self) -> Mixture:
        assert self._mixture is not None
        return self._mixture

    def _turn(self) -> IntArray:
        """The components the current stage is about."""
        count = len(self._current)
        if self.stage == "fill":
            return np.flatnonzero(self.context_buffer.filled == 0)
        if self.stage == "weights":
            return np.arange(count)
        return np.arange(self.frozen if self.iteration % self.config.finetune_every == 0 else count - 1, count)

    def _add_component(self) -> None:
        seeded = self._seeded(self.component)
        contexts, experts = self._start_at_an_episode() if seeded else self._start_at_random()
        if self._mixture is not None:
            contexts, experts = self._mixture.contexts.append(contexts), self._mixture.experts.append(experts)
        self._mixture = Mixture(np.full(len(contexts), -np.log(len(contexts))), contexts, experts)
        self.context_buffer.append_component()
        self.expert_buffer.append_component()
        self.stage, self.iteration = "fill", 0

    def _seeded(self, component: int) -> bool:
        """Whether the component of that number, from 1, starts at a stored episode."""
        fresh = self.config.fresh
        return fresh is not None and component > max(fresh, 0 if self.base else 1)

    def iterations_of(self, component: int) -> int:
        """Iterations of the component of that number, from 1."""
        return (self.config.seeded_iterations if self._seeded(component) else None) or self.config.iterations

    def _start_at_random(self) -> tuple[LinearGaussian, LinearGaussian]:
        config, space = self.config, self.space
        middle = 0.5 * (space.context_low + space.context_high)
        mean = middle + np.array(config.context_start_std) * self.rng.standard_normal(len(middle))
        contexts = LinearGaussian.unconditional(mean[None], np.diag(np.array(config.context_std))[None])
        gain = np.zeros((1, len(space.initial_mean), len(middle)))
        experts = LinearGaussian.build(gain, space.initial_mean[None], np.linalg.cholesky(space.initial_cov)[None])
        return contexts, experts

    def _start_at_an_episode(self) -> tuple[LinearGaussian, LinearGaussian]:
        """The best of the stored episodes nearest to a context that is covered little, and its component around it."""
        space, buffer = self.space, self.expert_buffer
        width = space.context_high - space.context_low
        goals = space.context_low + width * self.rng.random((_GOALS, len(width)))
        goal = goals[logsumexp(self._current.log_context_joint(goals)).argmin()]
        distance = (((buffer.contexts - goal) / width) ** 2).sum(axis=2)
        distance[np.arange(buffer.size) >= buffer.filled[:, None]] = np.inf
        near = np.argsort(distance, axis=None)[:_NEAR]
        owner, slot = np.unravel_index(near[buffer.returns.ravel()[near].argmax()], distance.shape)
        context, parameters = buffer.contexts[owner, slot], buffer.parameters[owner, slot]
        old = self._current.select(np.array([owner]))
        contexts = LinearGaussian.unconditional(context[None], old.contexts.chol)
        bias = parameters - old.experts.gain[0] @ context
        cov = old.experts.cov + _SEARCH**2 * space.initial_cov
        return contexts, LinearGaussian.build(old.experts.gain, bias[None], np.linalg.cholesky(cov))

    def _finish_component(self) -> None:
        self.finished += 1
        if self._newest_is_stuck():
            self.deleted += 1
            self._keep(np.arange(len(self._current) - 1))
        if self.component < self.config.components:
            self.component += 1
            self._add_component()
        else:
            self.stage = "weights" if self.config.weight_iterations else "done"

    def _newest_is_stuck(self) -> bool:
        """Line 13 of Algorithm 1: the newest component ended in a local optimum."""
        if self.config.delete_factor is None or len(self._current) < 2:
            return False
        means = self.expert_buffer.mean_returns()
        if np.isnan(means[-1]) or np.isnan(means[:-1]).all():  # no episodes inside the box
            return bool(np.isnan(means[-1]))
        others = np.nanmean(means[:-1])
        return bool(means[-1] < others - (self.config.delete_factor - 1) * abs(others))

    def _keep(self, index: IntArray) -> None:
        self._mixture = self._current.select(index)
        self.context_buffer.select(index)
        self.expert_buffer.select(index)

    # ---- drawing and storing episodes ---------------------------------------------------------------------------

    @property
    def _together(self) -> bool:
        return self.config.draw_together and self.stage == "context"

    def _draw_contexts(self, index: IntArray, stage: Stage) -> tuple[IntArray, Array]:
        """Contexts of new episodes for a stage, and the component each belongs to."""
        count = self.batch_sizes[stage]
        if self.config.reject_outside and stage in ("fill", "expert"):
            return self._draw_until_inside(index, count)
        contexts = self._current.contexts.select(index).sample(np.empty((len(index), count, 0)), self.rng)
        return np.repeat(index, count), contexts.reshape(-1, contexts.shape[2])

    def _draw_until_inside(self, index: IntArray, count: int) -> tuple[IntArray, Array]:
        """Draws contexts of each component until `count` of them are inside the box (or too many were not)."""
        drawn: list[list[Array]] = [[] for _ in index]
        missing = np.full(len(index), count)
        for _ in range(_REJECTION_ROUNDS):
            short = np.flatnonzero(missing > 0)
            if not len(short):
                break
            draws = self._current.contexts.select(index[short]).sample(np.empty((len(short), count, 0)), self.rng)
            inside = np.cumsum(self.space.inside(draws), axis=1)
            for row, position in enumerate(short):
                enough = int(np.searchsorted(inside[row], missing[position])) + 1
                drawn[position].append(draws[row, :enough])
                missing[position] -= inside[row, min(enough, count) - 1]
        blocks = [np.concatenate(part) for part in drawn]
        return np.repeat(index, [len(block) for block in blocks]), np.concatenate(blocks)

    def _store(self, owners: IntArray, episodes: Episodes, returns: Array, part: slice) -> None:
        """Puts a part of the episodes, `owners` being theirs already, into the buffers."""
        contexts, parameters, returns = episodes.contexts[part], episodes.parameters[part], returns[part]
        self.context_buffer.push(owners, contexts, parameters, returns)
        if self.config.reject_outside:
            inside = self.space.inside(contexts)
            owners, contexts = owners[inside], contexts[inside]
            parameters, returns = parameters[inside], returns[inside]
        self.expert_buffer.push(owners, contexts, parameters, returns)

    def planned_episodes(self, component: int, iteration: int) -> int:
        """Episodes asked for (without rejections) until this iteration of this component is done."""
        sizes, old = self.batch_sizes, self.base - self.frozen
        total = self.base * sizes["fill"]
        for number in range(1, component + 1):
            iterations = self.iterations_of(number) if number < component else iteration
            together = iterations // self.config.finetune_every * (number - 1 + old)
            total += sizes["fill"] + (iterations + together) * (sizes["context"] + sizes["expert"])
        return total

    # ---- the updates --------------------------------------------------------------------------------------------

    def _log_joints(self, index: IntArray, buffer: ReplayBuffer) -> tuple[Array, Array]:
        """`log pi(o) pi(c|o)` and `log pi(o) pi(c|o) pi(theta|c,o)` of the episodes of `index`, `(rows, K)` each."""
        contexts, parameters = buffer.contexts[index], buffer.parameters[index]
        contexts = contexts.reshape(-1, contexts.shape[2])
        context_joint = self._current.log_context_joint(contexts)
        expert = self._current.experts.log_prob(contexts, parameters.reshape(-1, parameters.shape[2]))
        return context_joint, expert + context_joint

    def _own_share(self, index: IntArray, log_joint: Array) -> Array:
        """Log share of each episode's own component in the joint, `(len(index), n)`."""
        own = log_joint.reshape(len(index), -1, log_joint.shape[1])[np.arange(len(index)), :, index]
        return own - logsumexp(log_joint).reshape(len(index), -1)

    def _update_contexts(self, index: IntArray) -> None:
        """A trust-region step of `pi(c|o)` for each component of `index`, all against the model before the update."""
        contexts = self._current.contexts
        for block in self._blocks(index, self.context_buffer):
            contexts = contexts.replace(block, self._context_step(block))
        self._mixture = replace(self._current, contexts=contexts)

    def _update_experts(self, index: IntArray) -> None:
        """A trust-region step of `pi(theta|c,o)` for each component of `index`."""
        experts = self._current.experts
        for block in self._blocks(index, self.expert_buffer):
            experts = experts.replace(block, self._expert_step(block))
        self._mixture = replace(self._current, experts=experts)

    def _context_step(self, index: IntArray) -> LinearGaussian:
        """The target's constant `alpha H[expert]` is left out: it changes nothing."""
        config, buffer = self.config, self.context_buffer
        targets = buffer.returns[index]
        if config.auxiliary:
            context_joint, joint = self._log_joints(index, buffer)
            targets += config.alpha * self._own_share(index, joint)
            targets += (config.beta - config.alpha) * self._own_share(index, context_joint)
        old, contexts = self._current.contexts.select(index), buffer.contexts[index]
        model = fit_quadratic(old, contexts[:, :, :0], contexts, targets)
        new, info = gaussian_step(old, model, config.beta, config.kl_context)
        self.failed_steps += int((~info.ok).sum())
        return clip_std(new, np.array(config.context_scale), *_CONTEXT_STD_LIMITS)

    def _expert_step(self, index: IntArray) -> LinearGaussian:
        config, buffer = self.config, self.expert_buffer
        targets = buffer.returns[index]
        if config.auxiliary:
            targets += config.alpha * self._own_share(index, self._log_joints(index, buffer)[1])
        old = self._current.experts.select(index)
        model = fit_quadratic(old, buffer.contexts[index], buffer.parameters[index], targets)
        new, info = gaussian_step(old, model, config.alpha, config.kl_expert)
        self.failed_steps += int((~info.ok).sum())
        return new

    def _blocks(self, index: IntArray, buffer: ReplayBuffer) -> list[IntArray]:
        """The components whose buffers are full, a few at a time so that their arrays stay in the cache."""
        full = buffer.full(index)
        self.failed_steps += int((~full).sum())
        ready = index[full]
        return [ready[start : start + _BLOCK] for start in range(0, len(ready), _BLOCK)]

    def _update_weights(self, owners: IntArray, episodes: Episodes, returns: Array) -> None:
        """Learns `pi(o)` from fresh episodes of all components and removes the light ones."""
        config = self.config
        rewards = WeightRewards(
            self._current,
            owners,
            episodes.contexts,
            episodes.parameters,
            returns,
            alpha=config.alpha,
            beta=config.beta,
            auxiliary=config.auxiliary,
            context_scale=np.array(config.context_scale),
        )
        log_weights = self._current.log_weights
        for _ in range(config.weight_iterations):
            log_weights = categorical_step(log_weights, rewards(log_weights), config.beta_weight, config.kl_weight)
        self._mixture = replace(self._current, log_weights=log_weights)
        heavy = log_weights >= np.log(config.min_weight) if config.min_weight > 0 else np.isfinite(log_weights)
        heavy[: self.base] = True
        heavy[log_weights.argmax()] |= not heavy.any()
        self._keep(np.flatnonzero(heavy))
