"""Everything `svsl bench` measures on this machine, as ratios measured side by side in one run."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from svsl.bench.clock import Timing
from svsl.bench.ppo_update import time_ppo_update
from svsl.bench.rollouts import BATCH, time_rollouts, time_task
from svsl.bench.updates import TASK, time_baseline, time_library, time_updates
from svsl.model.library import SkillLibrary
from svsl.runs.training import numeric_settings
from svsl.show.tables import print_table
from svsl.tasks.registry import make_task

COMPONENT_COUNTS = (10, 20, 40, 60)
SIMULATED_TASKS = ("beer-pong", "table-tennis", "box-pushing", "hopper-jump")


def run(full: bool = False) -> Timing:
    """Measures everything; `full` also trains the paper's planar reacher in a separate process."""
    task = make_task(TASK)
    with numeric_settings():
        updates = [time_updates(task, count) for count in COMPONENT_COUNTS]
        return {
            "updates": updates,
            "baselines": [time_baseline(task, name, updates[-1]["all_ms"]) for name in ("hireps", "ladips")],
            "growth": updates[-1]["iteration_ms"] / updates[0]["iteration_ms"],
            "linear_growth": COMPONENT_COUNTS[-1] / COMPONENT_COUNTS[0],
            "episodes_per_s": time_task(task),
            "library_sample_us": time_library(task, COMPONENT_COUNTS[-1]),
            "rollouts": [timing for name in SIMULATED_TASKS for timing in time_rollouts(name)],
            "ppo": time_ppo_update(),
            "full": _full_run() if full else None,
        }


def show(result: Timing) -> None:
    """Prints the result as tables."""
    _print_table(
        "Updates of one iteration in ms, and how many times longer the straightforward reference takes",
        ("components", "newest", "reference", "all", "reference", "50 iterations", "with episodes"),
        "{components} {newest_ms:.2f} {ratio_newest:.1f}x {all_ms:.1f} {ratio_all:.1f}x {ratio:.1f}x "
        "{iteration_ms:.2f}",
        result["updates"],
    )
    last = COMPONENT_COUNTS[-1]
    print(
        f"svsl: an iteration with its episodes, every 50th updating all, takes {result['growth']:.1f} times as long "
        f"with {last} components as with {COMPONENT_COUNTS[0]} (linear would be {result['linear_growth']:.1f})"
    )
    for b in result["baselines"]:
        print(
            f"{b['learner']}: {b['iteration_ms']:.0f} ms per iteration with {b['components']} components, "
            f"{b['times_all']:.1f} times svsl's update of all {last} components"
        )
    if (p := result["ppo"]) is not None:
        print(
            f"ppo: {p['step_ms']:.2f} ms per gradient step, {p['stable_baselines3_step_ms']:.2f} ms with "
            f"stable-baselines3 ({p['ratio']:.1f} times as long)"
        )
    print(f"planar reacher: {result['episodes_per_s']:,.0f} episodes/s in batches of {BATCH}")
    print(f"library: {result['library_sample_us']:.0f} microseconds to sample a skill for one context")
    _print_table(
        "Simulated tasks: evaluate, and its speed as a share of bare mujoco.rollout",
        ("task", "threads", "batch", "episodes/s", "share of bare", "us per step and thread, bare"),
        "{task} {workers} {batch} {episodes_per_s:.0f} {share_of_bare:.0%} {us_per_step:.2f}",
        result["rollouts"],
    )
    if (f := result["full"]) is not None:
        print(
            f"the paper's planar reacher: {f['episodes']:,} episodes, {f['cpu_s']:.1f} CPU-s, {f['wall_s']:.1f} s, "
            f"{f['peak_memory_mb']:.0f} MB"
        )


def _print_table(title: str, columns: Sequence[str], cells: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Prints one line per row; `cells` are the formats of its cells, separated by spaces."""
    table = Table(title=title)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(cell.format(**row) for cell in cells.split()))
    print_table(table)


def _full_run() -> Timing:
    """Trains the paper's planar reacher in one process."""
    import resource  # POSIX only, as is this measurement

    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        subprocess.run([sys.executable, "-m", "svsl", "train", TASK, "--quiet", "--out", str(out)], check=True)
        episodes = int(SkillLibrary.load(out).metadata["episodes"])
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    return {"cpu_s": cpu, "wall_s": wall, "peak_memory_mb": after.ru_maxrss / unit, "episodes": episodes}
