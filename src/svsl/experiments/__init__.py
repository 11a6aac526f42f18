"""The experiments of the paper: their definitions, runner, worker and report."""
