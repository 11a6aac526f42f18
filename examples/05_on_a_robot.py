"""On a robot: choose a skill under a constraint and stream its joint trajectory at the control rate.

    python examples/05_on_a_robot.py

Needs only NumPy and safetensors, and no simulator, so it can run on the robot's own computer. Replace the `send`
function in `main` by the interface of your robot. Writes no files.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from svsl import Skill, SkillLibrary, load_pretrained
from svsl.model.gaussians import Array
from svsl.simulation.primitives import throw_parameters, throw_steps

RATE_HZ = 500.0
START = np.array([0.0, 1.35, 0.0, 1.18, 0.0, -0.786, -1.59])  # the posture before a throw; measure it on a robot


def choose(library: SkillLibrary, context: Array, broken: int, longest_s: float) -> Skill:
    """Returns the slowest skill with a duration below `longest_s` that does not belong to the component `broken`."""
    allowed = [s for s in library.skills(context) if s.component != broken and s.theta[-1] < longest_s]
    if not allowed:
        raise SystemExit(f"no skill for {context} satisfies the constraint; a lower min_gating gives more choice")
    return max(allowed, key=lambda skill: float(skill.theta[-1]))


def trajectory(theta: Array) -> tuple[Array, Array]:
    """Returns desired joint positions and velocities of a throw at the control rate, `(steps, 7)` each."""
    simulated_s = 0.005 * float(throw_steps(theta[None, -1])[0])
    steps = round(simulated_s * RATE_HZ)
    position, velocity = throw_parameters(theta[None], np.array([steps]), steps, 1 / RATE_HZ)
    return START + position[0], velocity[0]


def stream(positions: Array, velocities: Array, send: Callable[[Array, Array], None]) -> float:
    """Sends one set point per tick; returns the largest delay in seconds."""
    start, largest_delay = time.perf_counter(), 0.0
    for tick, (position, velocity) in enumerate(zip(positions, velocities, strict=True)):
        due = start + tick / RATE_HZ
        time.sleep(max(0.0, due - time.perf_counter()))
        send(position, velocity)
        largest_delay = max(largest_delay, time.perf_counter() - due)
    return largest_delay


def main() -> None:
    """Chooses a throw and streams it once."""
    library = load_pretrained("beer-pong")
    cup = np.array([0.1, -1.8])
    if not library.contains(cup):
        raise SystemExit(f"the cup at {cup} is outside the context box of the library")
    for skill in library.skills(cup):
        print(f"component {skill.component}: probability {skill.gating:.2f}, duration {skill.theta[-1]:.2f} s")
    skill = choose(library, cup, broken=0, longest_s=0.8)
    positions, velocities = trajectory(skill.theta)
    sent: list[Array] = []
    delay = stream(positions, velocities, lambda position, velocity: sent.append(position))
    print(f"component {skill.component} takes {skill.theta[-1]:.2f} s: {len(sent)} set points at {RATE_HZ:.0f} Hz")
    print(f"ends at {np.round(sent[-1], 2).tolist()} rad; the largest delay was {1e3 * delay:.1f} ms")


if __name__ == "__main__":
    main()
