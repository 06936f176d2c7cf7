"""Checks that every trial of a study can be configured, before any of them starts."""

import functools
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runner import config
from runner.configuration import folding, printing, settings, unchosen
from runner.errors import ConfigError, RunnerError
from runner.run_directory import config_change, params
from runner.runs.call import Call
from runner.storage import display_names
from runner.studies import plan, space, trial, worker
from runner.studies.population import Population

_AFFECT_RESULTS = ("", settings.LENGTH.why, settings.BEST.why)
"""Why a value may change in a run that resumes, but not from trial to trial."""

_ALL = 50  # combinations (with more, each value is tried once)


def check(call: Call, planned: plan.Plan, *, reads: bool = False) -> None:
    """Configures trials that together cover each value, with the code that a trial uses.

    Args:
        call: The study's call.
        planned: The study's plan.
        reads: Whether to also read the data of a fold, which may have too few examples.

    Raises:
        ConfigError: the problems of all these trials, one line each.
    """
    problems: dict[str, None] = {}
    seen: dict[str, set[str]] = {}
    first: Any = None
    idle: dict[str, str] = {}
    effective: set[str] = set()
    for chosen in _chosen(planned):
        facts = {"parameters": chosen, "seed": planned.seeds[0], "fold": planned.folds[0]}
        try:
            made = load(call, worker.arguments(facts, divided(call, facts)))
        except ConfigError as error:
            problems.update(dict.fromkeys(str(error).splitlines()))
        else:
            unused = unchosen.typed(made)
            idle |= unused
            effective |= unchosen.bindings(made) - unused.keys()
            seen.setdefault(config.as_yaml(made), set()).add(space.plain(chosen))
            first = first or printing.plain(made)
            if isinstance(planned.rungs, Population):
                problems.update(dict.fromkeys(_fixed(config_change.compare(first, made))))
    problems.update(dict.fromkeys(line for key, line in idle.items() if key not in effective))
    for same in (each for each in seen.values() if len(each) > 1):
        problems[
            f"--vary: {' and '.join(sorted(same)[:2])} configure the same experiment: a value is "
            "overridden (by a YAML file or --params_override) or set in an unused config class"
        ] = None
    if problems:
        raise ConfigError("\n".join(problems))
    if reads and planned.options.folds and not call.trial:  # without data of a Python program
        _read(made)


def check_unchanged(call: Call, there: Iterable[trial.Trial]) -> None:
    """Checks that new trials of a study would have the configuration of those that exist.

    The first trial that has begun stands for all of them.

    Raises:
        ConfigError: the configuration has changed in a way that affects the results.
    """
    for one in there:
        try:
            before = params.read(one.folder)
        except RunnerError:  # a damaged file; the trial reports it if it continues
            continue
        if not before or one.step == 0 or one.lineage:
            continue
        facts = {"parameters": one.parameters, "seed": one.seed, "fold": one.fold}
        now = load(call, worker.arguments(facts, divided(call, facts)))
        changes = [
            each
            for each in config_change.compare(before, now)
            if each.harmless in _AFFECT_RESULTS and each.path != "run.pause_at"
        ]
        if changes:
            raise ConfigError(
                f"the trials in {display_names.of(call.model_dir)} have another configuration:"
                f"{config_change.listed(changes, now)}\nTo compare both configurations, choose "
                "another {model_dir} for this one, or make the change a value of {vary}",
                model_dir=None,
                vary="NAME=VALUES",
            )
        return


def _read(experiment: config.Experiment) -> None:
    """Reads the validation data.

    Raises:
        RunnerError: the data cannot be read. Other errors are left for a trial to report.
    """
    from runner.configuration import sections, task_contract

    with tempfile.TemporaryDirectory() as scratch:
        try:
            task = task_contract.build_task(sections.unlocked(experiment.task), scratch)
            task.build_inputs(experiment.task.validation_data)
        except RunnerError:
            raise
        except Exception:  # such as an error of a task that needs its model first
            return


def divided(call: Call, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the overrides, by path, that make a trial validate on its fold, or an empty dict.

    Raises:
        ConfigError: the data cannot be divided.
    """
    study = call.config.run.study
    if facts["fold"] is None or study is None:
        return {}
    own = {**facts, "fold": None}
    made = load(call, worker.arguments(own)) if facts["parameters"] else call.config
    return folding.parameters(made, study.folds, facts["fold"])


def _fixed(changes: Iterable[config_change.Change]) -> Iterator[str]:
    """Yields an error for each varying value that cannot change during training."""
    for each in changes:
        kinds = {type(each.old), type(each.new)}
        optimizes = each.path.startswith("trainer.optimizer_config.") and kinds <= {int, float}
        shapes_nothing = each.path.startswith("task.") and kinds <= {int, float} and float in kinds
        is_data = each.path.startswith(("task.train_data", "task.validation_data"))
        if is_data or not (optimizes or shapes_nothing):
            yield (
                f"--vary: {each.path} cannot change during training, as StudyConfig.stopping = "
                "'pbt' requires. Vary numbers of the optimizer and its schedule "
                "(trainer.optimizer_config), or floats of the task except its data, such as dropout"
            )


def load(call: Call, arguments: list[str]) -> config.Experiment:
    """Returns the experiment of a trial with these flags in addition to those of the study."""
    own: dict[str, list[str]] = {"--gin_params": [], "--params_override": []}
    for argument in arguments:
        name, _, value = argument.partition("=")
        own[name].append(value)
    configure = call.trial or functools.partial(config.again, call.config)
    return configure(own["--gin_params"], own["--params_override"])


def _chosen(planned: plan.Plan) -> Iterator[Mapping[str, Any]]:
    if not planned.parameters:
        yield {}
    elif planned.is_grid and len(grid := space.grid(planned.parameters)) <= _ALL:
        yield from grid
    else:
        yield from space.probes(planned.parameters)
