"""The command line: `svsl COMMAND ...`. A command is a dataclass of flags and a function that takes it."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import docstring_parser
import tyro
from rich.console import Console
from rich.table import Table

from svsl import __version__
from svsl.errors import SvslError
from svsl.presets import find_preset
from svsl.runs import EVAL_STREAM, Run, RunConfig
from svsl.tasks import REGISTRY, make_task, task_factory

T = TypeVar("T")
Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code (2 for anything the user can mend)."""
    args = list(sys.argv[1:] if argv is None else argv)
    sys.path.insert(0, os.getcwd())  # a user's `module:factory` lies in the current directory
    try:
        return _dispatch(args)
    except SvslError as error:
        return _complain(str(error))
    except BrokenPipeError:  # the reader of a pipe went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _complain(f"{error.filename or 'file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return _complain("interrupted", code=130)


def _complain(message: str, code: int = 2) -> int:
    print("svsl: " + " ".join(message.split()), file=sys.stderr)
    return code


def _dispatch(args: list[str]) -> int:
    name = args[0] if args else "--help"
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"svsl {__version__}")
        return 0
    if name not in COMMANDS:
        raise SvslError(f"unknown command {name!r}; commands: {', '.join(COMMANDS)}")
    if name == "train":
        return train(args[1:])
    options, command = COMMANDS[name]
    return command(_parse(options, args[1:], f"svsl {name}"))


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {_first_line(options)}" for name, (options, _) in COMMANDS.items()]
    return "\n".join(
        ["usage: svsl COMMAND ...", "", *lines, "", "svsl COMMAND --help tells more; svsl --version the version"]
    )


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def _parse(kind: Callable[..., T], args: list[str], prog: str) -> T:
    """Parses flags with tyro; a mistake becomes one line instead of its box."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(kind, args=args, prog=prog, config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise SvslError(f"{_first_paragraph(errors.getvalue())}; {prog} --help lists the flags") from None


def _first_paragraph(box: str) -> str:
    """The message of a framed error text, and its suggestion if it has one."""
    paragraphs, current = [], list[str]()
    for line in [*box.splitlines(), "──"]:
        text = line.strip(" │")
        if text.startswith(("─", "╭", "╰")):
            paragraphs.append(" ".join(current))
            current = []
        else:
            current.append(text)
    filled = [p for p in paragraphs if p]
    hint = next((" (" + p.split("(default")[0].strip() + ")" for p in filled if p.startswith("Perhaps")), "")
    return (filled[0] if filled else "wrong arguments") + hint


# ---- train and resume -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainOptions:
    """Train a skill library on a task and draw its figures."""

    out: Path | None = None
    """Run folder; default runs/TASK-seedN."""
    seed: int = 0
    """All randomness of the run comes from it."""
    learner: str = "svsl"
    """The method; it decides which further settings there are."""
    preset: str | None = None
    """A named set of defaults for the further settings; default the task's first (the paper's)."""
    test_contexts: int = 500
    """Fresh contexts of the test after each component."""
    overwrite: Switch = False
    """Replace a run that is already there."""
    quiet: Switch = False
    """Show no progress and no results."""
    checkpoint_s: float = 10.0
    """Seconds between checkpoints."""
    workers: int | None = None
    """Threads of a simulated task; default all cores. The result does not depend on it."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise SvslError(f"setting seed: expected at least 0, got {self.seed}")
        if self.test_contexts < 1:
            raise SvslError(f"setting test_contexts: expected at least 1, got {self.test_contexts}")


def train(args: list[str]) -> int:
    """Trains; the task and the learner decide which flags there are beside those of `TrainOptions`."""
    task, rest = _split_task(args)
    learner = _flag_value(rest, "--learner") or "svsl"
    preset_name = _flag_value(rest, "--preset")
    preset = find_preset(task or "", learner, preset_name)
    settings = preset.settings
    task_options = _task_options(task, preset.task_options) if task else make_dataclass("TaskOptions", [], frozen=True)
    everything = make_dataclass(
        "Train",
        [
            ("run", TrainOptions, field(default=TrainOptions(learner=learner, preset=preset_name))),
            ("settings", type(settings), field(default=settings)),
            ("task", task_options, field(default=task_options())),
        ],
        namespace={"__doc__": f"Trains a skill library on {task or 'a task'} and draws its figures."},
    )
    options = _parse(everything, rest, f"svsl train {task or 'TASK'}")
    if task is None:
        raise SvslError(f"train what? svsl train TASK, with one of {', '.join(REGISTRY)} or your own module:factory")
    run: TrainOptions = options.run
    config = RunConfig(task, vars(options.task), learner, options.settings, run.seed, run.test_contexts)
    config.make_learner(config.make_task())  # an impossible configuration is refused before a folder is made
    folder = run.out or Path("runs") / f"{task.replace(':', '.')}-seed{run.seed}"
    return _run(Run.create(folder, config, run.overwrite), run)


@dataclass(frozen=True)
class ResumeOptions:
    """Go on with an interrupted run as if it had never stopped."""

    folder: Folder
    """The run folder."""
    quiet: Switch = False
    """Show no progress and no results."""
    checkpoint_s: float = 10.0
    """Seconds between checkpoints."""
    workers: int | None = None
    """Threads of a simulated task; default all cores. The result does not depend on it."""


def resume(options: ResumeOptions) -> int:
    """Goes on with a run."""
    run = Run.open(options.folder)
    if run.finished:
        print(f"{run.folder} is finished: nothing to resume", file=sys.stderr)
        return 0
    return _run(run, options)


def _run(run: Run, options: TrainOptions | ResumeOptions) -> int:
    from svsl.progress import ProgressDisplay
    from svsl.training import Trainer, stop_on_signals

    trainer = Trainer(run, checkpoint_s=options.checkpoint_s, workers=options.workers)
    title = f"{run.config.task} seed {run.config.seed}"
    with stop_on_signals() as stop, ProgressDisplay(title, options.quiet) as display:
        finished = trainer.train(display, stop)
    if not finished:
        return _complain(f"stopped and saved; svsl resume {run.folder} goes on", code=130)
    if not options.quiet:
        _print_evaluation(_evaluation(run))
        _draw(run)
        print(f"library  {run.library_path}")
    return 0


def _split_task(args: list[str]) -> tuple[str | None, list[str]]:
    """Finds TASK among the arguments."""
    for position, word in enumerate(args):
        if word in REGISTRY or (":" in word and not word.startswith("-")):
            return word, args[:position] + args[position + 1 :]
    if args and not args[0].startswith("-"):
        task_factory(args[0])  # says which tasks there are
    return None, args


def _flag_value(args: list[str], flag: str) -> str | None:
    for position, word in enumerate(args):
        if word.startswith(flag + "="):
            return word.partition("=")[2]
        if word == flag and position + 1 < len(args):
            return args[position + 1]
    return None


def _task_options(task: str, defaults: Mapping[str, object]) -> type[Any]:
    """A dataclass of the options the task's factory takes, documented by its docstring."""
    factory = task_factory(task)
    hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    documents = {p.arg_name: p.description for p in docstring_parser.parse(inspect.getdoc(factory) or "").params}
    fields: list[tuple[str, Any, Any]] = []
    for name, parameter in inspect.signature(factory).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.default is parameter.empty:
            raise SvslError(f"task {task!r}: its option {name!r} has no default, so the command line cannot make it")
        kind: Any = hints.get(name, type(parameter.default))
        described = Annotated[kind, tyro.conf.arg(help=documents.get(name) or "Option of the task.")]
        fields.append((name, described, field(default=defaults.get(name, parameter.default))))
    return make_dataclass("TaskOptions", fields, frozen=True)


# ---- looking at runs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvalOptions:
    """Measure a library: return, success, entropy, coverage."""

    folder: Folder
    """The run folder; the run may still be going on."""
    json: Switch = False
    """Print one JSON object instead of a table."""
    contexts: int = 2000
    """Number of fresh uniform contexts."""

    def __post_init__(self) -> None:
        if self.contexts < 1:
            raise SvslError(f"setting contexts: expected at least 1, got {self.contexts}")


def evaluate(options: EvalOptions) -> int:
    """Measures the library of a run."""
    result = _evaluation(Run.open(options.folder), options.contexts)
    if options.json:
        print(json.dumps(result))
    else:
        _print_evaluation(result)
    return 0


def _evaluation(run: Run, contexts: int = 2000) -> dict[str, object]:
    from svsl.evaluation import evaluate
    from svsl.random import stream
    from svsl.training import numeric_settings

    library, config = run.load_library(), run.config
    with numeric_settings():
        numbers = evaluate(library, config.make_task(), stream(config.seed, EVAL_STREAM), contexts)
    return {
        "task": config.task,
        "learner": config.learner,
        "seed": config.seed,
        "finished": run.finished,
        "components": len(library),
        "episodes": int(library.metadata["episodes"]),
        "episodes_simulated": int(library.metadata["episodes_simulated"]),
        "wall_s": metrics[-1]["wall_s"] if (metrics := run.read_metrics()) else None,
        **numbers,
    }


def _print_evaluation(result: dict[str, object]) -> None:
    table = Table(title="Skill library", show_header=False)
    rows = {name: value for name, value in result.items() if not isinstance(value, dict)}
    for group in (value for value in result.values() if isinstance(value, dict)):
        rows |= group
    for name, value in rows.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    Console().print(table)


@dataclass(frozen=True)
class PlotOptions:
    """Draw the figures of a run, or several runs side by side."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR [DIR ...]")]
    """Run folders; a run may still be going on. One gets its figures drawn into its folder."""
    out: Path = Path("comparison.png")
    """Picture of several runs side by side."""


def plot(options: PlotOptions) -> int:
    """Draws the figures of a run or a comparison of several."""
    runs = [Run.open(folder) for folder in options.folders]
    if not runs:
        raise SvslError("plot what? svsl plot DIR, or several for a comparison")
    if len(runs) == 1:
        _draw(runs[0])
    else:
        from svsl.plots import plot_comparison

        print(f"figure   {plot_comparison(runs, options.out)}")
    return 0


def _draw(run: Run) -> None:
    from svsl.plots import plot_run

    for path in plot_run(run):
        print(f"figure   {path}")


# ---- speed and tasks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BenchOptions:
    """Measure speed, as ratios against a straightforward reference of the same update."""

    json: Switch = False
    """Print one JSON object instead of tables."""
    full: Switch = False
    """Also train the paper's whole planar reacher (about a minute of one core)."""


def bench(options: BenchOptions) -> int:
    """Times the parts of training."""
    from svsl import bench

    result = bench.run(options.full)
    if options.json:
        print(json.dumps(result))
    else:
        bench.show(result)
    return 0


@dataclass(frozen=True)
class TasksOptions:
    """List the tasks that come with the library."""


def tasks(options: TasksOptions) -> int:
    """Lists the tasks."""
    for name in REGISTRY:
        print(f"{name}  {_first_line(task_factory(name))}")
    return 0


@dataclass(frozen=True)
class CheckTaskOptions:
    """Tell what a learner would stumble over in a task of your own."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """A task's name or module:factory."""


def check_task(options: CheckTaskOptions) -> int:
    """Runs the checker on a task."""
    from svsl.task_check import check_task

    findings = check_task(make_task(options.task))
    for finding in findings:
        print(f"{finding.verdict:8}{finding.text}")
    return 2 if any(f.verdict == "error" for f in findings) else 0


COMMANDS: dict[str, tuple[type[Any], Callable[[Any], int]]] = {
    "train": (TrainOptions, train),
    "resume": (ResumeOptions, resume),
    "eval": (EvalOptions, evaluate),
    "plot": (PlotOptions, plot),
    "bench": (BenchOptions, bench),
    "tasks": (TasksOptions, tasks),
    "check-task": (CheckTaskOptions, check_task),
}
