"""Running Python functions elsewhere: in a pool of processes, on a Ray cluster. Knows no tasks."""
