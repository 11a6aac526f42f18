"""Every registered learner keeps the protocol: shapes, exact continuation, progress, an end, and its budget."""

from dataclasses import fields, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from helpers import advance, assert_continues_bit_for_bit, space_of
from svsl import SvslError, Task, make_task
from svsl.learners.base import Learner, LearnerConfig, Training
from svsl.learners.hireps import HiREPSConfig
from svsl.learners.ladips import LaDiPSConfig
from svsl.learners.ppo.config import PPOConfig
from svsl.learners.registry import LEARNERS, PRESETS, find_learner, find_preset, make_learner, make_training
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.random import stream
from toys import Bimodal, Unimodal

SMALL: dict[str, LearnerConfig] = {
    "svsl": SVSLConfig(components=3, iterations=6, finetune_every=3, weight_iterations=5),
    "hireps": HiREPSConfig(components=4, iterations=12, batch=50, history=3),
    "ladips": LaDiPSConfig(components=4, iterations=12, batch=50, history=3),
    "ppo": PPOConfig(episodes=8, rollout_steps=400, environments=4, batch=100, epochs=1, test_every=3),
}
EPISODIC = [name for name, entry in LEARNERS.items() if entry.product == "library"]
WITHOUT_TORCH = find_spec("torch") is None or find_spec("stable_baselines3") is None


def make(name: str, task: Task, seed: int = 4) -> Learner:
    return make_learner(name, SMALL[name], space_of(task), stream(seed))


def task_of(name: str) -> Task:
    return Unimodal() if LEARNERS[name].product == "library" else make_task("reacher5")


def started(name: str, seed: int = 0) -> Training:
    if name == "ppo" and WITHOUT_TORCH:
        pytest.skip("needs svsl[ppo]")
    return make_training(name, SMALL[name], task_of(name), seed)


def test_every_learner_is_tested_here() -> None:
    assert SMALL.keys() == LEARNERS.keys()
    for (_, learner), presets in PRESETS.items():
        for preset in presets.values():
            assert type(preset.settings) is find_learner(learner).config


def test_an_unknown_learner_or_preset_is_rejected() -> None:
    with pytest.raises(SvslError, match=f"unknown learner 'nobody'; known learners: {', '.join(LEARNERS)}$"):
        find_preset("planar-reacher", "nobody")
    message = "unknown preset 'fast'; presets of svsl for beer-pong: paper, efficient, versatile$"
    with pytest.raises(SvslError, match=message):
        find_preset("beer-pong", "svsl", "fast")


@pytest.mark.parametrize("name", LEARNERS)
def test_every_setting_is_finite_and_of_a_sensible_size(name: str) -> None:
    seen = 0
    for setting in fields(SMALL[name]):
        value, kind = getattr(SMALL[name], setting.name), str(setting.type)
        for bad in (np.inf, -np.inf, np.nan):
            if "float" in kind:
                seen += 1
                with pytest.raises(SvslError, match=f"setting {setting.name}: expected a finite number, got"):
                    replace(SMALL[name], **{setting.name: (1.0, bad) if "tuple" in kind else bad})
        if "int" in kind and not isinstance(value, bool):
            with pytest.raises(SvslError, match=r"expected at most [\d,]+, got \(?1000000000000"):
                replace(SMALL[name], **{setting.name: (10**12,) if "tuple" in kind else 10**12})
    assert seen > 0


@pytest.mark.parametrize("name", EPISODIC)
@pytest.mark.parametrize("task", [Unimodal(), Bimodal()])
def test_episodes_have_the_shapes_of_the_task(name: str, task: Task) -> None:
    learner = make(name, task)
    while not learner.done:
        episodes = learner.ask()
        count = len(episodes.contexts)
        assert count > 0
        assert episodes.contexts.shape == (count, len(task.context_low))
        assert episodes.parameters.shape == (count, task.parameter_dim)
        assert np.isfinite(episodes.contexts).all()
        assert np.isfinite(episodes.parameters).all()
        learner.tell(task.evaluate(episodes.contexts, episodes.parameters, stream(0)).returns)
        mixture = learner.mixture()
        if mixture is not None:
            assert mixture.contexts.bias.shape == (len(mixture), len(task.context_low))
            assert mixture.experts.bias.shape == (len(mixture), task.parameter_dim)
            assert np.exp(mixture.log_weights).sum() == pytest.approx(1)
    assert learner.mixture() is not None


@pytest.mark.parametrize("name", EPISODIC)
def test_every_state_continues_bit_for_bit(name: str) -> None:
    task = Bimodal()
    assert_continues_bit_for_bit(lambda seed: make(name, task, seed), task)


@pytest.mark.parametrize("name", EPISODIC)
def test_a_learner_asks_for_the_planned_episodes(name: str) -> None:
    task = Unimodal()
    learner, asked = make(name, task), 0
    while not learner.done:
        asked += advance(learner, task)
    assert asked == SMALL[name].planned_episodes(space_of(task))


@pytest.mark.parametrize("name", LEARNERS)
def test_training_makes_progress_to_its_end(name: str) -> None:
    training = started(name)
    work, milestones, episodes = [training.progress.work], [training.milestone], [training.episodes]
    while not training.done:
        assert training.progress.work < 1
        training.advance()
        work.append(training.progress.work)
        milestones.append(training.milestone)
        episodes.append(training.episodes)
    assert (work[0], episodes[0], work[-1]) == (0, 0, 1)
    assert (np.diff(work) >= 0).all()
    assert (np.diff(episodes) > 0).all()
    assert set(np.diff(milestones)) <= {0, 1}
    assert milestones[-1] > milestones[-2], "the end is tested"
    assert episodes[-1] == SMALL[name].planned_episodes(space_of(task_of(name)))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_restored_training_continues_bit_for_bit(name: str) -> None:
    straight, moving = started(name), started(name)
    while not moving.done:
        arrays, counters = moving.state()
        arrays, moving = {key: np.array(array) for key, array in arrays.items()}, started(name)
        moving.restore(arrays, dict(counters))
        moving.advance()
        measured = moving.measure(20)
        straight.advance()
        np.testing.assert_equal(straight.measure(20), measured)
    (expected, counters), (got, other_counters) = straight.state(), moving.state()
    assert counters == other_counters
    assert expected.keys() == got.keys()
    for key in expected:
        np.testing.assert_array_equal(expected[key], got[key], err_msg=key)


@pytest.mark.parametrize("name", LEARNERS)
def test_budgets_shrink_and_match(name: str) -> None:
    full: Any = find_preset("planar-reacher", name).settings
    space = space_of(make_task("planar-reacher"))
    assert full.scaled(1.0, 0.5) == full
    tenth = full.scaled(0.1, 0.0)
    assert tenth.planned_episodes(space) < 0.2 * full.planned_episodes(space)
    assert full.scaled(1e-6, 0.5).planned_episodes(space) > 0, "never nothing"
    matched = full.with_budget(123_456)
    if name == "svsl":
        assert matched == full, "the others match it"
    else:
        assert abs(matched.planned_episodes(space) - 123_456) <= 0.5 * getattr(full, "batch", 1)


@pytest.mark.parametrize(
    ("task", "preset"),
    [(task, preset) for (task, kind), named in PRESETS.items() if kind == "svsl" for preset in named],
)
def test_every_preset_shrinks(task: str, preset: str) -> None:
    full: Any = find_preset(task, "svsl", preset).settings
    tenth = full.scaled(0.1, 1.0)
    assert full.scaled(1.0, 0.5) == full
    assert max(2, 0.05 * full.components) <= tenth.components <= max(2, 0.1 * full.components)
    assert tenth.components % 2**tenth.splits == 0
    assert tenth.iterations <= 0.11 * full.iterations or full.iterations < 50
    assert tenth.closing_iterations <= max(5 + tenth.splits, 0.11 * full.closing_iterations)


def test_a_smaller_gating_keeps_its_share_of_the_entropy() -> None:
    full = LaDiPSConfig(components=60, iterations=1000, gating_entropy=np.log(5))
    small = full.scaled(0.1, 0.0)
    assert (small.components, small.iterations) == (6, 100)
    assert small.gating_entropy == pytest.approx(np.log(5) * np.log(6) / np.log(60))
    assert replace(full, gating_entropy=None).scaled(0.1, 0.0).gating_entropy is None


@pytest.mark.parametrize("name", LEARNERS)
def test_old_names_of_settings_lead_to_current_ones(name: str) -> None:
    config = LEARNERS[name].config
    known = {f.name for f in fields(config)}
    assert set(config.old_names.values()) <= known
    assert not set(config.old_names) & known
