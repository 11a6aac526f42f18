"""Every metric on cases with a known answer."""

import numpy as np
import pytest

from svsl import Outcome, SkillLibrary, Task
from svsl.evaluation.intervals import summarise_trial
from svsl.evaluation.metrics import (
    METRICS,
    Repertoire,
    diagnostics,
    execute,
    mixture_entropy,
    repertoire,
    repertoire_contexts,
    run_trial,
    several_kinds,
    success_map,
    success_without_top,
    trial_episodes,
    vendi_score,
    ways,
)
from svsl.model.gaussians import Array, LinearGaussian
from svsl.model.mixture import Mixture, is_active
from svsl.model.random import stream
from svsl.tasks.base import finite_outcome, uniform_contexts
from toys import Bimodal, SometimesNan, Unimodal


def library_of(task: Task, mixture: Mixture) -> SkillLibrary:
    return SkillLibrary(mixture, task.context_low, task.context_high)


def bimodal_mixture(std: float, offsets: tuple[float, float] = (0.0, 0.0)) -> Mixture:
    """Both exact solutions of the bimodal task as components active everywhere, each moved by an offset."""
    contexts = LinearGaussian.unconditional(np.zeros((2, 1)), np.ones((2, 1, 1)))
    gain = np.array([[[0.5], [1.0]], [[0.5], [-1.0]]])
    bias = np.array([[1.0 + offsets[0], 0.0], [-1.0 + offsets[1], 0.0]])
    experts = LinearGaussian.build(gain, bias, std * np.stack([np.eye(2)] * 2))
    return Mixture(np.log(np.array([0.5, 0.5])), contexts, experts)


def test_a_perfect_library() -> None:
    task = Bimodal()
    trial = run_trial(library_of(task, bimodal_mixture(0.01)), task, stream(0), contexts=1000)
    result = summarise_trial(trial)[0]
    # the first way returns 0, the second -8 * 0.02, each half the time
    assert result["return_mean"] == pytest.approx(-0.08, abs=0.01)
    # sampling costs 8 times the variance in two dimensions
    assert result["return_sampled"] == pytest.approx(-0.08 - 8 * 2 * 1e-4, abs=0.01)
    assert (result["success_rate"], result["coverage"], result["active_components"]) == (1, 1, 2)
    # two Gaussians far apart: one entropy plus the choice between them
    expected = np.log(2) + np.log(2 * np.pi * np.e * 1e-4)
    assert result["mixture_entropy"] == pytest.approx(expected, abs=0.02)
    assert diagnostics(trial.execution.mean)["mode"] == pytest.approx(0.5, abs=0.05)


def test_a_library_with_one_bad_component() -> None:
    task = Bimodal()
    mixture = bimodal_mixture(0.01, offsets=(0.0, -2.0))
    result = summarise_trial(run_trial(library_of(task, mixture), task, stream(0), contexts=2000))[0]
    assert result["success_rate"] == pytest.approx(0.5, abs=0.04)
    light = Mixture(np.log(np.array([0.995, 0.005])), mixture.contexts, mixture.experts)
    result = summarise_trial(run_trial(library_of(task, light), task, stream(0), contexts=2000))[0]
    assert result["coverage"] == 1
    assert result["active_components"] == 1
    swapped = Mixture(np.log(np.array([0.3, 0.7])), mixture.contexts, mixture.experts)
    result = summarise_trial(run_trial(library_of(task, swapped), task, stream(0), contexts=2000))[0]
    assert result["coverage"] == 0
    assert result["success_rate"] == pytest.approx(0.3, abs=0.04)


def test_mixture_entropy_of_overlapping_experts_by_quadrature() -> None:
    contexts = LinearGaussian.unconditional(np.zeros((2, 1)), np.ones((2, 1, 1)))
    experts = LinearGaussian.build(np.zeros((2, 1, 1)), np.array([[0.0], [1.5]]), np.array([[[1.0]], [[0.5]]]))
    mixture = Mixture(np.log(np.array([0.3, 0.7])), contexts, experts)
    grid = np.linspace(-8, 9, 20_001)[:, None]
    log_density = mixture.log_prob(np.zeros_like(grid), grid)
    exact = -np.trapezoid(np.exp(log_density) * log_density, grid[:, 0])
    estimates = mixture_entropy(mixture, np.zeros((40, 1)), 1000, stream(1))
    assert estimates.mean() == pytest.approx(exact, abs=0.02)


def test_success_map_weighs_components_by_their_gating() -> None:
    class Halves(Unimodal):
        """Component k succeeds where the first context has the sign of k - 0.5."""

        def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
            return Outcome(np.zeros(len(contexts)), (parameters[:, 0] > 0.5) == (contexts[:, 0] > 0))

    contexts = LinearGaussian.unconditional(np.zeros((2, 2)), 100 * np.stack([np.eye(2)] * 2))
    experts = LinearGaussian.build(np.zeros((2, 3, 2)), np.array([[0.0] * 3, [1.0] * 3]), np.stack([np.eye(3)] * 2))
    mixture = Mixture(np.log(np.array([0.3, 0.7])), contexts, experts)
    task = Halves()
    image = success_map(library_of(task, mixture), task, (0, 1), 4, stream(0))
    # the first context runs along the columns
    np.testing.assert_allclose(image, np.tile([0.3, 0.3, 0.7, 0.7], (4, 1)), rtol=1e-12)


def test_contexts_are_uniform_in_the_box() -> None:
    contexts = uniform_contexts(Unimodal(), 20_000, stream(0))
    np.testing.assert_allclose(contexts.min(axis=0), [-1, 0], atol=0.01)
    np.testing.assert_allclose(contexts.max(axis=0), [1, 3], atol=0.01)
    np.testing.assert_allclose(contexts.mean(axis=0), [0, 1.5], atol=0.03)


def test_bad_returns_count_as_the_worst_and_as_failures() -> None:
    outcome = Outcome(np.array([-1.0, np.nan, -3.0]), np.array([True, True, True]))
    np.testing.assert_array_equal(finite_outcome(outcome, None).returns, [-1, -3, -3])
    np.testing.assert_array_equal(finite_outcome(outcome, -9.0).returns, [-1, -9, -3])
    np.testing.assert_array_equal(finite_outcome(outcome, None).success, [True, False, True])

    task = SometimesNan()
    expert = LinearGaussian.build(task.gain[None], task.bias[None], 0.01 * np.eye(3)[None])
    mixture = Mixture(np.zeros(1), LinearGaussian.unconditional(np.zeros((1, 2)), np.eye(2)[None]), expert)
    returns: Array = execute(mixture, task, 100, stream(0)).mean.returns
    assert np.isfinite(returns).all()
    assert (returns == task.penalty).sum() == 10


def repertoire_of(gating: list[list[float]], success: list[list[int]], **more: object) -> Repertoire:
    modes, paths = more.get("modes"), more.get("paths")
    return Repertoire(
        np.array(gating),
        np.array(success, dtype=bool),
        None if modes is None else np.array(modes),
        None if paths is None else np.array(paths, dtype=np.float64),
    )


def test_ways_is_the_effective_number_of_modes_among_successes() -> None:
    modes = [["left", "right", "right"]]
    assert ways(repertoire_of([[0.5, 0.25, 0.25]], [[1, 1, 1]], modes=modes)) == pytest.approx([2])
    uneven = np.exp(-(0.9 * np.log(0.9) + 0.1 * np.log(0.1)))
    assert ways(repertoire_of([[0.9, 0.1, 0.0]], [[1, 1, 1]], modes=modes)) == pytest.approx([uneven])
    # the failure of the third leaves 0.6 to 0.2, three to one
    mixed = np.exp(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert ways(repertoire_of([[0.6, 0.2, 0.2]], [[1, 1, 0]], modes=modes)) == pytest.approx([mixed])
    assert ways(repertoire_of([[0.6, 0.2, 0.2]], [[0, 1, 1]], modes=modes)) == pytest.approx([1])
    assert ways(repertoire_of([[0.6, 0.2, 0.2]], [[0, 0, 0]], modes=modes)) == pytest.approx([0])
    numbers = repertoire_of([[0.5, 0.5], [0.5, 0.5]], [[1, 1], [1, 1]], modes=[[3, 3], [3, 7]])
    assert ways(numbers) == pytest.approx([1, 2])
    assert ways(repertoire_of([[1.0]], [[1]])) is None, "the task names no modes"


def test_a_lucky_success_of_an_improbable_component_is_not_a_way() -> None:
    gating, modes = [[0.5, 0.5, 1e-9]] * 2, [["left", "right", "through"], ["left", "left", "through"]]
    without = repertoire_of(gating, [[1, 1, 0], [1, 1, 0]], modes=modes)
    lucky = repertoire_of(gating, [[1, 1, 1], [1, 1, 1]], modes=modes)
    assert ways(without) == pytest.approx([2, 1], abs=1e-12)
    assert ways(lucky) == pytest.approx([2, 1], abs=1e-6)
    np.testing.assert_array_equal(several_kinds(without, 2), [True, False])
    np.testing.assert_array_equal(several_kinds(lucky, 2), [True, False])


def test_several_kinds_need_as_many_modes_of_active_components() -> None:
    def kinds(gating: list[float], success: list[int], modes: list[str], number: int = 2) -> bool:
        result = several_kinds(repertoire_of([gating], [success], modes=[modes]), number)
        assert result is not None
        return bool(result[0])

    assert kinds([0.99, 0.01], [1, 1], ["left", "right"])
    assert not kinds([0.9901, 0.0099], [1, 1], ["left", "right"])
    assert not kinds([0.5, 0.5], [1, 0], ["left", "right"])
    assert not kinds([0.5, 0.5], [0, 0], ["left", "right"])
    assert not kinds([0.5, 0.5], [1, 1], ["left", "left"])
    assert kinds([0.4, 0.3, 0.3], [1, 1, 1], ["left", "right", "through"])
    assert kinds([0.4, 0.3, 0.3], [1, 1, 1], ["left", "right", "through"], 3)
    assert not kinds([0.4, 0.3, 0.3], [1, 1, 1], ["left", "right", "left"], 3)
    assert not kinds([0.4, 0.3, 0.3], [1, 1, 0], ["left", "right", "through"], 3)
    # hundreds of components share the context: the most probable ones are active
    assert kinds([1 / 200] * 200, [1] * 200, ["left"] * 199 + ["right"])
    assert not kinds([0.9 / 199] * 199 + [0.1], [1] * 200, ["left"] * 199 + ["right"])
    assert several_kinds(repertoire_of([[1.0]], [[1]]), 2) is None


def test_vendi_score_is_the_effective_number_of_different_paths() -> None:
    far, same = [[0.0, 0.0], [9.0, 9.0], [-9.0, 9.0]], [[1.0, 2.0]] * 3
    third = 1 / 3
    assert vendi_score(repertoire_of([[third] * 3], [[1, 1, 1]], paths=[far])) == pytest.approx(3)
    assert vendi_score(repertoire_of([[third] * 3], [[1, 1, 1]], paths=[same])) == pytest.approx(1)
    assert vendi_score(repertoire_of([[third] * 3], [[1, 1, 0]], paths=[far])) == pytest.approx(2)
    # unequal shares: exp of the entropy of (0.9, 0.1)
    uneven = np.exp(-(0.9 * np.log(0.9) + 0.1 * np.log(0.1)))
    assert vendi_score(repertoire_of([[0.9, 0.1, 0.0]], [[1, 1, 1]], paths=[far])) == pytest.approx(uneven)
    assert vendi_score(repertoire_of([[third] * 3] * 2, [[1, 1, 1], [0, 0, 0]], paths=[far, far])) == pytest.approx(
        [3, 0]
    )
    # two paths one unit apart: eigenvalues (1 +- exp(-1/2)) / 2
    low, high = (1 - np.exp(-0.5)) / 2, (1 + np.exp(-0.5)) / 2
    near = repertoire_of([[0.5, 0.5]], [[1, 1]], paths=[[[0.0, 0.0], [1.0, 1.0]]])
    assert vendi_score(near) == pytest.approx(np.exp(-(low * np.log(low) + high * np.log(high))))


def test_success_without_top_removes_the_most_probable_component() -> None:
    gating = [[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]]
    assert success_without_top(repertoire_of(gating, [[1, 0, 1], [1, 0, 0]])) == pytest.approx([0.25, 0.5])
    assert success_without_top(repertoire_of([[1.0]], [[1]])) == [0]


def test_the_repertoire_runs_every_component_everywhere() -> None:
    task = Bimodal()
    contexts = np.array([[-0.5], [0.0], [0.7]])
    result = repertoire(bimodal_mixture(0.01, offsets=(0.0, -2.0)), task, contexts, stream(0))
    np.testing.assert_array_equal(result.success, [[True, False]] * 3)
    assert result.modes is not None
    np.testing.assert_array_equal(result.modes, [[0, 1]] * 3)
    assert result.paths is None
    np.testing.assert_allclose(result.gating, 0.5)


def test_a_repertoire_can_leave_improbable_components_out() -> None:
    both = bimodal_mixture(0.01)
    rare = Mixture(np.log(np.array([0.9995, 0.0005])), both.contexts, both.experts)
    contexts = np.array([[-0.5], [0.7]])
    full, part = (repertoire(rare, Bimodal(), contexts, stream(0), m) for m in (0.0, 0.001))
    np.testing.assert_array_equal(full.success, [[True, True]] * 2)
    np.testing.assert_array_equal(part.success, [[True, False]] * 2)
    np.testing.assert_array_equal(part.gating, full.gating)
    assert ways(part) == pytest.approx([1, 1])


def test_every_metric_has_one_value_per_context() -> None:
    task = Bimodal()
    trial = run_trial(library_of(task, bimodal_mixture(0.01)), task, stream(0), contexts=500)
    values = {name: metric(trial) for name, metric in METRICS.items()}
    shapes = {name: array.shape for name, array in values.items() if array is not None}
    assert set(METRICS) - set(shapes) == {"vendi_score"}, "the task provides no paths"
    for name, shape in shapes.items():
        of_all = ("ways", "two_kinds", "three_kinds", "coverage_any", "success_without_top")
        assert shape == ((50,) if name in of_all else (400,) if name == "mixture_entropy" else (500,)), name


@pytest.mark.parametrize(("contexts", "all_components"), [(2000, 200), (20_000, 2000), (100, 20), (7, 7), (0, 0)])
def test_all_components_are_run_in_a_tenth_of_the_contexts(contexts: int, all_components: int) -> None:
    assert repertoire_contexts(contexts) == all_components
    assert trial_episodes(contexts, 3) == 3 * contexts + 3 * all_components


def test_a_trial_reports_its_progress_and_runs_the_episodes_it_announces() -> None:
    class Counting(Bimodal):
        run = 0

        def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
            self.run += len(contexts)
            return super().evaluate(contexts, parameters, rng)

    task, seen = Counting(), list[tuple[float, str, int]]()
    library = library_of(task, bimodal_mixture(0.01))
    trial = run_trial(library, task, stream(0), 500, lambda share, what: seen.append((share, what, task.run)))
    total = trial_episodes(500, len(library))
    assert task.run == total
    for share, what, run in seen:
        assert share == pytest.approx(run / total), what
    assert [what for _, what, _ in seen] == [
        "means of components", "drawn parameters", "entropies", "all components", "most probable components"
    ]  # fmt: skip
    silent = run_trial(library, Bimodal(), stream(0), 500)
    np.testing.assert_array_equal(silent.entropies, trial.entropies)


class HalfNan(Unimodal):
    """Every episode claims success, but only the first component's return is finite."""

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        returns = np.where(parameters[:, 0] < 0.5, 0.0, np.nan)
        return Outcome(returns, np.ones(len(contexts), dtype=bool))


def test_an_episode_without_a_finite_return_is_a_failure_everywhere() -> None:
    task = HalfNan()
    contexts = LinearGaussian.unconditional(np.zeros((2, 2)), 100 * np.stack([np.eye(2)] * 2))
    experts = LinearGaussian.build(np.zeros((2, 3, 2)), np.array([[0.0] * 3, [1.0] * 3]), np.stack([np.eye(3)] * 2))
    library = library_of(task, Mixture(np.log(np.array([0.3, 0.7])), contexts, experts))
    trial = run_trial(library, task, stream(0), contexts=500)
    result = summarise_trial(trial)[0]
    assert result["success_rate"] == pytest.approx(0.3, abs=0.07)
    assert result["coverage"] == 0, "the most probable component returns NaN"
    np.testing.assert_array_equal(trial.repertoire.success, [[True, False]] * 50)
    assert result["success_without_top"] == 1
    np.testing.assert_allclose(success_map(library, task, (0, 1), 3, stream(0)), 0.3)


def test_components_are_active_even_where_hundreds_share_a_context() -> None:
    np.testing.assert_array_equal(is_active(np.array([0.985, 0.01, 0.005])), [True, True, False])
    shared = np.full((2, 200), 1 / 200)
    assert is_active(shared).all()
    shared[0, 7] *= 1.1
    assert is_active(shared).sum(axis=1).tolist() == [1, 200]
