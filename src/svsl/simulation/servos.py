"""Reads MuJoCo models supplied by users and adds position servos to their joints."""

from pathlib import Path

import mujoco

from svsl.errors import SvslError

_ONE_DOF = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
_ON_JOINT = (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)


def read_model(model: str | Path | mujoco.MjSpec, folder: Path) -> mujoco.MjSpec:
    """Returns a copy of a spec, or the spec of XML text or of a file in `folder` or the current directory.

    Raises:
        SvslError: If the file does not exist or MuJoCo cannot read it.
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
    """Compiles a model.

    Raises:
        SvslError: If MuJoCo rejects the model.
    """
    try:
        return spec.compile()
    except ValueError as error:
        raise SvslError(f"MuJoCo cannot compile the model: {' '.join(str(error).split())}") from None


def add_servo(spec: mujoco.MjSpec, joint: str, kp: float, kv: float | None) -> str:
    """Ensures that a joint has a position servo and returns the name of the servo.

    An existing position actuator stays unchanged. A motor becomes a servo with the torque limits of the motor.

    Args:
        spec: Modified in place.
        joint: Name of a hinge or slide joint.
        kp: Stiffness of a new servo, in torque or force per unit of the joint.
        kv: Damping of a new servo; None for critical damping of the joint's own inertia.

    Raises:
        SvslError: If the joint does not exist, or has another kind of actuator.
    """
    spec_joint = spec.joint(joint)
    if spec_joint is None or spec_joint.type not in _ONE_DOF:
        names = ", ".join(j.name for j in spec.joints if j.name and j.type in _ONE_DOF)
        raise SvslError(f"the model has no hinge or slide joint {joint!r}; it has {names or 'none with a name'}")
    actuators = [a for a in spec.actuators if a.trntype in _ON_JOINT and a.target == joint]
    if len(actuators) > 1:
        raise SvslError(
            f"joint {joint!r} has {len(actuators)} actuators; expected none, a motor or a position actuator"
        )
    actuator = actuators[0] if actuators else spec.add_actuator(trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint)
    actuator.name = actuator.name or f"{joint}_servo"
    is_plain = actuator.gaintype == mujoco.mjtGain.mjGAIN_FIXED and actuator.dyntype == mujoco.mjtDyn.mjDYN_NONE
    if (
        is_plain
        and actuator.biastype == mujoco.mjtBias.mjBIAS_AFFINE
        and actuator.biasprm[1] == -actuator.gainprm[0] < 0
    ):
        return str(actuator.name)
    if not is_plain or actuator.biastype != mujoco.mjtBias.mjBIAS_NONE:
        raise SvslError(f"actuator {actuator.name!r} of joint {joint!r} is neither a motor nor a position actuator")
    if actuators:
        _keep_torque_limits(actuator)
    if kv is None:
        actuator.set_to_position(kp=kp, dampratio=1.0)
    else:
        actuator.set_to_position(kp=kp, kv=kv)
    return str(actuator.name)


def _keep_torque_limits(motor: mujoco.MjsActuator) -> None:
    """Converts the control limits of a motor into force limits of a servo with a gear of one."""
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
