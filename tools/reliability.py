"""For maintainers: reliability as numbers. The results are in docs/reliability.md.

python tools/reliability.py kills --count 1000
python tools/reliability.py mutations --count 10000
python tools/reliability.py nan
python tools/reliability.py workers --count 100
python tools/reliability.py nodes --count 10
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np

import svsl
from svsl import Outcome, SkillLibrary
from svsl.cli.parsing import parse
from svsl.errors import SvslError, complain
from svsl.learners.registry import find_preset
from svsl.learners.svsl import Stage
from svsl.model.files import read_safetensors, write_safetensors
from svsl.model.gaussians import Array
from svsl.runs.folder import Run
from svsl.runs.training import Trainer
from svsl.tasks.gymnasium_task import GymnasiumTask
from svsl.tasks.planar_reacher import PlanarReacher

# every learner and every stage of svsl, small enough to end within seconds
RUNS = {
    "svsl": "planar-reacher --components 3 --iterations 40 --finetune-every 10",
    "svsl-all-stages": "planar-reacher --preset versatile --components 4 --iterations 30 --finetune-every 10 "
    "--closing-iterations 20 --start-tests 10 --from-scratch 2 --kl-gating None --weight-iterations 100",
    "svsl-gating": "planar-reacher --preset versatile --components 4 --iterations 30 --finetune-every 10 "
    "--closing-iterations 20",
    "together": "planar-reacher --preset versatile --components 8 --no-curriculum --splits 2 --expert-degree 2 "
    "--shrinkage 10 --closing-iterations 40",
    "hireps": "planar-reacher --learner hireps --components 6 --iterations 40 --batch 400",
    "ladips": "planar-reacher --learner ladips --components 4 --gating-entropy 0.5 --iterations 20 --batch 300",
    "ppo": "reacher5 --learner ppo --episodes 100",
}


@dataclass(frozen=True)
class Options:
    """Measure how reliable training, files and returns are."""

    check: str
    """kills, mutations, nan, workers or nodes."""
    count: int = 100
    """Number of kills, mutated files, killed workers or lost nodes."""
    seed: int = 0
    """Seed of when and what."""
    workers: int | None = None
    """Trainings that are killed at the same time (default: all cores)."""
    runs: tuple[str, ...] = ()
    """Kinds of trainings to kill (default: all)."""


def main(args: list[str]) -> int:
    """Runs one of the checks and prints its numbers."""
    options = parse(Options, ["--check", *args], "reliability.py")
    checks = {
        "kills": check_kills,
        "mutations": check_mutations,
        "nan": check_nan,
        "workers": check_workers,
        "nodes": check_nodes,
    }
    if options.check not in checks:
        raise SvslError(f"check: expected one of {', '.join(checks)}, got {options.check!r}")
    with tempfile.TemporaryDirectory() as folder:
        return checks[options.check](options, Path(folder))


def check_kills(options: Options, folder: Path) -> int:
    """Kills trainings with SIGKILL at random moments and resumes them until they end; compares their products."""
    names = _runs_to_kill(options)
    left_alone, moments, different, started = {}, Counter[str](), 0, itertools.count()

    def train(name: str) -> None:
        start = time.monotonic()
        _svsl(f"train {RUNS[name]} --quiet --out {folder / name}").wait()
        left_alone[name] = _product(folder / name), time.monotonic() - start

    def kill(number: int) -> bool:
        rng, run = random.Random(f"{options.seed} {number}"), folder / f"run{number}"
        name = names[number % len(names)]
        product, seconds = left_alone[name]
        for moment in _killed(run, RUNS[name], seconds, rng):
            moments[f"{name}: {moment}"] += 1
        return _product(run) != product

    with ThreadPoolExecutor(options.workers or os.cpu_count()) as pool:
        list(pool.map(train, names))
        running = {pool.submit(kill, next(started)) for _ in range(pool._max_workers)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            different += sum(future.result() for future in done)
            if moments.total() < options.count:
                running |= {pool.submit(kill, next(started)) for _ in done}
    for moment, count in sorted(moments.items()):
        print(f"{count:6d} {moment}")
    print(f"{moments.total()} kills in {next(started)} runs; {different} ended in other bytes")
    return int(different > 0)


def _runs_to_kill(options: Options) -> list[str]:
    names = list(options.runs or RUNS)
    if unknown := set(names) - set(RUNS):
        raise SvslError(f"runs: expected some of {', '.join(RUNS)}, got {', '.join(unknown)}")
    if "ppo" in names and find_spec("stable_baselines3") is None and not options.runs:
        names.remove("ppo")
        print("ppo is left out: stable-baselines3 is not installed (pip install 'svsl[ppo]')")
    return names


def _killed(run: Path, settings: str, seconds: float, rng: random.Random) -> Iterator[str]:
    """Trains a run to its end, with kills at random moments; yields the stage of training of each."""
    command, finished = f"train {settings} --quiet --checkpoint-s 0 --out {run}", False
    while not finished:
        process = _svsl(command)
        try:
            process.wait(rng.uniform(0.3, 1.0) * seconds)
            return
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        seconds *= 1.05  # a machine that has become slower must not kill it before it begins, for ever
        if Run.config_path(run).exists():
            command, finished = f"resume {run} --quiet --checkpoint-s 0", Run.open(run).finished
            yield _stage(Run.open(run))
        else:
            yield "before the first checkpoint"


def _stage(run: Run) -> str:
    """Returns the stage of training in which a run was killed."""
    checkpoint = run.load_checkpoint()
    if checkpoint is None:
        return "before the first checkpoint"
    if run.product_path.exists():
        return "after the library was written"
    if run.config.learner != "svsl":
        return "training"
    return get_args(Stage)[int(checkpoint[0]["learner.counters"][0])]


def _svsl(command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "svsl", *command.split()], stderr=subprocess.DEVNULL)


def _product(folder: Path) -> bytes | None:
    """Returns the bytes of what was learned; None if the run failed."""
    path = Run.open(folder).product_path
    return path.read_bytes() if path.exists() else None


def check_mutations(options: Options, folder: Path) -> int:
    """Loads mutated libraries, checkpoints and configurations: each is rejected with a message or loads unchanged.

    Every fourth has a wrong value and a right checksum, and may also load: as something else, which it then is.
    """
    _svsl(f"train {RUNS['svsl']} --quiet --out {folder / 'run'}").wait()
    rng, results = random.Random(options.seed), Counter[str]()
    run = Run.open(folder / "run")
    files = [run.library_path, run.checkpoint_path, Run.config_path(run.folder)]
    original = {path: path.read_bytes() for path in files}
    loaded = {path: _load(path, folder) for path in files}
    for number in range(options.count):
        path = rng.choice(files)
        forged = number % 4 == 0
        if forged:
            _forge(path, rng)
        else:
            path.write_bytes(_mutated(original[path], rng))
        try:
            outcome = "unchanged" if _load(path, folder) == loaded[path] else "WRONG"
        except SvslError:
            outcome = "rejected"
        if outcome == "WRONG" and (forged or path.suffix == ".json"):
            outcome = "another valid content"  # a changed setting is a setting like any other
        results[f"{path.name} {outcome}"] += 1
        path.write_bytes(original[path])
    print(f"{options.count} mutated files: {dict(sorted(results.items()))}")
    return int(any("WRONG" in name for name in results))


def _forge(path: Path, rng: random.Random) -> None:
    """Replaces a value in a file by one that does not belong there, with a right checksum."""
    arrays, content = ({}, json.loads(path.read_text())) if path.suffix == ".json" else read_safetensors(path, "file")
    part = content
    while True:
        name = rng.choice(list(part))
        if not isinstance(part[name], dict) or not part[name] or rng.random() < 0.2:
            break
        part = part[name]
    part[name] = rng.choice([None, True, -1, 1.5, 1e300, 10**400, "", "x", "[" * 10**5, [], [[1]], {}, {"a": 1}])
    if path.suffix == ".json":
        path.write_text(json.dumps(content))
    else:
        write_safetensors(path, arrays, content)


def _load(path: Path, folder: Path) -> object:
    """Returns what a file holds, in a form that can be compared."""
    run = Run.open(folder / "run")
    if path.suffix == ".json":
        return run.config.to_json()
    if path == run.library_path:
        library = SkillLibrary.load(path)
        return [array.tobytes() for array in library.mixture.to_arrays().values()], library.metadata
    training = run.make_training(PlanarReacher())
    counters = run.restore(training)
    return [array.tobytes() for array in training.state()[0].values()], json.dumps(counters, sort_keys=True)


def _mutated(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    place, kind = rng.randrange(len(data)), rng.randrange(5)
    if rng.random() < 0.5:  # the header is where most of the meaning is
        place = rng.randrange(min(len(data), 2000))
    if kind == 0:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        del data[place : place + rng.randrange(1, 50)]
    elif kind == 3:
        data[place:place] = rng.randbytes(rng.randrange(1, 50))
    else:
        data[place : place + 8] = rng.randbytes(8)
    return bytes(data)


class SometimesNan(PlanarReacher):
    """Every tenth return, at random, is NaN."""

    def evaluate(self, contexts: Array, parameters: Array, rng: np.random.Generator) -> Outcome:
        """Scores a batch of postures."""
        outcome = super().evaluate(contexts, parameters, rng)
        lost = rng.random(len(contexts)) < 0.1
        return Outcome(np.where(lost, np.nan, outcome.returns), outcome.success & ~lost, outcome.info)


def check_nan(options: Options, folder: Path) -> int:
    """Trains with a tenth of the returns lost, and measures both libraries on the task without losses."""
    means, settings = [], asdict(find_preset("planar-reacher").settings)
    for task in (PlanarReacher(), SometimesNan()):
        returns = []
        for seed in range(3):
            library = svsl.train(task, seed=seed, **{**settings, "components": 20})
            rng = np.random.default_rng(0)
            contexts = rng.uniform(task.context_low, task.context_high, (2000, 2))
            means_of = library.mixture.component_means(contexts, library.mixture.sample_components(contexts, rng))
            returns.append(float(PlanarReacher().evaluate(contexts, means_of, rng).returns.mean()))
        means.append(float(np.mean(returns)))
        print(f"{type(task).__name__}: returns {np.round(returns, 3).tolist()}, mean {means[-1]:.3f}")
    cost = (means[0] - means[1]) / abs(means[0])
    print(f"cost of 10 % NaN returns: {cost:.1%} of the return")
    return int(cost > 0.05)


def check_workers(options: Options, folder: Path) -> int:
    """Kills processes that simulate episodes of a Gymnasium environment at random moments of a training."""
    rng, kills, expected = random.Random(options.seed), 0, None
    task = GymnasiumTask("svsl.environments:svsl/PlanarReacher-v0")
    task.workers = 2
    settings: dict[str, Any] = {"components": 2, "iterations": 50}
    differing, runs, seconds = 0, 0, 0.0  # of the first run, which is left alone
    while expected is None or kills < options.count:
        ended = threading.Event()

        def kill(seconds: float = seconds, ended: threading.Event = ended) -> None:
            while seconds and not ended.wait(rng.uniform(0.2, 1.0) * seconds):
                victims = [worker for worker in task._pool._workers if worker.jobs is not None]  # that have started
                if victims and (victim := rng.choice(victims).process.pid):
                    os.kill(victim, signal.SIGKILL)

        before, start, killer = task._pool.replaced, time.monotonic(), threading.Thread(target=kill)
        killer.start()
        try:
            library = svsl.train(task, seed=0, **settings)
        finally:
            ended.set()
            killer.join()
        arrays = [array.tobytes() for array in library.mixture.to_arrays().values()]
        kills, runs = kills + task._pool.replaced - before, runs + 1
        expected, seconds = expected or arrays, seconds or time.monotonic() - start
        differing += arrays != expected
    print(f"{kills} killed workers in {runs - 1} runs; {differing} ended in other bytes")
    return int(differing > 0)


def check_nodes(options: Options, folder: Path) -> int:
    """Loses a node of a Ray cluster in the middle of a training whose episodes are spread over the cluster."""
    from ray.cluster_utils import Cluster

    from svsl.backends.ray_cluster import connected
    from svsl.tasks.remote import RayTask

    _svsl(f"train {RUNS['svsl']} --quiet --out {folder / 'alone'}").wait()
    alone = Run.open(folder / "alone")
    memory, differing = 100 * 2**20, 0
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": memory}
    )
    with connected(cluster.address):
        for number in range(options.count):
            node = cluster.add_node(num_cpus=1, object_store_memory=memory)
            cluster.wait_for_nodes()
            asked, moment = [0], random.Random(options.seed + number).randrange(10, 100)

            def stop(node: Any = node, asked: list[int] = asked, moment: int = moment) -> bool:
                asked[0] += 1
                if asked[0] == moment:
                    cluster.remove_node(node, allow_graceful=False)
                return False

            run = Run.create(folder / f"spread{number}", alone.config)
            Trainer(run, task=RayTask(alone.config.task, alone.config.task_options)).train(lambda status: None, stop)
            counts = [json.loads(line)["episodes"] for line in run.metrics_path.read_text().splitlines()]
            straight = [json.loads(line)["episodes"] for line in alone.metrics_path.read_text().splitlines()]
            differing += _product(run.folder) != _product(alone.folder) or counts != straight
    cluster.shutdown()  # type: ignore[no-untyped-call, unused-ignore]
    print(f"{options.count} nodes lost; {differing} runs ended in other bytes or lost episodes")
    return int(differing > 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SvslError as error:
        sys.exit(complain(str(error)))
