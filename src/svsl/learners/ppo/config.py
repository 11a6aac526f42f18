"""Settings of PPO; apart from it, so that they can be read and written without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from svsl.errors import SvslError


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO (stable-baselines3), a step-based learner: one network, no skill library."""

    episodes: int = 50_000
    """Episodes to train for; the last rollout is completed."""
    rollout_steps: int = 16384
    """Steps between two updates, all environments together."""
    environments: int = 64
    """Environments that are stepped together."""
    batch: int = 64
    """Steps in a gradient step."""
    epochs: int = 10
    """Passes over a rollout in an update."""
    learning_rate: float = 1e-4
    """Of the Adam optimiser."""
    discount: float = 0.99
    """Of future rewards (gamma)."""
    gae_lambda: float = 0.95
    """Of the advantage estimates."""
    clip: float = 0.2
    """How far the probability of an action may move in an update."""
    hidden: tuple[int, ...] = (64, 64)
    """Layers of the policy's and of the value's network."""
    test_every: int = 10
    """Rollouts between tests."""

    def __post_init__(self) -> None:
        for name in ("episodes", "environments", "batch", "epochs", "test_every"):
            if getattr(self, name) < 1:
                raise SvslError(f"setting {name}: expected at least 1, got {getattr(self, name)}")
        if self.batch < 2 or self.rollout_steps % self.environments or self.rollout_steps < self.batch:
            raise SvslError(
                f"setting rollout_steps: expected a multiple of environments ({self.environments}) that is at least "
                f"batch ({self.batch}, itself at least 2), got {self.rollout_steps}"
            )
        for name, top in (("learning_rate", 1.0), ("discount", 1.0), ("gae_lambda", 1.0), ("clip", 1.0)):
            if not 0 < getattr(self, name) <= top:
                raise SvslError(f"setting {name}: expected above 0 and at most {top:g}, got {getattr(self, name)}")
        if not self.hidden or min(self.hidden) < 1:
            raise SvslError(f"setting hidden: expected sizes of at least 1, got {self.hidden}")

    def rollouts(self, episode_steps: int) -> int:
        """Rollouts in all, with episodes of so many steps."""
        return -(-self.episodes * episode_steps // self.rollout_steps)
