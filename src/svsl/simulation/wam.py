"""The two published calibrations of the Barrett WAM, as data for `arm.py`."""

from __future__ import annotations

from math import sqrt

from svsl.simulation.arm import JOINTS, Arm, Inertia, Link, Quaternion

_S = sqrt(0.5)
_IDENTITY: Quaternion = (1.0, 0.0, 0.0, 0.0)
_ABOUT_X: Quaternion = (_S, _S, 0.0, 0.0)
_ABOUT_MINUS_X: Quaternion = (_S, -_S, 0.0, 0.0)

BEER_PONG_ARM = Arm(
    pos=(0.0, 0.0, 0.6),
    quat=_IDENTITY,
    shoulder=(0.0, 0.0, 0.344),
    links=(
        Link(
            pos=(0.0, 0.0, 0.16),
            quat=(_S, 0.0, 0.0, -_S),
            joint_range=(-2.6, 2.6),
            damping=0.07,
            inertia=Inertia(
                mass=10.7677,
                com=(-0.00443422, -0.00066489, -0.12189),
                quat=(0.999995, 0.000984795, 0.00270132, 0.00136071),
                diagonal=(0.507411, 0.462983, 0.113271),
            ),
            centre=(0.0, 0.0, 0.184),
        ),
        Link(
            pos=(0.0, 0.0, 0.184),
            quat=_ABOUT_MINUS_X,
            joint_range=(-1.985, 1.985),
            damping=0.07,
            inertia=Inertia(
                mass=3.87494,
                com=(-0.00236983, -0.0154211, 0.0310561),
                quat=(0.961781, -0.272983, 0.0167269, 0.0133385),
                diagonal=(0.0214207, 0.0167101, 0.0126465),
            ),
        ),
        Link(
            pos=(0.0, -0.505, 0.0),
            quat=_ABOUT_X,
            joint_range=(-2.8, 2.8),
            damping=0.07,
            inertia=Inertia(
                mass=1.80228,
                com=(-0.0382586, 3.309e-5, -0.207508),
                quat=(0.705455, 0.0381914, 0.0383402, 0.706686),
                diagonal=(0.0665697, 0.0634285, 0.00622701),
            ),
            centre=(0.0, 0.0, -0.505),
        ),
        Link(
            pos=(0.045, 0.0, 0.045),
            quat=_ABOUT_MINUS_X,
            joint_range=(-0.9, 3.14159),
            damping=0.07,
            inertia=Inertia(
                mass=2.40017,
                com=(0.00498512, -0.132717, -0.00022942),
                quat=(0.546303, 0.447151, -0.548676, 0.447842),
                diagonal=(0.0196896, 0.0152225, 0.00749914),
            ),
        ),
        Link(
            pos=(-0.045, 0.0, 0.0),
            quat=_ABOUT_X,
            joint_range=(-4.55, 1.25),
            damping=0.07,
            inertia=Inertia(
                mass=0.12376,
                com=(8.921e-5, 0.00435824, -0.00511217),
                quat=(0.708528, -0.000120667, 0.000107481, 0.705683),
                diagonal=(0.0112011, 0.0111887, 7.58188e-5),
            ),
            centre=(0.0, 0.0, 0.3),
        ),
        Link(
            pos=(0.0, 0.0, 0.3),
            quat=_ABOUT_MINUS_X,
            joint_range=(-1.5707, 1.5707),
            damping=0.07,
            inertia=Inertia(
                mass=0.417974,
                com=(-0.00012262, -0.0246834, -0.0170319),
                quat=(0.994687, -0.102891, 0.000824211, -0.00336105),
                diagonal=(0.000555166, 0.000463174, 0.00023407),
            ),
        ),
        Link(
            pos=(0.0, -0.06, 0.0),
            quat=_ABOUT_X,
            joint_range=(-2.7, 2.7),
            damping=0.07,
            inertia=Inertia(
                mass=0.0686475,
                com=(-7.974e-5, -0.00323552, -0.00016313),
                quat=(0.594752, 0.382453, 0.382453, 0.594752),
                diagonal=(7.408e-5, 3.81466e-5, 3.76434e-5),
            ),
            centre=(0.0, 0.0, -0.06),
        ),
    ),
    kp=(200.0, 300.0, 100.0, 100.0, 10.0, 10.0, 2.5),
    kv=(3.5, 7.5, 2.5, 1.25, 0.15, 0.15, 0.025),
)

TABLE_TENNIS_ARM = Arm(
    pos=(2.1, 0.0, 2.0),
    quat=(0.0, 0.0, 1.0, 0.0),  # mounted upside down
    shoulder=(0.0, 0.0, 0.346),
    links=(
        Link(
            pos=(0.0, 0.0, 0.346),
            quat=_IDENTITY,
            joint_range=(-2.6, 2.6),
            damping=1.98,
            inertia=Inertia(
                mass=5.0,
                com=(-0.00443422, -0.00066489, -0.128904),
                quat=(0.69566, 0.716713, -0.0354863, 0.0334839),
                diagonal=(0.135089, 0.113095, 0.0904426),
            ),
        ),
        Link(
            pos=(0.0, 0.0, 0.0),
            quat=_ABOUT_MINUS_X,
            joint_range=(-2.0, 2.0),
            damping=0.55,
            inertia=Inertia(
                mass=3.87494,
                com=(-0.00236981, -0.0154211, 0.0310561),
                quat=(0.961794, 0.273112, -0.0169316, 0.00866592),
                diagonal=(0.0214195, 0.0167127, 0.0126452),
            ),
        ),
        Link(
            pos=(0.0, 0.0, 0.0),
            quat=_ABOUT_X,
            joint_range=(-2.8, 2.8),
            damping=1.65,
            inertia=Inertia(
                mass=2.20228,
                com=(0.00683259, 3.309e-5, 0.392492),
                quat=(0.647136, 0.0170822, 0.0143038, 0.762049),
                diagonal=(0.0592718, 0.0592207, 0.00313419),
            ),
        ),
        Link(
            pos=(0.045, 0.0, 0.55),
            quat=_ABOUT_MINUS_X,
            joint_range=(-0.9, 3.1),
            damping=0.88,
            inertia=Inertia(
                mass=0.500168,
                com=(-0.0400149, -0.142717, -0.00022942),
                quat=(0.704281, 0.706326, 0.0180333, 0.0690353),
                diagonal=(0.0151047, 0.0148285, 0.00275805),
            ),
        ),
        Link(
            pos=(-0.045, -0.3, 0.0),
            quat=_ABOUT_X,
            joint_range=(-4.8, 1.3),
            damping=0.55,
            inertia=Inertia(
                mass=1.05376,
                com=(8.921e-5, 0.00435824, -0.00511217),
                quat=(0.630602, 0.776093, 0.00401969, -0.002372),
                diagonal=(0.000555168, 0.00046317, 0.000234072),
            ),
        ),
        Link(
            pos=(0.0, 0.0, 0.0),
            quat=_ABOUT_MINUS_X,
            joint_range=(-1.6, 1.6),
            damping=0.11,
            inertia=Inertia(
                mass=0.517974,
                com=(-0.00012262, -0.0246834, -0.0170319),
                quat=(0.630602, 0.776093, 0.00401969, -0.002372),
                diagonal=(0.000555168, 0.00046317, 0.000234072),
            ),
        ),
        Link(
            pos=(0.0, 0.0, 0.0),
            quat=_ABOUT_X,
            joint_range=(-2.2, 2.2),
            damping=0.11,
            inertia=Inertia(
                mass=0.0828613,
                com=(0.0, 0.0, 0.055),
                quat=(_S, 0.0, 0.0, _S),
                diagonal=(0.00020683, 0.00010859, 0.00010851),
            ),
        ),
    ),
    kp=(800.0, 800.0, 800.0, 800.0, 100.0, 1000.0, 100.0),
    kv=(0.0,) * JOINTS,
)
