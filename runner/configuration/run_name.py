"""Makes the name of a run from its configuration."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from official.core import config_definitions as cfg

from runner.configuration import origins, sections
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PATH = re.compile(r"\w[\w.,=+@-]*(/\w[\w.,=+@-]*)*")


def of(experiment: cfg.ExperimentConfig, source: str) -> str:
    """Returns `RunConfig.name` with its placeholders filled in.

    `{name}` is the name of `source`, and `{model}` the type of the task's model. Any other
    placeholder is the path of a value, or the end of a path that only one value has.

    Args:
        experiment: All values.
        source: The first gin file, or the name of a registered experiment.

    Raises:
        ConfigError: if a placeholder has no value, or the name is not valid for a directory.
    """
    field = origins.field(experiment, "run.name")

    def filled(found: re.Match[str]) -> str:
        word = found[1]
        if word == "name":
            return Path(source.replace("/", "-") if not source.endswith(".gin") else source).stem
        value = _model(experiment, field) if word == "model" else _value(experiment, word, field)
        return _text(value)

    name = _PLACEHOLDER.sub(filled, field.value or "{name}")
    if not _PATH.fullmatch(name):
        raise ConfigError(
            field.line(f"makes the name {name!r}; expected letters, digits and _.,=+@- between /")
        )
    return name


def _model(experiment: cfg.ExperimentConfig, field: origins.Field) -> str:
    model = getattr(experiment.task, "model", None)
    if model is None:
        raise ConfigError(field.line("{model} has no value, because the task has no model"))
    return getattr(model, "type", None) or type(model).__name__.removesuffix("Config").lower()


def _value(experiment: cfg.ExperimentConfig, path: str, field: origins.Field) -> Any:
    known = dict(_values(experiment))
    found = [path] if path in known else [each for each in known if each.endswith(f".{path}")]
    if len(found) == 1:
        return known[found[0]]
    if found:
        some = ", ".join(sorted(found)[:4])
        raise ConfigError(field.line(f"{{{path}}} may be one of {len(found)} values: {some}"))
    leaves = {each.rpartition(".")[2] for each in known}
    meant = did_you_mean(path, ["name", "model", *known, *leaves])
    raise ConfigError(field.line(f"{{{path}}} is not the path of a value{meant}"))


def _values(experiment: cfg.ExperimentConfig) -> Iterator[tuple[str, Any]]:
    """Yields the values that are not configs, by path."""
    for path, section in sections.walk(experiment):
        for name, value in vars(section).items():
            if isinstance(value, (str, int, float, list, tuple)) and not name.startswith("_"):
                yield f"{path}.{name}".removeprefix("."), value


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "-".join(map(_text, value))
    return re.sub(r"[^\w.,=+@-]+", "-", origins.plain(value))
