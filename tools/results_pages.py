"""Tables, figures and numbers of the pages, made from the data."""

import hashlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from results_data import Data, data_of
from results_tables import TABLES, number, shipped, shipped_number
from svsl.errors import SvslError
from svsl.experiments.report import FIGURES
from svsl.model.files import write_bytes

FROM_NUMBERS = ("learning", "entropy", "front", "success")  # figures that need no library
_BLOCK = re.compile(r"^<!-- results: ([^\n]+) -->\n(.*?)^<!-- end of results -->$", re.MULTILINE | re.DOTALL)
_START, _END = re.compile(r"^<!-- results:", re.MULTILINE), "<!-- end of results -->"
_NUMBER = re.compile(r"<!-- number: ([^\n]+?) -->(.*?)<!-- / -->")
_PUBLISHED = "Our results over episodes, and published ones of other methods (dashed)."
_FORMS = (
    "expected table EXPERIMENT METRIC ..., seeds EXPERIMENT ARM METRIC ..., modes EXPERIMENT, published EXPERIMENT, "
    "shipped METRIC ..., "
    f"or figure EXPERIMENT {{{','.join(FROM_NUMBERS)},published}}"
)


@dataclass(frozen=True)
class Block:
    """A block of a page, made from the data of an experiment or from the shipped libraries."""

    words: tuple[str, ...]  # kind, experiment, and what of it
    data: Data | None  # None for the shipped libraries

    @property
    def text(self) -> str:
        """What stands between its two comments."""
        kind, name, *rest = self.words
        if self.data is None:
            return f"\n{shipped(self.words[1:])}\n\n"
        if not self.data.groups:
            return f"\n*Not run yet: `svsl reproduce {name}`.*\n\n"
        content = self._link() if self.figure else TABLES[kind](self.data, rest)
        return f"\n{content}\n\n"

    @property
    def figure(self) -> str | None:
        """The figure it shows; None for a table."""
        return self.words[2] if self.words[0] == "figure" else None

    def path(self, docs: Path) -> Path | None:
        """Returns the file of its figure; None for a table, or without data."""
        if self.data is None or self.figure is None or not self.data.groups:
            return None
        return docs / "figures" / f"results-{self.data.name}-{self.figure}.png"

    @property
    def digest(self) -> str:
        """Hash of the numbers it shows."""
        assert self.data is not None
        total = hashlib.sha256(" ".join(self.words).encode())
        if self.figure == "published":
            total.update(self.data.published_path.read_bytes())
        for run in (run for group in self.data.groups for run in group.runs):
            total.update(run.folder.name.encode())
            for path in sorted(run.folder.iterdir()):
                total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()

    def draw(self, path: Path) -> None:
        """Draws its figure; the file holds the digest."""
        assert self.data is not None
        assert self.figure is not None
        if self.data.published is not None and self.figure == "published":
            self.data.published.draw(self.data.groups, path)
        else:
            FIGURES[self.figure][0](self.data, path)
        content, buffer = PngInfo(), io.BytesIO()
        content.add_text("data", self.digest)
        with Image.open(path) as picture:
            picture.save(buffer, format="png", pnginfo=content)
        write_bytes(path, buffer.getvalue())

    def _link(self) -> str:
        path = self.path(Path())
        assert self.data is not None
        assert self.figure is not None
        assert path is not None
        caption = _PUBLISHED if self.figure == "published" else FIGURES[self.figure][1]
        return f"![{caption}](figures/{path.name})"


def read_block(words: Sequence[str], docs: Path, page: str) -> Block:
    """Returns the block with these words, or explains what is wrong with them."""
    kind, name, *rest = [*words, "", ""]
    if kind == "shipped" and len(words) > 1:
        return Block(tuple(words), None)
    least = {"table": 3, "seeds": 4, "modes": 2, "published": 2, "figure": 3}.get(kind, len(words) + 1)
    data = data_of(name, docs) if len(words) >= least else None
    figures = (*FROM_NUMBERS, *(["published"] if data and data.published else []))
    missing = kind == "published" and data is not None and data.published is None
    if data is None or missing or (kind == "figure" and rest[0] not in figures):
        raise SvslError(f"{page}: results: {' '.join(words)}: {_FORMS}")
    return Block(tuple(words), data)


def replace_blocks(page: Path, docs: Path, replacement: Callable[[Block, str], str]) -> str:
    """Returns the text of a page, with the text of each block replaced by `replacement(block, text)`."""
    text = page.read_text()

    def new(found: re.Match[str]) -> str:
        block = read_block(found[1].split(), docs, page.name)
        return f"<!-- results: {found[1]} -->\n{replacement(block, found[2])}{_END}"

    if any(_START.search(found[2]) for found in _BLOCK.finditer(text)) or len(_START.findall(text)) != text.count(_END):
        raise SvslError(f"{page.name}: every results block must end with {_END}")
    return _BLOCK.sub(new, text)


def replace_numbers(page: str, text: str, docs: Path) -> str:
    """Returns a text with the numbers between its comments as the data have them."""

    def new(found: re.Match[str]) -> str:
        words = found[1].split()
        if len(words) != 3:
            raise SvslError(f"{page}: number: {found[1]}: expected EXPERIMENT ARM METRIC or shipped TASK METRIC")
        name, *rest = words
        value = shipped_number(*rest) if name == "shipped" else number(data_of(name, docs), *rest)
        return f"<!-- number: {found[1]} -->{value}<!-- / -->"

    return _NUMBER.sub(new, text)


def pages(docs: Path) -> list[Path]:
    """Returns the pages: those of the folder, and the README beside it."""
    return sorted([*docs.glob("*.md"), *docs.parent.glob("README.md")])


def make(docs: Path) -> list[Path]:
    """Remakes the tables, figures and numbers of all pages; returns the files that have changed."""
    changed: dict[Path, None] = {}

    def remade(block: Block, _: str) -> str:
        path = block.path(docs)
        if path is not None:
            old = path.read_bytes() if path.exists() else b""
            block.draw(path)
            if path.read_bytes() != old:
                changed[path] = None
        return block.text

    for page in pages(docs):
        text = replace_numbers(page.name, replace_blocks(page, docs, remade), docs)
        if text != page.read_text():
            write_bytes(page, text.encode())
            changed[page] = None
    return list(changed)


def disagreements(docs: Path) -> list[str]:
    """Returns what of the pages is not what the data say; a figure is compared by the digest of its data."""
    found: list[str] = []
    for page in pages(docs):

        def check(block: Block, text: str, name: str = page.name) -> str:
            if text != block.text:
                found.append(f"{name}: {' '.join(block.words)}: the page is not what the data say")
            path = block.path(docs)
            if path is not None and _digest_in(path) != block.digest:
                found.append(f"{name}: {' '.join(block.words)}: {path.name} is of other data")
            return text

        text = replace_blocks(page, docs, check)
        remade = replace_numbers(page.name, text, docs)
        for old, new in zip(_NUMBER.finditer(text), _NUMBER.finditer(remade), strict=True):
            if old[2] != new[2]:
                found.append(f"{page.name}: {old[1]}: {old[2]} on the page, {new[2]} in the data")
    return found


def _digest_in(path: Path) -> object:
    if not path.exists():
        return None
    with Image.open(path) as picture:
        return picture.info.get("data")
