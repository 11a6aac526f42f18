"""Running Python code elsewhere: in a pool of processes, on a Ray cluster. Knows no tasks."""
