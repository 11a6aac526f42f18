"""`svsl push`."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from svsl.cli.parsing import SourceName, Switch, require_range
from svsl.cli.task_choice import TrustFlag
from svsl.cli.train_command import train_command
from svsl.errors import SvslError
from svsl.evaluation.result import Evaluation
from svsl.model.hub import create_repository, huggingface_hub_module, split_name, upload
from svsl.runs.evaluation import evaluate_source, stored_evaluation
from svsl.runs.sources import Source, config_of, open_source
from svsl.show.model_card import write_model
from svsl.show.progress import StageDisplay
from svsl.tasks.base import Task


@dataclass(frozen=True)
class Options(TrustFlag):
    """Publish a library on the Hugging Face Hub, with its configuration, figures and a model card."""

    source: SourceName
    """The folder of a finished run, a library file, or the name of a shipped library."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="USER/NAME")]
    """The repository; it is created if it does not exist."""
    private: Switch = False
    """Create a repository that only you can read."""
    license: str | None = None
    """Licence of the library, as the Hub calls it, such as mit or cc-by-4.0."""
    contexts: int = 2000
    """Number of fresh contexts for the evaluation in the model card."""
    out: Path | None = None
    """Write the files to this folder instead, and publish nothing."""

    def __post_init__(self) -> None:
        require_range(1, contexts=self.contexts)
        if split_name(self.name) != (self.name, None):
            raise SvslError(f"name: expected user/name, got {self.name!r}")


def main(options: Options) -> None:
    """Evaluates the library, writes its model card and publishes both."""
    huggingface_hub_module()  # the model card needs it, too
    source = open_source(options.source, options.choice)
    if source.run is not None and not source.run.finished:
        raise SvslError(f"{options.source} is not finished; resume it with svsl resume {options.source}, then push it")
    task = source.make_task()
    if options.out is not None:
        if options.out.exists():
            raise SvslError(f"{options.out} already exists; choose another --out")
        for path in _write(options, source, task, options.out):
            print(f"file     {path}")
        return
    create_repository(options.name, options.private)  # a mistake is reported before the work is done
    with tempfile.TemporaryDirectory() as folder:
        _write(options, source, task, Path(folder))
        print(f"commit   {upload(Path(folder), options.name)}")


def _write(options: Options, source: Source, task: Task, folder: Path) -> list[Path]:
    with StageDisplay("evaluation") as progress:
        evaluation = _evaluate(source, task, options.contexts, progress)
    command = train_command(config_of(source.library, source.run))
    with StageDisplay("model card") as progress:
        return write_model(folder, options.name, source, task, evaluation, command, options.license, progress)


def _evaluate(source: Source, task: Task, contexts: int, progress: StageDisplay) -> Evaluation:
    """Returns the evaluation that the run folder keeps, or a new one."""
    if source.run is None:
        return evaluate_source(source, contexts, task=task, report=progress)
    evaluation = stored_evaluation(source.run, contexts, task=task, report=progress)
    assert evaluation is not None  # the run is finished
    return evaluation
