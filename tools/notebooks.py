"""For maintainers: run the notebooks of docs/notebooks, and show them as pages of the site.

python tools/notebooks.py run                                  # runs all and stores their outputs in the files
python tools/notebooks.py run docs/notebooks/tutorial.ipynb    # runs one

Cells hold plain Python, without the extra commands of IPython, so no Jupyter is needed. `mkdocs.yml` names this file
as a hook: `on_files` turns each notebook, with the outputs stored in it, into a page. tests/project/test_notebooks.py
runs the notebooks and fails if one was edited and not run again.
"""

import ast
import base64
import hashlib
import io
import json
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
Cell = dict[str, Any]  # in Jupyter's format


@dataclass
class Notebook:
    """The cells of a notebook; a code cell with a figure describes it in its metadata (`alt`)."""

    content: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> "Notebook":
        """Reads a notebook file."""
        return cls(json.loads(path.read_text()))

    def save(self, path: Path) -> None:
        """Writes the notebook, and the digest of the code that its outputs belong to."""
        self.content["metadata"]["digest"] = self.digest
        path.write_text(json.dumps(self.content, indent=1, ensure_ascii=False) + "\n")

    @property
    def cells(self) -> list[Cell]:
        """All cells."""
        return list(self.content["cells"])

    @property
    def code(self) -> list[Cell]:
        """The cells with code."""
        return [cell for cell in self.cells if cell["cell_type"] == "code"]

    @property
    def digest(self) -> str:
        """Hash of the code."""
        return hashlib.sha256("\0".join(source(cell) for cell in self.code).encode()).hexdigest()

    def run(self) -> dict[str, Any]:
        """Runs the code in order, in a folder of its own, and stores the outputs; returns the variables."""
        import matplotlib as mpl

        mpl.use("agg")
        variables: dict[str, Any] = {"__name__": "__main__"}
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            for number, cell in enumerate(self.code, start=1):
                cell["execution_count"] = number
                cell["outputs"] = list(_outputs(source(cell), variables, number))
        return variables

    def page(self, name: str) -> tuple[str, dict[str, bytes]]:
        """Returns the notebook as Markdown, and the pictures that it shows, by file name."""
        blocks: list[str] = []
        pictures: dict[str, bytes] = {}
        for cell in self.cells:
            if cell["cell_type"] == "markdown":
                blocks.append(source(cell))
                continue
            blocks.append(f"```python\n{source(cell)}\n```")
            for output in cell["outputs"]:
                data = output.get("data", {})
                if "image/png" in data:
                    picture = f"{name}-{len(pictures) + 1}.png"
                    pictures[picture] = base64.b64decode(data["image/png"])
                    blocks.append(f"![{cell['metadata'].get('alt', '')}]({picture})")
                else:
                    text = "".join(output["text"] if "text" in output else data["text/plain"])
                    blocks.append(f"```text\n{text.rstrip()}\n```")
        blocks.append(f'<a href="{name}.ipynb" download>This page as a notebook</a>')
        return "\n\n".join(blocks) + "\n", pictures


def source(cell: Cell) -> str:
    """Returns the text of a cell."""
    return "".join(cell["source"])


def _outputs(code: str, variables: dict[str, Any], number: int) -> Iterator[Cell]:
    """Runs a cell; yields what it prints, the value of its last line (unless it ends with `;`) and its figures."""
    from matplotlib import pyplot as plt

    *statements, last = ast.parse(code).body
    where, printed, value = f"cell {number}", io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), where, "exec"), variables)
        if isinstance(last, ast.Expr) and not code.endswith(";"):
            value = eval(compile(ast.Expression(last.value), where, "eval"), variables)
        else:
            exec(compile(ast.Module([last], []), where, "exec"), variables)
    if printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)}
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        yield {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
    for figure in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(figure).savefig(picture, dpi=72, bbox_inches="tight")
        plt.close(figure)
        encoded = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        yield {"data": encoded, "metadata": {}, "output_type": "display_data"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each notebook to the site."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        path = Path(file.src_uri)
        text, pictures = Notebook(json.loads(file.content_string)).page(path.stem)
        files.append(File.generated(config, path.with_suffix(".md").as_posix(), content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, (path.parent / name).as_posix(), content=picture))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Lets links to notebooks, which GitHub shows, lead to their pages."""
    return re.sub(r"\]\(([\w/.-]+)\.ipynb\)", r"](\1.md)", markdown)


def main(args: list[str]) -> int:
    """Runs notebooks and stores their outputs; returns the exit code."""
    if args[:1] != ["run"] or not all(Path(name).is_file() for name in args[1:]):
        print(textwrap.dedent(__doc__ or ""), file=sys.stderr)
        return 2
    for path in [Path(name) for name in args[1:]] or sorted(FOLDER.glob("*.ipynb")):
        notebook = Notebook.load(path)
        notebook.run()
        notebook.save(path)
        print(f"{path} ({path.stat().st_size} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
