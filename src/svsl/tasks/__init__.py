"""Tasks: the contract, the registry, one task per file."""
