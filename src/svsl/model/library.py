"""The skill library, which returns skills for a context. Requires only NumPy and safetensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from svsl.errors import SvslError
from svsl.model.files import read_safetensors, write_safetensors
from svsl.model.gaussians import Array, BoolArray, IntArray, LinearGaussian
from svsl.model.hub import PREFIX, download
from svsl.model.mixture import ACTIVE_PROBABILITY, Mixture, input_count, is_active, logsumexp, sample_rows

FORMAT = "svsl-skill-library"
VERSION = 1

Outside = Literal["raise", "clip", "extrapolate"]
_EDGE = 1e-9  # share of the box's width by which rounding may move a context beyond the edge


@dataclass(frozen=True)
class Skill:
    """A skill for a context; for a batch of n contexts every field has a leading axis n.

    Attributes:
        theta: `(dt,)`, parameters of the movement.
        component: Index of its component.
        log_prob: `log pi(theta|c)` under the whole library.
        gating: `pi(o|c)` of that component.

    Examples:
        >>> import svsl
        >>> best, *others = svsl.load_pretrained("beer-pong").skills([0.1, -1.8])
        >>> best.theta.shape, len(others)
        ((15,), 3)
    """

    theta: Array
    component: int | IntArray
    log_prob: Array
    gating: Array


@dataclass(frozen=True)
class Component:
    """One component: its weight, its context distribution and its expert.

    Attributes:
        weight: `pi(o)`.
        log_weight: `log pi(o)`; with a learned gating weights may be too small for a number.
        context_mean: `(dc,)`, mean of `pi(c|o)`. With a learned gating weights, means and covariances say something
            only together: how the gating divides the contexts.
        context_cov: `(dc, dc)`.
        gain: `(dt, dc)`; the mean parameters are `gain c + bias`. With quadratic experts `(dt, dc (dc + 3) / 2)`, and
            `c` is followed by its products `c_i c_j` with `i <= j`.
        bias: `(dt,)`.
        cov: `(dt, dt)`, covariance of the parameters.

    Examples:
        >>> import svsl
        >>> component = svsl.load_pretrained("beer-pong").components[0]
        >>> component.context_mean.shape, component.gain.shape
        ((2,), (15, 2))
        >>> theta = component.gain @ [0.1, -1.8] + component.bias  # the mean parameters for a cup there
    """

    weight: float
    log_weight: float
    context_mean: Array
    context_cov: Array
    gain: Array
    bias: Array
    cov: Array


@dataclass(frozen=True, repr=False)
class SkillLibrary:
    """A mixture of components over a context box.

    Every query takes one context `(dc,)` or a batch `(n, dc)` and returns results in the same form. A context outside
    the box is refused, because nothing was tried there; `contains` says beforehand which are inside. For those who mean
    it, `outside="clip"` answers for the nearest context of the box, `outside="extrapolate"` for the context as it is.

    Attributes:
        mixture: The components.
        context_low: `(dc,)`, lower corner of the context box the library was trained for.
        context_high: `(dc,)`, upper corner.
        metadata: Task, seed and other facts about the training, as strings.

    Examples:
        >>> import numpy as np
        >>> import svsl
        >>> library = svsl.load_pretrained("planar-reacher")
        >>> goal = [6.0, 1.5]
        >>> len(library.skills(goal)) > 1  # several ways to reach it
        True
        >>> library.sample(goal, np.random.default_rng(0)).theta.shape
        (10,)
        >>> library.contains([20.0, 0.0])
        False
        >>> library.save("library.safetensors")
        >>> svsl.SkillLibrary.load("library.safetensors")
        SkillLibrary(planar-reacher: 80 components, 2 context dimensions, 10 parameters)
    """

    mixture: Mixture
    context_low: Array
    context_high: Array
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.mixture)

    def __repr__(self) -> str:
        task = f"{self.metadata['task']}: " if "task" in self.metadata else ""
        sizes = f"{len(self)} components, {self.context_dim} context dimensions, {self.parameter_dim} parameters"
        return f"SkillLibrary({task}{sizes})"

    @property
    def context_dim(self) -> int:
        """Number of context dimensions."""
        return len(self.context_low)

    @property
    def parameter_dim(self) -> int:
        """Number of parameters of a skill."""
        return int(self.mixture.experts.bias.shape[1])

    @property
    def components(self) -> tuple[Component, ...]:
        """The components as a tuple of `Component`."""
        log_weights = self.mixture.log_weights
        weights = np.exp(log_weights).tolist(), log_weights.tolist()
        return tuple(Component(*parts) for parts in zip(*weights, *self._arrays().values(), strict=True))

    def sample(self, context: ArrayLike, rng: np.random.Generator, *, outside: Outside = "raise") -> Skill:
        """Draws a component from the gating and parameters from its expert."""
        if not isinstance(rng, np.random.Generator):
            raise SvslError(f"rng: expected a NumPy generator, such as np.random.default_rng(0), got {rng!r}")
        contexts, single = self._contexts(context, outside)
        joint = self.mixture.log_context_joint(contexts)
        total = logsumexp(joint)
        gating = np.exp(joint - total[:, None])
        component = sample_rows(gating, rng)
        theta = self.mixture.sample_parameters(contexts, component, rng)
        log_prob = logsumexp(joint + self.mixture.log_likelihood(contexts, theta)) - total
        if single:
            chosen = int(component[0])
            return Skill(theta[0], chosen, log_prob[0], gating[0, chosen])
        return Skill(theta, component, log_prob, gating[np.arange(len(contexts)), component])

    def skills(
        self, context: ArrayLike, min_gating: float = ACTIVE_PROBABILITY, *, outside: Outside = "raise"
    ) -> list[Skill]:
        """Returns the skills available in one context `(dc,)`, the most probable first.

        Each is the mean of a component whose gating is at least `min_gating`. If no component reaches it, as when
        hundreds share a context, the most probable one is returned (several if they are equally probable).
        """
        contexts, single = self._contexts(context, outside)
        if not single:
            raise SvslError(f"context: expected shape ({self.context_dim},), got {contexts.shape}")
        gating = np.exp(self.mixture.log_gating(contexts)[0])
        most_probable_first = np.argsort(-gating, kind="stable")
        active = most_probable_first[is_active(gating, min_gating)[most_probable_first]]
        repeated = np.repeat(contexts, len(active), axis=0)
        thetas = self.mixture.component_means(repeated, active)
        log_probs = self.mixture.log_prob(repeated, thetas)
        return [Skill(*fields) for fields in zip(thetas, active.tolist(), log_probs, gating[active], strict=True)]

    def table(self) -> tuple[list[str], Array]:
        """Returns all components as a table: column names and one row of numbers per component.

        Columns: `component`, `weight`, `log_weight`, `context_mean_I`, `context_cov_I_J`, `gain_P_I`, `bias_P`,
        `cov_P_Q`; I and J are indices of context dimensions, P and Q of parameters, from 0. The mean parameters are
        `gain c + bias`. With quadratic experts `gain_P_I_J` are the factors of the products of context dimensions I and
        J.
        """
        count = len(self)
        log_weights = self.mixture.log_weights
        columns = {"component": np.arange(count, dtype=np.float64), "weight": np.exp(log_weights)}
        columns |= {"log_weight": log_weights, **self._arrays()}
        names = ["_".join([name, *map(str, at)]) for name, a in columns.items() for at in np.ndindex(a.shape[1:])]
        if self.mixture.expert_degree == 2:
            dims = range(self.context_dim)
            inputs = [*map(str, dims), *(f"{i}_{j}" for i in dims for j in dims if i <= j)]
            gains = [f"gain_{parameter}_{name}" for parameter in range(self.parameter_dim) for name in inputs]
            first = names.index("gain_0_0")
            names[first : first + len(gains)] = gains
        return names, np.concatenate([array.reshape(count, -1) for array in columns.values()], axis=1)

    def gating(self, context: ArrayLike, *, outside: Outside = "raise") -> Array:
        """`pi(o|c)`, `(K,)` or `(n, K)`."""
        contexts, single = self._contexts(context, outside)
        gating = np.exp(self.mixture.log_gating(contexts))
        return gating[0] if single else gating

    def responsibilities(self, context: ArrayLike, theta: ArrayLike, *, outside: Outside = "raise") -> Array:
        """`pi(o|c,theta)`, `(K,)` or `(n, K)`."""
        contexts, parameters, single = self._pairs(context, theta, outside)
        responsibilities = np.exp(self.mixture.log_responsibilities(contexts, parameters))
        return responsibilities[0] if single else responsibilities

    def log_prob(self, context: ArrayLike, theta: ArrayLike, *, outside: Outside = "raise") -> Array:
        """`log pi(theta|c)`, a scalar or `(n,)`."""
        contexts, parameters, single = self._pairs(context, theta, outside)
        log_prob = self.mixture.log_prob(contexts, parameters)
        return log_prob[0] if single else log_prob

    def mean(self, context: ArrayLike, component: ArrayLike, *, outside: Outside = "raise") -> Array:
        """Mean parameters of one component, or of one per context: `(dt,)` or `(n, dt)`."""
        contexts, single = self._contexts(context, outside)
        index = np.asarray(component)
        if index.dtype.kind not in "iu" or (index < 0).any() or (index >= len(self)).any():
            raise SvslError(f"component: expected whole numbers from 0 to {len(self) - 1}, got {component!r}")
        if index.ndim and index.shape != (len(contexts),):
            raise SvslError(f"component: expected one number or {len(contexts)}, got shape {index.shape}")
        means = self.mixture.component_means(contexts, np.broadcast_to(index, len(contexts)))
        return means[0] if single else means

    def save(self, path: str | Path) -> None:
        """Writes the library to one safetensors file, atomically."""
        arrays = {"log_weights": self.mixture.log_weights, **self._arrays()}
        arrays |= {"context_low": self.context_low, "context_high": self.context_high}
        header = {"format": FORMAT, "version": VERSION, "metadata": dict(self.metadata)}
        write_safetensors(Path(path), arrays, header)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads and checks a library file, or the library in the folder of a finished run.

        Raises:
            SvslError: If the file is missing or corrupt, has another format or version, or is not a valid mixture.
        """
        if Path(path).is_dir():
            path = Path(path) / "library.safetensors"
        arrays, header = read_safetensors(Path(path), "skill library")
        if header.get("format") != FORMAT:
            raise SvslError(f"{path}: a safetensors file, but not a skill library")
        if header.get("version") != VERSION:
            raise SvslError(
                f"{path}: library version {header.get('version')}, this svsl reads version {VERSION}; "
                "load it with the version of svsl that wrote it, or train it again"
            )
        metadata = header.get("metadata", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise SvslError(f"{path}: not a readable skill library (its metadata are not texts by name)")
        try:
            return cls(*_checked(arrays), metadata=metadata)
        except SvslError as error:
            raise SvslError(f"{path}: {error}") from None

    @classmethod
    def from_pretrained(cls, name: str, revision: str | None = None) -> Self:
        """Loads the library of a repository `user/name` on the Hugging Face Hub; needs the extra `hub`.

        It is data only: nothing in the repository is run. Downloads are cached, so a library that was loaded once can
        also be loaded without network access. `load_pretrained` loads those that come with svsl.

        Args:
            name: The repository.
            revision: A branch, tag or commit (default: the newest).

        Raises:
            SvslError: If there is no such repository or revision, it holds no library, or the Hub cannot be reached.
        """
        path = download(name, revision)
        try:
            return cls.load(path)
        except SvslError as error:
            raise SvslError(str(error).replace(str(path), f"{PREFIX}{name}/{path.name}")) from None

    def contains(self, context: ArrayLike) -> bool | BoolArray:
        """Whether contexts are in the box that the library was trained for, up to rounding: a bool, or `(n,)`."""
        contexts, single = self._rows("context", context, self.context_dim)
        low, high = self._edges
        inside = np.asarray(((contexts >= low) & (contexts <= high)).all(axis=1))
        return bool(inside[0]) if single else inside

    def _arrays(self) -> dict[str, Array]:
        """Returns the parameters of all components, in the order of the fields of `Component`."""
        contexts, experts = self.mixture.contexts, self.mixture.experts
        arrays = {"context_mean": contexts.bias, "context_cov": contexts.cov}
        return arrays | {"gain": experts.gain, "bias": experts.bias, "cov": experts.cov}

    @cached_property
    def _edges(self) -> tuple[Array, Array]:
        """The corners of the box with a tolerance for rounding."""
        margin = _EDGE * (self.context_high - self.context_low)
        return self.context_low - margin, self.context_high + margin

    def _contexts(self, context: ArrayLike, outside: Outside) -> tuple[Array, bool]:
        """Returns contexts as rows, and whether a single one was given."""
        rows, single = self._rows("context", context, self.context_dim)
        low, high = self._edges
        if outside == "raise":
            if (rows < low).any() or (rows > high).any():
                row = rows[((rows < low) | (rows > high)).any(axis=1)][0]
                box = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(self.context_low, self.context_high, strict=True))
                raise SvslError(
                    f"context: {row.tolist()} is outside the box the library was trained for, {box}; check it with "
                    'contains, or choose outside="clip" or outside="extrapolate"'
                )
        elif outside == "clip":
            rows = np.clip(rows, self.context_low, self.context_high)
        elif outside != "extrapolate":
            raise SvslError(f'outside: expected "raise", "clip" or "extrapolate", got {outside!r}')
        return rows, single

    def _rows(self, name: str, values: ArrayLike, dim: int) -> tuple[Array, bool]:
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise SvslError(f"{name}: expected {dim} numbers, got {values!r}") from None
        if array.ndim not in (1, 2) or array.shape[-1] != dim:
            raise SvslError(f"{name}: expected shape ({dim},) or (n, {dim}), got {array.shape}")
        if not np.isfinite(array).all():
            raise SvslError(f"{name}: expected finite numbers, got NaN or infinity")
        return np.atleast_2d(array), array.ndim == 1

    def _pairs(self, context: ArrayLike, theta: ArrayLike, outside: Outside) -> tuple[Array, Array, bool]:
        contexts, one_context = self._contexts(context, outside)
        parameters, one_theta = self._rows("theta", theta, self.parameter_dim)
        rows = max(len(contexts), len(parameters))
        if len(contexts) not in (1, rows) or len(parameters) not in (1, rows):
            raise SvslError(
                f"context and theta: got {len(contexts)} and {len(parameters)} rows; expected the same number, or one"
            )
        contexts = np.broadcast_to(contexts, (rows, self.context_dim))
        return contexts, np.broadcast_to(parameters, (rows, self.parameter_dim)), one_context and one_theta


def recorded_count(metadata: Mapping[str, str], name: str) -> int:
    """Returns a whole number that a library's metadata record; 0 if they do not."""
    text = metadata.get(name, "0")
    if not (text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise SvslError(f"{name} in the library's metadata: expected a number of at least 0, got {text[:50]!r}")
    return int(text)


_LARGEST, _SMALLEST_STD = 1e100, 1e-50  # of the numbers in a file: squares of more would overflow
_MOST_DIGITS = 1000
_SHAPES = {  # K components, C context dimensions, I inputs of the experts, T parameters
    "log_weights": "K", "context_mean": "KC", "context_cov": "KCC", "gain": "KTI", "bias": "KT", "cov": "KTT",
    "context_low": "C", "context_high": "C",
}  # fmt: skip


def _checked(arrays: Mapping[str, NDArray[np.generic]]) -> tuple[Mixture, Array, Array]:
    """Builds the mixture and the context box from the arrays of a file, if all are valid."""
    missing = [name for name in _SHAPES if name not in arrays]
    if missing:
        raise SvslError(f"array {missing[0]!r} is missing")
    components = arrays["log_weights"].size
    sizes = {"K": components, "C": arrays["context_low"].size, "T": arrays["bias"].size // max(components, 1)}
    quadratic = input_count(sizes["C"], 2)
    sizes["I"] = quadratic if arrays["gain"].shape[-1:] == (quadratic,) else sizes["C"]
    for name, shape in _SHAPES.items():
        expected = tuple(sizes[letter] for letter in shape)
        array = arrays[name]
        if array.dtype != np.float64 or array.shape != expected or 0 in expected:
            raise SvslError(f"array {name!r}: expected float64 {expected}, got {array.dtype} {array.shape}")
        if not np.isfinite(np.asarray(array, dtype=np.float64)).all() and name != "log_weights":
            raise SvslError(f"array {name!r}: expected finite numbers, got NaN or infinity")
        if name != "log_weights" and np.abs(array).max() > _LARGEST:
            raise SvslError(f"array {name!r}: expected numbers of at most {_LARGEST:g} in magnitude")
    a = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    if not abs(np.exp(a["log_weights"]).sum() - 1) < 1e-6:
        raise SvslError("the component weights do not sum to 1")
    if not (a["context_low"] < a["context_high"]).all():
        raise SvslError("the context box is empty: context_low must be below context_high")
    chols = []
    for name in ("context_cov", "cov"):
        if not np.allclose(a[name], a[name].transpose(0, 2, 1), rtol=1e-9, atol=0):
            raise SvslError(f"array {name!r}: a covariance is not symmetric")
        try:
            chols.append(np.linalg.cholesky(a[name]))
        except np.linalg.LinAlgError:
            raise SvslError(f"array {name!r}: a covariance is not positive definite") from None
        if (np.diagonal(chols[-1], axis1=1, axis2=2) < _SMALLEST_STD).any():
            raise SvslError(f"array {name!r}: a standard deviation is below {_SMALLEST_STD:g}")
    mixture = Mixture(
        a["log_weights"],
        LinearGaussian.unconditional(a["context_mean"], chols[0]),
        LinearGaussian.build(a["gain"], a["bias"], chols[1]),
    )
    return mixture, a["context_low"], a["context_high"]
