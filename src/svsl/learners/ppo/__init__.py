"""PPO, a step-based learner. Only `trainer` and `environment` import PyTorch."""
