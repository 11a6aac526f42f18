"""Results of other methods, read off published figures, on the same axes as ours."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from svsl.experiments.behaviour import all_numbers
from svsl.runs.comparison import Curve, Group, Summary, learning_curve, summarise
from svsl.show.plots.style import HUES, save_figure

_OURS, _THEIRS = HUES[:3], HUES[:4:-1]


@dataclass(frozen=True)
class Panel:
    """Curves of one variant of a task."""

    title: str
    arms: tuple[str, ...]  # ours
    curves: Mapping[str, Mapping[str, float | None]]  # by method: the metric by number of episodes


@dataclass(frozen=True)
class Published:
    """Published curves of a task, as `published.json` has them."""

    metric: str
    caption: str  # where they are from, and how exact they are
    panels: tuple[Panel, ...]

    @classmethod
    def read(cls, path: Path) -> "Published":
        """Reads a file."""
        content = json.loads(path.read_text())
        panels = tuple(Panel(**{**panel, "arms": tuple(panel["arms"])}) for panel in content["panels"])
        return cls(content["metric"], content["caption"], panels)

    def rows(self, groups: Sequence[Group], cell: Callable[[str, Summary], str]) -> list[list[str]]:
        """Returns a table: ours and the published values after the same numbers of episodes, and ours at the end."""
        curves = [curve for panel in self.panels for curve in panel.curves.values()]
        columns = sorted({count for curve in curves for count in curve}, key=int)
        rows = [["episodes", *(f"{int(count):,}" for count in columns), "at the end"]]
        for panel in self.panels:
            for group in (group for group in groups if group.label in panel.arms):
                curve, (episodes, end) = learning_curve(group, self.metric), _end(group, self.metric)
                values = [None if curve is None else _at(curve, int(count)) for count in columns]
                cells = ["" if value is None else cell(self.metric, value) for value in values]
                label = f"{panel.title}: **svsl, {group.label}** ({len(group.runs)})"
                rows.append([label, *cells, f"{cell(self.metric, end)} ({episodes:,.0f})"])
            for method, points in panel.curves.items():
                known = [summarise([points.get(count)]) for count in columns]
                cells = [cell(self.metric, value) if value.seeds else "" for value in known]
                rows.append([f"{panel.title}: {method}", *cells, ""])
        return rows

    def draw(self, groups: Sequence[Group], path: Path) -> None:
        """Draws a panel for each variant: ours with its 95 % interval and its evaluation (a dot), the others dashed."""
        figure = Figure(figsize=(5.6 * len(self.panels), 4.2), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(self.panels), squeeze=False)[0], self.panels, strict=True):
            own = [group for group in groups if group.label in panel.arms]
            for group, color in zip(own, _OURS, strict=False):
                curve, (episodes, end) = learning_curve(group, self.metric), _end(group, self.metric)
                label, error = f"svsl, {group.label} ({len(group.runs)})", np.nan_to_num(end.half_width)
                axes.errorbar(episodes / 1e3, end.mean, error, fmt="o", ms=4, capsize=3, color=color, label=label)
                if curve is not None:
                    x, low, high = curve.episodes / 1e3, curve.mean - curve.half_width, curve.mean + curve.half_width
                    axes.plot(x, curve.mean, color=color)
                    axes.fill_between(x, low, high, color=color, alpha=0.22, lw=0)
            for (method, points), color in zip(panel.curves.items(), _THEIRS, strict=False):
                known = np.array([(int(count), value) for count, value in points.items() if value is not None])
                axes.plot(known[:, 0] / 1e3, known[:, 1], "--.", color=color, label=f"{method}, published")
            axes.set(xlabel="episodes [thousand]", ylabel=self.metric.replace("_", " "), title=panel.title)
            if self.metric == "success_rate":
                axes.set_ylim(-0.02, 1.02)
            axes.legend(fontsize=8)
            axes.grid(alpha=0.3)
        save_figure(figure, path)


def _end(group: Group, metric: str) -> tuple[float, Summary]:
    """Returns the mean number of simulated episodes of runs, and the metric of their evaluations."""
    numbers = [all_numbers(run) for run in group.runs]
    episodes = summarise([run.get("episodes_simulated") for run in numbers]).mean
    return episodes, summarise([run.get(metric) for run in numbers])


def _at(curve: Curve, episodes: int) -> Summary | None:
    """Returns a point of a curve, without its interquartile mean; None beyond its ends."""
    if not curve.episodes[0] <= episodes <= curve.episodes[-1]:
        return None
    seeds, mean, half_width = (
        float(np.interp(episodes, curve.episodes, values)) for values in (curve.seeds, curve.mean, curve.half_width)
    )
    return Summary(round(seeds), mean, half_width, *3 * [float("nan")])
