"""Random generators restored from arrays, and independent streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import few_examples
from svsl.model.random import rng_from_array, rng_to_array, stream


@few_examples(10)
@given(seed=st.integers(0, 2**63), normals=st.integers(0, 5), words=st.integers(0, 3))
def test_a_restored_generator_continues_the_sequence(seed: int, normals: int, words: int) -> None:
    rng = np.random.default_rng(seed)
    rng.standard_normal(normals)
    rng.integers(2**32, size=words, dtype=np.uint32)
    array = rng_to_array(rng)
    assert array.dtype == np.uint64
    assert array.shape == (6,)
    again = rng_from_array(array.copy())
    assert again.bit_generator.state == rng.bit_generator.state
    np.testing.assert_array_equal(
        again.integers(2**32, size=5, dtype=np.uint32), rng.integers(2**32, size=5, dtype=np.uint32)
    )
    np.testing.assert_array_equal(again.standard_normal(7), rng.standard_normal(7))


def test_the_unused_half_of_a_word_is_restored() -> None:
    rng = np.random.default_rng(1)
    rng.integers(2**32, dtype=np.uint32)
    assert rng.bit_generator.state["has_uint32"] == 1  # otherwise this test checks nothing
    again = rng_from_array(rng_to_array(rng))
    assert again.integers(2**32, dtype=np.uint32) == rng.integers(2**32, dtype=np.uint32)


def test_the_array_survives_a_cast_to_int64_and_back() -> None:
    """A safetensors reader may return the same bits as another type."""
    rng = np.random.default_rng(2)
    array = rng_to_array(rng).view(np.int64).view(np.uint64)
    assert rng_from_array(array).random() == rng.random()


def test_other_generators_are_rejected() -> None:
    with pytest.raises(TypeError, match="expected a PCG64 generator, got MT19937"):
        rng_to_array(np.random.Generator(np.random.MT19937(0)))


def test_streams_are_reproducible_and_differ() -> None:
    first = [stream(seed, *path).random() for seed, path in ((0, ()), (0, (0,)), (0, (1,)), (0, (1, 0)), (1, (0,)))]
    again = [stream(seed, *path).random() for seed, path in ((0, ()), (0, (0,)), (0, (1,)), (0, (1, 0)), (1, (0,)))]
    assert first == again
    assert len(set(first)) == len(first)
