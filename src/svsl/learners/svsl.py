"""SVSL: versatile skill libraries by local mixtures of experts (Celik et al., CoRL 2021, Algorithm 1).

Components are added one at a time, or start together. Each one is trained by trust-region steps on quadratic models of
the return, augmented by how responsible the component is for a sample: contexts that others already cover pay less. A
closing stage may train them all on uniform contexts, split them, and learn which contexts go to which. Otherwise the
component weights, uniform until then, are learned at the end and light components are removed. A learner may also start
with the components of a finished library and add to them.
"""

from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from svsl.learners import svsl_steps
from svsl.learners.base import Arrays, Episodes, Progress, SearchSpace, add_prefix, strip_prefix
from svsl.learners.behaviours import BehaviourModels
from svsl.learners.buffer import ReplayBuffer
from svsl.learners.outside import draw_until_inside
from svsl.learners.proposal import Proposal, with_unrun
from svsl.learners.spreading import split, start_spread
from svsl.learners.svsl_config import Schedule, SVSLConfig
from svsl.learners.svsl_steps import Step
from svsl.learners.weighting import kept_components, learn_weights
from svsl.model.gaussians import Array, IntArray, LinearGaussian
from svsl.model.mixture import Mixture
from svsl.model.random import rng_from_array, rng_to_array
from svsl.tasks.base import uniform_contexts

Stage = Literal["fill", "context", "expert", "weights", "done", "closing", "start"]  # checkpoints store the position
_STAGES = get_args(Stage)
_CLOSING_TESTS = 8  # tests during the closing stage
_TESTS_TOGETHER = 24  # the same without a curriculum, where the closing stage is the whole training


class SVSL:
    """The learner; see `svsl.learners.base.Learner` for the contract.

    Args:
        config: The settings.
        space: The task's search space.
        rng: Source of all randomness.
        base: Components to start with. They are treated as if they had been trained here, their buffers filled with
            new episodes, and are never removed, however light they become.
        freeze: Learn only the weights of `base`; leave its experts and context distributions unchanged.
    """

    def __init__(
        self,
        config: SVSLConfig,
        space: SearchSpace,
        rng: np.random.Generator,
        base: Mixture | None = None,
        freeze: bool = False,
    ) -> None:
        self.config, self.space, self.rng = config.resolved(space), space, rng
        base = None if base is None else svsl_steps.extensible(base, config, freeze)
        self.base = len(base) if base is not None else 0
        self.frozen = self.base if freeze else 0
        self.schedule = Schedule(self.config, self.base, self.frozen)
        sizes = self.schedule.batch_sizes["fill"], len(space.context_low), len(space.initial_mean), self.base
        self.context_buffer, self.expert_buffer = ReplayBuffer(*sizes), ReplayBuffer(*sizes)
        self.stage: Stage = "fill"
        self.component, self.iteration = 1, 0
        self.milestone = 0  # finished components, plus one after the weight update; the base counts as one component
        self.failed_steps, self.deleted = 0, 0
        self._mixture = base
        self._base_log_weights = np.maximum(base.log_weights, -700.0) if base is not None else np.zeros(0)
        self._asked: Proposal | None = None
        self._runs_outside = space.scores_outside and not config.reject_outside
        self._behaviour_models = BehaviourModels()
        self._unused: IntArray = np.zeros(0, np.intp)  # episodes since each one's last step, in the closing stage
        if not config.curriculum:
            self._start_together()
        elif not (self.base and (self.schedule.warm_starts(1) or self.config.start_tests)):
            self._add_component()  # otherwise as soon as there are episodes to start from

    # ---- the protocol -------------------------------------------------------------------------------------------

    def ask(self) -> Episodes:
        """Draws new episodes of the components updated next."""
        episodes = self._draw()
        while not len(episodes.contexts):  # all outside the box, and scored by the learner
            self.tell(np.empty(0))
            if self.done:
                break
            episodes = self._draw()
        return episodes

    def _draw(self) -> Episodes:
        if self.stage == "closing":
            return self._ask_closing()
        if self.stage == "start":
            return self._ask_start()
        index = self._updated()
        together = self.config.draw_together and self.stage == "context"
        stages: list[Stage] = ["context", "expert"] if together else [self.stage]
        drawn = [self._draw_contexts(index, stage) for stage in stages]
        owners, contexts = (np.concatenate(part) for part in zip(*drawn, strict=True))
        parameters = self._current.sample_parameters(contexts, owners, self.rng)
        return self._propose(owners, contexts, parameters, len(drawn[0][0]))

    def _propose(self, owners: IntArray, contexts: Array, parameters: Array, first: int) -> Episodes:
        run = np.ones(len(contexts), dtype=bool) if self._runs_outside else self.space.inside(contexts)
        self._asked = Proposal(owners, contexts, parameters, first, run)
        return Episodes(contexts[run], parameters[run], described=self.config.distinguish_by == "behaviour")

    def tell(self, returns: Array, behaviours: Array | None = None) -> None:
        """Stores the returns, makes the steps they were drawn for, and moves to the next stage."""
        assert self._asked is not None, "tell without ask"
        asked, self._asked = self._asked, None
        if (lost := np.isnan(returns)).any():
            asked, returns = asked.without(lost), returns[~lost]
            behaviours = None if behaviours is None else behaviours[~lost]
        returns = with_unrun(asked.run, returns)
        behaviours = None if behaviours is None else with_unrun(asked.run, behaviours)
        if self.stage == "closing":
            self._tell_closing(asked, returns, behaviours)
        elif self.stage == "start":
            self._tell_start(asked, returns)
        elif self.stage == "weights":
            if len(returns):
                self._update_weights(asked, returns, behaviours)
            self.stage, self.milestone = "done", self.milestone + 1
        else:
            self._tell_training(asked, returns, behaviours)

    def _tell_training(self, asked: Proposal, returns: Array, behaviours: Array | None) -> None:
        index = self._updated()
        self._store(asked, returns, behaviours, slice(None, asked.first))
        if self.stage == "fill":
            self.stage, self.iteration = "context", 1
            self.milestone += self.base > 0 and self.milestone == 0
            if len(self._current) == self.base:
                self._next_component()
            return
        if self.stage == "context":
            self._update_contexts(index)
            self.stage = "expert"
            if not self.config.draw_together:
                return
            self._store(asked, returns, behaviours, slice(asked.first, None))
        self._update_experts(index)
        self.stage = "context"
        if self.iteration == self.schedule.iterations(self.component):
            self._finish_component()
        else:
            self.iteration += 1

    @property
    def done(self) -> bool:
        """Whether all stages are over."""
        return self.stage == "done"

    @property
    def progress(self) -> Progress:
        """Progress of training."""
        closing = self.config.closing_iterations > 0 and self.stage in ("closing", "weights", "done")
        components = self.schedule.added
        if closing:  # deleted ones are not split
            components = self.schedule.closing_components(self.iteration, self.deleted) - self.base
        return Progress(
            component=components if closing else self.component,
            components=components,
            iteration=self.iteration,
            iterations=self.config.closing_iterations if closing else self.schedule.iterations(self.component),
            work=self.schedule.episodes_so_far(self.stage, self.component, self.iteration) / self.schedule.total
            if self.expert_buffer.filled.any() or self.context_buffer.filled.any()
            else 0.0,
            recent_return=self.expert_buffer.recent_return(of_all=closing),
            counts={"failed_steps": self.failed_steps, "deleted": self.deleted},
        )

    def mixture(self) -> Mixture | None:
        """Returns the finished components, whose weights are not learned yet in most stages."""
        if self.stage in ("start", "closing", "weights", "done"):
            return self._mixture
        trained = len(self._current) - (len(self._current) > self.base)
        return self._current.select(np.arange(trained)) if trained else None

    def state(self) -> Arrays:
        """Returns all arrays and counters; only between `tell` and `ask`."""
        assert self._asked is None, "no state between ask and tell"
        counters = [
            _STAGES.index(self.stage), self.component, self.iteration, self.milestone, self.failed_steps, self.deleted
        ]  # fmt: skip
        state: Arrays = {"rng": rng_to_array(self.rng), "counters": np.array(counters, dtype=np.int64)}
        state |= add_prefix("mixture.", self._current.to_arrays())
        state |= add_prefix("context_buffer.", self.context_buffer.state())
        if self.stage == "closing":
            state["unused"] = self._unused
        return state | add_prefix("expert_buffer.", self.expert_buffer.state())

    def restore(self, state: Arrays) -> None:
        """Continues from a `state`."""
        counters = [int(value) for value in state["counters"]]
        stage, self.component, self.iteration, self.milestone, self.failed_steps, self.deleted = counters
        self.stage = _STAGES[stage]
        self.rng = rng_from_array(state["rng"].astype(np.uint64))
        self._mixture = Mixture.from_arrays(strip_prefix("mixture.", state))
        self.context_buffer.restore(strip_prefix("context_buffer.", state))
        self.expert_buffer.restore(strip_prefix("expert_buffer.", state))
        self._asked, self._behaviour_models = None, BehaviourModels()
        if self.stage == "closing":
            self._unused = np.array(state["unused"], dtype=np.intp)

    # ---- adding and removing components -------------------------------------------------------------------------

    @property
    def _current(self) -> Mixture:
        assert self._mixture is not None
        return self._mixture

    def _updated(self) -> IntArray:
        """Returns the components the current stage draws episodes for."""
        count = len(self._current)
        if self.stage == "fill":
            return np.flatnonzero(self.context_buffer.filled == 0)
        if self.stage == "weights":
            return np.arange(count)
        return np.arange(self.frozen if self.iteration % self.config.finetune_every == 0 else count - 1, count)

    def _start_together(self) -> None:
        """Adds all components, and starts the closing stage."""
        count = self.schedule.closing_components(0)
        for _ in range(count):
            self.context_buffer.append_component()
            self.expert_buffer.append_component()
        contexts, experts = start_spread(count, self.config, self.space, self.rng)
        self._mixture = Mixture(np.full(len(contexts), -np.log(len(contexts))), contexts, experts)
        self.component = self.schedule.added
        self._start_closing()

    def _start_closing(self) -> None:
        self.stage, self.iteration = "closing", 0
        if self._current.expert_degree < self.config.closing.expert_degree:
            self._mixture = self._current.with_quadratic_experts()
        self._unused = np.zeros(len(self._current), dtype=np.intp)

    def _next_component(self) -> None:
        """Adds a component, after a look at where the library fails if the settings ask for one."""
        if self.config.start_tests:
            self.stage, self.iteration = "start", 0
        else:
            self._add_component()

    def _ask_start(self) -> Episodes:
        """Draws uniform contexts, and for each the mean parameters of a component chosen by the gating."""
        contexts = uniform_contexts(self.space, self.config.start_tests, self.rng)
        owners = self._current.sample_components(contexts, self.rng)
        return self._propose(owners, contexts, self._current.component_means(contexts, owners), len(owners))

    def _tell_start(self, asked: Proposal, returns: Array) -> None:
        """Adds a component near one of the contexts with the lowest returns."""
        self._add_component(svsl_steps.failing_context(asked.contexts, returns, self.rng))

    def _add_component(self, target: Array | None = None) -> None:
        if self.schedule.warm_starts(self.component):
            known = self._current, self.expert_buffer, self.config, self._likelihood
            contexts, experts = svsl_steps.start_at_episode(*known, self.space, self.rng, target)
        else:
            contexts, experts = svsl_steps.start_at_random(self.config, self.space, self.rng, target)
        if self._mixture is not None:
            contexts, experts = self._mixture.contexts.append(contexts), self._mixture.experts.append(experts)
        uniform = 0.0 - np.log(len(contexts))
        base_log_weights = self._base_log_weights + (np.log(self.base) if self.base else 0.0) + uniform
        added = np.full(len(contexts) - self.base, uniform)
        self._mixture = Mixture(np.concatenate([base_log_weights, added]), contexts, experts)
        self.context_buffer.append_component()
        self.expert_buffer.append_component()
        self.stage, self.iteration = "fill", 0

    def _finish_component(self) -> None:
        self.milestone += 1
        if svsl_steps.newest_is_stuck(self.expert_buffer.mean_returns(), self.config.delete_factor):
            self.deleted += 1
            self._keep(np.arange(len(self._current) - 1))
        if self.component < self.schedule.added:
            self.component += 1
            self._next_component()
        elif self.config.closing_iterations:
            self._start_closing()
        else:
            self._start_weights()

    def _start_weights(self) -> None:
        self.stage = "weights" if self.config.learns_weights and len(self._current) > 1 else "done"

    def _keep(self, index: IntArray) -> None:
        self._mixture, self._behaviour_models = self._current.select(index), BehaviourModels()
        self.context_buffer.select(index)
        self.expert_buffer.select(index)

    # ---- drawing and storing episodes ---------------------------------------------------------------------------

    def _draw_contexts(self, index: IntArray, stage: Stage) -> tuple[IntArray, Array]:
        """Draws contexts of new episodes for a stage; returns the component of each, and the contexts."""
        count = self.schedule.batch_sizes[stage]
        if not self._runs_outside and stage in ("fill", "expert", "weights"):
            drawn = draw_until_inside(self._current.contexts, index, count, self.space, self.rng)
            inside = self.space.inside(drawn[1]) | (stage != "weights")
            return drawn[0][inside], drawn[1][inside]
        contexts = self._current.contexts.select(index).sample(np.empty((len(index), count, 0)), self.rng)
        return np.repeat(index, count), contexts.reshape(-1, contexts.shape[2])

    def _store(self, asked: Proposal, returns: Array, behaviours: Array | None, part: slice) -> None:
        """Stores a part of the episodes in the buffers."""
        owners, contexts, parameters = asked.owners[part], asked.contexts[part], asked.parameters[part]
        returns = returns[part]
        behaviours = None if behaviours is None else behaviours[part]
        self.context_buffer.append(owners, contexts, parameters, returns, behaviours)
        if not self._runs_outside:
            inside = self.space.inside(contexts)
            owners, contexts = owners[inside], contexts[inside]
            parameters, returns = parameters[inside], returns[inside]
            behaviours = None if behaviours is None else behaviours[inside]
        self._store_for_experts(owners, contexts, parameters, returns, behaviours)

    def _store_for_experts(
        self, owners: IntArray, contexts: Array, parameters: Array, returns: Array, behaviours: Array | None
    ) -> None:
        self.expert_buffer.append(owners, contexts, parameters, returns, behaviours)
        self._behaviour_models.forget(np.unique(owners))

    # ---- the closing stage --------------------------------------------------------------------------------------

    def _ask_closing(self) -> Episodes:
        """Draws uniform contexts, and the component of each by the gating."""
        contexts = uniform_contexts(self.space, self.config.closing_batch * len(self._current), self.rng)
        owners = self._current.sample_components(contexts, self.rng)
        order = np.argsort(owners, kind="stable")
        order = order[owners[order] >= self.frozen]
        owners, contexts = owners[order], contexts[order]
        return self._propose(owners, contexts, self._current.sample_parameters(contexts, owners, self.rng), len(owners))

    def _tell_closing(self, asked: Proposal, returns: Array, behaviours: Array | None) -> None:
        """Makes a step of the experts that have a whole batch of new episodes; a rarely chosen one has to wait.

        So do those that started together, until their buffers are full.
        """
        self._store_for_experts(asked.owners, asked.contexts, asked.parameters, returns, behaviours)
        self._unused += np.bincount(asked.owners, minlength=len(self._current))
        enough = self._unused >= self.config.closing_batch
        ready = np.flatnonzero(enough & self.expert_buffer.full(np.arange(len(enough))))
        self._unused[ready] = 0
        self._update_experts(ready, self.schedule.closing_settings(self.iteration + 1))
        if self.config.kl_gating is not None:
            known = self._current, self.expert_buffer, self.config, self._likelihood
            self._mixture, failed = svsl_steps.gating_update(*known, self.space, self.rng)
            self.failed_steps += failed
        self.iteration += 1
        last = self.iteration == self.config.closing_iterations
        tests = _CLOSING_TESTS if self.config.curriculum else _TESTS_TOGETHER
        self.milestone += last or self.iteration % -(-self.config.closing_iterations // tests) == 0
        if last:
            self._start_weights()
        elif self.schedule.splits_after(self.iteration):
            self._split()

    def _split(self) -> None:
        """Splits every component into two, which share its episodes."""
        mixture = split(self._current, self.config.learns_gating, self.space, self.rng)
        pairs = np.arange(len(mixture)) // 2
        self._keep(pairs)
        self._mixture, self._unused = mixture, self._unused[pairs]

    # ---- the updates --------------------------------------------------------------------------------------------

    def _update_contexts(self, index: IntArray) -> None:
        """Makes a step of `pi(c|o)` for each component of `index`, all from the mixture before the update."""
        step = partial(svsl_steps.context_step, space=self.space)
        contexts = self._stepped(self._current.contexts, step, self.context_buffer, index, self.config)
        self._mixture = replace(self._current, contexts=contexts)

    def _update_experts(self, index: IntArray, config: SVSLConfig | None = None) -> None:
        """Makes a step of `pi(theta|c,o)` for each component of `index`."""
        used = config or self.config
        experts = self._stepped(self._current.experts, svsl_steps.expert_step, self.expert_buffer, index, used)
        self._mixture = replace(self._current, experts=experts)

    def _stepped(
        self, stack: LinearGaussian, step: Step, buffer: ReplayBuffer, index: IntArray, config: SVSLConfig
    ) -> LinearGaussian:
        stack, failed = svsl_steps.step_in_blocks(step, self._current, stack, buffer, index, config, self._likelihood)
        self.failed_steps += failed
        return stack

    def _likelihood(self, contexts: Array, parameters: Array, behaviours: Array | None) -> Array:
        """Returns the log likelihood `(n, K)` that tells components apart, of behaviours where there are any."""
        if behaviours is None:
            return self._current.log_likelihood(contexts, parameters)
        return self._behaviour_models.log_likelihoods(self._current, self.expert_buffer, contexts, behaviours)

    def _update_weights(self, asked: Proposal, returns: Array, behaviours: Array | None) -> None:
        """Learns `pi(o)` from new episodes of all components and removes the light ones."""
        config, log_likelihood = self.config, self._likelihood(asked.contexts, asked.parameters, behaviours)
        log_weights = learn_weights(config, self._current, asked.owners, asked.contexts, returns, log_likelihood)
        self._mixture = replace(self._current, log_weights=log_weights)
        self._keep(kept_components(log_weights, config.min_weight, self.base))
