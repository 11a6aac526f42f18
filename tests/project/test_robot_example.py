"""The robot example: the chosen skill, the streamed set points and the imported packages."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from svsl import load_pretrained
from svsl.model.gaussians import Array
from svsl.simulation.scenes import BEER_PONG_START
from svsl.tasks.beer_pong import BeerPong

EXAMPLE = Path(__file__).parents[2] / "examples" / "05_on_a_robot.py"


@pytest.fixture
def robot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("on_a_robot", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_needs_only_numpy_and_safetensors() -> None:
    code = (
        "import json, runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__'); print(json.dumps([*sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(EXAMPLE)], capture_output=True, text=True, check=True)
    *lines, modules = done.stdout.splitlines()
    loaded = {name.split(".")[0] for name in json.loads(modules)}
    assert not loaded & {"scipy", "matplotlib", "rich", "tyro", "threadpoolctl", "mujoco", "gymnasium"}
    assert "set points at 500 Hz" in lines[-2]
    assert "component 0 takes" not in lines[-2]
    assert "rad; the largest delay was" in lines[-1]


def test_the_chosen_skill_satisfies_the_constraint(robot: ModuleType) -> None:
    library = load_pretrained("beer-pong")
    rng = np.random.default_rng(0)
    for context in rng.uniform(library.context_low, library.context_high, (20, 2)):
        choice = library.skills(context)
        broken = int(choice[0].component)
        durations = sorted(float(s.theta[-1]) for s in choice if s.component != broken)
        if not durations:
            with pytest.raises(SystemExit, match="no skill for"):
                robot.choose(library, context, broken, 9.0)
            continue
        assert robot.choose(library, context, broken, 9.0).theta[-1] == durations[-1]
        if len(durations) > 1:
            assert robot.choose(library, context, broken, durations[-1]).theta[-1] == durations[-2]


def test_the_sent_trajectory_matches_the_simulated_one(robot: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    np.testing.assert_array_equal(robot.START, BEER_PONG_START)
    theta = load_pretrained("beer-pong").mean([0.1, -1.8], 2)
    task = BeerPong()
    steps = task.steps(theta[None])
    position, velocity = task._desired(theta[None], steps)
    monkeypatch.setattr(robot, "RATE_HZ", 1 / task.dt_s)
    sent = robot.trajectory(theta)
    np.testing.assert_allclose(sent[0], position[0, : steps[0]], atol=1e-12)
    np.testing.assert_allclose(sent[1], velocity[0, : steps[0]], atol=1e-12)
    monkeypatch.setattr(robot, "RATE_HZ", 1000.0)
    fine = robot.trajectory(theta)
    assert len(fine[0]) == 5 * steps[0]
    np.testing.assert_allclose(fine[0][-1], sent[0][-1], atol=1e-12)
    np.testing.assert_allclose(np.gradient(fine[0], 1e-3, axis=0)[5:-5], fine[1][5:-5], atol=0.01)


def test_set_points_are_sent_in_order_and_on_time(robot: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(robot.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(robot.time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))
    positions, sent = np.arange(14.0).reshape(2, 7), list[tuple[float, float]]()

    def send(position: Array, velocity: Array) -> None:
        sent.append((clock[0], float(position[0])))
        clock[0] += 0.0005

    assert robot.stream(positions, positions, send) == pytest.approx(0.0005)
    assert sent == [(0.0, 0.0), (pytest.approx(0.002), 7.0)]
