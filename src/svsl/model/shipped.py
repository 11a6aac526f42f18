"""Trained libraries that come with the package."""

from pathlib import Path

from svsl.errors import SvslError
from svsl.model.library import SkillLibrary

FOLDER = Path(__file__).parent / "shipped_libraries"


def pretrained_names() -> list[str]:
    """Returns the names of the tasks for which a trained library is shipped."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def load_pretrained(name: str) -> SkillLibrary:
    """Loads the library shipped for the task `name`; requires only NumPy and safetensors.

    Raises:
        SvslError: If no library is shipped for this task.

    Examples:
        >>> import svsl
        >>> svsl.load_pretrained("table-tennis").context_dim
        4
    """
    if name not in pretrained_names():
        raise SvslError(f"no library is shipped for {name!r}; shipped: {', '.join(pretrained_names()) or 'none'}")
    return SkillLibrary.load(FOLDER / f"{name}.safetensors")
