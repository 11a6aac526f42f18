"""What a library does in chosen contexts, and the file that keeps it."""

import json
from pathlib import Path

import numpy as np

from svsl import load_pretrained
from svsl.evaluation.metrics import grid_contexts
from svsl.experiments.behaviour import all_numbers, chosen_contexts, modes_seen, observe, stored_behaviour
from svsl.experiments.catalogue import Arm, arm_config
from svsl.model.gaussians import LinearGaussian
from svsl.model.library import SkillLibrary
from svsl.model.mixture import Mixture
from svsl.runs.folder import Record, Run
from svsl.runs.training import Trainer
from svsl.tasks.registry import make_task


def test_modes_are_counted_among_successes_only() -> None:
    arm = Arm("b", "toys:Bimodal", "svsl", settings={"components": 4, "iterations": 80, "alpha": 0.1})
    run = Run.create(Path("run"), arm_config(arm))
    Trainer(run).train(lambda status: None)
    task, library = make_task("toys:Bimodal"), run.load_library()
    contexts = np.linspace(-0.9, 0.9, 12)[:, None]
    seen, drawn = modes_seen(library, task, contexts, np.random.default_rng(0))
    gating = library.gating(contexts)
    for row, context in enumerate(contexts):
        expected: dict[str, float] = {}
        for k in range(len(library)):
            outcome = task.evaluate(context[None], library.mean(context[None], k), np.random.default_rng(0))
            if outcome.success[0]:
                mode = str(outcome.info["mode"][0])
                expected[mode] = expected.get(mode, 0.0) + 100 * gating[row, k]
        assert set(seen[row]) <= set(expected)
        for mode, share in expected.items():
            assert abs(seen[row].get(mode, 0) - share) < 25, "five standard errors of 100 draws"
    assert sum(len(modes) for modes in seen) > 0
    assert 0 < drawn <= len(library)


def test_the_contexts_are_the_papers_six_goals_or_twelve() -> None:
    goals = chosen_contexts(make_task("planar-reacher"))
    assert goals.shape == (6, 2)
    grid = chosen_contexts(make_task("table-tennis"))
    assert grid.shape == (12, 4)
    assert len(np.unique(grid[:, :2], axis=0)) == 12
    assert len(np.unique(grid[:, 2:], axis=0)) == 1


def test_a_grid_repeats_its_centres_and_draws_the_rest() -> None:
    task = make_task("table-tennis")
    contexts = grid_contexts(task, (2, 3), 5, np.random.default_rng(0), repeats=4)
    assert contexts.shape == (100, 4)
    low, high = task.context_low, task.context_high
    np.testing.assert_allclose(contexts[:5, 2], low[2] + (high[2] - low[2]) * np.array([0.1, 0.3, 0.5, 0.7, 0.9]))
    assert len(np.unique(contexts[:, 2:].round(9), axis=0)) == 25
    assert len(np.unique(contexts[:, 0])) == 100


def test_the_entropy_is_that_of_the_mixture() -> None:
    """A single Gaussian has the same entropy in every context, in closed form."""
    cov = np.diag([0.5, 2.0, 0.1])
    experts = LinearGaussian.build(np.zeros((1, 3, 2)), np.ones((1, 3)), np.sqrt(cov)[None])
    contexts = LinearGaussian.unconditional(np.zeros((1, 2)), np.eye(2)[None])
    task = make_task("toys:Unimodal")
    library = SkillLibrary(Mixture(np.zeros(1), contexts, experts), task.context_low, task.context_high)
    behaviour = observe(library, task, 0)
    exact = 0.5 * np.log(np.linalg.det(2 * np.pi * np.e * cov))
    assert abs(behaviour.entropy - exact) < 0.01
    assert behaviour.drawn == 1


def test_the_map_is_the_success_over_the_box() -> None:
    library, task = load_pretrained("planar-reacher"), make_task("planar-reacher")
    behaviour = observe(library, task, 0)
    assert behaviour.map is not None
    assert behaviour.map.shape == (20, 20)
    assert abs(behaviour.map.mean() - 0.985) < 0.02, "`svsl eval planar-reacher`"
    assert [axis[1:] for axis in behaviour.axes] == [
        tuple(ends) for ends in zip(task.context_low, task.context_high, strict=True)
    ]
    numbers = behaviour.numbers
    assert numbers["kinds_seen"] == np.mean([len(modes) for modes in behaviour.modes]) >= 2


def test_behaviour_is_kept_with_the_run_and_without_it() -> None:
    settings = {"components": 2, "iterations": 12, "weight_iterations": 3}
    run = Run.create(Path("run"), arm_config(Arm("b", "toys:Bimodal", "svsl", settings=settings)))
    assert stored_behaviour(run) is None, "nothing learned yet"
    Trainer(run).train(lambda status: None)
    first = stored_behaviour(run)
    assert first is not None
    assert first.success is None, "one context dimension has no map"
    content = run.behaviour_path.read_bytes()
    stamp = run.behaviour_path.stat().st_mtime_ns
    assert stored_behaviour(Run.open(run.folder)) == first
    assert run.behaviour_path.stat().st_mtime_ns == stamp
    assert all_numbers(run)["kinds_seen"] == first.numbers["kinds_seen"]
    outdated = json.loads(content)
    outdated["made_for"]["sha256"] = "another library"
    outdated["behaviour"]["drawn"] = 99
    run.behaviour_path.write_text(json.dumps(outdated))
    assert stored_behaviour(run) == first
    run.library_path.unlink()
    run.record_path.write_text(Record("0.1.0", "abc", 1, True).to_json())
    assert stored_behaviour(Run.open(run.folder)) == first
    run.behaviour_path.unlink()
    assert stored_behaviour(Run.open(run.folder)) is None
