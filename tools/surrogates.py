"""How well the expert's model predicts new episodes of a library, by the number of episodes it is fitted to.

python tools/surrogates.py table-tennis --episodes 400 1200
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tyro

import svsl
from svsl.learners.surrogates import Quadratic, feature_count, fit_quadratic
from svsl.model.gaussians import Array, LinearGaussian
from svsl.runs.sources import task_of
from svsl.tasks.base import uniform_contexts

_SHRINKAGES = (0.0, 1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True)
class Options:
    """Prints the share of the variance that models explain in new episodes: returns of two draws in one context."""

    library: Annotated[str, tyro.conf.Positional]
    """A library that comes with svsl."""
    episodes: tuple[int, ...] = (400, 1200)
    """Episodes that the models are fitted to."""
    components: int = 6
    """Components to average over, spread over the library."""
    tests: int = 1500
    """Pairs of new episodes per component."""
    seed: int = 0
    """Seed of all randomness."""


def main(options: Options) -> None:
    """Draws episodes in the contexts that the gating gives each component, as in the closing stage."""
    library, rng = svsl.load_pretrained(options.library), np.random.default_rng(options.seed)
    task, mixture = task_of(library), library.mixture
    count = min(options.components, len(mixture))
    index = np.linspace(0, len(mixture) - 1, count).astype(np.intp)
    experts = mixture.experts.select(index)

    def contexts_of(component: int, amount: int) -> Array:
        found = np.empty((0, len(library.context_low)))
        while len(found) < amount:
            drawn = uniform_contexts(library, 1000, rng)
            found = np.concatenate([found, drawn[mixture.sample_components(drawn, rng) == component]])
        return found[:amount]

    def run(contexts: Array, parameters: Array) -> Array:
        rows = contexts.reshape(-1, contexts.shape[2]), parameters.reshape(-1, parameters.shape[2])
        return task.evaluate(rows[0], rows[1], rng).returns.reshape(contexts.shape[:2])

    def draw(amount: int) -> Array:
        return np.stack([contexts_of(component, amount) for component in index])

    most = max(options.episodes)
    contexts, tested = draw(most), draw(options.tests)
    parameters, pair = experts.sample(contexts, rng), (experts.sample(tested, rng), experts.sample(tested, rng))
    returns = run(contexts, parameters)
    difference = run(tested, pair[0]) - run(tested, pair[1])
    features = feature_count(contexts.shape[2] + parameters.shape[2])
    print(f"{options.library}: {count} of {len(mixture)} components, a model of {features} features")
    for episodes in options.episodes:
        for shrinkage in _SHRINKAGES:
            if not shrinkage and episodes < features:
                continue
            part = contexts[:, :episodes], parameters[:, :episodes], returns[:, :episodes]
            model = fit_quadratic(experts, *part, shrinkage=shrinkage)
            predicted = _value(model, experts, tested, pair[0]) - _value(model, experts, tested, pair[1])
            explained = 1 - ((difference - predicted) ** 2).mean(axis=1) / (difference**2).mean(axis=1)
            print(f"{episodes} episodes, shrinkage {shrinkage:g}: {explained.mean():.2f}")


def _value(model: Quadratic, experts: LinearGaussian, contexts: Array, parameters: Array) -> Array:
    """The models' values but for what depends on the context alone, `(K, n)`."""
    z = experts.whitened(contexts, parameters).transpose(0, 2, 1)
    inputs = np.concatenate([contexts, np.ones((*contexts.shape[:2], 1))], axis=2)
    linear = (z * (inputs @ model.slope.transpose(0, 2, 1))).sum(axis=2)
    value: Array = linear - 0.5 * ((z @ model.curvature) * z).sum(axis=2)
    return value


if __name__ == "__main__":
    main(tyro.cli(Options))
