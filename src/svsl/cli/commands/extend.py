"""`svsl extend`."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path

from svsl.cli.commands.resume import Work, work_on
from svsl.cli.commands.train import task_flags
from svsl.cli.parsing import Switch, first_line, new_flags, parse
from svsl.errors import SvslError
from svsl.learners.registry import find_preset
from svsl.learners.svsl_config import SVSLConfig
from svsl.runs.config import RunConfig
from svsl.runs.folder import Run
from svsl.runs.sources import config_of, open_library


@dataclass(frozen=True, kw_only=True)
class Options(Work):
    """Add components to a finished library, also on a changed task."""

    out: Path | None = None
    """Run folder of the extended library; default the old one's name with -extended."""
    seed: int | None = None
    """All randomness of the run comes from it; default that of the library."""
    freeze: Switch = False
    """Leave the old components' experts and contexts as they are; only their weights are learned again."""
    test_contexts: int = 500
    """Fresh contexts of the test after each component."""
    overwrite: Switch = False
    """Replace a run that is already there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed is not None and self.seed < 0:
            raise SvslError(f"setting seed: expected at least 0, got {self.seed}")
        if self.test_contexts < 1:
            raise SvslError(f"setting test_contexts: expected at least 1, got {self.test_contexts}")


def main(args: list[str]) -> int:
    """Extends a library; its task and its settings are the defaults of the further flags."""
    if not args or args[0].startswith("-"):
        flags = make_dataclass(
            "Extend",
            [("run", Options, field(default=Options())), ("settings", SVSLConfig, field(default=SVSLConfig(10)))],
            namespace={"__doc__": f"{first_line(Options)}\n\nFurther flags are the options of the library's task."},
        )
        parse(flags, [a for a in args if a in ("-h", "--help")], "svsl extend RUN_OR_NAME")
        raise SvslError("extend what? svsl extend RUN_OR_NAME --components 10, the library first")
    source = args[0]
    base, old_run = open_library(source)
    if old_run is not None and not old_run.finished:
        raise SvslError(f"{source} is not finished; svsl resume {source} goes on, then it can be extended")
    old = config_of(base, old_run)
    # a library of another learner is extended by SVSL all the same: a learner only needs its components
    settings = old.settings if isinstance(old.settings, SVSLConfig) else find_preset(old.task).settings
    assert isinstance(settings, SVSLConfig)
    task_options = task_flags(old.task, old.task_options)
    everything = make_dataclass(
        "Extend",
        [
            ("run", Options, field(default=Options())),
            ("settings", SVSLConfig, field(default=replace(settings, components=10))),
            ("task", task_options, field(default=task_options())),
        ],
        namespace={"__doc__": f"Adds components to the library of {source}, on {old.task} as it was or changed."},
    )
    options = parse(everything, new_flags(args[1:], SVSLConfig.old_names), f"svsl extend {source}")
    run: Options = options.run
    seed = old.seed if run.seed is None else run.seed
    config = RunConfig(
        old.task, vars(options.task), "svsl", options.settings, seed, run.test_contexts, source, run.freeze
    )
    config.check(base=base)  # an impossible configuration is refused before a folder is made
    folder = run.out or _default_folder(source, old_run)
    if old_run is not None and folder.resolve() == old_run.folder.resolve():
        raise SvslError(f"{folder} holds the library to extend; choose another --out")
    return work_on(run, config, lambda: Run.create(folder, config, run.overwrite, base))


def _default_folder(source: str, run: Run | None) -> Path:
    """`RUN-extended` beside the run, or in `runs` for a file or a shipped library."""
    if run is not None:
        folder = run.folder if run.folder.name not in ("", "..") else run.folder.resolve()
        return folder.with_name(folder.name + "-extended")
    return Path("runs") / f"{Path(source).stem}-extended"
