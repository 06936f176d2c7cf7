"""What has changed in the configuration since the run in a folder was last started.

A run that goes on with other values is another experiment, and its record would not say so. The
exceptions are fields that say why they may change (`resume`, see `runner.configuration.settings`).
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
from runner.run_folder import begun, params
from runner.storage import display_names

_SETS = "run.evaluation_sets"
_FINGERPRINT = "fingerprint"  # the field that identifies what `runner.fit` was given
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
        old: The value before, UNSET if there was none.
        new: The value now, UNSET if there is none.
        harmless: Why the run is still the same experiment; empty if it is not.
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
    """The values that differ, in the order of the configuration.

    A field that is missing in `before` had its default then, or what that version did. But the
    section `run` is then new: Model Garden wrote `before`.

    Args:
        before: What `config.as_yaml` wrote, loaded.
        now: The experiment.
    """
    after = printing.plain(now)
    before = begun.completed({"run": after["run"], **before})
    return [
        Change(path, old, new, resume.why if resume and not resume.fails(now, path) else "")
        for path, old, new, resume in _differences(before, after, now)
    ]


def have_begun(model_dir: Path) -> bool:
    """Whether anything depends on the configuration yet, that is, a checkpoint."""
    return begun.has_checkpoints(model_dir)


def check(
    model_dir: Path, experiment: config.Experiment, *, allow: bool, note: Callable[[str], object]
) -> list[str]:
    """Compares `experiment` with the one that the run in `model_dir` was last started with.

    Before its first checkpoint a run has nothing that depends on it, and anything may change. After
    that, a missing or damaged params.yaml is refused: nothing would say what has changed. It may be
    missing if Model Garden wrote the newest checkpoint: its `run_experiment` writes none.

    Args:
        model_dir: The run's folder.
        experiment: The experiment to train.
        allow: Only note what would be refused.
        note: Called with each change that is not refused.

    Returns:
        These changes, a line for each.

    Raises:
        ConfigError: the run would become another experiment; a line for each change. Or what it
            was cannot be read.
    """
    if not have_begun(model_dir):
        return []
    theirs = _is_model_gardens(model_dir)
    path = model_dir / layout.PARAMS if theirs else layout.params(model_dir)
    if theirs and not path.exists():
        name = display_names.of(path)
        note(f"there is no {name} to compare the configuration with: Model Garden wrote none")
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
        lines = "".join(f"\n  {_line(change, experiment, places)}" for change in refused)
        raise ConfigError(
            f"{model_dir} was trained with another configuration:{lines}\n"
            "go on with the new one: {allow_config_change}, or begin anew in another {model_dir}"
            f"{_kept_by(refused, places)}",
            allow_config_change=True,
            model_dir=None,
        )
    for change in found:
        line = _line(change, experiment, places)
        note(f"changed: {line}{change.harmless and f'; {change.harmless}'}")
    return [str(change) for change in found]


def _is_model_gardens(model_dir: Path) -> bool:
    """Whether Model Garden wrote the newest checkpoint."""
    newest = checkpoint_files.there(model_dir)[-1:]
    try:
        return bool(newest) and extra_state.is_model_gardens(newest[0])
    except integrity.READ_ERRORS:
        return False


def _kept_by(refused: Iterable[Change], places: Mapping[str, str]) -> str:
    """How to keep a value that nobody changed directly, but that follows from the run's length."""
    kept = [
        f"{each.path} = {each.old}"
        for each in refused
        if places.get(each.path) == schedules.FOLLOWS
    ]
    if not kept:
        return ""
    return f"; to keep the learning rate as it was, set {', '.join(kept)}"


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
            f"{path} {wrong}, so nothing says which configuration the checkpoints were trained "
            "with.\nRestore a copy of the file, or pass {allow_config_change}: the run then "
            "resumes with this command's configuration, uncompared",
            allow_config_change=True,
        )
    return found


_Difference = tuple[str, Any, Any, Resume | None]
"""Path, old value, new value, and why it may change."""


def _differences(
    before: Any, after: Any, now: Any, path: str = "", resume: Resume | None = None
) -> Iterator[_Difference]:
    """What differs; `now` is the object that `after` shows, `resume` holds for all of it."""
    if path == _SETS:
        yield from _set_differences(before, after, now, resume)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        if isinstance(now, oneof.OneOfConfig) and before.get("type") != after.get("type"):
            yield path, before, after, resume  # another choice, whose fields have nothing in common
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
    """Changes of the evaluation sets, which are identified by name, whatever their order.

    A set may come or go, but one that stays keeps its data.
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
    """The defaults of some fields of a section."""
    try:
        made = printing.plain(type(section)()) if isinstance(section, base_config.Config) else {}
    except (TypeError, ValueError):  # they alone do not make one
        return {}
    return {name: made[name] for name in names if name in made}


def _places(experiment: config.Experiment) -> dict[str, str]:
    """The places of values by the paths of changes, which name evaluation sets."""
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
    """Whether a value of a loaded experiment is its field's default, which nobody has set."""
    if "[" in change.path or change.new is UNSET or not origins.of(now):
        return False
    try:
        field = origins.field(now, change.path)
    except AttributeError:  # it is in a dict
        return False
    defaults = _defaults(field.section, [field.name])
    return field.name in defaults and defaults[field.name] == change.new


def _shown(value: Any) -> str:
    """A value on one line, shortened; a choice is a call of its type, without None fields."""
    if value == {"type": None}:
        return "None"
    if isinstance(value, Mapping) and isinstance(value.get(value.get("type")), Mapping):
        fields = value[value["type"]].items()
        given = ", ".join(f"{name}={item!r}" for name, item in fields if item is not None)
        return f"{value['type']}({given})"
    shown = repr(value)
    short = len(shown) <= _LONGEST or not isinstance(value, (Mapping, list))
    return shown if short else f"{shown[:_LONGEST]} ..."
