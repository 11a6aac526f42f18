"""A run: its configuration, its folder, the training loop, and groups of seeds."""
