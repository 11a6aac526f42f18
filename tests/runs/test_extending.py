"""Adding components to a finished library: old skills stay, new ones come, also on a changed task."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import helpers
from helpers import advance, random_mixture, space_of
from svsl import SkillLibrary, SvslError, Task
from svsl.cli import main
from svsl.learners.base import Arrays, Training
from svsl.learners.episodic import EpisodicTraining
from svsl.learners.svsl import SVSL
from svsl.learners.svsl_config import SVSLConfig
from svsl.model.editing import by_use
from svsl.model.gaussians import Array, BoolArray, LinearGaussian
from svsl.model.mixture import Mixture
from svsl.model.random import stream
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from svsl.runs.sources import config_of, with_regions
from svsl.runs.training import Trainer
from toys import Bimodal, Unimodal, moved

TINY = SVSLConfig(components=2, iterations=6, finetune_every=3, weight_iterations=5)
SMALL = ["--components", "2", "--iterations", "8", "--finetune-every", "4", "--min-weight", "0", "--quiet"]


def trained(task: Task, config: SVSLConfig, base: Mixture | None = None, freeze: bool = False, seed: int = 0) -> SVSL:
    return helpers.trained(SVSL(config, space_of(task), stream(seed), base, freeze), task)


def old_arrays(state: Arrays, count: int) -> Arrays:
    """Everything but the weights of the first `count` components in a learner's state."""
    stacks = {n: a for n, a in state.items() if n.startswith("mixture.") and n != "mixture.log_weights"}
    return {n: a[..., :count] if n.endswith("whitener") else a[:count] for n, a in stacks.items()}


def success(mixture: Mixture, task: Task) -> float:
    contexts = np.random.default_rng(5).uniform(task.context_low, task.context_high, (400, len(task.context_low)))
    means = mixture.component_means(contexts, mixture.sample_components(contexts, stream(6)))
    return float(task.evaluate(contexts, means, stream(0)).success.mean())


def test_frozen_components_keep_every_bit_and_others_are_tuned() -> None:
    task = Bimodal()
    base = random_mixture(stream(1), 3, 1, 2)
    for freeze in (True, False):
        learner = trained(task, replace(TINY, min_weight=0.9), base, freeze)
        arrays = old_arrays(learner.state(), 3)
        same = {name: array.tobytes() == base.to_arrays()[name[8:]].tobytes() for name, array in arrays.items()}
        assert len(same) == 10
        if freeze:
            assert all(same.values()), same
        else:
            assert not same["mixture.experts.bias"]
            assert not same["mixture.contexts.chol"]
    assert len(learner._current) == 3, "old components stay however light, new ones below min_weight do not"


def test_the_old_components_are_filled_once_and_only_the_newest_moves_between_the_updates_of_all() -> None:
    task = Unimodal()
    base = random_mixture(stream(1), 2, 2, 3)
    for freeze, moves in ((False, [True, True, True]), (True, [False, False, True])):
        learner = SVSL(TINY, space_of(task), stream(0), base, freeze)
        assert advance(learner, task) == 3 * learner.schedule.batch_sizes["fill"]
        assert (learner.milestone, learner.stage) == (1, "context")
        np.testing.assert_array_equal(learner.context_buffer.filled, [learner.context_buffer.size] * 3)
        moved_rows = []
        for _ in range(3):
            old = learner._current.experts.bias.copy()
            advance(learner, task)
            advance(learner, task)
            moved_rows.append(
                [not np.array_equal(a, b) for a, b in zip(old, learner._current.experts.bias, strict=True)]
            )
        assert moved_rows == [[False, False, True], [False, False, True], moves]


@pytest.mark.parametrize("freeze", [True, False])
def test_the_planned_episodes_are_those_run(freeze: bool) -> None:
    task = Unimodal()
    learner = SVSL(replace(TINY, components=3), space_of(task), stream(0), random_mixture(stream(1), 4, 2, 3), freeze)
    assert learner.progress.work == 0
    total, asked = learner.schedule.total, advance(learner, task)
    while not learner.done:
        assert learner.progress.work == pytest.approx(asked / total, abs=0.05)
        asked += advance(learner, task)
    assert asked == total
    assert total - learner.schedule.episodes_until(3, 6) == 7 * 31, "the weights need episodes of all components"


def test_all_new_components_can_start_at_episodes_of_the_old_ones() -> None:
    task = Unimodal()
    base = random_mixture(stream(1), 2, 2, 3)
    learner = SVSL(replace(TINY, from_scratch=0, warm_start_iterations=3), space_of(task), stream(0), base)
    before = learner.mixture()
    assert before is not None
    assert (len(before), len(learner._current)) == (2, 2)
    asked = advance(learner, task)
    assert asked == 2 * learner.schedule.batch_sizes["fill"], (
        "first the old ones, so that there are episodes to start from"
    )
    assert (learner.milestone, learner.stage, len(learner._current)) == (1, "fill", 3)
    trained_so_far = learner.mixture()
    assert trained_so_far is not None
    assert len(trained_so_far) == 2
    started = learner._current.contexts.bias[2]
    assert (learner.expert_buffer.contexts[:2] == started).all(axis=2).any()
    while learner.stage != "weights":
        asked += advance(learner, task)
    assert asked == learner.schedule.episodes_until(2, 3)
    helpers.assert_continues_bit_for_bit(
        lambda seed: SVSL(replace(TINY, from_scratch=0), space_of(task), stream(seed), base), task
    )


def test_components_from_stored_episodes_need_fewer_iterations() -> None:
    task = Unimodal()
    config = SVSLConfig(components=2, iterations=10, kl_expert=0.02)
    base = trained(task, replace(config, components=1, iterations=150)).mixture()
    assert base is not None
    config = replace(config, min_weight=0.0)
    from_episodes, from_scratch = (
        trained(task, replace(config, from_scratch=count), base).expert_buffer.mean_returns()[1:] for count in (0, None)
    )
    assert from_episodes.min() > 0.5 * from_scratch.max(), (from_episodes, from_scratch)
    assert len(from_episodes) == len(from_scratch) == 2


def test_the_second_way_is_added_to_a_library_that_knows_the_first() -> None:
    task = Bimodal()
    config = SVSLConfig(
        components=1, iterations=150, finetune_every=25, alpha=3.0, beta=2.0, beta_weight=3.0, kl_expert=0.05,
        kl_context=0.02,
    )  # fmt: skip
    contexts = np.linspace(-0.8, 0.8, 9)[:, None]

    def modes(mixture: Mixture) -> set[int]:
        likely = np.exp(mixture.log_gating(contexts)) > 0.05
        of = [mixture.component_means(contexts, np.full(9, k)) for k in range(len(mixture))]
        mode_of = np.stack([task.evaluate(contexts, means, stream(0)).info["mode"] for means in of], axis=1)
        return set(mode_of[likely].tolist())

    base = trained(task, config).mixture()
    assert base is not None
    assert modes(base) == {0}
    learner = trained(task, replace(config, components=4), base, freeze=True, seed=1)
    assert modes(learner._current) == {0, 1}


def test_on_a_changed_task_new_components_are_added_and_old_ones_become_light() -> None:
    before, after = moved(), moved(1.0)
    config = SVSLConfig(components=2, iterations=300, alpha=1e-4, kl_expert=0.1, kl_weight=0.5)
    base = trained(before, config).mixture()
    assert base is not None
    assert success(base, before) > 0.95
    assert success(base, after) < 0.05
    frozen = trained(after, config, base, freeze=True)._current
    assert success(frozen, after) > 0.95
    assert np.exp(frozen.log_weights[: len(base)]).sum() < 0.01
    assert success(frozen.select(np.arange(len(base))), before) == pytest.approx(success(base, before), abs=0.05)


def test_without_freezing_the_old_components_follow_a_changed_task() -> None:
    before, after = moved(), moved(0.08)
    config = SVSLConfig(components=1, iterations=200, finetune_every=5, alpha=1e-4, kl_expert=0.1, reject_outside=True)
    base = trained(before, config).mixture()
    assert base is not None
    assert success(base, after) < 0.05
    tuned = trained(after, config, base)._current
    assert success(tuned.select(np.array([0])), after) > 0.95


def silent(status: object) -> None:
    pass


def test_an_extended_run_stopped_after_any_batch_ends_the_same(tmp_path: Path) -> None:
    library = SkillLibrary(random_mixture(stream(1), 3, 2, 3), np.array([-1.0, 0.0]), np.array([1.0, 3.0]))
    config = RunConfig("toys:Unimodal", {}, "svsl", TINY, 0, extends="elsewhere")
    straight = Run.create(tmp_path / "straight", config, base=library)
    assert Trainer(straight).train(silent)
    run, rounds = Run.create(tmp_path / "stopped", config, base=library), 0
    while not Trainer(run).train(silent, stop=lambda: True):
        rounds += 1
        run = Run.open(run.folder)
    assert rounds > 20
    assert run.library_path.read_bytes() == straight.library_path.read_bytes()
    rows = run.read_metrics()
    assert [row["milestone"] for row in rows] == [1, 2, 3, 4]
    assert [row["components"] for row in rows] == [3, 4, 5, 5]
    assert rows[0]["episodes"] == 4 * 31, "the base is tested first, when it and the first new component are filled"


def test_extending_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toys:moved", *SMALL]) == 0
    assert main(["extend", "runs/toys.moved-seed0", "--components", "1", "--shift", "0.5", "--freeze", "--quiet"]) == 0
    old = SkillLibrary.load("runs/toys.moved-seed0/library.safetensors")
    new = SkillLibrary.load("runs/toys.moved-seed0-extended/library.safetensors")
    assert len(new) == len(old) + 1
    for a, b in ((old.mixture.contexts, new.mixture.contexts), (old.mixture.experts, new.mixture.experts)):
        assert a.gain.tobytes() == b.gain[: len(old)].tobytes()
        assert a.bias.tobytes() == b.bias[: len(old)].tobytes()
        np.testing.assert_allclose(a.cov, b.cov[: len(old)], rtol=1e-12)
    config = config_of(new)
    assert (config.extends, config.freeze) == ("runs/toys.moved-seed0", True)
    assert config.task_options == {"shift": 0.5}
    assert isinstance(config.settings, SVSLConfig)
    assert (config.settings.components, config.settings.iterations) == (1, 8), "settings are those of the old run"
    capsys.readouterr()
    assert main(["extend", "runs/toys.moved-seed0"]) == 2
    assert "runs/toys.moved-seed0-extended holds a finished run" in capsys.readouterr().err
    # a file knows its settings too, and an extended library can be extended
    Path("runs/toys.moved-seed0-extended/library.safetensors").rename("grown.safetensors")
    assert main(["extend", "grown.safetensors", "--components", "1", "--quiet", "--trust-task"]) == 0
    again = Run.open(Path("runs/grown-extended"))
    assert len(again.load_library()) == len(old) + 2
    assert again.config.task_options == {"shift": 0.5}


def test_a_library_that_started_together_is_extended_one_by_one() -> None:
    """Its settings are the defaults, but for those that cannot be; frozen, the weights are what is left to learn."""
    together = ["--no-curriculum", "--splits", "1", "--closing-iterations", "4", "--weight-iterations", "0"]
    assert main(["train", "toys:Unimodal", *SMALL, *together, "--kl-gating", "0.02", "--out", "old"]) == 0
    added = ["--components", "1", "--quiet", "--overwrite", "--out", "new"]
    for freeze in (False, True):
        assert main(["extend", "old", *added, *["--freeze"] * freeze]) == 0
        settings = Run.open(Path("new")).config.settings
        assert isinstance(settings, SVSLConfig)
        assert (settings.curriculum, settings.splits, settings.closing_iterations) == (True, 0, 4)
        assert settings.kl_gating == (None if freeze else 0.02)
        assert settings.learns_weights == freeze
        weights = Run.open(Path("new")).load_library().mixture.log_weights
        assert len(weights) == 3


def test_a_library_with_a_learned_gating_is_extended_by_what_its_components_are_used_for() -> None:
    gating = ["--closing-iterations", "30", "--kl-gating", "0.05", "--weight-iterations", "0"]
    assert main(["train", "toys:Unimodal", *SMALL, "--components", "5", *gating, "--out", "old"]) == 0
    assert main(["extend", "old", "--components", "1", "--quiet", "--out", "new"]) == 0
    old, base = Run.open(Path("old")).load_library(), Run.open(Path("new")).load_base()
    assert base is not None
    start = base.mixture
    used = by_use(
        old, np.random.default_rng(0).uniform(old.context_low, old.context_high, (10_000, old.context_dim))
    ).mixture
    np.testing.assert_allclose(start.contexts.bias, used.contexts.bias)
    np.testing.assert_allclose(start.log_weights, used.log_weights)
    np.testing.assert_array_equal(start.experts.bias, old.mixture.experts.bias)
    assert ((start.contexts.bias > old.context_low) & (start.contexts.bias < old.context_high)).all()
    assert not np.allclose(start.contexts.bias, old.mixture.contexts.bias, atol=0.01)


def test_what_components_are_used_for_counts_valid_contexts_only() -> None:
    """Of two components that share the box in the middle, the left one gets no valid context."""

    class RightHalf(Unimodal):
        def valid_contexts(self, contexts: Array) -> BoolArray:
            return np.asarray(contexts[:, 0] > 0)

    gating = ["--closing-iterations", "5", "--kl-gating", "0.05", "--components", "2"]
    assert main(["train", "toys:Unimodal", *SMALL, *gating, "--out", "run"]) == 0
    library = Run.open(Path("run")).load_library()
    contexts = LinearGaussian.unconditional(np.array([[-1.0, 1.5], [1.0, 1.5]]), np.tile(0.2 * np.eye(2), (2, 1, 1)))
    mixture = replace(library.mixture, contexts=contexts, log_weights=np.log([0.5, 0.5]))
    used = with_regions(replace(library, mixture=mixture), RightHalf()).mixture
    assert np.exp(used.log_weights[0]) < 0.02
    assert (used.contexts.bias[:, 0] > 0).all()
    np.testing.assert_allclose(
        np.exp(with_regions(replace(library, mixture=mixture), Unimodal()).mixture.log_weights), 0.5, atol=0.02
    )


def test_a_library_of_another_learner_is_extended(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--learner", "hireps", "--components", "3", "--iterations", "5", "--batch", "60", "--quiet"]
    assert main(["train", "toys:Unimodal", *flags, "--out", "other"]) == 0
    assert main(["extend", "other", *SMALL]) == 0
    other, new = Run.open(Path("other")), Run.open(Path("other-extended"))
    assert len(new.load_library()) == len(other.load_library()) + 2


def hand_made(context_dim: int, parameter_dim: int, metadata: dict[str, str]) -> None:
    mixture = random_mixture(stream(0), 2, context_dim, parameter_dim)
    box = np.ones(context_dim)
    SkillLibrary(mixture, -box, box, metadata).save("made.safetensors")


def test_what_cannot_be_extended_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def error(*args: str) -> str:
        assert main(["extend", *args]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        return err

    assert "extend what?" in error()
    assert "extend what?" in error("--components", "3")
    assert "nowhere is not a run folder" in error("nowhere")
    hand_made(1, 3, {"task": "toys:Unimodal"})
    assert "1 context dimensions and 3 parameters, but the task 'toys:Unimodal'" in error(
        "made.safetensors", "--trust-task"
    )
    hand_made(2, 3, {})
    assert "names no task" in error("made.safetensors")
    hand_made(2, 3, {"task": "toys:Unimodal", "config": "{}"})
    assert "configuration in the library's metadata cannot be read" in error("made.safetensors", "--trust-task")
    hand_made(2, 3, {"task": "toys:Unimodal"})
    assert "components: expected at least 1" in error("made.safetensors", "--trust-task", "--components", "0")
    assert "Unrecognized options" in error("made.safetensors", "--task", "toys:Unimodal", "--shift", "1")
    run = Run.create(Path("half"), RunConfig("toys:Unimodal", {}, "svsl", TINY, 0))
    trainer = Trainer(run)
    trainer.train(silent, stop=lambda: trainer.training.milestone > 0)
    assert "half is not finished; resume it with svsl resume half" in error("half")
    assert Trainer(run).train(silent)
    assert "half holds the library to extend" in error("half", "--out", "half", "--overwrite")
    assert Run.open(Path("half")).finished


def test_new_components_do_not_start_where_the_first_ones_did() -> None:
    task = Unimodal()
    library = SkillLibrary(random_mixture(stream(1), 3, 2, 3), task.context_low, task.context_high)
    config = RunConfig("toys:Unimodal", {}, "svsl", TINY, 0)

    def learner(training: Training) -> SVSL:
        assert isinstance(training, EpisodicTraining)
        assert isinstance(training.learner, SVSL)
        return training.learner

    first = learner(config.make_training(task))
    grown = learner(replace(config, extends="elsewhere").make_training(task, library))
    assert not np.allclose(grown._current.contexts.bias[3], first._current.contexts.bias[0])


def test_a_killed_start_leaves_a_folder_that_can_be_used(tmp_path: Path) -> None:
    library = SkillLibrary(random_mixture(stream(1), 3, 2, 3), np.array([-1.0, 0.0]), np.array([1.0, 3.0]))
    config = RunConfig("toys:Unimodal", {}, "svsl", TINY, 0, extends="elsewhere")
    library.save(tmp_path / "run" / "base.safetensors")  # all that was written before the kill
    assert not Run.create(tmp_path / "run", config, base=library).finished
    (tmp_path / "run" / "base.safetensors").unlink()
    with pytest.raises(SvslError, match="no such skill library"):
        Trainer(Run.open(tmp_path / "run"))
