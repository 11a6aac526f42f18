"""The skill library: queries against the mixture's definition, files that must be rejected."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save
from scipy.stats import multivariate_normal

from svsl import SkillLibrary, SvslError
from svsl.model.editing import merge
from svsl.model.files import read_safetensors, write_bytes, write_safetensors
from svsl.model.gaussians import LinearGaussian
from svsl.model.mixture import Mixture
from svsl.model.random import stream

Arrays = dict[str, NDArray[np.generic]]


@pytest.fixture
def library() -> SkillLibrary:
    rng = stream(0)
    contexts = LinearGaussian.unconditional(rng.normal(size=(4, 2)), np.tril(rng.uniform(0.3, 1, (4, 2, 2))))
    experts = LinearGaussian.build(
        rng.normal(size=(4, 3, 2)), rng.normal(size=(4, 3)), np.tril(rng.uniform(0.3, 1, (4, 3, 3)))
    )
    mixture = Mixture(np.log(np.array([0.1, 0.2, 0.3, 0.4])), contexts, experts)
    return SkillLibrary(mixture, np.array([-1.0, -1.0]), np.array([1.0, 1.0]), {"task": "toy"})


def test_queries_match_their_definitions(library: SkillLibrary) -> None:
    context, theta = np.array([0.3, -0.2]), np.array([0.5, 0.1, -0.4])
    parts = library.components
    prior = [p.weight * multivariate_normal(p.context_mean, p.context_cov).pdf(context) for p in parts]
    gating = np.array(prior) / sum(prior)
    density = [multivariate_normal(p.gain @ context + p.bias, p.cov).pdf(theta) for p in parts]
    np.testing.assert_allclose(library.gating(context), gating, rtol=1e-10)
    np.testing.assert_allclose(library.log_prob(context, theta), np.log(gating @ density), rtol=1e-10)
    np.testing.assert_allclose(
        library.responsibilities(context, theta), gating * density / (gating @ density), rtol=1e-9
    )
    np.testing.assert_allclose(library.mean(context, 2), parts[2].gain @ context + parts[2].bias, rtol=1e-12)


def test_batches_match_single_contexts(library: SkillLibrary) -> None:
    rng = stream(1)
    contexts, thetas = rng.uniform(-1, 1, (5, 2)), rng.normal(size=(5, 3))
    for row in range(5):
        np.testing.assert_allclose(library.gating(contexts)[row], library.gating(contexts[row]), rtol=1e-12)
        np.testing.assert_allclose(
            library.log_prob(contexts, thetas)[row], library.log_prob(contexts[row], thetas[row]), rtol=1e-12
        )
        np.testing.assert_allclose(library.mean(contexts, np.arange(5) % 4)[row], library.mean(contexts[row], row % 4))
    np.testing.assert_allclose(library.log_prob(contexts[0], thetas), library.log_prob(contexts[[0] * 5], thetas))


def test_samples_follow_the_policy(library: SkillLibrary) -> None:
    context = np.array([0.1, 0.2])
    skills = library.sample(np.broadcast_to(context, (40_000, 2)), stream(2))
    share = np.bincount(skills.component, minlength=4) / 40_000
    np.testing.assert_allclose(share, library.gating(context), atol=0.01)
    for k in np.flatnonzero(share > 0.1):
        own = skills.theta[skills.component == k]
        np.testing.assert_allclose(own.mean(axis=0), library.mean(context, k), atol=0.05)
        np.testing.assert_allclose(np.cov(own.T), library.components[k].cov, atol=0.06)
    np.testing.assert_allclose(skills.log_prob[:10], library.log_prob(context, skills.theta[:10]), rtol=1e-10)
    one = library.sample(context, stream(3))
    assert one.theta.shape == (3,)
    assert one.log_prob == pytest.approx(library.log_prob(context, one.theta))


def test_skills_are_those_of_active_components_most_probable_first(library: SkillLibrary) -> None:
    context = np.array([0.1, 0.2])
    gating = library.gating(context)
    skills = library.skills(context, min_gating=0.1)
    assert [skill.component for skill in skills] == [k for k in np.argsort(-gating) if gating[k] >= 0.1]
    assert 1 <= len(skills) < len(library.skills(context, min_gating=0.0)) == 4
    for skill in skills:
        np.testing.assert_array_equal(skill.theta, library.mean(context, skill.component))
        assert skill.gating == gating[skill.component]
        assert skill.log_prob == pytest.approx(library.log_prob(context, skill.theta), rel=1e-12)
    assert [skill.component for skill in library.skills(context, min_gating=1.1)] == [gating.argmax()]
    drawn = library.sample(context, stream(4))
    assert drawn.gating == pytest.approx(gating[drawn.component])
    with pytest.raises(SvslError, match=r"context: expected shape \(2,\), got \(3, 2\)"):
        library.skills(np.zeros((3, 2)))


def test_skills_are_never_empty_when_many_components_share_a_context(library: SkillLibrary) -> None:
    many, context = merge([library] * 150), np.array([0.1, 0.2])
    gating = many.gating(context)
    assert gating.max() < 0.01, "every component must be below the default threshold"
    skills = many.skills(context)
    assert [skill.component for skill in skills] == np.flatnonzero(gating == gating.max()).tolist()
    np.testing.assert_allclose(skills[0].theta, library.mean(context, library.gating(context).argmax()), rtol=1e-12)


def test_save_and_load_round_trip(library: SkillLibrary, tmp_path: Path) -> None:
    library.save(tmp_path / "lib.safetensors")
    loaded = SkillLibrary.load(tmp_path / "lib.safetensors")
    context = np.array([0.4, 0.4])
    np.testing.assert_allclose(loaded.gating(context), library.gating(context), rtol=1e-12)
    np.testing.assert_allclose(loaded.mean(context, 1), library.mean(context, 1), rtol=1e-12)
    np.testing.assert_allclose(loaded.components[3].cov, library.components[3].cov, rtol=1e-12)
    assert loaded.metadata == {"task": "toy"}
    assert len(loaded) == 4
    library.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "lib.safetensors").read_bytes()


def _not_positive(arrays: Arrays) -> None:
    arrays["cov"] = np.array(arrays["cov"])
    arrays["cov"][1] = -np.eye(3)


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (_not_positive, "'cov': a covariance is not positive definite"),
        (lambda a: a.update(cov=np.asarray(a["cov"]) + np.triu(np.ones((3, 3)), 1)), "not symmetric"),
        (lambda a: a.pop("gain"), "array 'gain' is missing"),
        (lambda a: a.pop("bias"), "array 'bias' is missing"),
        (lambda a: a.pop("context_low"), "array 'context_low' is missing"),
        (lambda a: a.update(bias=np.array(0.5)), "expected float64"),
        (lambda a: a.update(bias=np.zeros((4, 2))), "expected float64"),
        (lambda a: a.update(bias=np.full((4, 3), np.nan)), "'bias': expected finite numbers"),
        (lambda a: a.update(log_weights=np.zeros(4)), "do not sum to 1"),
        (lambda a: a.update(context_high=np.array([-2.0, 1.0])), "context box is empty"),
        (lambda a: a.update(cov=np.asarray(a["cov"]).astype(np.float32)), "got float32"),
    ],
)
def test_invalid_content_is_rejected(library: SkillLibrary, tmp_path: Path, corrupt: object, message: str) -> None:
    path = tmp_path / "lib.safetensors"
    library.save(path)
    arrays, header = read_safetensors(path, "library")
    assert callable(corrupt)
    corrupt(arrays)
    write_safetensors(path, arrays, header)
    with pytest.raises(SvslError, match=message) as caught:
        SkillLibrary.load(path)
    assert str(path) in str(caught.value)


def test_other_files_are_rejected(library: SkillLibrary, tmp_path: Path) -> None:
    path = tmp_path / "lib.safetensors"
    with pytest.raises(SvslError, match="no such skill library"):
        SkillLibrary.load(path)
    library.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(SvslError, match="not a readable skill library"):
        SkillLibrary.load(path)
    path.write_text("hello")
    with pytest.raises(SvslError, match="not a readable skill library"):
        SkillLibrary.load(path)
    write_safetensors(path, {"a": np.zeros(2)}, {})
    with pytest.raises(SvslError, match="not a skill library"):
        SkillLibrary.load(path)
    write_safetensors(path, {"a": np.zeros(2)}, {"format": "svsl-skill-library", "version": 99})
    with pytest.raises(SvslError, match="version 99, this svsl reads version 1"):
        SkillLibrary.load(path)


def test_a_flipped_bit_anywhere_is_noticed(library: SkillLibrary, tmp_path: Path) -> None:
    path = tmp_path / "lib.safetensors"
    library.save(path)
    whole, rng = path.read_bytes(), stream(5)
    expected = library.table()[1]
    for bit in rng.integers(0, 8 * len(whole), 400).tolist():
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        if b'sha256\\"' in damaged:
            with pytest.raises(SvslError, match=re.escape(str(path))):
                SkillLibrary.load(path)
        else:  # without the name of the checksum the numbers are still right
            np.testing.assert_allclose(SkillLibrary.load(path).table()[1], expected, rtol=1e-9)
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(SvslError, match="a damaged skill library, its content does not match its checksum"):
        SkillLibrary.load(path)


def test_a_file_of_an_older_version_has_no_checksum(library: SkillLibrary, tmp_path: Path) -> None:
    path = tmp_path / "lib.safetensors"
    library.save(path)
    arrays, header = read_safetensors(path, "library")
    assert "sha256" not in header
    write_bytes(path, save(arrays, {"svsl": json.dumps(header)}))
    np.testing.assert_array_equal(SkillLibrary.load(path).components[2].bias, library.components[2].bias)


def test_invalid_queries_report_what_was_expected(library: SkillLibrary) -> None:
    with pytest.raises(SvslError, match=r"context: expected shape \(2,\) or \(n, 2\), got \(3,\)"):
        library.gating(np.zeros(3))
    with pytest.raises(SvslError, match="component: expected whole numbers from 0 to 3, got 4"):
        library.mean(np.zeros(2), 4)
    with pytest.raises(SvslError, match="context: expected finite numbers, got NaN or infinity"):
        library.sample([0.0, np.nan], stream(0))
    with pytest.raises(SvslError, match="context: expected 2 numbers, got 'here'"):
        library.gating("here")
    with pytest.raises(SvslError, match="got 2 and 3 rows; expected the same number, or one"):
        library.log_prob(np.zeros((2, 2)), np.zeros((3, 3)))


def test_repr_is_one_line(library: SkillLibrary) -> None:
    assert repr(library) == "SkillLibrary(toy: 4 components, 2 context dimensions, 3 parameters)"
    assert "\n" not in repr(library.mixture)


def test_contains_checks_the_context_box(library: SkillLibrary) -> None:
    middle = 0.5 * (library.context_low + library.context_high)
    beyond = library.context_high + np.array([0.0, 1e-8])
    assert library.contains(middle)
    assert not library.contains(beyond)
    several = np.asarray(library.contains([library.context_low, beyond, library.context_high]))
    assert several.tolist() == [True, False, True]
    assert json.dumps(library.contains(middle)) == "true"


def test_load_accepts_a_run_folder(library: SkillLibrary, tmp_path: Path) -> None:
    with pytest.raises(SvslError, match=r"library\.safetensors: no such skill library"):
        SkillLibrary.load(tmp_path)
    library.save(tmp_path / "library.safetensors")
    assert len(SkillLibrary.load(tmp_path)) == 4


def test_using_a_library_imports_only_numpy_and_safetensors() -> None:
    code = "import sys, json; from svsl import SkillLibrary; print(json.dumps([m.split('.')[0] for m in sys.modules]))"
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))
    assert {"numpy", "safetensors"} <= loaded
    assert not loaded & {"scipy", "matplotlib", "rich", "tyro", "threadpoolctl", "mujoco", "gymnasium", "torch"}


QUERIES: dict[str, Callable[..., Any]] = {
    "gating": lambda library, context, **how: library.gating(context, **how),
    "mean": lambda library, context, **how: library.mean(context, 1, **how),
    "log_prob": lambda library, context, **how: library.log_prob(context, np.zeros(3), **how),
    "responsibilities": lambda library, context, **how: library.responsibilities(context, np.zeros(3), **how),
    "sample": lambda library, context, **how: library.sample(context, stream(0), **how).theta,
    "skills": lambda library, context, **how: [skill.theta for skill in library.skills(context, **how)],
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_context_outside_the_box_is_refused(library: SkillLibrary, query: Callable[..., Any]) -> None:
    refused = r"context: \[3.0, 0.5\] is outside the box the library was trained for, \[-1, 1\] x \[-1, 1\]; .*contains"
    with pytest.raises(SvslError, match=refused):
        query(library, [3.0, 0.5])
    np.testing.assert_array_equal(query(library, [3.0, 0.5], outside="clip"), query(library, [1.0, 0.5]))
    wider = replace(library, context_high=np.array([5.0, 5.0]))
    np.testing.assert_array_equal(query(library, [3.0, 0.5], outside="extrapolate"), query(wider, [3.0, 0.5]))
    edge = [1.0 + 1e-9, -1.0 - 1e-9]  # rounding
    assert library.contains(edge)
    query(library, edge)
    with pytest.raises(SvslError, match='outside: expected "raise", "clip" or "extrapolate", got \'ignore\''):
        query(library, [0.0, 0.0], outside="ignore")


def test_one_context_of_a_batch_outside_the_box_is_refused(library: SkillLibrary) -> None:
    contexts = np.array([[0.0, 0.0], [0.5, -7.0]])
    with pytest.raises(SvslError, match=r"context: \[0.5, -7.0\] is outside the box"):
        library.sample(contexts, stream(0))
    clipped = library.gating(contexts, outside="clip")
    np.testing.assert_array_equal(clipped, library.gating([[0.0, 0.0], [0.5, -1.0]]))


def test_the_component_of_a_skill_is_a_plain_number(library: SkillLibrary) -> None:
    skill = library.sample([0.0, 0.0], stream(0))
    skills = [skill, *library.skills([0.0, 0.0])]
    numbers = [{"component": s.component, "gating": s.gating, "log_prob": s.log_prob} for s in skills]
    assert all(type(entry["component"]) is int for entry in json.loads(json.dumps(numbers)))
    batch = library.sample(np.zeros((3, 2)), stream(0))
    assert isinstance(batch.component, np.ndarray), "a batch keeps arrays"
    assert batch.component.tolist()[0] == skill.component
