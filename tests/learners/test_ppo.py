"""PPO as a learner: its environment, exact resume, run folder and command line. Needs the extra `svsl[ppo]`."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from svsl import SvslError, make_task
from svsl.cli import main
from svsl.environments.reacher5 import Reacher5Env
from svsl.learners.ppo.config import PPOConfig
from svsl.learners.ppo.update import Networks, update
from svsl.model.random import stream
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from svsl.runs.training import Status, Trainer
from svsl.show.plots.files import plot_run
from svsl.tasks.base import uniform_contexts
from svsl.tasks.reacher5 import STEPS, Reward
from svsl.tasks.steps import step_form

pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")
ppo = pytest.importorskip("svsl.learners.ppo.learner")

# three rollouts of 512 steps: episodes continue from one to the next
SMALL = PPOConfig(episodes=7, rollout_steps=512, environments=4, batch=128, epochs=2, learning_rate=1e-3, test_every=2)


def config(reward: Reward = "last10", seed: int = 0, settings: PPOConfig = SMALL) -> RunConfig:
    return RunConfig("reacher5", {"reward": reward}, "ppo", settings, seed, test_contexts=5)


def training(reward: Reward = "last10", settings: PPOConfig = SMALL) -> Any:
    return config(reward, settings=settings).make_training(make_task("reacher5", reward=reward))


def silent(status: Status) -> None:
    pass


def train(folder: Path, run_config: RunConfig) -> Run:
    run = Run.create(folder, run_config)
    assert Trainer(run).train(silent)
    return run


def timeless(run: Run) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name != "wall_s"} for row in run.read_metrics()]


# ---- the environment ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["dense", "last10", "last2"])
def test_arms_together_do_what_single_environments_do(reward: Reward) -> None:
    task = make_task("reacher5", reward=reward)
    together = ppo.ArmsVecEnv(step_form(task, 3), task, stream(0))
    singles = [Reacher5Env(reward) for _ in range(3)]
    goals = uniform_contexts(task, 3, stream(0))
    seen = together.reset()
    starts = [env.reset(options={"context": goal})[0] for env, goal in zip(singles, goals, strict=True)]
    np.testing.assert_array_equal(seen, starts)
    rng, totals = stream(1), np.zeros(3)
    for step in range(STEPS):
        actions = rng.uniform(-1.5, 1.5, (3, 5))
        seen, rewards, over, infos = together.step(actions)
        alone = [env.step(action) for env, action in zip(singles, actions, strict=True)]
        totals += rewards
        np.testing.assert_array_equal(rewards, [a[1] for a in alone])
        np.testing.assert_array_equal(over, [a[2] or a[3] for a in alone])
        if step < STEPS - 1:
            np.testing.assert_array_equal(seen, [a[0] for a in alone])
    assert over.all()
    for info, (last, _, _, truncated, _) in zip(infos, alone, strict=True):
        np.testing.assert_array_equal(info["terminal_observation"], last)
        assert info["TimeLimit.truncated"] == truncated
    np.testing.assert_array_equal(together.finished, totals)
    np.testing.assert_array_equal(seen[:, :5], np.tile(np.cos([np.pi, 0, 0, 0, 0]), (3, 1)), "new episodes")
    assert not np.array_equal(together.arms.goals, goals)


def test_the_policy_sees_normalised_observations() -> None:
    trainer = training()
    trainer.advance()
    raw = trainer.envs.arms.observe() * 3  # some beyond the clip
    statistics = trainer.normaliser.obs_rms
    normalised = np.clip((raw - statistics.mean) / np.sqrt(statistics.var + 1e-8), -10, 10).astype(np.float32)
    expected = trainer.model.policy.predict(normalised, deterministic=True)[0]
    np.testing.assert_array_equal(trainer.act(raw, deterministic=True), expected)


# ---- training and resuming ------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_policy_and_another_seed_another_one(tmp_path: Path) -> None:
    first, second = train(tmp_path / "a", config()), train(tmp_path / "b", config())
    assert first.product_path.name == "policy.safetensors"
    assert first.product_path.read_bytes() == second.product_path.read_bytes()
    assert timeless(first) == timeless(second)
    third = train(tmp_path / "c", config(seed=1))
    assert first.product_path.read_bytes() != third.product_path.read_bytes()


@pytest.mark.parametrize("reward", ["dense", "last2"])
def test_stopped_after_any_rollout_it_ends_the_same(tmp_path: Path, reward: Reward) -> None:
    straight = train(tmp_path / "straight", config(reward))
    run = Run.create(tmp_path / "stopped", config(reward))
    rounds = 0
    while not Trainer(run).train(silent, stop=lambda: True):
        rounds += 1
        assert not run.finished
        run = Run.open(run.folder)
    assert rounds == 2
    assert run.product_path.read_bytes() == straight.product_path.read_bytes()
    assert timeless(run) == timeless(straight)
    assert [row["milestone"] for row in run.read_metrics()] == [2, 3]


def test_the_update_is_that_of_stable_baselines3(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SMALL, episodes=9, batch=64, epochs=3)
    trainer = training("dense", settings)
    for _ in range(2):  # the second time with moments, and with log-probabilities of networks that have moved
        model, networks = trainer.model, trainer.networks
        model.collect_rollouts(trainer.normaliser, trainer._callback, model.rollout_buffer, model.n_steps)
        rollout = ppo.rollout_of(model.rollout_buffer)
        # theirs puts environment by environment, ours step by step
        places = np.arange(512).reshape(128, 4).swapaxes(0, 1).ravel()
        order = [stream(2, epoch).permutation(512) for epoch in range(3)]
        before = networks.vector.copy()
        ours = Networks(before[:5].copy(), *([part.copy() for part in p] for p in (networks.policy, networks.value)))
        ours.first[:], ours.second[:], ours.steps = networks.first, networks.second, networks.steps
        theirs = iter(order)
        monkeypatch.setattr(np.random, "permutation", lambda count, theirs=theirs: next(theirs))
        model.train()
        given = iter([places[o] for o in order])
        generator = SimpleNamespace(permutation=lambda count, given=given: next(given))
        update(ours, rollout, generator, settings)  # type: ignore[arg-type]
        assert np.abs(networks.vector - before).max() > 0.01, "theirs has moved the shared parameters"
        np.testing.assert_allclose(ours.vector, networks.vector, atol=2e-5)
        networks.first[:], networks.second[:], networks.steps = ours.first, ours.second, ours.steps


def test_rows_after_the_checkpoint_are_removed(tmp_path: Path) -> None:
    straight = train(tmp_path / "straight", config())
    run = Run.create(tmp_path / "run", config())
    Trainer(run).train(silent, stop=lambda: True)
    early = run.checkpoint_path.read_bytes()
    Trainer(run).train(silent, stop=lambda: True)
    run.checkpoint_path.write_bytes(early)  # as if it had been killed before the second checkpoint
    assert Trainer(run).train(silent)
    assert timeless(run) == timeless(straight)


def test_a_checkpoint_of_another_network_is_rejected(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config())
    Trainer(run).train(silent, stop=lambda: True)
    other = Run(run.folder, config(settings=replace(SMALL, hidden=(32,))))
    with pytest.raises(SvslError, match=r"settings.hidden \(32,\) instead of \(64, 64\)"):
        Trainer(other)


def test_a_network_that_becomes_nan_stops_the_run(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", config())
    trainer = Trainer(run)
    trainer.train(silent, stop=lambda: True)
    before = run.checkpoint_path.read_bytes()
    trainer.training.networks.first[:] = np.nan  # type: ignore[attr-defined]
    with pytest.raises(SvslError, match="network became NaN after"):
        trainer.train(silent, stop=lambda: True)
    assert run.checkpoint_path.read_bytes() == before


def test_it_learns(tmp_path: Path) -> None:
    settings = PPOConfig(
        episodes=240, rollout_steps=4000, environments=20, batch=50, epochs=10, learning_rate=3e-3, test_every=6
    )
    rows = train(tmp_path / "run", replace(config("last10", settings=settings), test_contexts=50)).read_metrics()
    assert [row["episodes"] for row in rows] == [120, 240]
    # noise in the actions costs most at first: it must become less, and the return better for it
    assert rows[-1]["action_std"] < rows[0]["action_std"] - 0.05
    assert rows[-1]["return_sampled"] > rows[0]["return_sampled"] + 10


# ---- the run as a user meets it -------------------------------------------------------------------------------------


def test_train_eval_and_plot_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--episodes", "7", "--rollout-steps", "512", "--environments", "4", "--epochs", "1", "--test-every", "1"]
    common = ["train", "reacher5", "--learner", "ppo", "--reward", "last10", "--out", "run", "--test-contexts", "5"]
    assert main([*common, *flags]) == 0
    printed = capsys.readouterr().out
    assert "policy   run/policy.safetensors" in printed
    assert Path("run/figures/learning.png").stat().st_size > 5000
    assert json.loads(Path("run/config.json").read_text())["settings"]["hidden"] == [64, 64]
    assert main(["eval", "run", "--json", "--contexts", "40"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["eval", "run", "--json", "--contexts", "40"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert main(["eval", "run", "--json", "--contexts", "40", "--seed", "7"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert (other["seed"], other["evaluation_seed"]) == (0, 7)
    assert other["return_mean"] != first["return_mean"], "other contexts"
    assert (first["task"], first["learner"], first["finished"], first["episodes"]) == ("reacher5", "ppo", True, 7)
    assert set(first) >= {"return_mean", "return_sampled", "success_rate", "episodes_simulated", "wall_s"}
    assert first["return_sampled"] < first["return_mean"] < 0
    low, high = first["intervals"]["return_mean"]
    assert low < first["return_mean"] < high
    assert main(["plot", "run"]) == 0
    assert main(["resume", "run"]) == 0
    assert main([*common, *flags]) == 2, "a finished run is not replaced"
    assert main([*common, *flags, "--overwrite", "--quiet"]) == 0
    assert json.loads(Path("run/config.json").read_text())["learner"] == "ppo"
    assert main(["plot", "run", "run"]) == 2
    assert "run holds a policy of ppo, not a skill library" in capsys.readouterr().err


def test_an_unfinished_run_can_be_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.create(tmp_path / "run", config())
    assert main(["eval", str(run.folder)]) == 2
    assert "has no trained policy yet" in capsys.readouterr().err
    with pytest.raises(SvslError, match="nothing to draw yet"):
        plot_run(run)
    Trainer(run).train(silent, stop=lambda: True)
    assert main(["eval", str(run.folder), "--json", "--contexts", "5"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["finished"], result["episodes"]) == (False, 2)


def test_what_cannot_be_trained_is_rejected_before_a_folder_is_created(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for args, message in [
        (["planar-reacher", "--learner", "ppo"], "a PlanarReacher has no step-based form"),
        (["reacher5", "--learner", "ppo", "--rollout-steps", "100"], "expected a multiple of environments (64)"),
        (["reacher5", "--learner", "ppo", "--clip", "0"], "setting clip: expected above 0 and at most 1, got 0"),
    ]:
        assert main(["train", *args]) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "svsl.learners.ppo.learner", None)  # as if the extra were not installed
    assert main(["train", "reacher5", "--learner", "ppo"]) == 2
    assert "PPO needs svsl.learners.ppo.learner: pip install 'svsl[ppo]'" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_the_core_never_imports_torch() -> None:
    code = (
        "import sys, svsl, svsl.learners.registry, svsl.runs.training, svsl.show.plots.files, svsl.environments\n"
        "from svsl.cli import main\n"
        "main(['train', 'reacher5', '--components', '1', '--iterations', '1', '--buffer', '406', '--quiet'])\n"
        "sys.exit(any(name.split('.')[0] in ('torch', 'stable_baselines3') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_no_temporary_files_are_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    training()
    assert list((tmp_path / "temporary").iterdir()) == []
