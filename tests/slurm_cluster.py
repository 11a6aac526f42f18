"""A real Slurm on this machine, of one node, for the tests; needs Debian's slurm-wlm and munge, but no rights."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from waiting import wait_until

PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])
INSTALLED = all(shutil.which(name, path=PATH) for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun"))
_CONFIG = """
ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
KillWait=5
MpiDefault=none
NodeName={node} NodeAddr=127.0.0.1 CPUs=8
PartitionName=all Nodes=ALL Default=YES
"""


@contextlib.contextmanager
def running_slurm() -> Iterator[Path]:
    """Runs a cluster without accounting until the end of the block; yields its configuration, for SLURM_CONF."""
    with tempfile.TemporaryDirectory(prefix="slurm") as name, contextlib.ExitStack() as daemons:
        folder, node = Path(name), socket.gethostname().partition(".")[0]
        for part in ("state", "spool"):
            (folder / part).mkdir()
        config, key = folder / "slurm.conf", folder / "key"
        config.write_text(_CONFIG.format(folder=folder, node=node, user=getpass.getuser(), ports=_free_ports(2)))
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = [f"--{kind}-file={folder}/munged.{kind}" for kind in ("log", "pid", "seed")]
        own = os.environ | {"SLURM_CONF": str(config), "PATH": PATH}
        for command in (
            ["munged", "--foreground", "--force", f"--socket={folder}/munge", f"--key-file={key}", *files],
            ["slurmctld", "-D"],
            ["slurmd", "-D"],
        ):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = daemons.enter_context(subprocess.Popen(command, env=own, **quiet))  # type: ignore[call-overload]
            daemons.callback(process.terminate)
        try:
            wait_until(lambda: "idle" in _answer(["sinfo", "--noheader", "--format=%T"], own), 60)
            yield config
        finally:
            _answer(["scancel", "--full", "--signal=KILL", f"--user={getpass.getuser()}"], own)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _answer(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout
