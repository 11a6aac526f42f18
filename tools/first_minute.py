"""Checks that an installed svsl works in its first minute, without a checkout: `make check-dist` runs it.

    python tools/first_minute.py    # evaluates a shipped library, trains a small one and serves the web page

Run it with the Python of the environment to check, from an empty folder.
"""

import importlib.util
import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

SVSL = Path(sys.executable).with_name("svsl")
EXTRAS = ("imageio_ffmpeg", "huggingface_hub", "submitit", "ray", "torch")


def evaluate_and_train() -> None:
    """Evaluates a shipped library on MuJoCo, trains another one, and uses it; none of the extras is installed."""
    present = [name for name in EXTRAS if importlib.util.find_spec(name)]
    assert not present, f"expected an environment without extras, found {', '.join(present)}"
    result = json.loads(_svsl("eval", "beer-pong", "--contexts", "100", "--json"))
    assert result["success_rate"] > 0.9, result
    _svsl("train", "planar-reacher", "--components", "3", "--iterations", "30", "--out", "first")
    _svsl("eval", "first", "--contexts", "50")
    assert list(Path("first/figures").glob("*.png")), "figures were drawn"


def view() -> None:
    """Starts the web page, fetches it and ends it with Ctrl-C."""
    command = [str(SVSL), "view", "beer-pong", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.match(r"http://\S+", process.stdout.readline())
        assert address, "svsl view printed no address"
        with urllib.request.urlopen(address[0], timeout=60) as answer:
            assert answer.status == 200
            assert b"<html" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def _svsl(*words: str) -> str:
    print("svsl", *words, flush=True)
    return subprocess.run([SVSL, *words], stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    installed = importlib.util.find_spec("svsl")
    assert installed is not None
    assert "site-packages" in str(installed.origin), f"svsl is not installed here but read from {installed.origin}"
    evaluate_and_train()
    view()
    print("works")
