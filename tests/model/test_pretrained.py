"""The shipped libraries exist, are small, and perform as their metadata says."""

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


def test_tasks_have_a_shipped_library() -> None:
    # the 5-link reacher is three tasks, one per reward, and only compares learners
    assert pretrained_names() == sorted(set(REGISTRY) - {"reacher5"})
    with pytest.raises(SvslError, match="no library is shipped for 'golf'; shipped: beer-pong"):
        load_pretrained("golf")


@pytest.mark.parametrize("name", pretrained_names())
def test_shipped_libraries_match_the_results_in_their_metadata(name: str) -> None:
    library, task = load_pretrained(name), task_of(load_pretrained(name))
    assert library.metadata["task"] == name
    assert (FOLDER / f"{name}.safetensors").stat().st_size < 400_000
    results = json.loads(library.metadata["results"])
    assert results["components"] == len(library)
    assert results["contexts"] >= 2000
    outcome = execute(library.mixture, task, CONTEXTS, stream(123)).mean
    noise = np.sqrt(results["success_rate"] * (1 - results["success_rate"]) / CONTEXTS) + 1 / CONTEXTS
    assert abs(outcome.success.mean() - results["success_rate"]) < 4 * noise
    spread = float(outcome.returns.std()) / np.sqrt(CONTEXTS)
    assert abs(outcome.returns.mean() - results["return_mean"]) < 4 * spread


@pytest.mark.parametrize("name", pretrained_names())
def test_shipped_libraries_contain_their_training_configuration(name: str) -> None:
    library = load_pretrained(name)
    config = config_of(library)
    assert (config.task, str(config.seed)) == (name, library.metadata["seed"])
    assert json.loads(library.metadata["task_options"]) == config.task_options


def test_eval_accepts_the_name_of_a_shipped_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "planar-reacher", "--json", "--contexts", "200"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["task"], result["finished"]) == ("planar-reacher", True)
    assert result["success_rate"] > 0.9
