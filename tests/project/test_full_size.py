"""The paper's planar reacher at full size (takes a few minutes; run with `make test-slow`)."""

from __future__ import annotations

import json

import pytest

from svsl.cli import main

pytestmark = pytest.mark.slow


def test_the_papers_settings_reach_the_expected_return(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "planar-reacher", "--quiet"]) == 0
    assert main(["eval", "runs/planar-reacher-seed0", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["return_mean"] > -0.90
    assert result["success_rate"] > 0.93
    assert result["diagnostics"]["collision"] < 0.02


def test_a_larger_alpha_raises_entropy_and_no_auxiliary_rewards_lowers_coverage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = {}
    for name, flags in {"paper": [], "alpha": ["--alpha", "0.5"], "plain": ["--no-auxiliary", "--beta", "0.5"]}.items():
        assert main(["train", "planar-reacher", "--quiet", "--out", name, *flags]) == 0
        assert main(["eval", name, "--json"]) == 0
        results[name] = json.loads(capsys.readouterr().out)
    assert results["alpha"]["mixture_entropy"] > results["paper"]["mixture_entropy"] + 10
    assert results["alpha"]["active_components"] > 1.5 * results["paper"]["active_components"]
    assert results["plain"]["coverage"] < results["paper"]["coverage"] - 0.1
    assert results["plain"]["diagnostics"]["collision"] > 3 * results["paper"]["diagnostics"]["collision"]
