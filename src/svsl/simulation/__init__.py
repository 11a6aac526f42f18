"""MuJoCo models of the robot tasks, their batched rollouts and pictures."""
