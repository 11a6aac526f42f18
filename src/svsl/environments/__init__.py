"""Our tasks as Gymnasium environments; importing this package registers them.

import gymnasium, svsl.environments
env = gymnasium.make("svsl/BeerPong-v0")
"""

import gymnasium

SKILL_ENVIRONMENTS = {
    "svsl/PlanarReacher-v0": "planar-reacher",
    "svsl/BeerPong-v0": "beer-pong",
    "svsl/TableTennis-v0": "table-tennis",
    "svsl/Reacher5Skill-v0": "reacher5",
    "svsl/BoxPushingSkill-v0": "box-pushing",
    "svsl/HopperJumpSkill-v0": "hopper-jump",
}

for _id, _task in SKILL_ENVIRONMENTS.items():
    if _id not in gymnasium.registry:
        gymnasium.register(_id, entry_point="svsl.environments.skills:TaskEnv", kwargs={"task": _task})
if "svsl/Reacher5-v0" not in gymnasium.registry:
    gymnasium.register("svsl/Reacher5-v0", entry_point="svsl.environments.reacher5:Reacher5Env")
for _id, _task in (("svsl/BoxPushing-v0", "box-pushing"), ("svsl/HopperJump-v0", "hopper-jump")):
    if _id not in gymnasium.registry:
        gymnasium.register(_id, entry_point="svsl.environments.steps:StepEnv", kwargs={"task": _task})
