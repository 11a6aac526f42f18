"""What a library does in chosen contexts: the paper's pictures as numbers, which are kept without the library."""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from svsl.errors import SvslError
from svsl.evaluation.metrics import (
    ENTROPY_SAMPLES,
    Report,
    grid_contexts,
    mixture_entropy,
    no_report,
    run_finite,
    success_map,
)
from svsl.model.files import write_bytes
from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary
from svsl.model.random import PLOT_STREAM, stream
from svsl.model.version import __version__
from svsl.runs.comparison import run_numbers
from svsl.runs.folder import Run
from svsl.runs.training import numeric_settings
from svsl.tasks.base import Task, context_maps, context_names
from svsl.tasks.presentation import planar_scene

DRAWS, CELLS = 100, 20
_CONTEXTS = 12


@dataclass(frozen=True)
class Behaviour:
    """What the means of a library's components do.

    Attributes:
        contexts: `(m, dc)`: six goals for a planar scene, as in the paper's Figure 1, or twelve as in its appendix.
        modes: In each of them, the successes by kind, among the components of 100 draws.
        drawn: Components among the draws in all of them together.
        axes: Name, lower and upper end of the dimensions of the map.
        success: Success over two context dimensions `(20, 20)`, as in the paper's Figure 2e, f, the second dimension
            first; None with one dimension.
        entropy: Of `pi(theta|c)` in nats, from 1000 draws in each context of the map.
    """

    contexts: list[list[float]]
    modes: list[dict[str, int]]
    drawn: int
    axes: list[tuple[str, float, float]]
    success: list[list[float | None]] | None
    entropy: float

    @property
    def map(self) -> Array | None:
        """The map of success, with NaN where no context is valid."""
        return None if self.success is None else np.array(self.success, dtype=np.float64)

    @property
    def numbers(self) -> dict[str, float | None]:
        """Its numbers by name."""
        return {
            "kinds_seen": float(np.mean([len(seen) for seen in self.modes])),
            "components_drawn": self.drawn,
            "entropy_on_grid": self.entropy,
            "success_on_grid": None if self.map is None else float(np.nanmean(self.map)),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Reads what `dataclasses.asdict` and JSON made of it."""
        return cls(**{**values, "axes": [(name, low, high) for name, low, high in values["axes"]]})


def observe(library: SkillLibrary, task: Task, seed: int) -> Behaviour:
    """Runs a library in the chosen contexts and over the map."""
    rng = stream(seed, PLOT_STREAM, 6)
    contexts, dims = chosen_contexts(task), context_maps(task)[0]
    modes, drawn = modes_seen(library, task, contexts, rng)
    # further dimensions are drawn anew four times: 1600 contexts, as in the paper's table tennis
    repeats, success = (1 if library.context_dim == len(dims) else 4), None
    if len(dims) == 2:
        found = success_map(library, task, (dims[0], dims[1]), CELLS, rng, repeats)
        success = [[None if np.isnan(rate) else round(rate, 3) for rate in row] for row in found.tolist()]
    grid = grid_contexts(task, dims, CELLS, rng, repeats)
    entropy = float(mixture_entropy(library.mixture, grid, ENTROPY_SAMPLES, rng).mean())
    names, low, high = context_names(task), np.asarray(task.context_low), np.asarray(task.context_high)
    axes = [(names[dim], float(low[dim]), float(high[dim])) for dim in dims]
    return Behaviour(contexts.tolist(), modes, drawn, axes, success, entropy)


def stored_behaviour(run: Run, workers: int | None = None, task: Task | None = None) -> Behaviour | None:
    """Returns the behaviour in the run folder; observes it if it is missing or outdated.

    None for a policy, for a run without a trained component, and for the numbers of a run that has none.
    """
    if run.record is not None:
        return _read(run.behaviour_path)
    learned = run.product_path if run.finished else run.checkpoint_path
    if run.config.step_based or not learned.exists():
        return None
    made_for = {"sha256": hashlib.sha256(learned.read_bytes()).hexdigest(), "svsl": __version__}
    stored = _read(run.behaviour_path, made_for)
    if stored is not None:
        return stored
    try:
        library = run.load_library()
    except SvslError:
        if run.finished:
            raise
        return None  # the checkpoint was written before any component was trained
    with numeric_settings():
        behaviour = observe(library, task or run.make_task(workers), run.config.seed)
    content = {"made_for": made_for, "behaviour": vars(behaviour)}
    with contextlib.suppress(OSError):  # a read-only folder: observed again next time
        write_bytes(run.behaviour_path, (json.dumps(content) + "\n").encode())
    return behaviour


def all_numbers(run: Run, contexts: int = 2000, report: Report = no_report) -> dict[str, float | None]:
    """Every number of a run, with those of its behaviour; see `run_numbers`."""
    numbers, behaviour = run_numbers(run, contexts, report), stored_behaviour(run)
    return numbers | (behaviour.numbers if behaviour else {})


def _read(path: Path, made_for: Mapping[str, object] | None = None) -> Behaviour | None:
    try:
        stored = json.loads(path.read_text())
        return Behaviour.from_json(stored["behaviour"]) if made_for in (None, stored["made_for"]) else None
    except (OSError, ValueError, KeyError, TypeError):  # missing, or not written by us
        return None


def chosen_contexts(task: Task) -> Array:
    """Returns the goals of a planar scene, or twelve contexts.

    These are a 3 by 4 grid over the first two dimensions (or a row), and the middle of the others.
    """
    scene = planar_scene(task)
    if scene is not None:
        return scene.goals
    low, high = np.asarray(task.context_low), np.asarray(task.context_high)
    shares = np.full((_CONTEXTS, len(low)), 0.5)
    across = 3 if len(low) > 1 else _CONTEXTS
    along = _CONTEXTS // across
    shares[:, 0] = np.tile((np.arange(across) + 0.5) / across, along)
    if len(low) > 1:
        shares[:, 1] = np.repeat((np.arange(along) + 0.5) / along, across)
    return np.asarray(low + (high - low) * shares)


def modes_seen(
    library: SkillLibrary, task: Task, contexts: Array, rng: np.random.Generator
) -> tuple[list[dict[str, int]], int]:
    """Counts, for each context, the kinds of behaviour among the successes of 100 drawn components' means.

    A task that names no kinds has one. Also returns how many components were drawn in all contexts together.
    """
    repeated = np.repeat(contexts, DRAWS, axis=0)
    components = library.mixture.sample_components(repeated, rng)
    pairs, index = np.unique(
        np.stack([np.repeat(np.arange(len(contexts)), DRAWS), components]), axis=1, return_inverse=True
    )
    rows = contexts[pairs[0]]
    outcome = run_finite(task, rows, library.mixture.component_means(rows, pairs[1]), rng, described=True)
    kinds = outcome.info.get("mode", np.full(len(rows), "success"))
    counts = np.bincount(index.ravel(), minlength=pairs.shape[1])
    seen: list[dict[str, int]] = [{} for _ in contexts]
    for pair in np.flatnonzero(outcome.success):
        row, mode = seen[pairs[0, pair]], str(kinds[pair])
        row[mode] = row.get(mode, 0) + int(counts[pair])
    return seen, len(np.unique(components))
