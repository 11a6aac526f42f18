"""MuJoCo models of the robot tasks, batched rollouts and movement primitives. Independent of tasks."""
