"""`svsl bench`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from svsl.cli.parsing import Switch, parse


@dataclass(frozen=True)
class Options:
    """Measure speed, as ratios against a straightforward reference of the same update."""

    json: Switch = False
    """Print one JSON object instead of tables."""
    full: Switch = False
    """Also train the paper's whole planar reacher (about a minute of one core)."""


def main(args: list[str]) -> int:
    """Times the parts of training."""
    options = parse(Options, args, "svsl bench")
    from svsl.bench import timing

    result = timing.run(options.full)
    if options.json:
        print(json.dumps(result))
    else:
        timing.show(result)
    return 0
