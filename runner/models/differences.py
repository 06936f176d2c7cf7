"""Finds the layers in which a Keras model differs from the model that a run has trained."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runner.models import copies

_COMPILED = "compile_config"
_SHOWN = 3
_LONGEST = 60
_NAMES = ("name", "shared_object_id")  # depend on the other objects built in the process


def between(old: str, new: str) -> str:
    """Describes the differences between two models.

    Args:
        old: The result of `copies.text` for the earlier model.
        new: The result of `copies.text` for the current model.
    """
    before, after = (copies.unbuilt(json.loads(each)["model"]) for each in (old, new))
    lines = [*_layers(before, after), *_compiled(before, after)]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "; ".join(lines[:_SHOWN]) + more or "its configuration differs"


def _layers(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    old, new = (_list(each.get("config"), "layers") for each in (before, after))
    if before["class_name"] != after["class_name"]:
        yield f"it is a {after['class_name']}, and was a {before['class_name']}"
    for was, now in zip(old, new, strict=False):
        if was.get("class_name") != now.get("class_name"):
            yield f"{_named(now)} replaces {_named(was)}"
            return  # the following layers may merely have moved
        if changes := list(_changes(was.get("config"), now.get("config"))):
            yield f"{_named(now)}: {', '.join(changes)}"
    for which, layers in (("new", new[len(old) :]), ("gone", old[len(new) :])):
        yield from (f"{_named(each)} is {which}" for each in layers)


def _compiled(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    old, new = (dict(each.get(_COMPILED) or {}) for each in (before, after))
    for each in (old, new):
        each.pop("optimizer", None)  # it is in the configuration
    yield from _changes(old, new)


def _changes(old: Any, new: Any) -> Iterator[str]:
    """`units: 8 -> 16`, or for objects of one class, such as losses, `loss: from_logits: ...`."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    for key in {**old, **new}:
        was, now = _plain(old.get(key)), _plain(new.get(key))
        if key in _NAMES or was == now:
            continue
        inner = list(_changes(_config(was), _config(now))) if _class(was) == _class(now) else []
        yield from (f"{key}: {change}" for change in inner)
        if not inner:
            yield f"{key}: {_short(was)} -> {_short(now)}"


def _class(value: Any) -> Any:
    return value.get("class_name") if isinstance(value, dict) else None


def _config(value: Any) -> Any:
    return value.get("config") if isinstance(value, dict) else None


def _plain(value: Any) -> Any:
    """A value without the names in it."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key not in _NAMES}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _short(value: Any) -> str:
    if isinstance(value, dict) and "class_name" in value:
        value = value["class_name"]
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]} ..."


def _named(layer: Mapping[str, Any]) -> str:
    name = (layer.get("config") or {}).get("name")
    return f"layer {name!r} ({layer.get('class_name')})" if name else f"a {layer.get('class_name')}"


def _list(config: Any, key: str) -> list[Mapping[str, Any]]:
    held = config.get(key) if isinstance(config, dict) else None
    return [each for each in held or () if isinstance(each, dict)]
