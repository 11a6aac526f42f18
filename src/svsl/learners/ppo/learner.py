"""PPO on the step-based form of a task. Needs the extra `svsl[ppo]`.

Networks, rollouts, advantages and normalisation are those of stable-baselines3; the update is that of `update`, which
computes the same in an eighth of the time.

A checkpoint holds no random state: each rollout starts from its own seeds, derived from the run's seed and the number
of the rollout. It holds networks, optimiser, normalisation and the arms in the middle of their episodes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecNormalize

from svsl.errors import SvslError
from svsl.learners.base import Arrays, Counters, Progress, add_prefix, strip_prefix
from svsl.learners.ppo.config import PPOConfig
from svsl.learners.ppo.environment import ArmsVecEnv
from svsl.learners.ppo.update import Networks, Rollout, update
from svsl.model.files import read_safetensors, write_safetensors
from svsl.model.gaussians import Array
from svsl.model.random import EVAL_STREAM, LEARNER_STREAM, TASK_STREAM, TEST_STREAM, stream
from svsl.model.version import __version__
from svsl.tasks.base import Task, uniform_contexts
from svsl.tasks.steps import step_form


class PPOTraining:
    """PPO at work on a task that has a step-based form; see `svsl.learners.base.PolicyTraining` for the contract."""

    nonfinite = diverged = 0  # failed simulations end their episodes

    def __init__(self, config: PPOConfig, task: Task, seed: int, workers: int | None = None) -> None:
        self.config, self.task, self.seed, self.workers = config, task, seed, workers
        arms = step_form(task, config.environments, workers)
        self.episode_steps = arms.steps
        self.rollout, self.rollouts = 0, -(-config.episodes * arms.steps // config.rollout_steps)
        self.recent_return = float("nan")
        self.envs = ArmsVecEnv(arms, task, stream(seed, TASK_STREAM))
        self.normaliser = VecNormalize(self.envs, gamma=config.discount)
        with _one_torch_thread():  # several would round the initial networks differently
            self.model = PPO(
                "MlpPolicy",
                self.normaliser,
                learning_rate=config.learning_rate,
                n_steps=config.rollout_steps // config.environments,
                batch_size=config.batch,
                n_epochs=config.epochs,
                gamma=config.discount,
                gae_lambda=config.gae_lambda,
                clip_range=config.clip,
                policy_kwargs={"net_arch": list(config.hidden)},
                seed=_torch_seed(seed, 0),
                device="cpu",
            )
        self.networks = share_parameters(self.model.policy)
        self.model.set_logger(Logger(None, []))  # the default one would leave a temporary folder behind
        _, self._callback = self.model._setup_learn(self.rollouts * config.rollout_steps)

    @property
    def episodes(self) -> int:
        """Steps so far, in units of whole episodes."""
        return self.rollout * self.config.rollout_steps // self.episode_steps

    @property
    def done(self) -> bool:
        """Whether all rollouts are done."""
        return self.rollout >= self.rollouts

    @property
    def milestone(self) -> int:
        """Number of tests due so far: one every `test_every` rollouts, and one at the end."""
        return -(-self.rollout // self.config.test_every) if self.done else self.rollout // self.config.test_every

    @property
    def progress(self) -> Progress:
        """Progress of training; the iterations are rollouts."""
        return Progress(
            component=0,
            components=0,
            iteration=self.rollout,
            iterations=self.rollouts,
            work=self.rollout / self.rollouts,
            recent_return=self.recent_return,
            counts={},
        )

    def advance(self) -> None:
        """Collects a rollout and learns from it."""
        seed, model = self.seed, self.model
        self.envs.rng = stream(seed, TASK_STREAM, self.rollout)
        torch.manual_seed(_torch_seed(seed, 1 + self.rollout))
        self.envs.finished = []
        with _one_torch_thread():
            model.collect_rollouts(self.normaliser, self._callback, model.rollout_buffer, model.n_steps)
        rng = stream(seed, LEARNER_STREAM, 1 + self.rollout, 1)
        update(self.networks, rollout_of(model.rollout_buffer), rng, self.config)
        if not np.isfinite(self.networks.vector).all():
            raise SvslError(
                f"PPO's network became NaN after {self.episodes} episodes; start a new run with a lower --learning-rate"
            )
        self.recent_return = float(np.mean(self.envs.finished)) if self.envs.finished else float("nan")
        self.rollout += 1

    def measure(self, contexts: int) -> dict[str, float]:
        """Tests the policy on new contexts."""
        rng = stream(self.seed, TEST_STREAM, self.rollout)
        return {
            "episodes": self.episodes,
            "episodes_simulated": self.episodes,
            "milestone": self.rollout,
            **{name: float(v.mean()) for name, v in self._measured(contexts, rng).items()},
            "recent_return": self.recent_return,
            "action_std": float(torch.exp(self.model.policy.log_std.detach()).mean()),
        }

    def state(self) -> tuple[Arrays, Counters]:
        """Returns the arrays and counters that `restore` needs."""
        model, normaliser = self.model, self.normaliser
        arrays = add_prefix("policy.", _arrays(model.policy.state_dict())) | add_prefix("envs.", self.envs.state())
        for name, statistics in (("observation", normaliser.obs_rms), ("return", normaliser.ret_rms)):
            values = {"mean": statistics.mean, "var": statistics.var, "count": statistics.count}
            values = {n: np.asarray(value, dtype=np.float64) for n, value in values.items()}
            arrays |= add_prefix(f"normaliser.{name}.", values)
        arrays |= {
            "adam.first": self.networks.first,
            "adam.second": self.networks.second,
            "normaliser.discounted": normaliser.returns,
            "last_observation": model._last_obs,
            "last_start": np.asarray(model._last_episode_starts, dtype=np.uint8),
        }
        counts = {"rollout": self.rollout, "adam_steps": self.networks.steps}
        return arrays, {**counts, "recent_return": self.recent_return}

    def restore(self, arrays: Arrays, counters: Mapping[str, Any]) -> None:
        """Continues from a `state`."""
        model, normaliser = self.model, self.normaliser
        model.policy.load_state_dict(_tensors(strip_prefix("policy.", arrays)))
        self.networks.first[:], self.networks.second[:] = arrays["adam.first"], arrays["adam.second"]
        for name, statistics in (("observation", normaliser.obs_rms), ("return", normaliser.ret_rms)):
            values = strip_prefix(f"normaliser.{name}.", arrays)
            statistics.mean, statistics.var = values["mean"].copy(), values["var"].copy()
            statistics.count = float(values["count"])
        normaliser.returns = arrays["normaliser.discounted"].copy()
        self.envs.restore(strip_prefix("envs.", arrays))
        model._last_obs = arrays["last_observation"].copy()
        model._last_episode_starts = arrays["last_start"].astype(bool)
        self.rollout, self.networks.steps = int(counters["rollout"]), int(counters["adam_steps"])
        self.recent_return = float(counters["recent_return"])

    def save(self, path: Path, origin: Mapping[str, object]) -> None:
        """Writes the policy: its network and its normalisation of observations."""
        statistics = self.normaliser.obs_rms
        arrays = add_prefix("network.", _arrays(self.model.policy.state_dict()))
        arrays |= {"mean": statistics.mean, "var": statistics.var}
        header = {name: origin[name] for name in ("task", "task_options", "learner", "seed")}
        write_safetensors(path, arrays, header | {"episodes": self.episodes, "svsl": __version__})

    def load(self, path: Path) -> None:
        """Restores the policy that a finished training saved."""
        arrays, _ = read_safetensors(path, "policy")
        try:
            self.model.policy.load_state_dict(_tensors(strip_prefix("network.", arrays)))
            self.normaliser.obs_rms.mean, self.normaliser.obs_rms.var = arrays["mean"], arrays["var"]
        except (KeyError, RuntimeError) as error:
            raise SvslError(f"{path} does not fit the settings of its run ({error!r})") from None
        self.rollout = self.rollouts

    def evaluate(self, contexts: int) -> dict[str, Array]:
        """Evaluates the current policy on the contexts of `svsl eval`."""
        torch.manual_seed(_torch_seed(self.seed, 0))
        return self._measured(contexts, stream(self.seed, EVAL_STREAM))

    def act(self, observations: Array, deterministic: bool) -> Array:
        """Returns actions `(n, 5)` for raw observations `(n, d)`."""
        normalised = self.normaliser.normalize_obs(observations)
        return np.asarray(self.model.policy.predict(normalised, deterministic=deterministic)[0], dtype=np.float64)

    def _measured(self, contexts: int, rng: np.random.Generator) -> dict[str, Array]:
        """Plays one episode per context with the mean actions, then one with sampled actions."""
        goals, arms = uniform_contexts(self.task, contexts, rng), step_form(self.task, contexts, self.workers)

        def play(deterministic: bool) -> tuple[Array, Array]:
            arms.begin(slice(None), goals)
            returns = np.zeros(contexts)
            for _ in range(arms.steps):
                returns += arms.step(self.act(arms.observe(), deterministic))[0]
            return returns, arms.success().astype(np.float64)

        with _one_torch_thread():
            numbers = *play(deterministic=True), *play(deterministic=False)
        return dict(zip(("return_mean", "success_rate", "return_sampled", "success_sampled"), numbers, strict=True))


def share_parameters(policy: ActorCriticPolicy) -> Networks:
    """Returns the parameters of a policy for our update, in shared memory: changes on either side affect both."""

    def layers(hidden: Any, last: Any) -> list[Any]:
        linear = [module for module in hidden if isinstance(module, torch.nn.Linear)]
        return [parameter for module in (*linear, last) for parameter in (module.weight, module.bias)]

    actor = layers(policy.mlp_extractor.policy_net, policy.action_net)
    critic = layers(policy.mlp_extractor.value_net, policy.value_net)
    arrays = [[parameter.detach().numpy() for parameter in part] for part in (actor, critic)]
    networks = Networks(policy.log_std.detach().numpy(), *arrays)
    ours = [networks.log_std, *networks.policy, *networks.value]
    for parameter, view in zip([policy.log_std, *actor, *critic], ours, strict=True):
        parameter.data = torch.from_numpy(view)
    return networks


def rollout_of(buffer: RolloutBuffer) -> Rollout:
    """Returns the steps of a filled buffer, one per row."""
    names = ("observations", "actions", "log_probs", "advantages", "returns")
    arrays = [np.asarray(getattr(buffer, name), dtype=np.float32) for name in names]
    return Rollout(*(array.reshape(-1, *array.shape[2:]) for array in arrays))


def _torch_seed(seed: int, number: int) -> int:
    return int(stream(seed, LEARNER_STREAM, number).integers(2**32))


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Restricts PyTorch to one thread: the networks are too small for several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _arrays(tensors: dict[str, Any]) -> Arrays:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def _tensors(arrays: Arrays) -> dict[str, Any]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
