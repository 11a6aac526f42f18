"""Ray: the same results as on one machine, also when a node is lost; and never imported without being asked for."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svsl import SvslError, make_task
from svsl.cli import main
from svsl.experiments.catalogue import EXPERIMENTS, Arm, Experiment, arm_config
from svsl.experiments.reproduction import Reproduction
from svsl.experiments.runner import run_jobs
from svsl.runs.folder import Run
from svsl.runs.training import Trainer
from toys import Unimodal
from waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
SETTINGS = {"components": 4, "iterations": 40, "finetune_every": 10}
EXPERIMENT = Experiment(
    title="On a cluster",
    arms=(Arm("a", "slow_task:Slow", "svsl", settings=SETTINGS),),
    seeds=2,
    claims=(),
    figures=("learning",),
    metrics=("return_mean",),
)
SLOW_TASK = """
import os
import time
from pathlib import Path
from toys import Unimodal

HERE = Path(__file__).parent

class Slow(Unimodal):
    "Is slow, and waits while the file `hold` exists, so that a node can be lost in the middle of a batch."
    def evaluate(self, contexts, parameters, rng):
        time.sleep(0.005)
        while (HERE / "hold").exists():
            (HERE / f"held-{os.getpid()}").touch()
            time.sleep(0.01)
        return super().evaluate(contexts, parameters, rng)
"""


def test_a_local_run_never_imports_ray() -> None:
    code = """
import sys
from svsl.cli import main
from svsl.experiments.catalogue import EXPERIMENTS, Arm, Experiment
arms = (Arm("a", "toys:Unimodal", "svsl", settings={"components": 1, "iterations": 2}),)
EXPERIMENTS["x"] = Experiment("x", arms, 1, (), ("learning",), ())
assert main(["train", "toys:Unimodal", "--components", "1", "--iterations", "2", "--quiet"]) == 0
assert main(["reproduce", "x", "--quiet"]) == 0
assert "ray" not in sys.modules
import svsl.experiments.worker
assert "ray" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A real cluster: a head with one core; tests add a second node."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 * 2**20}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
        nodes = Cluster(initialize_head=True, head_node_args=head)
        yield nodes
        ray.shutdown()
        nodes.shutdown()  # type: ignore[no-untyped-call, unused-ignore]


def add_node(cluster: Any) -> Any:
    node = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    cluster.wait_for_nodes()
    return node


def straight(folder: str, seed: int) -> bytes:
    run = Run.create(Path(folder), replace(arm_config(EXPERIMENT.arms[0]), seed=seed))
    assert Trainer(run).train(lambda status: None)
    return run.library_path.read_bytes()


def test_seeds_survive_a_lost_node_and_end_as_on_one_machine(cluster: Any) -> None:
    Path("slow_task.py").write_text(SLOW_TASK)
    sys.path.insert(0, str(Path.cwd()))
    node, lost = add_node(cluster), list[int]()
    reproduction = Reproduction("ray", EXPERIMENT, Path("out"), 2, 1.0, checkpoint_s=0.1)
    started = list[float]()

    def show(jobs: Any) -> None:
        if not lost and all(job.run.checkpoint_path.exists() for job in jobs):
            started.extend(job.work for job in jobs)
            cluster.remove_node(node, allow_graceful=False)
            lost.append(1)

    with reproduction.open():
        run_jobs(reproduction, "ray", cluster.address, None, show, lambda: False)
    assert lost, "both nodes were at work when one was lost"
    assert max(started) < 1
    assert [(job.state, job.message) for job in reproduction.jobs] == [("finished", ""), ("finished", "")]
    for seed, job in enumerate(reproduction.jobs):
        assert job.run.library_path.read_bytes() == straight(f"alone{seed}", seed)
        assert (job.run.folder / "evaluation.json").exists()


def test_episodes_of_one_run_survive_a_lost_node(cluster: Any) -> None:
    from svsl.backends.ray_cluster import connected
    from svsl.tasks.remote import RayTask

    Path("slow_task.py").write_text(SLOW_TASK)
    sys.path.insert(0, str(Path.cwd()))
    node = add_node(cluster)
    config = arm_config(Arm("a", "slow_task:Slow", "svsl", settings={"components": 2, "iterations": 10}))
    with connected(cluster.address):
        task = RayTask(config.task, config.task_options)
        trainer, batches, losses = Trainer(Run.create(Path("spread"), config), task=task), list[int](), list[int]()

        def lose_node() -> None:
            try:
                wait_until(lambda: len(list(Path().glob("held-*"))) == 2)
                held = [int(path.name.partition("-")[2]) for path in Path().glob("held-*")]
                cluster.remove_node(node, allow_graceful=False)
                # its worker outlives the node for a moment
                wait_until(lambda: not all(Path(f"/proc/{process}").exists() for process in held))
                losses.append(1)
            finally:
                Path("hold").unlink()

        def stop() -> bool:
            batches.append(1)
            if len(batches) == 12:  # in the next batch, each node has a shard in its hands
                Path("hold").touch()
                threading.Thread(target=lose_node).start()
            return False

        assert trainer.train(lambda status: None, stop)
        assert len(batches) > 20
        assert losses, "a node was lost in the middle of a batch"

        # a wrapped task is the task, and a batch of any size comes back in order
        rng, whole = np.random.default_rng(3), Unimodal()
        contexts, parameters = rng.uniform(0, 1, (37, 2)), rng.normal(size=(37, 3))
        for count in (0, 1, 16, 37):
            part = contexts[:count], parameters[:count], rng
            np.testing.assert_array_equal(task.evaluate(*part).returns, whole.evaluate(*part).returns)
        assert not hasattr(RayTask("beer-pong", {}), "workers")
        assert RayTask("beer-pong", {}).penalty == make_task("beer-pong").penalty  # type: ignore[attr-defined]

        # noise: repeatable from the run's generator, different in each shard
        Path("noisy_task.py").write_text(NOISY_TASK)
        noisy = RayTask("noisy_task:Noisy", {})
        first, again = (noisy.evaluate(contexts, parameters, np.random.default_rng(7)).returns for _ in range(2))
        np.testing.assert_array_equal(first, again)
        assert len(np.unique(first)) == 37

        with pytest.raises(
            SvslError, match=r"failed on a Ray worker: ZeroDivisionError: the robot is on fire \(toys.py"
        ):
            RayTask("toys:Crashes", {}).evaluate(contexts, parameters, rng)
    alone = Run.create(Path("alone"), config)
    assert Trainer(alone).train(lambda status: None)
    assert Path("spread/library.safetensors").read_bytes() == alone.library_path.read_bytes()


NOISY_TASK = """
import numpy as np
from svsl import Outcome
from toys import Unimodal

class Noisy(Unimodal):
    "All randomness is the generator's."
    def evaluate(self, contexts, parameters, rng):
        return Outcome(rng.normal(size=len(contexts)), np.zeros(len(contexts), dtype=bool))
"""


def test_the_command_line_connects_stops_and_reports(
    cluster: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Arm("bad", "toys:Crashes", "svsl", settings=SETTINGS)
    good = Arm("good", "toys:Unimodal", "svsl", settings={"components": 1, "iterations": 3})
    monkeypatch.setitem(EXPERIMENTS, "x", replace(EXPERIMENT, arms=(crash, good), seeds=1))
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    assert main(["reproduce", "x", "--backend", "ray", "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert "bad-seed0 failed: task Crashes failed: ZeroDivisionError: the robot is on fire" in err
    assert "report   runs/x/report.html" in out

    # a stop request reaches the tasks, which save
    long = replace(EXPERIMENT, arms=(Arm("a", "toys:Unimodal", "svsl", settings={"components": 300}),))
    reproduction = Reproduction("long", long, Path("long"), 1, 1.0, checkpoint_s=1000)
    jobs = reproduction.jobs
    with reproduction.open():
        run_jobs(reproduction, "ray", cluster.address, None, lambda jobs: None, lambda: jobs[0].episodes > 0)
    assert jobs[0].state == "stopped"
    checkpoint = jobs[0].run.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint[1]["episodes"] > 0
    assert not (reproduction.folder / ".stop").exists()


def test_a_cluster_that_cannot_be_reached_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    for command in (["train", "toys:Unimodal"], ["reproduce", "ablation"]):
        assert main([*command, "--backend", "ray", "--ray-address", f"127.0.0.1:{port}"]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"svsl: Ray cluster '127.0.0.1:{port}' cannot be reached")
        assert err.count("\n") == 1
    assert main(["train", "toys:Unimodal", "--backend", "ray", "--ray-address", "nowhere"]) == 2
    assert "expected HOST:PORT" in capsys.readouterr().err
    assert not Path("runs/toys.Unimodal-seed0").exists()
    assert json.loads(Path("runs/ablation/experiment.json").read_text())["scale"] == 1.0
