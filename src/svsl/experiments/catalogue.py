"""The experiments as data: what is trained, how often, which figures, and what the paper claims."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from svsl.errors import SvslError
from svsl.learners.base import shrunk
from svsl.learners.registry import PRESETS
from svsl.runs.config import RunConfig, make_config


@dataclass(frozen=True, eq=False)
class Arm:
    """One side of a comparison; its settings and task options change those of the preset."""

    label: str  # its name in folders, tables and figures
    task: str
    learner: str
    preset: str | None = None  # default: the task's first, the paper's
    settings: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, object] = field(default_factory=dict)
    series: str = ""  # arms of a sweep, joined in the figure of the front; default the label
    seeds: int | None = None  # at most so many; default all of the experiment


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, paraphrased, and the metrics that test it."""

    paper: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Experiment:
    """A comparison of several arms.

    Attributes:
        seeds: Seeds per arm at full size.
        figures: Names in `svsl.experiments.report.FIGURES`, and `modes` for the table of successful modes.
        metrics: Metrics in the table.
        panels: Task option whose values get separate panels of learning curves.
        equal_budgets: Give every other learner as many episodes as svsl plans, instead of its preset's.
        shrink_iterations: At a smaller scale, also train each component for fewer iterations. A half-trained component
            shows little, but on simulated tasks a whole one takes minutes.
    """

    title: str
    arms: tuple[Arm, ...]
    seeds: int
    claims: tuple[Claim, ...]
    figures: tuple[str, ...]
    metrics: tuple[str, ...]
    panels: str = ""
    equal_budgets: bool = False
    shrink_iterations: bool = True


_METRICS = (
    "return_mean", "success_rate", "coverage", "coverage_any", "ways", "two_kinds", "vendi_score", "kinds_seen",
    "mixture_entropy", "entropy_on_grid", "active_components", "success_without_top", "episodes", "episodes_simulated",
)  # fmt: skip


def _three_methods(task: str) -> tuple[Arm, ...]:
    return tuple(Arm(learner, task, learner) for learner in ("svsl", "hireps", "ladips"))


def _sweep(name: str, series: str, values: tuple[float, ...], settings: Mapping[str, Any]) -> tuple[Arm, ...]:
    """Returns arms of the planar reacher's preset for versatility with one setting changed."""
    return tuple(
        Arm(f"{name}-{value:g}", "planar-reacher", "svsl", "versatile", {**settings, name: value}, series=series)
        for value in values
    )


def _presets(task: str, seeds: int, *more: Arm, versatile_seeds: int | None = None, **others: Any) -> Experiment:
    """Returns the experiment of our own presets of a task, by their names, and of some more arms."""
    names = [name for name in PRESETS[task, "svsl"] if name != "paper"]
    limits = {name: versatile_seeds for name in names if name.startswith("versatile")}
    return Experiment(
        title=f"Our presets of {task}, which go beyond the paper",
        arms=(*(Arm(name, task, "svsl", name, seeds=limits.get(name)) for name in names), *more),
        seeds=seeds,
        claims=(),
        **{"figures": ("learning", "contexts", "success"), "metrics": (*_METRICS, "components"), **others},
    )


_WITH_BALLS = ("learning", "contexts", "success", "balls", "modes")

# both sweeps have the rest of the preset in common, but learn weights, as in the paper, instead of the gating
_WEIGHTS = {"kl_gating": None, "weight_iterations": 100, "beta_weight": 2.0}
# the paper's only price of variety is alpha
_ONE_PRICE = {**_WEIGHTS, "gamma": None, "distinguish_by": "parameters"}

EXPERIMENTS: dict[str, Experiment] = {
    "ablation": Experiment(
        title="Planar reacher: what the auxiliary rewards do, and HiREPS (Figure 1)",
        arms=(
            Arm("svsl-alpha-1e-4", "planar-reacher", "svsl"),
            Arm("svsl-alpha-0.5", "planar-reacher", "svsl", settings={"alpha": 0.5}),
            Arm("svsl-no-auxiliary", "planar-reacher", "svsl", settings={"auxiliary": False, "beta": 0.5}),
            Arm("hireps", "planar-reacher", "hireps"),
        ),
        seeds=15,
        claims=(
            Claim(
                "With the auxiliary rewards solutions are precise and versatile, and the whole context box is covered.",
                ("success_rate", "coverage", "ways", "two_kinds"),
            ),
            Claim("A larger alpha covers more modes.", ("kinds_seen", "mixture_entropy", "active_components", "ways")),
            Claim(
                "Without them components do nearly the same, go through obstacles and leave parts of the box out.",
                ("collision", "coverage_any", "vendi_score"),
            ),
            Claim(
                "HiREPS is less versatile: 3 of its 60 components were chosen in all six contexts together.",
                ("components", "components_drawn", "active_components", "vendi_score"),
            ),
        ),
        figures=("learning", "postures", "success"),
        metrics=(*_METRICS, "components", "components_drawn", "collision"),
        shrink_iterations=False,
    ),
    "baselines": Experiment(
        title="Planar reacher: svsl, HiREPS and LaDiPS on the same number of episodes",
        arms=_three_methods("planar-reacher"),
        seeds=5,
        claims=(
            Claim(
                "svsl finds more different solutions than HiREPS (shown by postures; LaDiPS was not tried here).",
                ("ways", "two_kinds", "vendi_score", "mixture_entropy"),
            ),
            Claim("Its solutions are also better.", ("return_mean", "success_rate")),
        ),
        figures=("learning", "entropy", "postures", "success"),
        metrics=(*_METRICS, "components"),
        equal_budgets=True,
        shrink_iterations=False,
    ),
    "beer-pong": Experiment(
        title="Beer pong: svsl, HiREPS and LaDiPS (Figure 2a, c, e, f, g and the expected mixture entropy)",
        arms=_three_methods("beer-pong"),
        seeds=20,
        claims=(
            Claim("svsl succeeds in 92 % of the context box, HiREPS in 75 %.", ("success_rate",)),
            Claim(
                "HiREPS converges early and is soon overtaken; LaDiPS learns faster at first, svsl ends highest.",
                ("return_mean",),
            ),
            Claim("The components cover the whole context box.", ("coverage", "coverage_any")),
            Claim("svsl's expected mixture entropy is the highest of the three.", ("mixture_entropy",)),
            Claim(
                "In twelve contexts LaDiPS always bounces once on the table; svsl does so in six, throws directly in "
                "three, and in three shows three kinds of throws.",
                ("kinds_seen", "ways", "two_kinds", "vendi_score"),
            ),
        ),
        figures=("learning", "entropy", "contexts", "success", "balls", "modes"),
        metrics=_METRICS,
    ),
    "table-tennis": Experiment(
        title="Table tennis with four context dimensions: svsl, HiREPS and LaDiPS (Figure 2b, d; strikes; entropy)",
        arms=_three_methods("table-tennis"),
        seeds=20,
        claims=(
            Claim("svsl has the highest return of the three.", ("return_mean", "success_rate")),
            Claim("And the highest expected mixture entropy.", ("mixture_entropy",)),
            Claim("The components spread over the four-dimensional context box.", ("coverage", "coverage_any")),
            Claim(
                "One context is solved by different strikes, forehand and backhand.",
                ("ways", "two_kinds", "vendi_score"),
            ),
        ),
        figures=("learning", "entropy", "contexts", "success", "balls", "modes"),
        metrics=_METRICS,
    ),
    "versatility": Experiment(
        title="Planar reacher: precision against variety, with three prices and with one",
        arms=(
            *_sweep("gamma", "svsl, gamma", (1e-4, 0.05, 0.1, 0.2, 0.3, 0.5), _WEIGHTS),
            *_sweep("alpha", "svsl, alpha (the paper)", (1e-4, 0.01, 0.05, 0.1, 0.5), _ONE_PRICE),
            *_three_methods("planar-reacher")[1:],
        ),
        seeds=5,
        claims=(
            Claim(
                "A larger alpha covers more modes (it pays for noise within a skill as much as for different skills).",
                ("success_rate", "ways", "two_kinds", "vendi_score"),
            ),
        ),
        figures=("front", "learning"),
        metrics=_METRICS,
        equal_budgets=True,
        shrink_iterations=False,
    ),
    "step-based": Experiment(
        title="Five-link reacher: svsl against step-based PPO as rewards get sparser",
        arms=tuple(
            Arm(f"{learner}-{reward}", "reacher5", learner, preset, task_options={"reward": reward})
            for reward in ("dense", "last10", "last2")
            for learner, preset in (("svsl", reward), ("ppo", None))
        ),
        seeds=20,
        claims=(
            Claim("With a reward in every step PPO is ahead: it uses each step.", ("return_mean",)),
            Claim(
                "The sparser the reward (last ten steps, last two), the more exploring whole trajectories pays.",
                ("return_mean", "success_rate"),
            ),
        ),
        figures=("learning",),
        metrics=("return_mean", "success_rate", "episodes"),
        panels="reward",
    ),
    "presets-planar-reacher": _presets("planar-reacher", 5, shrink_iterations=False),
    "presets-beer-pong": _presets(
        "beer-pong",
        10,
        Arm("ten-components", "beer-pong", "svsl", "paper", {"components": 10, "buffer": 512, "reject_outside": True}),
        versatile_seeds=3,
        figures=_WITH_BALLS,
    ),
    "presets-table-tennis": _presets("table-tennis", 3, figures=_WITH_BALLS),
    "presets-box-pushing": _presets(
        "box-pushing",
        3,
        Arm("efficient-random-sparse", "box-pushing", "svsl", "efficient-random", {}, {"reward": "temporal-sparse"}),
        metrics=(*_METRICS, "components", "distance", "angle"),
        panels="reward",
    ),
    "presets-hopper-jump": _presets("hopper-jump", 3, metrics=(*_METRICS, "components", "height", "distance")),
}


def find_experiment(name: str) -> Experiment:
    """Returns the experiment called `name`."""
    if name not in EXPERIMENTS:
        raise SvslError(f"unknown experiment {name!r}; experiments: {', '.join(EXPERIMENTS)} (see --list)")
    return EXPERIMENTS[name]


def seeds_of(experiment: Experiment, scale: float) -> int:
    """Returns the default number of seeds: the paper's at full size, fewer (at least two) at a smaller scale."""
    return shrunk(experiment.seeds, scale, 2)


def plan(experiment: Experiment, seeds: int, scale: float) -> dict[Arm, list[RunConfig]]:
    """Returns the configurations of all runs."""
    configs = {arm: arm_config(arm, scale, experiment.shrink_iterations) for arm in experiment.arms}
    if experiment.equal_budgets:
        budget = next(config for arm, config in configs.items() if arm.learner == "svsl").planned_episodes()
        configs = {arm: replace(c, settings=c.settings.with_budget(budget)) for arm, c in configs.items()}
    counts = {arm: min(seeds, arm.seeds or seeds) for arm in configs}
    return {arm: [replace(config, seed=seed) for seed in range(counts[arm])] for arm, config in configs.items()}


def arm_config(arm: Arm, scale: float = 1.0, shrink_iterations: bool = True) -> RunConfig:
    """Returns the configuration of an arm's first run.

    `scale` shrinks the number of components in proportion and, if requested, the iterations of each by its square root.
    For learners that train all components at once, both factors apply to the iterations.
    """
    config = make_config(arm.task, arm.learner, arm.preset, arm.task_options, arm.settings)
    settings = config.settings.scaled(scale, 0.5 if shrink_iterations else 0.0)
    return replace(config, settings=settings, test_contexts=shrunk(config.test_contexts, scale, 50, 0.5))
