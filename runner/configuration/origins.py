"""The sources of an experiment's values, and other results of loading it."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

ATTRIBUTE = "_origins"
"""The attribute in which a loaded experiment stores this. It is not a field."""


@dataclasses.dataclass
class Loading:
    """The results of loading an experiment.

    Attributes:
        places: Where each value was set, by path (`trainer.train_steps`).
        resolved: Lines that show the derived values.
        validated: The modes for which it is valid: whether they train, and whether they evaluate.
        sources: The sources of its values, a `runner.configuration.loading.Sources`.
    """

    places: dict[str, str]
    resolved: list[str] = dataclasses.field(default_factory=list)
    validated: tuple[bool, bool] | None = None
    sources: Any = None


def remember(experiment: cfg.ExperimentConfig, places: Mapping[str, str]) -> Loading:
    """Records that an experiment was loaded, and from where."""
    loading = Loading(dict(places))
    vars(experiment)[ATTRIBUTE] = loading
    return loading


def loading(experiment: cfg.ExperimentConfig) -> Loading | None:
    """Returns the results of loading, or None for an experiment made in Python."""
    return vars(experiment).get(ATTRIBUTE)


def of(experiment: cfg.ExperimentConfig) -> dict[str, str]:
    """Returns where each value was set, by path, or {} for an experiment made in Python."""
    known = loading(experiment)
    return known.places if known else {}


class Field(NamedTuple):
    """A field of the config at a path, and the location where its value was set, if any."""

    path: str
    section: base_config.Config
    name: str
    place: str = ""

    def __str__(self) -> str:
        return f"{type(self.section).__name__}.{self.name}"

    @property
    def origin(self) -> str:
        """Its path in the experiment."""
        return f"{self.path}.{self.name}"

    @property
    def value(self) -> Any:
        """Its value."""
        return getattr(self.section, self.name)

    def line(self, what: str) -> str:
        """Returns `digits.gin:7: EpochsConfig.train = 10; what`."""
        before = f"{self.place}: " if self.place else ""
        return f"{before}{self} = {plain(self.value)}; {what}"

    def shown(self) -> str:
        """Returns `EpochsConfig.train = 10 (digits.gin:7)`."""
        return f"{self} = {plain(self.value)}{f' ({self.place})' if self.place else ''}"


def field(experiment: cfg.ExperimentConfig, path: str) -> Field:
    """Returns the field at a path of an experiment."""
    above, _, name = path.rpartition(".")
    section: Any = experiment
    for part in above.split("."):
        part, _, index = part.partition("[")
        section = getattr(section, part)
        section = section[int(index[:-1])] if index else section
    return Field(above, section, name, of(experiment).get(path, ""))


class Invalid(NamedTuple):
    """An invalid value.

    Attributes:
        path: The path of its config in the experiment.
        section: The config.
        field: The name of the field.
        needs: The requirement, as in `must be 1 or more`.
    """

    path: str
    section: base_config.Config
    field: str
    needs: str

    @property
    def origin(self) -> str:
        """The path of the value in the experiment."""
        return f"{self.path}.{self.field}"

    def line(self, place: str | None) -> str:
        """Returns `digits.gin:7: trainer.steps_per_loop = 0; must be 1 or more`."""
        line = f"{self.origin} = {getattr(self.section, self.field)!r}; {self.needs}"
        if place:
            return f"{place}: {line}"
        line, hint, name = line.partition("; did you mean")  # the suggestion comes last
        return f"{line}; set {type(self.section).__name__}.{self.field}{hint}{name}"


def plain(value: Any) -> str:
    """Returns numbers as a person writes them: 10 for 10.0."""
    if isinstance(value, (list, tuple)):
        return f"({', '.join(plain(each) for each in value)}{',' * (len(value) == 1)})"
    return str(value).removesuffix(".0")
