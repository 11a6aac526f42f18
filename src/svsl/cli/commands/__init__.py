"""One file per command: `Options` are its flags, `main(options)` runs it and returns an exit code, None for success.

`main` of a command whose flags depend on its first argument is given the arguments instead, as is that of `reproduce`,
whose report quotes them; see `svsl.cli.dispatch`.
"""
