"""A learner whose episodes the caller runs: ask for episodes, run them anywhere, tell their returns."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from svsl.errors import SvslError
from svsl.learners.base import Episodes, Learner, Progress, SearchSpace
from svsl.model.gaussians import Array
from svsl.model.library import SkillLibrary


class AskTell:
    """A learner that checks what it is told; `svsl.make_learner` creates one.

    `ask` and `tell` alternate until `done`.

    Attributes:
        episodes: Episodes told so far.

    Examples:
        >>> import svsl
        >>> learner = svsl.make_learner("planar-reacher", components=1, iterations=2)
        >>> episodes = learner.ask()
        >>> episodes.contexts.shape, episodes.parameters.shape
        ((136, 2), (136, 10))
        >>> learner.tell([-1.0] * 136)
        >>> learner.episodes, learner.done
        (136, False)
    """

    def __init__(self, learner: Learner, space: SearchSpace, metadata: Mapping[str, str]) -> None:
        self.episodes = 0
        self._learner, self._space, self._metadata = learner, space, metadata
        self._asked: Episodes | None = None

    @property
    def done(self) -> bool:
        """Whether learning is over."""
        return self._learner.done and self._asked is None

    @property
    def progress(self) -> Progress:
        """Progress of learning."""
        return self._learner.progress

    def ask(self) -> Episodes:
        """Returns the next episodes to run: `contexts (n, dc)` and `parameters (n, dt)`.

        Raises:
            SvslError: If learning is over, or the returns of the episodes before are not told yet.
        """
        if self.done:
            raise SvslError("ask: learning is over; library() returns the result")
        if self._asked is not None:
            raise SvslError(f"ask: first tell the returns of the {len(self._asked.contexts)} episodes asked for before")
        self._asked = self._learner.ask()
        return self._asked

    def tell(self, returns: ArrayLike, behaviours: ArrayLike | None = None) -> None:
        """Learns from the returns `(n,)` of the episodes asked for last.

        `behaviours (n, d)` say what the episodes do, for a learner with `distinguish_by="behaviour"`.

        Raises:
            SvslError: If nothing was asked for, or these are not n finite numbers.
        """
        if self._asked is None:
            raise SvslError("tell: there are no episodes to tell returns of; ask first")
        count = len(self._asked.contexts)
        told = _numbers("returns", returns)
        if told.shape != (count,):
            raise SvslError(f"returns: expected shape ({count},), one number per episode, got {told.shape}")
        if bad := int((~np.isfinite(told)).sum()):
            raise SvslError(
                f"returns: {bad} of {count} are NaN or infinite; replace them by a finite return that is clearly bad"
            )
        described = None if behaviours is None else _numbers("behaviours", behaviours)
        if described is not None and (described.ndim != 2 or len(described) != count):
            raise SvslError(f"behaviours: expected shape ({count}, d), got {described.shape}")
        self._asked = None
        if not self._learner.done:  # else there was nothing left to run
            self._learner.tell(told, described)
        self.episodes += count

    def library(self) -> SkillLibrary | None:
        """Returns the components learned so far as a library; None before the first is finished."""
        mixture = self._learner.mixture()
        if mixture is None:
            return None
        metadata = {**self._metadata, "episodes": str(self.episodes), "episodes_simulated": str(self.episodes)}
        return SkillLibrary(mixture, self._space.context_low, self._space.context_high, metadata)


def _numbers(name: str, values: ArrayLike) -> Array:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise SvslError(f"{name}: expected numbers, got {values!r}") from None
