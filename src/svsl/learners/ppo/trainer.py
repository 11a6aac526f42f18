"""PPO on the step-based form of a task, in the same run folder as every learner. Needs the extra `svsl[ppo]`.

Networks, rollouts, advantages and normalisation are those of stable-baselines3; the update is that of `update`, which
computes the same in an eighth of the time.

Randomness never enters a checkpoint: each rollout starts from seeds of its own, derived from the run's seed and the
rollout's number. What does enter: networks, optimiser, normalisation and the arms in the middle of their episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from svsl.errors import SvslError
from svsl.learners.base import Arrays, Progress, above, below
from svsl.learners.ppo.config import PPOConfig
from svsl.learners.ppo.environment import ArmsVecEnv
from svsl.learners.ppo.update import Networks, Rollout, update
from svsl.model.files import read_safetensors, write_safetensors
from svsl.model.gaussians import Array, BoolArray
from svsl.model.random import stream
from svsl.model.version import __version__
from svsl.runs.config import EVAL_STREAM, LEARNER_STREAM, TASK_STREAM, TEST_STREAM
from svsl.runs.folder import MetricsRow, Run
from svsl.runs.tensorboard import TensorBoardWriter
from svsl.runs.training import Status, working_on
from svsl.tasks.base import Task, uniform_contexts
from svsl.tasks.reacher5 import STEPS
from svsl.tasks.steps import StepForm, step_form

_CLIP_OBSERVATION, _EPSILON = 10.0, 1e-8  # of the normalisation, as in VecNormalize


class StepPolicy:
    """A trained network with its normalisation of observations.

    Args:
        network: The policy.
        mean: `(d,)`, of the observations.
        var: `(d,)`.
    """

    def __init__(self, network: ActorCriticPolicy, mean: Array, var: Array) -> None:
        self.network, self.mean, self.var = network, mean, var

    def act(self, observations: Array, deterministic: bool) -> Array:
        """Actions `(n, 5)` for raw observations `(n, d)`."""
        scaled = (observations - self.mean) / np.sqrt(self.var + _EPSILON)
        clipped = np.clip(scaled, -_CLIP_OBSERVATION, _CLIP_OBSERVATION).astype(np.float32)
        return np.asarray(self.network.predict(clipped, deterministic=deterministic)[0], dtype=np.float64)

    def play(self, arms: StepForm, goals: Array, deterministic: bool) -> tuple[Array, BoolArray]:
        """Runs one whole episode for each goal; returns and success, `(n,)` each."""
        arms.begin(slice(None), goals)
        returns = np.zeros(len(goals))
        for _ in range(STEPS):
            returns += arms.step(self.act(arms.observe(), deterministic))[0]
        return returns, arms.success()

    def measure(self, task: Task, goals: Array, workers: int | None = None) -> dict[str, float]:
        """Returns and success with the mean actions and with drawn ones."""
        arms = step_form(task, len(goals), workers)
        returns, success = self.play(arms, goals, deterministic=True)
        sampled, sampled_success = self.play(arms, goals, deterministic=False)
        return {
            "return_mean": float(returns.mean()),
            "success_rate": float(success.mean()),
            "return_sampled": float(sampled.mean()),
            "success_sampled": float(sampled_success.mean()),
        }


class PPOTrainer:
    """One process training PPO in one run folder; the counterpart of `svsl.runs.training.Trainer`.

    Args:
        run: The run; if it has a checkpoint, training goes on from there.
        checkpoint_s: Seconds between checkpoints, which are written after whole updates.
        workers: Threads of the simulation; all cores unless told.
    """

    def __init__(self, run: Run, checkpoint_s: float = 10.0, workers: int | None = None) -> None:
        assert isinstance(run.config.settings, PPOConfig)
        self.run, self.checkpoint_s, self.workers = run, checkpoint_s, workers
        self.config = run.config.settings
        self.task = run.config.make_task(workers)
        self.rollout, self.rows, self.elapsed_s, self.recent_return = 0, 0, 0.0, float("nan")
        self.rollouts = self.config.rollouts(STEPS)
        seed = run.config.seed
        arms = step_form(self.task, self.config.environments, workers)
        self.envs = ArmsVecEnv(arms, self.task, stream(seed, TASK_STREAM))
        self.normaliser = VecNormalize(self.envs, gamma=self.config.discount)
        with _one_torch_thread():  # several would round the initial networks in another way
            self.model = _make_ppo(self.config, self.normaliser, _torch_seed(seed, 0))
        self.networks = share_parameters(self.model.policy)
        self.model.set_logger(Logger(None, []))  # its own would leave a folder among the temporary files
        _, self._callback = self.model._setup_learn(self.rollouts * self.config.rollout_steps)
        self._test: MetricsRow | None = None
        self._resume()
        self._start_rollout, self._start_elapsed_s = self.rollout, self.elapsed_s

    @property
    def episodes(self) -> int:
        """Steps so far in units of whole episodes."""
        return self.rollout * self.config.rollout_steps // STEPS

    def train(self, report: Callable[[Status], None], stop: Callable[[], bool] = lambda: False) -> bool:
        """Trains until the policy is written or `stop` says so; returns whether it is finished."""
        with working_on(self.run), _one_torch_thread():
            self.run.truncate_metrics(self.rows)
            board = TensorBoardWriter(self.run.folder / "tensorboard", self.run.read_metrics())
            clock = saved = time.monotonic()
            while self.rollout < self.rollouts:
                self._one_rollout()
                now = time.monotonic()
                self.elapsed_s += now - clock
                clock, done = now, self.rollout == self.rollouts
                if done or self.rollout % self.config.test_every == 0:
                    self._test = self._measure()
                    self.run.append_metrics(self._test)
                    board.add(self._test)
                    self.rows += 1
                stopping = stop()
                if stopping or done or now - saved > self.checkpoint_s:
                    self.run.save_checkpoint(*self._state())
                    saved = now
                report(self.status())
                if stopping and not done:
                    return False
            save_policy(self.run, self.policy, self.episodes)
            return True

    def status(self) -> Status:
        """Where the run stands now."""
        done, elapsed = self.rollout - self._start_rollout, self.elapsed_s - self._start_elapsed_s
        rate = done * self.config.rollout_steps / STEPS / elapsed if elapsed > 0 else float("nan")
        remaining = elapsed * (self.rollouts - self.rollout) / done if done else float("nan")
        share = self.rollout / self.rollouts
        progress = Progress(0, 0, self.rollout, self.rollouts, share, self.recent_return, {})
        return Status(progress, self.episodes, 0, 0, self.elapsed_s, rate, remaining, self._test)

    @property
    def policy(self) -> StepPolicy:
        """The policy as it is now."""
        return StepPolicy(self.model.policy, self.normaliser.obs_rms.mean, self.normaliser.obs_rms.var)

    def _one_rollout(self) -> None:
        """Collects a rollout and learns from it."""
        seed, model, config = self.run.config.seed, self.model, self.config
        self.envs.rng = stream(seed, TASK_STREAM, self.rollout)
        torch.manual_seed(_torch_seed(seed, 1 + self.rollout))
        self.envs.finished = []
        model.collect_rollouts(self.normaliser, self._callback, model.rollout_buffer, model.n_steps)
        update(
            self.networks,
            rollout_of(model.rollout_buffer),
            stream(seed, LEARNER_STREAM, 1 + self.rollout, 1),
            batch=config.batch,
            epochs=config.epochs,
            learning_rate=config.learning_rate,
            clip=config.clip,
        )
        if not np.isfinite(self.networks.vector).all():
            raise SvslError(
                f"PPO's network became NaN after {self.episodes} episodes; start a new run with a lower --learning-rate"
            )
        self.recent_return = float(np.mean(self.envs.finished)) if self.envs.finished else float("nan")
        self.rollout += 1

    def _measure(self) -> MetricsRow:
        """Tests the policy on fresh contexts."""
        seed = self.run.config.seed
        goals = uniform_contexts(self.task, self.run.config.test_contexts, stream(seed, TEST_STREAM, self.rollout))
        return {
            "episodes": self.episodes,
            "episodes_simulated": self.episodes,
            "milestone": self.rollout,
            **self.policy.measure(self.task, goals, self.workers),
            "recent_return": self.recent_return,
            "action_std": float(torch.exp(self.model.policy.log_std.detach()).mean()),
            "wall_s": round(self.elapsed_s, 3),
        }

    def _state(self) -> tuple[Arrays, dict[str, float]]:
        """Arrays and counters of a checkpoint."""
        model, normaliser = self.model, self.normaliser
        arrays = above("policy.", _arrays(model.policy.state_dict())) | above("envs.", self.envs.state())
        for name, statistics in (("observation", normaliser.obs_rms), ("return", normaliser.ret_rms)):
            values = {"mean": statistics.mean, "var": statistics.var, "count": statistics.count}
            arrays |= above(f"normaliser.{name}.", {n: np.asarray(v, dtype=np.float64) for n, v in values.items()})
        arrays |= {
            "adam.first": self.networks.first,
            "adam.second": self.networks.second,
            "normaliser.discounted": normaliser.returns,
            "last_observation": model._last_obs,
            "last_start": np.asarray(model._last_episode_starts, dtype=np.uint8),
        }
        numbers: dict[str, float] = {"rollout": self.rollout, "rows": self.rows, "adam_steps": self.networks.steps}
        return arrays, numbers | {"elapsed_s": self.elapsed_s, "recent_return": self.recent_return}

    def _resume(self) -> None:
        checkpoint = self.run.load_checkpoint()
        if checkpoint is None:
            return
        arrays, counters = checkpoint
        try:
            self._restore(arrays)
        except (KeyError, ValueError, RuntimeError) as error:
            raise SvslError(
                f"{self.run.checkpoint_path} does not fit {self.run.folder / 'config.json'} ({error!r})"
            ) from None
        self.rollout, self.rows = int(counters["rollout"]), int(counters["rows"])
        self.networks.steps = int(counters["adam_steps"])
        self.elapsed_s, self.recent_return = float(counters["elapsed_s"]), float(counters["recent_return"])

    def _restore(self, arrays: Arrays) -> None:
        model, normaliser = self.model, self.normaliser
        model.policy.load_state_dict(_tensors(below(arrays, "policy.")))
        self.networks.first[:], self.networks.second[:] = arrays["adam.first"], arrays["adam.second"]
        for name, statistics in (("observation", normaliser.obs_rms), ("return", normaliser.ret_rms)):
            values = below(arrays, f"normaliser.{name}.")
            statistics.mean, statistics.var = values["mean"].copy(), values["var"].copy()
            statistics.count = float(values["count"])
        normaliser.returns = arrays["normaliser.discounted"].copy()
        self.envs.restore(below(arrays, "envs."))
        model._last_obs = arrays["last_observation"].copy()
        model._last_episode_starts = arrays["last_start"].astype(bool)


def _make_ppo(config: PPOConfig, envs: VecEnv, seed: int) -> PPO:
    return PPO(
        "MlpPolicy",
        envs,
        learning_rate=config.learning_rate,
        n_steps=config.rollout_steps // config.environments,
        batch_size=config.batch,
        n_epochs=config.epochs,
        gamma=config.discount,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip,
        policy_kwargs={"net_arch": list(config.hidden)},
        seed=seed,
        device="cpu",
    )


def share_parameters(policy: ActorCriticPolicy) -> Networks:
    """The parameters of a policy for our update: the same memory, so that what one changes the other sees."""

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
    """The steps of a filled buffer, one a row."""
    names = ("observations", "actions", "log_probs", "advantages", "returns")
    arrays = [np.asarray(getattr(buffer, name), dtype=np.float32) for name in names]
    return Rollout(*(array.reshape(-1, *array.shape[2:]) for array in arrays))


def save_policy(run: Run, policy: StepPolicy, episodes: int) -> None:
    """Writes the policy and thereby finishes the run."""
    arrays = above("network.", _arrays(policy.network.state_dict())) | {"mean": policy.mean, "var": policy.var}
    config = run.config
    header = {"task": config.task, "task_options": dict(config.task_options), "learner": config.learner}
    write_safetensors(
        run.product_path, arrays, header | {"seed": config.seed, "episodes": episodes, "svsl": __version__}
    )


def load_policy(run: Run) -> tuple[StepPolicy, int]:
    """The policy of a run, finished or not, and the episodes it was trained for.

    Raises:
        SvslError: If there is none yet.
    """
    trainer = PPOTrainer(run)
    if not run.finished:
        if not trainer.rollout:
            raise SvslError(f"{run.folder} has no trained policy yet; svsl resume {run.folder} continues it")
        return trainer.policy, trainer.episodes
    arrays, header = read_safetensors(run.product_path, "policy")
    network = trainer.model.policy
    try:
        network.load_state_dict(_tensors(below(arrays, "network.")))
        return StepPolicy(network, arrays["mean"], arrays["var"]), int(header["episodes"])  # type: ignore[arg-type]
    except (KeyError, RuntimeError) as error:
        raise SvslError(f"{run.product_path} does not fit {run.folder / 'config.json'} ({error!r})") from None


def evaluation(run: Run, contexts: int, workers: int | None = None) -> dict[str, object]:
    """The numbers of `svsl eval` for a step-based policy."""
    policy, episodes = load_policy(run)
    config, metrics = run.config, run.read_metrics()
    task = config.make_task()
    torch.manual_seed(_torch_seed(config.seed, 0))
    with _one_torch_thread():
        goals = uniform_contexts(task, contexts, stream(config.seed, EVAL_STREAM))
        numbers = policy.measure(task, goals, workers)
    return {
        "task": config.task,
        "learner": config.learner,
        "seed": config.seed,
        "finished": run.finished,
        "episodes": episodes,
        "episodes_simulated": episodes,
        "wall_s": metrics[-1]["wall_s"] if metrics else None,
        **numbers,
    }


def _torch_seed(seed: int, number: int) -> int:
    return int(stream(seed, LEARNER_STREAM, number).integers(2**32))


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """The networks are far too small for several threads."""
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
