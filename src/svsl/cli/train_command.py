"""The command that trains a run again, from its configuration."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict

from svsl.learners.registry import PRESETS
from svsl.runs.config import RunConfig, make_config


def train_command(config: RunConfig) -> str | None:
    """Returns `svsl train TASK ...` with the flags that differ from the nearest preset; None for an extended run."""
    if config.extends is not None:
        return None
    presets: list[str | None] = [None, *PRESETS.get((config.task, config.learner), {})]
    return min((_command(config, preset) for preset in presets), key=len)


def _command(config: RunConfig, preset: str | None) -> str:
    words = ["svsl", "train", config.task]
    words += ["--learner", config.learner] if config.learner != "svsl" else []
    words += ["--preset", preset] if preset else []
    given: dict[str, object] = {}
    defaults = make_config(config.task, config.learner, preset, given)
    while missing := {n: v for n, v in config.task_options.items() if defaults.task_options.get(n) != v}:
        given |= missing
        defaults = make_config(config.task, config.learner, preset, given)  # options may choose another preset
    words += _flags(given)
    own, theirs = asdict(config.settings), asdict(defaults.settings)
    words += _flags({name: value for name, value in own.items() if value != theirs[name]})
    words += _flags({"test_contexts": config.test_contexts}) if config.test_contexts != defaults.test_contexts else []
    return shlex.join([*words, "--seed", str(config.seed)])


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _flags(values: Mapping[str, object]) -> list[str]:
    """Returns settings as flags, as `svsl train` parses them."""
    words = []
    for name, value in values.items():
        if isinstance(value, bool):
            words.append(f"--{_flag(name)}" if value else f"--no-{_flag(name)}")
        else:
            words += [f"--{_flag(name)}", *map(str, value if isinstance(value, tuple) else [value])]
    return words
