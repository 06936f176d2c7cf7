"""Whether every trial of a study can be configured, before any of them starts."""

from collections.abc import Iterator, Mapping
from typing import Any

from runner import config
from runner.errors import ConfigError
from runner.runs.request import Request
from runner.studies import plan, space, worker

_ALL = 50  # combinations; of more, each value is tried once


def check(request: Request, planned: plan.Plan) -> None:
    """Configures trials so that each value occurs, by the code that a trial uses.

    Raises:
        ConfigError: all that is wrong with any of them, one line each.
    """
    problems: dict[str, None] = {}
    seen: dict[str, set[str]] = {}
    for chosen in _chosen(planned):
        facts = {"parameters": chosen, "seed": planned.seeds[0], "fold": planned.folds[0]}
        try:
            made = load(request, worker.arguments(facts, planned.options.folds))
        except ConfigError as error:
            problems.update(dict.fromkeys(str(error).splitlines()))
        else:
            seen.setdefault(config.as_yaml(made), set()).add(space.plain(chosen))
    for same in (each for each in seen.values() if len(each) > 1):
        problems[
            f"--vary: {' and '.join(sorted(same)[:2])} configure the same experiment: a value is "
            "overridden (by a YAML file or --params_override), or in a section that is not chosen"
        ] = None
    if problems:
        raise ConfigError("\n".join(problems))


def load(request: Request, arguments: list[str]) -> config.Experiment:
    """The experiment of a trial with these flags beside those of the study."""
    given = request.flags
    own: dict[str, list[str]] = {"--gin_params": [], "--params_override": []}
    for each in arguments:
        name, _, value = each.partition("=")
        own[name].append(value)
    return config.load(
        given.get("gin_file", []),
        [*given.get("gin_params", []), *own["--gin_params"]],
        experiment=given.get("experiment"),
        config_files=given.get("config_file", []),
        overrides=[*given.get("params_override", []), *own["--params_override"]],
        trains=True,
        evaluates=True,
    )


def _chosen(planned: plan.Plan) -> Iterator[Mapping[str, Any]]:
    if not planned.parameters:
        yield {}
    elif planned.is_grid and len(grid := space.grid(planned.parameters)) <= _ALL:
        yield from grid
    else:
        yield from space.probes(planned.parameters)
