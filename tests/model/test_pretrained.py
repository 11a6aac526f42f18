"""The libraries that come with the package: there, small, and as good as they say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from svsl import SvslError, load_pretrained
from svsl.cli import main
from svsl.evaluation.metrics import execute
from svsl.model.random import stream
from svsl.model.shipped import FOLDER, pretrained_names
from svsl.runs.sources import config_of, task_of
from svsl.tasks.registry import REGISTRY

CONTEXTS = 100


def test_there_is_one_for_every_task() -> None:
    # the 5-link reacher is three tasks, one a reward, and is there to compare learners
    assert pretrained_names() == sorted(set(REGISTRY) - {"reacher5"})
    with pytest.raises(SvslError, match="no library is shipped for 'golf'; shipped: beer-pong"):
        load_pretrained("golf")


@pytest.mark.parametrize("name", pretrained_names())
def test_each_is_as_good_as_its_metadata_says(name: str) -> None:
    library, task = load_pretrained(name), task_of(load_pretrained(name))
    assert library.metadata["task"] == name
    assert (FOLDER / f"{name}.safetensors").stat().st_size < 400_000
    results = json.loads(library.metadata["results"])
    assert results["components"] == len(library)
    assert results["contexts"] >= 2000
    got = execute(library.mixture, task, CONTEXTS, stream(123)).mean
    noise = np.sqrt(results["success_rate"] * (1 - results["success_rate"]) / CONTEXTS) + 1 / CONTEXTS
    assert abs(got.success.mean() - results["success_rate"]) < 4 * noise
    spread = float(got.returns.std()) / np.sqrt(CONTEXTS)
    assert abs(got.returns.mean() - results["return_mean"]) < 4 * spread


@pytest.mark.parametrize("name", pretrained_names())
def test_each_carries_the_configuration_it_was_trained_with(name: str) -> None:
    library = load_pretrained(name)
    config = config_of(library)
    assert (config.task, str(config.seed)) == (name, library.metadata["seed"])
    assert json.loads(library.metadata["task_options"]) == config.task_options


def test_eval_takes_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "planar-reacher", "--json", "--contexts", "200"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["task"], result["finished"]) == ("planar-reacher", True)
    assert result["success_rate"] > 0.9
