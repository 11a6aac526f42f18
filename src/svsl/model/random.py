"""Random generators, and their states as arrays for checkpoints."""

import numpy as np
from numpy.typing import NDArray

_LOW = 2**64 - 1
# independent randomness under one seed: the first number of a stream's path
LEARNER_STREAM, TASK_STREAM, TEST_STREAM, EVAL_STREAM, PLOT_STREAM, PRUNE_STREAM = range(6)


def stream(seed: int, *path: int) -> np.random.Generator:
    """Returns an independent generator for each `path` of non-negative integers under one seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=path)))


def rng_to_array(rng: np.random.Generator) -> NDArray[np.uint64]:
    """Returns the exact state of a PCG64 generator, `(6,)`."""
    state = rng.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise TypeError(f"expected a PCG64 generator, got {state['bit_generator']}")
    words = []
    for value in (state["state"]["state"], state["state"]["inc"]):
        words += [value >> 64, value & _LOW]
    return np.array([*words, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def rng_from_array(array: NDArray[np.uint64]) -> np.random.Generator:
    """Restores a generator from the result of `rng_to_array`."""
    words = [int(word) for word in array]
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": words[0] << 64 | words[1], "inc": words[2] << 64 | words[3]},
        "has_uint32": words[4],
        "uinteger": words[5],
    }
    return np.random.Generator(bits)
