"""Pruned and merged libraries with known answers, and the table that is read back."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal

from helpers import random_mixture
from svsl import SkillLibrary, SvslError
from svsl.cli import main
from svsl.evaluation.metrics import Repertoire
from svsl.evaluation.pruning import needed_components
from svsl.model.editing import by_use, heavy_components, merge, select
from svsl.model.gaussians import LinearGaussian
from svsl.model.mixture import Mixture
from svsl.model.random import stream
from toys import Bimodal


def library(weights: list[float], seed: int = 0, **metadata: str) -> SkillLibrary:
    mixture = replace(random_mixture(stream(seed), len(weights), 2, 3), log_weights=np.log(weights))
    return SkillLibrary(mixture, -np.ones(2), np.ones(2), {"task": "toy"} | metadata)


def test_selected_components_answer_as_before_with_renormalised_weights() -> None:
    old = library([0.1, 0.2, 0.3, 0.4])
    new = select(old, np.array([1, 3]))
    np.testing.assert_allclose(np.exp(new.mixture.log_weights), [1 / 3, 2 / 3], rtol=1e-12)
    np.testing.assert_allclose(new.mean([0.2, 0.1], 1), old.mean([0.2, 0.1], 3), rtol=1e-14)
    gating = old.gating([0.2, 0.1])[[1, 3]]
    np.testing.assert_allclose(new.gating([0.2, 0.1]), gating / gating.sum(), rtol=1e-10)
    assert json.loads(new.metadata["kept_components"]) == [1, 3]
    assert json.loads(select(new, np.array([1])).metadata["kept_components"]) == [3], "as the trained library has them"
    assert "results" not in select(library([0.5, 0.5], results="{}"), np.array([0])).metadata


def test_heavy_components() -> None:
    of = library([0.4, 0.05, 0.3, 0.25])
    np.testing.assert_array_equal(heavy_components(of, min_weight=0.1), [0, 2, 3])
    np.testing.assert_array_equal(heavy_components(of, max_components=2), [0, 2])
    np.testing.assert_array_equal(heavy_components(of, 0.26, 5), [0, 2])
    np.testing.assert_array_equal(heavy_components(of), [0, 1, 2, 3])
    with pytest.raises(SvslError, match=r"no component weighs 0.5, the heaviest weighs 0.4"):
        heavy_components(of, min_weight=0.5)


def repertoire_of(
    gating: list[list[float]], success: list[list[int]], modes: list[list[str]] | None = None
) -> Repertoire:
    named = None if modes is None else np.array(modes)
    return Repertoire(np.array(gating), np.array(success, dtype=bool), named, None)


def test_components_that_are_not_missed_are_dropped() -> None:
    even = [[0.25] * 4] * 3
    # 0 solves all; 1 fails all; 2 and 3 solve a part of what 0 does
    success = [[1, 0, 1, 1], [1, 0, 1, 0], [1, 0, 0, 0]]
    np.testing.assert_array_equal(needed_components(repertoire_of(even, success)), [0])
    # 0 is the only one in the second context; in the third 1 or 2 is needed, and 2 fails less often
    np.testing.assert_array_equal(
        needed_components(repertoire_of(even, [[1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]])), [0, 2]
    )


def test_the_only_component_of_a_mode_is_kept() -> None:
    even, success = [[1 / 3] * 3] * 2, [[1, 1, 1]] * 2
    modes = [["over", "over", "under"]] * 2
    kept = needed_components(repertoire_of(even, success, modes))
    assert len(kept) == 2
    assert 2 in kept
    assert len(needed_components(repertoire_of(even, success))) == 1, "without modes, one is enough"


def test_expected_success_must_not_fall_unless_tolerated() -> None:
    # 1 is needed in the second context, and in the first what 2 leaves goes in part to 1, which fails there:
    # expected success 0.7 becomes 0.5 / 0.8, a loss of 0.0375 over both contexts, while 0 still knows the way
    gating, success = [[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]], [[1, 0, 1], [0, 1, 0]]
    np.testing.assert_array_equal(needed_components(repertoire_of(gating, success)), [0, 1, 2])
    np.testing.assert_array_equal(needed_components(repertoire_of(gating, success), tolerance=0.03), [0, 1, 2])
    np.testing.assert_array_equal(needed_components(repertoire_of(gating, success), tolerance=0.04), [0, 1])
    # and of two ways, half may be lost
    gating, success = [[0.6, 0.4], [0.4, 0.6]], [[1, 0], [0, 1]]
    np.testing.assert_array_equal(needed_components(repertoire_of(gating, success)), [0, 1])
    assert len(needed_components(repertoire_of(gating, success), tolerance=0.5)) == 1


def test_context_distributions_by_use_have_the_moments_of_the_contexts_that_components_get() -> None:
    """Of a logistic gating `1 / (1 + exp(-a c))` on [-1, 1], in a second dimension of [2, 6] as well, by quadrature."""
    slope = 4.0
    means = np.array([[-100 * slope, 0.0], [100 * slope, 0.0]]) / 2  # far outside: only their difference counts
    contexts = LinearGaussian.unconditional(means, np.tile(10 * np.eye(2), (2, 1, 1)))
    mixture = replace(random_mixture(stream(1), 2, 2, 3), contexts=contexts, log_weights=np.log([0.5, 0.5]))
    grid = np.linspace(-1, 1, 20_001)
    gating = 1 / (1 + np.exp(-slope * grid))
    np.testing.assert_allclose(np.exp(mixture.log_gating(np.column_stack([grid, grid])))[:, 1], gating, rtol=1e-9)
    library = SkillLibrary(mixture, np.array([-1.0, 2.0]), np.array([1.0, 6.0]))
    drawn = np.random.default_rng(0).uniform([-1, 2], [1, 6], (10_000, 2))
    used = by_use(library, drawn).mixture
    mean = (gating * grid).sum() / gating.sum()
    variance = (gating * (grid - mean) ** 2).sum() / gating.sum()
    np.testing.assert_allclose(used.contexts.bias, [[-mean, 4], [mean, 4]], atol=0.03)
    np.testing.assert_allclose(used.contexts.cov, [np.diag([variance, 16 / 12])] * 2, atol=0.05)
    np.testing.assert_allclose(np.exp(used.log_weights), 0.5, atol=0.01)
    points = np.random.default_rng(1).uniform([-1, 2], [1, 6], (500, 2))
    moved = np.abs(np.exp(used.log_gating(points)) - np.exp(mixture.log_gating(points))).max(axis=1)
    assert moved.mean() < 0.03
    np.testing.assert_array_equal(used.experts.bias, mixture.experts.bias)


def test_by_use_a_component_without_contexts_has_no_weight_but_a_place() -> None:
    mixture = replace(random_mixture(stream(1), 3, 2, 3), log_weights=np.array([0.0, -np.inf, -np.inf]))
    contexts = np.random.default_rng(0).uniform(-1, 1, (10_000, 2))
    used = by_use(SkillLibrary(mixture, -np.ones(2), np.ones(2)), contexts).mixture
    np.testing.assert_allclose(np.exp(used.log_weights), [1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(used.contexts.bias, np.zeros((3, 2)), atol=0.05)


def test_merged_weights_are_in_proportion_and_steps_do_not_matter() -> None:
    a, b, c = library([0.5, 0.5], 1, episodes="10"), library([0.9, 0.06, 0.04], 2), library([1.0], 3, episodes="5")
    merged = merge([a, b, c])
    expected = np.array([1, 1, 2.7, 0.18, 0.12, 1]) / 6
    np.testing.assert_allclose(np.exp(merged.mixture.log_weights), expected, rtol=1e-12)
    stepwise = merge([merge([a, b]), c])
    np.testing.assert_allclose(stepwise.mixture.log_weights, merged.mixture.log_weights, rtol=1e-12)
    np.testing.assert_array_equal(merged.mean([0.1, 0.2], 3), b.mean([0.1, 0.2], 1))
    context = np.array([0.3, -0.5])
    density = [(np.exp(x.mixture.log_context_joint(context[None])).sum(), x) for x in (a, b, c)]
    theta = np.array([0.1, 0.2, 0.3])
    shares = np.array([len(x) * p for p, x in density])
    by_hand = shares @ np.exp([x.log_prob(context, theta) for x in (a, b, c)]) / shares.sum()
    assert np.exp(merged.log_prob(context, theta)) == pytest.approx(by_hand, rel=1e-10)
    assert merged.metadata["episodes"] == "15"
    assert [source.get("episodes") for source in json.loads(merged.metadata["merged"])] == ["10", None, "5"]


def test_only_libraries_of_one_task_merge() -> None:
    a = library([1.0])
    other_box = replace(a, context_high=np.array([1.0, 2.0]))
    other_size = SkillLibrary(random_mixture(stream(0), 1, 2, 4), -np.ones(2), np.ones(2), {"task": "toy"})
    for other, message in (
        (replace(a, metadata={"task": "toys"}), "library 2 has task toys, the first has toy; only"),
        (other_box, r"context box to \[1.0, 2.0\], the first has \[1.0, 1.0\]"),
        (other_size, "has parameters 4, the first has 3"),
    ):
        with pytest.raises(SvslError, match=message):
            merge([a, other])


def bimodal_library(ways: list[int], weights: list[float], path: str) -> SkillLibrary:
    """Components that solve the bimodal toy in the first (0) or the second (1) way everywhere, or not at all (2)."""
    count = len(ways)
    gain = np.array([[[0.5], [1.0]], [[0.5], [-1.0]], [[0.0], [0.0]]])[ways]
    bias = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 5.0]])[ways]
    experts = LinearGaussian.build(gain, bias, np.broadcast_to(0.01 * np.eye(2), (count, 2, 2)))
    contexts = LinearGaussian.unconditional(np.zeros((count, 1)), np.ones((count, 1, 1)))
    task = Bimodal()
    created = SkillLibrary(
        Mixture(np.log(weights), contexts, experts), task.context_low, task.context_high, {"task": "toys:Bimodal"}
    )
    created.save(path)
    return created


def test_prune_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    bimodal_library([0, 0, 1, 2], [0.4, 0.3, 0.2, 0.1], "all.safetensors")
    assert (
        main(
            [
                "prune",
                "all.safetensors",
                "--out",
                "small.safetensors",
                "--redundant",
                "--contexts",
                "50",
                "--trust-task",
            ]
        )
        == 0
    )
    out = " ".join(capsys.readouterr().out.split())
    assert "components │ 4 │ 2 │" in out
    assert "│ success_rate │ 0." in out
    assert "library small.safetensors" in out
    small = SkillLibrary.load("small.safetensors")
    assert sorted(round(float(c.bias[0])) for c in small.components) == [-1, 1], "one of each way"
    assert main(["prune", "all.safetensors", "--out", "small.safetensors", "--max-components", "1"]) == 2
    assert "small.safetensors already exists; choose another --out or --overwrite" in capsys.readouterr().err
    flags = ["--out", "small.safetensors", "--max-components", "3", "--min-weight", "0.25", "--overwrite"]
    assert main(["prune", "all.safetensors", *flags, "--contexts", "20", "--trust-task"]) == 0
    np.testing.assert_allclose(np.exp(SkillLibrary.load("small.safetensors").mixture.log_weights), [4 / 7, 3 / 7])


def test_merge_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    bimodal_library([0], [1.0], "a.safetensors")
    bimodal_library([1, 2], [0.5, 0.5], "b.safetensors")
    args = ["merge", "a.safetensors", "b.safetensors", "--out", "c.safetensors", "--contexts", "600", "--trust-task"]
    assert main(args) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "success_rate" in line)
    assert [float(cell.split()[0]) for cell in row.split("│")[2:5]] == pytest.approx([1, 0.5, 2 / 3], abs=0.08)
    assert len(SkillLibrary.load("c.safetensors")) == 3


def test_a_table_is_read_back_exactly() -> None:
    library([1 / 3, 1 / 7, 11 / 21]).save("library.safetensors")
    assert main(["export", "library.safetensors", "--out", "library.csv"]) == 0
    with open("library.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["component"] for row in rows] == ["0", "1", "2"]
    loaded = SkillLibrary.load("library.safetensors")
    for row, component in zip(rows, loaded.components, strict=True):
        assert float(row["weight"]) == component.weight
        assert float(row["log_weight"]) == component.log_weight == pytest.approx(np.log(component.weight), rel=1e-12)
        for name in ("context_mean", "context_cov", "gain", "bias", "cov"):
            array = getattr(component, name)
            read = [float(row[f"{name}_" + "_".join(map(str, at))]) for at in np.ndindex(array.shape)]
            np.testing.assert_array_equal(np.reshape(read, array.shape), array)
    assert len(rows[0]) == 1 + 2 + 2 + 4 + 6 + 3 + 9
    by_hand = [
        sum(float(rows[1][f"gain_{p}_{i}"]) * (0.4, 0.1)[i] for i in range(2)) + float(rows[1][f"bias_{p}"])
        for p in range(3)
    ]
    np.testing.assert_allclose(loaded.mean([0.4, 0.1], 1), by_hand, rtol=1e-13)


def test_a_table_has_the_gating_also_where_weights_are_too_small_for_a_number() -> None:
    """As after gating steps: the densities of contexts far away make up for weights of exp(-1e4)."""
    means = np.array([[0.0, 0.0], [150.0, 0.0], [0.0, -200.0]])
    contexts = LinearGaussian.unconditional(means, np.tile(np.eye(2), (3, 1, 1)))
    mixture = replace(random_mixture(stream(1), 3, 2, 3), contexts=contexts)
    mixture = replace(mixture, log_weights=-2e4 + 0.5 * (means**2).sum(axis=1))
    library = SkillLibrary(mixture, -np.ones(2), np.ones(2))
    assert library.components[0].weight == 0.0
    names, rows = library.table()
    table = {name: rows[:, column] for column, name in enumerate(names)}
    means = np.stack([table["context_mean_0"], table["context_mean_1"]], axis=1)
    covs = np.array([[[row[names.index(f"context_cov_{i}_{j}")] for j in range(2)] for i in range(2)] for row in rows])
    points = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    joint = [
        w + multivariate_normal(m, c).logpdf(points) for w, m, c in zip(table["log_weight"], means, covs, strict=True)
    ]
    np.testing.assert_allclose(library.gating(points), softmax(np.stack(joint, axis=1), axis=1), atol=1e-9)


def test_the_table_of_quadratic_experts_names_their_products() -> None:
    mixture = random_mixture(np.random.default_rng(3), 2, 2, 3, degree=2)
    quadratic = SkillLibrary(mixture, np.zeros(2), np.ones(2))
    quadratic.save("library.safetensors")
    names, rows = SkillLibrary.load("library.safetensors").table()
    row = dict(zip(names, rows[1], strict=True))
    c = {"0": 0.4, "1": 0.1, "0_0": 0.16, "0_1": 0.04, "1_1": 0.01}
    by_hand = [sum(row[f"gain_{p}_{term}"] * c[term] for term in c) + row[f"bias_{p}"] for p in range(3)]
    np.testing.assert_allclose(quadratic.mean([0.4, 0.1], 1), by_hand, rtol=1e-12)


WRONG = {
    "prune by what": (["prune", "x", "--out", "y"], "prune what? give --min-weight W"),
    "prune to nothing": (["prune", "x", "--out", "y", "--max-components", "0"], "max_components: expected at least 1"),
    "prune what": (["prune", "x", "--out", "y", "--redundant"], "x is not a run folder, a library file"),
    "tolerance": (["prune", "x", "--out", "y", "--redundant", "--tolerance", "1"], "from 0 to below 1, got 1"),
    "merge one": (["merge", "x", "--out", "y"], "merge what? expected at least 2 libraries, got 1"),
    "merge no file": (["merge", "x", "y", "--out", "z"], "x is not a run folder, a library file"),
    "export no out": (["export", "x"], "--out"),
    "export onto a folder": (["export", "x", "--out", "."], ". already exists; choose another --out"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_get_one_line_and_exit_code_2(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    args, message = WRONG[case]
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert list(Path().iterdir()) == [], "nothing is left behind"
