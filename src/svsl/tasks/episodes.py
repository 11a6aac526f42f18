"""Episodes in a Gymnasium environment, in one process: creating it, setting its context, reading what it returns."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import ArrayLike, NDArray

from svsl.errors import SvslError
from svsl.model.gaussians import Array
from svsl.tasks.base import vector_of

Environment = str | Callable[..., gymnasium.Env[Any, Any]]
EnvOptions = dict[str, bool | int | float | str]
ContextSetter = str | Callable[[Any, Array], ArrayLike | Mapping[str, ArrayLike] | None]
Episode = tuple[Array, Array | None, int]  # context, parameters (None for a picture of the start), seed
Corner = Sequence[float] | None  # of the context box; None: that of the observation space
Info = dict[str, Any]
EpisodeResult = tuple[float, bool | None, Info]  # return, success if the environment reports it, diagnostics

GOAL = "desired_goal"  # Gymnasium's name for the goal in the observations of goal-conditioned environments
_RESETS = 50  # for an estimate of the context box
_MAX_PICTURE_HEIGHT = 360


@dataclass(frozen=True)
class EnvironmentSpec:
    """How to create an environment and set its context (see `GymnasiumTask`); sent to worker processes."""

    env: Environment
    options: Mapping[str, object] = field(default_factory=dict)
    context_setter: ContextSetter | None = None
    context_indices: tuple[int, ...] | None = None  # None: the context is the whole observation

    @property
    def name(self) -> str:
        """A name of the environment for error messages."""
        return f"environment {self.env if isinstance(self.env, str) else getattr(self.env, '__name__', self.env)!r}"

    def make(self) -> gymnasium.Env[Any, Any]:
        """Creates the environment."""
        if not isinstance(self.env, str):
            return self.env(**self.options)
        try:
            return gymnasium.make(self.env, disable_env_checker=True, **self.options)  # type: ignore[arg-type]
        except ModuleNotFoundError as error:
            hint = "in gym:module:ENV_ID, module must be in the current directory or on the Python path"
            raise SvslError(f"{self.name}: {error}; {hint}") from None
        except (gymnasium.error.Error, TypeError) as error:
            raise SvslError(f"{self.name}: {error}") from None

    def for_space(self, space: gymnasium.Space[Any]) -> "EnvironmentSpec":
        """Returns the specification with the desired goal as context, if there is one and no indices are given."""
        if self.context_indices is not None or not has_goal(space):
            return self
        sizes = {name: int(np.prod(part.shape or ())) for name, part in space.spaces.items()}  # type: ignore[attr-defined]
        start = sum(size for name, size in sizes.items() if name < GOAL)
        return replace(self, context_indices=tuple(range(start, start + sizes[GOAL])))

    def context_of(self, vector: Array) -> Array:
        """Returns the context part of a flat observation, or of a bound of the observation space."""
        return vector if self.context_indices is None else vector[list(self.context_indices)]

    def not_shown(self, env: gymnasium.Env[Any, Any]) -> str | None:
        """Says why the environment gives no pictures; None if it does."""
        modes = env.metadata.get("render_modes") or []
        if "rgb_array" not in modes:
            return f"{self.name} gives no pictures: expected the render mode rgb_array, got {list(modes)}"
        if isinstance(self.env, str):
            return None
        accepted = inspect.signature(self.env).parameters
        if "render_mode" in accepted or any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
            return None
        return f"{self.name} gives no pictures: the function that creates it does not accept render_mode"


class EpisodeRunner:
    """Runs episodes in one process; what an episode is, subclasses define in `run`."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec, self.env = spec, spec.make()

    def __call__(self, episode: Episode) -> EpisodeResult:
        """Runs one episode."""
        context, parameters, seed = episode
        assert parameters is not None
        return self.run(self.start(context, seed), parameters)

    def run(self, observation: Array, parameters: Array) -> EpisodeResult:
        """Runs the skill with these parameters in the environment, which has just been reset to a context."""
        raise NotImplementedError

    def start(self, context: Array, seed: int) -> Array:
        """Resets the environment to a context and returns the first observation, flat."""
        setter = self.spec.context_setter
        options = {"context": context.copy()} if setter is None else None
        observation = flat_observation(self.env.reset(seed=seed, options=options)[0])
        source = "reset(options={'context': c})"
        if setter is None and self._has_goal(context) and not self._shows(context, observation):
            setter, source = set_goal, "its attribute `goal`"
        elif setter is not None:
            source = f"its setter {setter!r}"
        if setter is not None:
            method = self._method(setter) if isinstance(setter, str) else functools.partial(setter, self.env.unwrapped)
            new_observation = method(context.copy())
            if new_observation is None:  # cannot be checked
                return observation
            observation = flat_observation(new_observation)
        if not self._shows(context, observation):
            observed = self.spec.context_of(observation)
            raise SvslError(
                f"{self.spec.name} ignores the context given by {source}: expected {np.round(context, 4).tolist()} in "
                f"its observation, got {np.round(observed, 4).tolist()}. svsl chooses the contexts: make reset use "
                "options['context'], or give a context_setter"
            )
        return observation

    def _has_goal(self, context: Array) -> bool:
        """Whether the environment keeps its desired goal in an attribute, as those of gymnasium-robotics do."""
        goal = getattr(self.env.unwrapped, "goal", None)
        return has_goal(self.env.observation_space) and goal is not None and np.size(goal) == len(context)

    def _shows(self, context: Array, observation: Array) -> bool:
        """Whether an observation contains the context; observations are often single precision."""
        observed = self.spec.context_of(observation)
        return observed.shape == context.shape and np.allclose(observed, context, rtol=1e-5, atol=1e-6)

    def _method(self, name: str) -> Callable[[Array], ArrayLike | Mapping[str, ArrayLike] | None]:
        method = getattr(self.env.unwrapped, name, None)
        if not callable(method):
            raise SvslError(f"{self.spec.name}: {type(self.env.unwrapped).__name__} has no method {name!r}")
        return method


def set_goal(env: Any, goal: Array) -> Mapping[str, ArrayLike]:
    """Sets the goal of an environment that keeps it in an attribute, and returns the new observation."""
    env.goal = goal
    observation: Mapping[str, ArrayLike] = env._get_obs()
    return observation


class Film(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Runs episodes for their pictures: one of the start, and one after every `stride` steps."""

    def __init__(
        self, make_runner: Callable[[EnvironmentSpec], EpisodeRunner], spec: EnvironmentSpec, stride: int
    ) -> None:
        self.runner = make_runner(replace(spec, options={**spec.options, "render_mode": "rgb_array"}))
        super().__init__(self.runner.env)
        self.runner.env = self
        self.stride, self.steps, self.pictures = stride, 0, list[NDArray[np.uint8]]()

    def __call__(self, episode: Episode) -> NDArray[np.uint8]:
        """Runs one episode and returns its pictures `(n, height, width, 3)`."""
        context, parameters, seed = episode
        observation = self.runner.start(context, seed)
        self.steps, self.pictures = 0, [self._picture()]
        if parameters is not None:
            self.runner.run(observation, parameters)
        return np.stack(self.pictures)

    def step(self, action: Any) -> Any:
        """Steps, and takes a picture if it is time for one."""
        result = self.env.step(action)
        self.steps += 1
        if self.steps % self.stride == 0:
            self.pictures.append(self._picture())
        return result

    def _picture(self) -> NDArray[np.uint8]:
        pixels = np.asarray(self.env.render())
        if pixels.ndim != 3 or pixels.shape[2] != 3:
            raise SvslError(
                f"{self.runner.spec.name}: expected render() to return a picture (height, width, 3), got a "
                f"{pixels.dtype} array of shape {pixels.shape}"
            )
        block = -(-pixels.shape[0] // _MAX_PICTURE_HEIGHT)  # large pictures are averaged over square blocks
        height, width = pixels.shape[0] // block, pixels.shape[1] // block
        blocks = pixels[: height * block, : width * block].reshape(height, block, width, block, 3)
        return blocks.mean(axis=(1, 3)).astype(np.uint8)


def has_goal(space: gymnasium.Space[Any]) -> bool:
    """Whether observations of this space have a desired goal."""
    return isinstance(space, Dict) and GOAL in space.spaces


def is_bounded(space: gymnasium.Space[Any]) -> bool:
    """Whether all observations of this space have finite bounds."""
    parts = space.spaces.values() if isinstance(space, Dict) else [space]
    return all(isinstance(part, Box) and part.is_bounded() for part in parts)


def flat_observation(observation: Any) -> Array:
    """Returns an observation as one vector; a dictionary's entries are joined in alphabetical order."""
    parts = [observation[name] for name in sorted(observation)] if isinstance(observation, Mapping) else [observation]
    return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])


def episode_result(total: float, info: Info) -> EpisodeResult:
    """Returns the result of an episode with the usable part of its info: numbers, `mode` and `path`."""
    success = info.get("success", info.get("is_success"))
    diagnostics: Info = {}
    for name, value in info.items():
        if name in ("success", "is_success"):
            continue
        array = np.asarray(value) if np.isscalar(value) or isinstance(value, np.ndarray) else None
        if array is not None and ((array.ndim == 0 and array.dtype.kind in "biuf") or name in ("mode", "path")):
            diagnostics[name] = array if array.ndim else array.item()
    return total, None if success is None else bool(success), diagnostics


def context_box(spec: EnvironmentSpec, env: gymnasium.Env[Any, Any], low: Corner, high: Corner) -> tuple[Array, Array]:
    """Returns the lower and upper corners of the context box: the given ones, or those of the observation space."""
    space = env.observation_space
    parts = space.spaces if isinstance(space, Dict) else {"": space}
    boxes = {name: part for name, part in parts.items() if isinstance(part, Box)}
    if len(boxes) < len(parts):
        raise SvslError(f"{spec.name}: expected a Box as observation space, or a Dict of them, got {space}")
    bounds = [flat_observation({n: getattr(box, side) for n, box in boxes.items()}) for side in ("low", "high")]
    size = len(bounds[0])
    if not all(0 <= index < size for index in spec.context_indices or ()):
        raise SvslError(f"{spec.name}: context_indices {spec.context_indices} are out of range for {size} observations")
    dim = len(spec.context_of(bounds[0]))
    corners = [
        vector_of(f"{spec.name}: {name}", spec.context_of(bound) if given is None else given, dim)
        for name, bound, given in (("context_low", bounds[0], low), ("context_high", bounds[1], high))
    ]
    # some spaces use the largest single-precision number for "no bound"
    if (np.abs(corners) < 1e30).all() and (corners[0] < corners[1]).all():
        return corners[0], corners[1]
    raise SvslError(
        f"{spec.name}: expected a finite context box with low < high, got {corners[0].tolist()} to "
        f"{corners[1].tolist()}; give context_low and context_high, {dim} numbers each{_observed_range(spec, env)}"
    )


def _observed_range(spec: EnvironmentSpec, env: gymnasium.Env[Any, Any]) -> str:
    """Says where the contexts of some resets were; nothing if the environment cannot be reset."""
    try:
        drawn = [spec.context_of(flat_observation(env.reset(seed=seed)[0])) for seed in range(_RESETS)]
    except Exception:  # user code may raise anything; the box is what is missing
        return ""
    low, high = (" ".join(f"{value:.3g}" for value in side(drawn, axis=0)) for side in (np.min, np.max))
    return f" (in {_RESETS} resets, its own contexts ranged from {low} to {high})"


def action_box(spec: EnvironmentSpec, space: gymnasium.Space[Any]) -> tuple[Array, Array]:
    """Returns the lower and upper corners of the action space, possibly infinite."""
    if not isinstance(space, Box) or np.dtype(space.dtype).kind != "f":
        raise SvslError(
            f"{spec.name}: expected an action space Box(low, high, dtype=float), because parameters are real "
            f"numbers, got {space}; convert it, for instance with a gymnasium.ActionWrapper"
        )
    return space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()


def describe_episode(episode: Episode) -> str:
    """Describes an episode for error messages."""
    context, parameters, seed = episode
    given, skill = (", ".join(f"{x:.6g}" for x in v) for v in (context, () if parameters is None else parameters))
    return f"context [{given}], parameters [{skill}], seed {seed}"
