"""What `svsl bench` measures."""

import json
import re

import pytest

from pages import quick_bench
from svsl.bench import ppo_update, suite
from svsl.cli import main

KEYS = {
    "updates", "baselines", "growth", "linear_growth", "episodes_per_s", "library_sample_us", "rollouts", "ppo", "full",
}  # fmt: skip


def test_json_has_every_measurement_and_tables_show_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick_bench(monkeypatch)
    monkeypatch.setattr(ppo_update, "find_spec", lambda name: None)
    assert main(["bench", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == KEYS
    assert [row["components"] for row in result["updates"]] == [1, 2]
    assert [row["learner"] for row in result["baselines"]] == ["hireps", "ladips"]
    assert result["ppo"] is None
    suite.show(result)
    out = capsys.readouterr().out
    assert re.search(r"hireps: \d+ ms per iteration with \d+ components", out)
    assert "ppo" not in out
    suite.show(result | {"ppo": {"batch": 64, "step_ms": 0.2, "stable_baselines3_step_ms": 1.6, "ratio": 8.0}})
    assert "0.20 ms per gradient step, 1.60 ms with stable-baselines3 (" in capsys.readouterr().out


def test_simulated_tasks_are_measured_beside_bare_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    from svsl.bench.rollouts import time_rollouts

    quick_bench(monkeypatch)
    rows = time_rollouts("beer-pong")
    assert [row["batch"] for row in rows] == [256, 24, 12, 24]
    assert all(row["share_of_bare"] > 0 for row in rows)


def test_the_update_of_ppo_is_measured_where_torch_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("stable_baselines3")
    quick_bench(monkeypatch)
    row = ppo_update.time_ppo_update()
    assert row is not None
    assert row["batch"] == 64
    assert row["ratio"] == pytest.approx(row["stable_baselines3_step_ms"] / row["step_ms"])
