"""The rings of all components against a list of episodes each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import few_examples
from svsl.learners.buffer import ReplayBuffer
from svsl.model.gaussians import Array


def make_buffer(size: int, components: int) -> ReplayBuffer:
    return ReplayBuffer(size, 2, 1, components)


def append(buffer: ReplayBuffer, owners: list[int], numbers: list[float]) -> None:
    """Appends episodes whose context, parameters and return all carry their number."""
    column = np.array(numbers, dtype=np.float64).reshape(-1, 1)
    buffer.append(np.array(owners, dtype=np.intp), column * [1, -1], 10 * column, 100 * column[:, 0])


def stored(buffer: ReplayBuffer, component: int) -> Array:
    """The numbers in a ring, oldest first; checks that the parts of each episode stayed together."""
    filled, cursor = int(buffer.filled[component]), int(buffer.cursor[component])
    order = (np.arange(filled) + (cursor if filled == buffer.size else 0)) % buffer.size
    numbers: Array = np.asarray(buffer.returns[component, order] / 100)
    np.testing.assert_array_equal(buffer.contexts[component, order], numbers[:, None] * [1, -1])
    np.testing.assert_array_equal(buffer.parameters[component, order, 0], 10 * numbers)
    return numbers


def test_new_episodes_replace_the_oldest() -> None:
    buffer = make_buffer(4, 1)
    append(buffer, [0, 0, 0], [1, 2, 3])
    np.testing.assert_array_equal(stored(buffer, 0), [1, 2, 3])
    append(buffer, [0, 0], [4, 5])
    np.testing.assert_array_equal(buffer.returns[0] / 100, [5, 2, 3, 4])
    np.testing.assert_array_equal(stored(buffer, 0), [2, 3, 4, 5])


def test_the_newest_episodes_stay_when_more_arrive_than_fit() -> None:
    buffer = make_buffer(3, 2)
    append(buffer, [0, 1], [8, 9])
    append(buffer, [0] * 8 + [1], [*range(10, 18), 20])
    np.testing.assert_array_equal(stored(buffer, 0), [15, 16, 17])
    np.testing.assert_array_equal(stored(buffer, 1), [9, 20])
    append(buffer, [0], [30])
    np.testing.assert_array_equal(stored(buffer, 0), [16, 17, 30])


@few_examples(25)
@given(
    size=st.integers(1, 6),
    batches=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=6),
)
def test_rings_hold_what_lists_would(size: int, batches: list[tuple[int, int, int]]) -> None:
    buffer = make_buffer(size, 3)
    lists: list[list[float]] = [[], [], []]
    number = 0.0
    for counts in batches:
        owners, numbers = [], []
        for owner, count in enumerate(counts):
            for _ in range(count):
                number += 1
                owners.append(owner)
                numbers.append(number)
                lists[owner].append(number)
        append(buffer, owners, numbers)
    for owner in range(3):
        newest = lists[owner][-size:]
        np.testing.assert_array_equal(stored(buffer, owner), newest)
        assert buffer.full(np.array([owner]))[0] == (len(newest) == size)
        if newest:
            assert buffer.mean_returns()[owner] == pytest.approx(100 * np.mean(newest))
        else:
            assert np.isnan(buffer.mean_returns()[owner])


def test_select_keeps_whole_rings_and_append_adds_an_empty_one() -> None:
    buffer = make_buffer(2, 3)
    append(buffer, [0, 1, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6])
    buffer.select(np.array([2, 1]))
    buffer.append_component()
    np.testing.assert_array_equal(stored(buffer, 0), [5, 6])
    np.testing.assert_array_equal(stored(buffer, 1), [3, 4])
    np.testing.assert_array_equal(buffer.full(np.arange(3)), [True, True, False])
    append(buffer, [1, 2], [7, 8])
    np.testing.assert_array_equal(stored(buffer, 1), [4, 7])
    np.testing.assert_array_equal(stored(buffer, 2), [8])


def test_a_restored_buffer_continues_independently_of_the_original() -> None:
    buffer = make_buffer(3, 2)
    append(buffer, [0, 0, 1], [1, 2, 3])
    copy = ReplayBuffer(3, 2, 1)
    copy.restore(buffer.state())
    append(buffer, [0, 0], [4, 5])
    np.testing.assert_array_equal(stored(copy, 0), [1, 2])
    append(copy, [0, 0], [4, 5])
    for name, array in buffer.state().items():
        np.testing.assert_array_equal(copy.state()[name], array)
