"""Tables and figures of the pages, made from the data."""

import hashlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from results_data import UNKNOWN, Data, data_of
from svsl.errors import SvslError
from svsl.experiments.behaviour import all_numbers
from svsl.experiments.catalogue import plan
from svsl.experiments.report import FIGURES
from svsl.model.files import write_bytes
from svsl.runs.comparison import Group, format_summary, run_numbers, summarise, summary_table
from svsl.runs.config import RunConfig

FROM_NUMBERS = ("learning", "entropy", "front")  # figures that need no library
SENTENCE = "Mean over seeds ± 95 % interval by Student's t; a single seed has no interval."
_BLOCK = re.compile(r"^<!-- results: ([^\n]+) -->\n(.*?)^<!-- end of results -->$", re.MULTILINE | re.DOTALL)
_START, _END = re.compile(r"^<!-- results:", re.MULTILINE), "<!-- end of results -->"


@dataclass(frozen=True)
class Block:
    """A block of a page, made from the data of an experiment."""

    words: tuple[str, ...]  # kind, experiment, and what of it
    data: Data

    @property
    def text(self) -> str:
        """What stands between its two comments."""
        kind, _, *rest = self.words
        content = table(self.data, rest) if kind == "table" else self._link()
        return f"\n{content}\n\n"

    @property
    def figure(self) -> str | None:
        """The figure it shows; None for a table."""
        return self.words[2] if self.words[0] == "figure" else None

    def path(self, docs: Path) -> Path:
        """Returns the file of its figure."""
        return docs / "figures" / f"results-{self.data.name}-{self.figure}.png"

    @property
    def digest(self) -> str:
        """Hash of the numbers it shows."""
        total = hashlib.sha256(" ".join(self.words).encode())
        for run in (run for group in self.data.groups for run in group.runs):
            total.update(run.folder.name.encode())
            for path in sorted(run.folder.iterdir()):
                total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()

    def draw(self, path: Path) -> None:
        """Draws its figure; the file holds the digest."""
        assert self.figure is not None
        FIGURES[self.figure][0](self.data, path)
        content, buffer = PngInfo(), io.BytesIO()
        content.add_text("data", self.digest)
        with Image.open(path) as picture:
            picture.save(buffer, format="png", pnginfo=content)
        write_bytes(path, buffer.getvalue())

    def _link(self) -> str:
        assert self.figure is not None
        return f"![{FIGURES[self.figure][1]}](figures/{self.path(Path()).name})"


def table(data: Data, metrics: Sequence[str]) -> str:
    """Returns the results of all arms as Markdown, one row per arm, and what the numbers are."""
    groups, planned = data.groups, plan(data.experiment, 1, 1.0)
    summaries = summary_table(groups, metrics, numbers_of=all_numbers)
    configs = {arm.label: own for arm, (own, *_) in planned.items()}
    lines = [f"| | seeds | components | {' | '.join(metrics)} | svsl |", "|---" * (len(metrics) + 4) + "|"]
    for group in groups:
        unfinished = sum(not run.finished for run in group.runs)
        seeds = f"{len(group.runs)}" + (f" ({unfinished} unfinished)" if unfinished else "")
        components = summarise([run_numbers(run).get("components") for run in group.runs])
        cells = [components, *(summaries[group.label][metric] for metric in metrics)]
        numbers = [format_summary(summary)[0].removesuffix(" ± n/a") for summary in cells]
        lines.append("| " + " | ".join([group.label, seeds, *numbers, _origin(group, configs[group.label])]) + " |")
    return "\n".join([*lines, "", SENTENCE])


def _origin(group: Group, config: RunConfig) -> str:
    """Returns the versions that trained the runs of an arm, and whether its settings have changed since."""
    records = [run.record for run in group.runs if run.record is not None]
    made = [f"{record.svsl} ({'commit ' * (record.commit == UNKNOWN)}{record.commit})" for record in records]
    changed = any(run.config.differences(replace(config, seed=run.config.seed)) for run in group.runs)
    return ", ".join([*dict.fromkeys(made), *(["settings changed since"] if changed else [])])


def read_block(words: Sequence[str], docs: Path, page: str) -> Block:
    """Returns the block with these words, or explains what is wrong with them."""
    forms = f"expected table EXPERIMENT METRIC ... or figure EXPERIMENT {{{','.join(FROM_NUMBERS)}}}"
    kind, name, *rest = [*words, "", ""]
    figure = kind == "figure" and len(words) == 3 and rest[0] in FROM_NUMBERS
    if not figure and not (kind == "table" and len(words) > 2):
        raise SvslError(f"{page}: results: {' '.join(words)}: {forms}")
    block = Block(tuple(words), data_of(name, docs))
    if not block.data.groups:
        raise SvslError(f"{page}: results: {' '.join(words)}: no data of {name}; tools/results.py collect adds them")
    return block


def replace_blocks(page: Path, replacement: Callable[[Block, str], str]) -> str:
    """Returns the text of a page, with the text of each block replaced by `replacement(block, text)`."""
    text, docs = page.read_text(), page.parent

    def new(found: re.Match[str]) -> str:
        block = read_block(found[1].split(), docs, page.name)
        return f"<!-- results: {found[1]} -->\n{replacement(block, found[2])}{_END}"

    if any(_START.search(found[2]) for found in _BLOCK.finditer(text)) or len(_START.findall(text)) != text.count(_END):
        raise SvslError(f"{page.name}: every results block must end with {_END}")
    return _BLOCK.sub(new, text)


def make(docs: Path) -> list[Path]:
    """Remakes the tables and figures of all pages; returns the files that have changed."""
    changed: dict[Path, None] = {}

    def remade(block: Block, _: str) -> str:
        if block.figure is not None:
            path = block.path(docs)
            old = path.read_bytes() if path.exists() else b""
            block.draw(path)
            if path.read_bytes() != old:
                changed[path] = None
        return block.text

    for page in sorted(docs.glob("*.md")):
        text = replace_blocks(page, remade)
        if text != page.read_text():
            write_bytes(page, text.encode())
            changed[page] = None
    return list(changed)


def disagreements(docs: Path) -> list[str]:
    """Returns what of the pages is not what the data say; a figure is compared by the digest of its data."""
    found: list[str] = []
    for page in sorted(docs.glob("*.md")):

        def check(block: Block, text: str, name: str = page.name) -> str:
            if text != block.text:
                found.append(f"{name}: {' '.join(block.words)}: the page is not what the data say")
            if block.figure is not None and _digest_in(block.path(docs)) != block.digest:
                found.append(f"{name}: {' '.join(block.words)}: {block.path(docs).name} is of other data")
            return text

        replace_blocks(page, check)
    return found


def _digest_in(path: Path) -> object:
    if not path.exists():
        return None
    with Image.open(path) as picture:
        return picture.info.get("data")
