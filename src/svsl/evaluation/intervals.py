"""Means over contexts and their bootstrap intervals."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svsl.evaluation.metrics import METRICS, Trial

RESAMPLES = 2000
_BLOCK = 2**21  # numbers resampled at a time, to limit memory


def bootstrap_interval(
    values: NDArray[Any], statistic: Callable[..., Any] = np.mean, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic of `values (n,)`, n > 1; equal values give equal intervals."""
    from scipy import stats  # slow to import

    bootstrap = stats.bootstrap(
        (values,), statistic, method="percentile", confidence_level=level, vectorized=True,
        n_resamples=RESAMPLES, batch=max(1, _BLOCK // len(values)), rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(bootstrap.confidence_interval.low), float(bootstrap.confidence_interval.high)


def summarise_contexts(
    values: Mapping[str, NDArray[Any] | None],
) -> tuple[dict[str, float | None], dict[str, tuple[float, float]]]:
    """Returns the mean over contexts of each metric and its 95 % interval.

    Args:
        values: For each metric one value per context, or None if the task does not define it.

    Returns:
        The means by name, None for a metric without values; and the intervals of those with at least two values.
    """
    means = {name: None if array is None else float(array.mean()) for name, array in values.items()}
    samples = {name: array for name, array in values.items() if array is not None and len(array) > 1}
    return means, {name: bootstrap_interval(array) for name, array in samples.items()}


def summarise_trial(trial: Trial) -> tuple[dict[str, float | None], dict[str, tuple[float, float]]]:
    """Returns the mean and the interval of every metric; see `summarise_contexts`."""
    return summarise_contexts({name: metric(trial) for name, metric in METRICS.items()})
