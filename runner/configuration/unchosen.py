"""Command-line values of an alternative that no `type` chooses, such as SGD's momentum with Adam.

A file may set values for several alternatives, as a menu. On the command line, such a value is a
mistake, because the user expects it to have an effect.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from official.core import config_definitions as cfg
from official.modeling.hyperparams import oneof

from runner.configuration import origins, sections
from runner.errors import ConfigError

BROUGHT = tuple(f"trainer.optimizer_config.{name}" for name in ("optimizer", "learning_rate"))
"""The configs that a compiled model may set."""


class Choice(NamedTuple):
    """A config that chooses one of its alternatives by its field `type`.

    Attributes:
        path: The path of the config, `trainer.optimizer_config.optimizer`.
        section: The config.
    """

    path: str
    section: oneof.OneOfConfig

    def leaves_out(self, path: str) -> bool:
        """Returns whether a value belongs to an alternative other than the chosen one."""
        if not path.startswith(f"{self.path}."):
            return False
        return self.alternative(path) not in ("type", self.section.type)

    def alternative(self, path: str) -> str:
        """Returns the alternative that a value below the config belongs to."""
        return path.removeprefix(f"{self.path}.").partition(".")[0]


def check(experiment: cfg.ExperimentConfig, *, within: Collection[str] = ()) -> None:
    """Checks that command-line values belong to chosen alternatives.

    Args:
        experiment: All values.
        within: The paths of the configs that choose. Empty for all of them.

    Raises:
        ConfigError: if a value belongs to an alternative that is not chosen.
    """
    if lines := list(typed(experiment, within=within).values()):
        raise ConfigError("\n".join(lines))


def typed(experiment: cfg.ExperimentConfig, *, within: Collection[str] = ()) -> dict[str, str]:
    """Returns a line for each command-line binding that only sets alternatives that are not chosen.

    Args:
        experiment: All values.
        within: As for `check`.

    Returns:
        The lines, by binding.
    """
    choices = [each for each in _choices(experiment) if not within or each.path in within]
    lines: dict[str, str] = {}
    effective: set[str] = set()
    for path, place in _typed_values(experiment).items():
        above = next((choice for choice in choices if choice.leaves_out(path)), None)
        if above is None:
            effective.add(_binding(path, place))
        else:
            lines.setdefault(_binding(path, place), f"{place}: {_line(experiment, above, path)}")
    return {binding: line for binding, line in lines.items() if binding not in effective}


def bindings(experiment: cfg.ExperimentConfig) -> set[str]:
    """Returns all command-line bindings, as the keys of `typed`."""
    return {_binding(path, place) for path, place in _typed_values(experiment).items()}


def _typed_values(experiment: cfg.ExperimentConfig) -> Mapping[str, str]:
    """Returns the locations of the values given on the command line or in Python, by path."""
    given = {
        path: place for path, place in origins.of(experiment).items() if place.startswith("--")
    }
    above = {path[:end] for path in given for end, char in enumerate(path) if char in ".["}
    return {path: place for path, place in given.items() if path not in above}


def _choices(experiment: cfg.ExperimentConfig) -> Iterator[Choice]:
    """Yields all configs that choose, outermost first, except configs that a model will set."""
    brought = BROUGHT if getattr(experiment.task, "brings_optimizer", False) else ()
    for path, section in sections.walk(experiment):
        if isinstance(section, oneof.OneOfConfig) and (section.type or path not in brought):
            yield Choice(path, section)


def _binding(path: str, place: str) -> str:
    """Returns a key for a binding, which may set the same field of several configs."""
    return f"{place} {path.rpartition('.')[2]}"


def _line(experiment: cfg.ExperimentConfig, above: Choice, path: str) -> str:
    field = origins.field(experiment, f"{above.path}.type")
    where = f" ({field.place})" if field.place else ""
    return (
        f"{path} has no effect, because {field} = {field.value!r}{where}; "
        f"to choose it, set {field} = {above.alternative(path)!r}"
    )
