"""Settings of PPO, readable without PyTorch."""

from dataclasses import dataclass, replace
from typing import Self

from svsl.learners.base import LearnerConfig, SearchSpace, require, shrunk


@dataclass(frozen=True)
class PPOConfig(LearnerConfig):
    """Settings of PPO (stable-baselines3), a step-based learner: one network, no skill library.

    Examples:
        >>> from svsl.learners.ppo.config import PPOConfig
        >>> PPOConfig(episodes=1000, hidden=(32, 32)).rollout_steps
        16384
    """

    episodes: int = 50_000
    """Training episodes; the last rollout is completed."""
    rollout_steps: int = 16384
    """Steps per update, summed over all environments."""
    environments: int = 64
    """Environments stepped in parallel."""
    batch: int = 64
    """Steps per gradient step."""
    epochs: int = 10
    """Passes over a rollout per update."""
    learning_rate: float = 1e-4
    """Adam step size."""
    discount: float = 0.99
    """Discount factor of future rewards (gamma)."""
    gae_lambda: float = 0.95
    """Decay of the advantage estimates (lambda of GAE)."""
    clip: float = 0.2
    """Bound on the relative change of an action's probability in an update."""
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layer sizes of the policy network and of the value network."""
    test_every: int = 10
    """Rollouts between tests."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "episodes", "environments", "batch", "epochs", "test_every")
        good = self.batch >= 2 and self.rollout_steps % self.environments == 0 and self.rollout_steps >= self.batch
        expected = f"a multiple of environments ({self.environments}), at least batch ({self.batch}, itself at least 2)"
        require(good, "rollout_steps", expected, self.rollout_steps)
        for name in ("learning_rate", "discount", "gae_lambda", "clip"):
            require(0 < getattr(self, name) <= 1, name, "above 0 and at most 1", getattr(self, name))
        require(bool(self.hidden) and min(self.hidden) >= 1, "hidden", "sizes of at least 1", self.hidden)

    def planned_episodes(self, space: SearchSpace) -> int:
        """Returns the episodes of a run; the last rollout may add some."""
        return self.episodes

    def scaled(self, scale: float, power: float) -> Self:
        """Returns the settings of a smaller run; there are no components, so both factors apply to the episodes."""
        return replace(self, episodes=shrunk(self.episodes, scale, 500, 1 + power))

    def with_budget(self, episodes: float) -> Self:
        """Returns the settings of a run of about this many episodes."""
        return replace(self, episodes=max(1, round(episodes)))
