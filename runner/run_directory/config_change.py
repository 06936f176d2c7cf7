"""Compares a configuration with that of the run's last attempt.

A run that continued with other values would be a different experiment, and its record would not
show it. Some fields may change. Each of them gives the reason (`resume`, see
`runner.configuration.settings`).
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from official.modeling.hyperparams import base_config, oneof

from runner import config
from runner.checkpoints import checkpoint_files, extra_state, integrity
from runner.configuration import fields, origins, printing, schedules
from runner.configuration.settings import Resume
from runner.core import layout
from runner.errors import ConfigError
from runner.run_directory import begun, params
from runner.storage import display_names

_SETS = "run.evaluation_sets"
_FINGERPRINT = "fingerprint"  # the field that identifies the arguments of `runner.fit`
_LONGEST = 160


class _Unset:
    """Marks a missing value."""

    def __repr__(self) -> str:
        return "unset"


UNSET = _Unset()


@dataclasses.dataclass(frozen=True)
class Change:
    """One value that has changed.

    Attributes:
        path: `trainer.train_steps`.
        old: The value before, or UNSET if there was none.
        new: The value now, or UNSET if there is none.
        harmless: Why the run is still the same experiment, or empty if it is not.
    """

    path: str
    old: Any
    new: Any
    harmless: str

    def __str__(self) -> str:
        owner, _, field = self.path.rpartition(".")
        if field == _FINGERPRINT:
            what = "the model" if owner == "task" else f"the data of {owner}"
            return f"{self.path}: {what} changed"
        return f"{self.path}: {_shown(self.old)} -> {_shown(self.new)}"


def compare(before: Mapping[str, Any], now: config.Experiment) -> list[Change]:
    """Returns the values that differ, in the order of the configuration.

    A field missing in `before` had its default then, or the behavior of the version that wrote it.
    If the whole field `run` is missing, Model Garden wrote `before`, and `run` is not compared.

    Args:
        before: The parsed output of `config.as_yaml`.
        now: The experiment.
    """
    after = printing.plain(now)
    before = begun.completed({"run": after["run"], **before})
    return [
        Change(path, old, new, resume.why if resume and not resume.fails(now, path) else "")
        for path, old, new, resume in _differences(before, after, now)
    ]


def listed(changes: Iterable[Change], now: config.Experiment) -> str:
    """Returns an indented line for each change, with the place where its value was set."""
    places = _places(now)
    return "".join(f"\n  {_line(each, now, places)}" for each in changes)


def have_begun(model_dir: Path) -> bool:
    """Returns whether a checkpoint already depends on the configuration."""
    return begun.has_checkpoints(model_dir)


def check(
    model_dir: Path, experiment: config.Experiment, *, allow: bool, note: Callable[[str], object]
) -> list[str]:
    """Compares `experiment` with the configuration of the last attempt in `model_dir`.

    Until a run has a checkpoint, its whole configuration may change. After that, a missing or
    damaged params.yaml is rejected, because the changes are then unknown. It may be missing if
    Model Garden wrote the newest checkpoint, as `run_experiment` writes none.

    Args:
        model_dir: The run's directory.
        experiment: The experiment to train.
        allow: Whether to only report changes that would be rejected.
        note: Called with each change that is accepted.

    Returns:
        The accepted changes, one line each.

    Raises:
        ConfigError: the run would become another experiment, with one line for each change. Or its
            previous configuration cannot be read.
    """
    if not have_begun(model_dir):
        return []
    theirs = _is_model_gardens(model_dir)
    path = model_dir / layout.PARAMS if theirs else layout.params(model_dir)
    if theirs and not path.exists():
        name = display_names.of(path)
        note(f"the configuration is not compared: Model Garden wrote no {name}")
        return []
    try:
        found = compare(_read(path), experiment)
    except ConfigError as error:
        if not allow:
            raise
        note(str(error))
        return [str(error)]
    places = _places(experiment)
    refused = [] if allow else [change for change in found if not change.harmless]
    if refused:
        raise ConfigError(
            f"{model_dir} was trained with another configuration:{listed(refused, experiment)}\n"
            "To accept the change, use {allow_config_change}. To start a new run, choose another "
            f"{{model_dir}}{_kept_by(refused, places)}",
            allow_config_change=True,
            model_dir=None,
        )
    for change in found:
        line = _line(change, experiment, places)
        note(f"changed: {line}{change.harmless and f'; {change.harmless}'}")
    return [str(change) for change in found]


def _is_model_gardens(model_dir: Path) -> bool:
    """Returns whether Model Garden wrote the newest checkpoint."""
    newest = checkpoint_files.there(model_dir)[-1:]
    try:
        return bool(newest) and extra_state.is_model_gardens(newest[0])
    except integrity.READ_ERRORS:
        return False


def _kept_by(refused: Iterable[Change], places: Mapping[str, str]) -> str:
    """Describes how to keep values that changed only because they follow from the run's length."""
    kept = [
        f"{each.path} = {each.old}"
        for each in refused
        if places.get(each.path) == schedules.FOLLOWS
    ]
    if not kept:
        return ""
    return f". To keep the old learning rate, set {', '.join(kept)}"


def _read(path: Path) -> Mapping[str, Any]:
    wrong = "is damaged"
    try:
        found = params.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found, wrong = None, "is missing"
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"{path} {wrong}, so it is unknown which configuration the checkpoints were trained "
            "with.\nRestore a copy of the file, or pass {allow_config_change}: the run then "
            "resumes with this command's configuration, without a comparison",
            allow_config_change=True,
        )
    return found


_Difference = tuple[str, Any, Any, Resume | None]
"""Path, old value, new value, and why the value may change."""


def _differences(
    before: Any, after: Any, now: Any, path: str = "", resume: Resume | None = None
) -> Iterator[_Difference]:
    """Yields the differences.

    `now` is the object that `after` was made from. `resume` applies to all of it.
    """
    if path == _SETS:
        yield from _set_differences(before, after, now, resume)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        if isinstance(now, oneof.OneOfConfig) and before.get("type") != after.get("type"):
            yield path, before, after, resume  # another choice, which shares no fields
            return
        if after.keys() - before.keys():
            before = {**_defaults(now, after), **before}
        for key in {**after, **before}:
            old, new = before.get(key, UNSET), after.get(key, UNSET)
            part = now.get(key) if isinstance(now, Mapping) else getattr(now, key, None)
            why = resume or fields.of(type(now), key).resume
            yield from _differences(old, new, part, f"{path}.{key}".removeprefix("."), why)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        parts = now if isinstance(now, (list, tuple)) else [None] * len(after)
        for index, (old, new, part) in enumerate(zip(before, after, parts, strict=True)):
            yield from _differences(old, new, part, f"{path}[{index}]", resume)
    elif before != after:
        yield path, before, after, resume


def _set_differences(
    before: Any, after: Any, now: Any, resume: Resume | None
) -> Iterator[_Difference]:
    """Yields the changes of the evaluation sets, which are identified by name, in any order.

    A set may be added or removed, but one that stays must keep its data.
    """
    old = {one["name"]: one for one in before}
    new = {one["name"]: one for one in after}
    parts = {one.name: one for one in now}
    for name in {**new, **old}:
        path = f"{_SETS}[{name}]"
        if name in old and name in new:
            yield from _differences(old[name], new[name], parts[name], path)
        else:
            yield path, old.get(name, UNSET), new.get(name, UNSET), resume


def _defaults(section: Any, names: Iterable[str]) -> dict[str, Any]:
    """Returns the defaults of some fields of a config object."""
    try:
        made = printing.plain(type(section)()) if isinstance(section, base_config.Config) else {}
    except (TypeError, ValueError):  # the class cannot be constructed from defaults alone
        return {}
    return {name: made[name] for name in names if name in made}


def _places(experiment: config.Experiment) -> dict[str, str]:
    """Returns where values were set, by the path of the change, which names evaluation sets."""
    names = [one.name for one in experiment.run.evaluation_sets]
    return {
        re.sub(rf"^{_SETS}\[(\d+)\]", lambda m: f"{_SETS}[{names[int(m[1])]}]", path): place
        for path, place in config.origins(experiment).items()
    }


def _line(change: Change, now: config.Experiment, places: Mapping[str, str]) -> str:
    place = places.get(f"{change.path}.type") or places.get(change.path)
    if not place and _is_default(change, now):
        place = "default"
    return f"{change} ({place})" if place else str(change)


def _is_default(change: Change, now: config.Experiment) -> bool:
    """Returns whether a value of a loaded experiment is its field's default and was never set."""
    if "[" in change.path or change.new is UNSET or not origins.of(now):
        return False
    try:
        field = origins.field(now, change.path)
    except AttributeError:  # it is in a dict
        return False
    defaults = _defaults(field.section, [field.name])
    return field.name in defaults and defaults[field.name] == change.new


def _shown(value: Any) -> str:
    """Formats a value on one line, shortened.

    A choice is shown as a call of its type, without the fields that are None.
    """
    if value == {"type": None}:
        return "None"
    if isinstance(value, Mapping) and isinstance(value.get(value.get("type")), Mapping):
        fields = value[value["type"]].items()
        given = ", ".join(f"{name}={item!r}" for name, item in fields if item is not None)
        return f"{value['type']}({given})"
    shown = repr(value)
    short = len(shown) <= _LONGEST or not isinstance(value, (Mapping, list))
    return shown if short else f"{shown[:_LONGEST]} ..."
