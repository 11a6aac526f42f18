"""Trained libraries that come with the package."""

from __future__ import annotations

from pathlib import Path

from svsl.errors import SvslError
from svsl.model.library import SkillLibrary

FOLDER = Path(__file__).parent / "shipped_libraries"


def pretrained_names() -> list[str]:
    """The tasks a trained library is shipped for."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def load_pretrained(name: str) -> SkillLibrary:
    """The shipped library for the task called `name`; needs NumPy and safetensors only.

    Raises:
        SvslError: If none is shipped for it.
    """
    if name not in pretrained_names():
        raise SvslError(f"no library is shipped for {name!r}; shipped: {', '.join(pretrained_names()) or 'none'}")
    return SkillLibrary.load(FOLDER / f"{name}.safetensors")
