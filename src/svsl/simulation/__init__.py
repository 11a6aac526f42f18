"""MuJoCo models of the robot tasks and their batched rollouts."""
