"""`svsl extend`."""

from dataclasses import dataclass, replace
from pathlib import Path

from svsl.cli.parsing import Switch, first_line, parse, parse_known, require_range, split_first
from svsl.cli.task_choice import TaskFlags
from svsl.cli.task_flags import training_flags
from svsl.cli.training import NewRunOptions, train_run
from svsl.errors import SvslError
from svsl.learners.registry import find_preset
from svsl.learners.svsl_config import SVSLConfig
from svsl.runs.folder import Run
from svsl.runs.sources import config_of, open_source, with_regions

_COMPONENTS = 10  # added by default


@dataclass(frozen=True, kw_only=True)
class _Freeze:
    freeze: Switch = False
    """Keep the experts and context distributions of the old components; only their weights are learned again."""


@dataclass(frozen=True, kw_only=True)
class Options(NewRunOptions, TaskFlags, _Freeze):
    """Add components to a finished library, also on a changed task."""

    out: Path | None = None
    """Run folder of the extended library (default: the old one's name with -extended)."""
    seed: int | None = None
    """Seed of all randomness in the run (default: that of the library)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(0, seed=self.seed)


def main(args: list[str]) -> int:
    """Extends a library; its task options and settings are the defaults of the flags."""
    help_text = f"{first_line(Options)}\n\nFurther flags are the options of the library's task."
    source, flags = split_first(
        args,
        "svsl extend RUN_OR_NAME",
        f"extend what? RUN_OR_NAME comes first: svsl extend RUN_OR_NAME --components {_COMPONENTS}",
        lambda: training_flags(Options(), SVSLConfig(_COMPONENTS), None, {}, help_text),
    )
    choice = parse_known(TaskFlags, flags, f"svsl extend {source}").choice
    opened = open_source(source, choice)
    base, old_run = opened.library, opened.run
    if old_run is not None and not old_run.finished:
        raise SvslError(f"{source} is not finished; resume it with svsl resume {source}, then extend it")
    name, task_options = opened.named_task.chosen(choice)  # nothing of the task is imported before
    old = replace(config_of(base, old_run), task=name, task_options=task_options)
    # SVSL extends the library of any learner: it only needs its components
    settings = old.settings if isinstance(old.settings, SVSLConfig) else find_preset(old.task).settings
    assert isinstance(settings, SVSLConfig)
    description = f"Adds components to the library of {source}, on {old.task} as it was or changed."
    one_by_one = replace(settings, components=_COMPONENTS, curriculum=True, splits=0)
    own_settings = replace(one_by_one, expert_degree=base.mixture.expert_degree, closing_degree=None)
    if parse_known(_Freeze, flags, f"svsl extend {source}").freeze:
        learned_by = SVSLConfig.weight_iterations if settings.learns_gating else settings.weight_iterations
        own_settings = replace(own_settings, kl_gating=None, weight_iterations=learned_by)
    kind = training_flags(Options(), own_settings, old.task, old.task_options, description)
    options = parse(kind, flags, f"svsl extend {source}", settings.old_names)
    run: Options = options.run
    config = replace(
        old,
        task_options=options.task,
        learner="svsl",
        settings=options.settings,
        seed=old.seed if run.seed is None else run.seed,
        test_contexts=run.test_contexts,
        extends=source,
        freeze=run.freeze,
    )
    task = config.make_task(run.workers)
    config.check(task, base)  # rejects an invalid configuration before the folder is created
    base = with_regions(base, task)
    folder = run.out or _default_folder(source, old_run)
    if old_run is not None and folder.resolve() == old_run.folder.resolve():
        raise SvslError(f"{folder} holds the library to extend; choose another --out")
    return train_run(run, config, task, lambda: Run.create(folder, config, run.overwrite, base))


def _default_folder(source: str, run: Run | None) -> Path:
    """Returns `RUN-extended` beside the run, or in `runs` for a file or a shipped library."""
    if run is not None:
        folder = run.folder if run.folder.name not in ("", "..") else run.folder.resolve()
        return folder.with_name(folder.name + "-extended")
    return Path("runs") / f"{Path(source).stem}-extended"
