"""`svsl bench`."""

import json
from dataclasses import dataclass

from svsl.bench import suite
from svsl.cli.parsing import Switch


@dataclass(frozen=True)
class Options:
    """Measure the speed of training, as ratios to straightforward implementations of the same updates."""

    json: Switch = False
    """Print one JSON object instead of tables."""
    full: Switch = False
    """Also train the paper's planar reacher in full size (about a minute on one core)."""


def main(options: Options) -> None:
    """Measures the parts of training."""
    result = suite.run(options.full)
    if options.json:
        print(json.dumps(result))
    else:
        suite.show(result)
