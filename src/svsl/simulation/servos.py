"""Models of other people: reading them, and position servos for their joints."""

from __future__ import annotations

from pathlib import Path

import mujoco

from svsl.errors import SvslError

_ONE_DOF = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
_ON_JOINT = (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)


def read_model(model: str | Path | mujoco.MjSpec, folder: Path) -> mujoco.MjSpec:
    """A copy of a spec, or the spec of XML text or of a file in `folder` or the current directory.

    Raises:
        SvslError: If there is no such file or MuJoCo cannot read it.
    """
    if isinstance(model, mujoco.MjSpec):
        return model.copy()
    text = str(model)
    try:
        if text.lstrip().startswith("<"):
            return mujoco.MjSpec.from_string(text)
        path = folder / text if (folder / text).exists() else Path(text)
        if not path.exists():
            raise SvslError(f"no model file {text!r} in {folder} or the current directory")
        return mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        if isinstance(error, SvslError):
            raise
        raise SvslError(f"MuJoCo cannot read the model: {' '.join(str(error).split())}") from None


def compile_model(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """The compiled model.

    Raises:
        SvslError: If MuJoCo refuses it.
    """
    try:
        return spec.compile()
    except ValueError as error:
        raise SvslError(f"MuJoCo cannot compile the model: {' '.join(str(error).split())}") from None


def add_servo(spec: mujoco.MjSpec, joint: str, kp: float, kv: float | None) -> str:
    """Makes sure that a joint has a position servo and returns its name.

    A position actuator that is there stays as it is. A motor becomes a servo that keeps the motor's torque limits.

    Args:
        spec: Is changed.
        joint: Name of a hinge or slide joint.
        kp: Stiffness of a new servo, in torque or force per unit of the joint.
        kv: Its damping; None for critical damping of the joint's own inertia.

    Raises:
        SvslError: If there is no such joint, or its actuators are of another kind.
    """
    found = spec.joint(joint)
    if found is None or found.type not in _ONE_DOF:
        names = ", ".join(j.name for j in spec.joints if j.name and j.type in _ONE_DOF)
        raise SvslError(f"the model has no hinge or slide joint {joint!r}; it has {names or 'none with a name'}")
    drives = [a for a in spec.actuators if a.trntype in _ON_JOINT and a.target == joint]
    if len(drives) > 1:
        raise SvslError(f"joint {joint!r} has {len(drives)} actuators; expected none, a motor or a position actuator")
    drive = drives[0] if drives else spec.add_actuator(trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint)
    drive.name = drive.name or f"{joint}_servo"
    is_plain = drive.gaintype == mujoco.mjtGain.mjGAIN_FIXED and drive.dyntype == mujoco.mjtDyn.mjDYN_NONE
    if is_plain and drive.biastype == mujoco.mjtBias.mjBIAS_AFFINE and drive.biasprm[1] == -drive.gainprm[0] < 0:
        return str(drive.name)
    if not is_plain or drive.biastype != mujoco.mjtBias.mjBIAS_NONE:
        raise SvslError(f"actuator {drive.name!r} of joint {joint!r} is neither a motor nor a position actuator")
    if drives:
        _keep_torque_limits(drive)
    if kv is None:
        drive.set_to_position(kp=kp, dampratio=1.0)
    else:
        drive.set_to_position(kp=kp, kv=kv)
    return str(drive.name)


def _keep_torque_limits(motor: mujoco.MjsActuator) -> None:
    """Turns the limits of a motor's control into limits of the servo's force, and gears it to one."""
    gear, gain = float(motor.gear[0]), float(motor.gainprm[0])
    low, high = motor.ctrlrange
    if motor.ctrllimited != mujoco.mjtLimited.mjLIMITED_FALSE and low < high:
        torques = sorted((gear * gain * low, gear * gain * high))
        own_low, own_high = (gear * limit for limit in motor.forcerange)
        if motor.forcelimited != mujoco.mjtLimited.mjLIMITED_FALSE and own_low < own_high:
            torques = [max(torques[0], own_low), min(torques[1], own_high)]
        motor.forcerange, motor.forcelimited = torques, mujoco.mjtLimited.mjLIMITED_TRUE
    motor.ctrlrange, motor.ctrllimited = (0.0, 0.0), mujoco.mjtLimited.mjLIMITED_FALSE
    motor.gear = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
