"""The evaluation of a library or a policy as one value."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from svsl.tasks.base import is_stored_number


@dataclass(frozen=True)
class Evaluation:
    """What was evaluated, and its metrics.

    Attributes:
        task: Name of the task.
        learner: Name of the learner, None if unknown.
        seed: Seed of the run.
        evaluation_seed: Seed of the evaluation.
        finished: Whether training was finished.
        components: Number of components; None for a step-based policy.
        episodes: Training episodes.
        episodes_simulated: How many of them were simulated.
        wall_s: Training time, None if unknown.
        metrics: Means over contexts; see `svsl.evaluation.metrics.METRICS`. None for a metric that the task does not
            define.
        intervals: Their 95 % bootstrap intervals over contexts, where they are known.
        diagnostics: The task's diagnostics, by name; None for a step-based policy.

    Examples:
        >>> from svsl.runs.evaluation import evaluate_source
        >>> from svsl.runs.sources import open_source
        >>> evaluation = evaluate_source(open_source("planar-reacher"), contexts=100)
        >>> evaluation.components
        80
        >>> low, high = evaluation.intervals["ways"]
        >>> low < evaluation.metrics["ways"] < high
        True
    """

    task: str
    learner: str | None
    seed: int
    evaluation_seed: int
    finished: bool
    components: int | None
    episodes: int
    episodes_simulated: int
    wall_s: float | None
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    diagnostics: Mapping[str, float] | None = None

    def to_json(self) -> dict[str, object]:
        """Returns the evaluation as one JSON object, the metrics among the other keys; None for NaN and infinity."""
        values: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self)[:-3]}
        if self.components is None:
            del values["components"]
        finite = {name: ends for name, ends in self.intervals.items() if all(map(math.isfinite, ends))}
        values |= {**_finite(self.metrics), "intervals": {name: list(ends) for name, ends in finite.items()}}
        return values if self.diagnostics is None else {**values, "diagnostics": _finite(self.diagnostics)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Reads what `to_json` returned; raises a `KeyError` if a value is missing, a `TypeError` if one is wrong."""
        own = {f.name: values[f.name] for f in fields(cls)[:-3] if f.name != "components"}
        metrics = {name: value for name, value in values.items() if name not in {f.name for f in fields(cls)}}
        intervals = {name: (low, high) for name, (low, high) in values["intervals"].items()}
        diagnostics = values.get("diagnostics")
        numbers = [*metrics.values(), *(diagnostics or {}).values(), *itertools.chain(*intervals.values())]
        numbers += [own[name] for name in ("seed", "evaluation_seed", "episodes", "episodes_simulated", "wall_s")]
        if not all(map(is_stored_number, numbers)):
            raise TypeError("expected finite numbers")
        return cls(
            **own, components=values.get("components"), metrics=metrics, intervals=intervals, diagnostics=diagnostics
        )

    @property
    def numbers(self) -> dict[str, float | None]:
        """All numbers by name: sizes, metrics and diagnostics."""
        sizes = {} if self.components is None else {"components": self.components}
        sizes |= {"episodes": self.episodes, "episodes_simulated": self.episodes_simulated}
        return {**sizes, "wall_s": self.wall_s, **self.metrics, **(self.diagnostics or {})}


def _finite(numbers: Mapping[str, float | None]) -> dict[str, float | None]:
    """Returns numbers with None for those that JSON does not know."""
    return {name: value if value is None or math.isfinite(value) else None for name, value in numbers.items()}
