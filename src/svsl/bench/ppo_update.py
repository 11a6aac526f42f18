"""PPO's update in NumPy beside `stable_baselines3.PPO.train`: the reason the former exists."""

import copy
from importlib.util import find_spec

from svsl.bench import clock
from svsl.learners.ppo.config import PPOConfig
from svsl.learners.ppo.update import update
from svsl.model.random import stream

_STEPS = 2048  # of the rollout; a multiple of the batch


def time_ppo_update() -> clock.Timing | None:
    """Times a gradient step of both on one rollout of the reacher; None if the extra `svsl[ppo]` is not installed."""
    if find_spec("torch") is None or find_spec("stable_baselines3") is None:
        return None
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger

    from svsl.environments.reacher5 import Reacher5Env
    from svsl.learners.ppo.learner import rollout_of, share_parameters

    config, threads = PPOConfig(epochs=1), torch.get_num_threads()
    torch.set_num_threads(1)  # as in training
    model = PPO(
        "MlpPolicy",
        Reacher5Env("dense"),
        learning_rate=config.learning_rate,
        n_steps=_STEPS,
        batch_size=config.batch,
        n_epochs=config.epochs,
        clip_range=config.clip,
        policy_kwargs={"net_arch": list(config.hidden)},
        seed=0,
        device="cpu",
    )
    model.set_logger(Logger(None, []))
    _, callback = model._setup_learn(_STEPS)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, _STEPS)
    rollout, steps = rollout_of(model.rollout_buffer), _STEPS // config.batch
    networks, rng = share_parameters(copy.deepcopy(model.policy)), stream(0, 6)
    ours = clock.best_ms(lambda: update(networks, rollout, rng, config), 3) / steps
    theirs = clock.best_ms(model.train, 1) / steps
    torch.set_num_threads(threads)
    return {"batch": config.batch, "step_ms": ours, "stable_baselines3_step_ms": theirs, "ratio": theirs / ours}
