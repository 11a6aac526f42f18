"""One file a command: `Options` are its flags, `main` runs it."""
