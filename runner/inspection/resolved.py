"""Looks up and compares values in the configurations of many runs, by path. No TensorFlow.

Parts that several runs have in common are one object (see `runner.run_directory.params`), so a
comparison skips them without looking inside. A list of mappings is treated as one mapping, whose
keys are the names of its parts, or else their numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from runner.run_directory.params import Values

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "absent"})()
"""The value of a path that a configuration does not have."""


def _section(value: Any) -> Values | None:
    """Returns a mapping, or a list of mappings as a mapping, or None for other values."""
    if isinstance(value, Mapping):
        is_plain = {*map(type, value)} <= {str}
        return value if is_plain else {str(name): part for name, part in value.items()}
    if not (isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value)):
        return None
    names = [str(part.get("name") or number) for number, part in enumerate(value)]
    if len(set(names)) < len(names):
        names = [str(number) for number in range(len(value))]
    return dict(zip(names, value, strict=True))


def _named(value: Any) -> Any:
    """Replaces all lists of mappings in `value` with mappings."""
    section = _section(value)
    if section is None:
        return value
    return {str(name): _named(part) for name, part in section.items()}


def get(values: Values, path: str) -> Any:
    """Returns the value at a path such as `trainer.train_steps`, or `ABSENT`.

    A name in the path may itself contain dots.
    """
    if path in values:
        return _named(values[path])
    at = path.find(".")
    while at >= 0:
        inner = _section(values.get(path[:at]))
        if inner is not None:
            found = get(inner, path[at + 1 :])
            if found is not ABSENT:
                return found
        at = path.find(".", at + 1)
    return ABSENT


def paths(all_of: Iterable[Values]) -> Iterator[str]:
    """Yields the path of every value that any of them has, once."""
    yield from dict.fromkeys(_paths(list(all_of), ""))


def _paths(all_of: Sequence[Any], path: str) -> Iterator[str]:
    different = _distinct(all_of)
    sections = [section for each in different if (section := _section(each)) is not None]
    if path and len(sections) < len(different):
        yield path
    for name in dict.fromkeys(name for each in sections for name in each):
        inner = [each[name] for each in sections if name in each]
        yield from _paths(inner, f"{path}.{name}" if path else name)


def differing(all_of: Sequence[Values]) -> list[str]:
    """Returns the paths of values that are not equal in all of them, in the order of the file.

    A value that only some have is included if it differs among these: the fields of one optimizer
    are meaningless for a run with another one.
    """
    return list(_differing(list(all_of), ""))


def _differing(all_of: Sequence[Any], path: str) -> Iterator[str]:
    different = _distinct(all_of)
    if len(different) < 2:
        return
    sections = [section for each in different if (section := _section(each)) is not None]
    if len(sections) < len(different):
        if len({_key(each) for each in different}) > 1:
            yield path
        return
    for name in dict.fromkeys(name for each in sections for name in each):
        inner = [each[name] for each in sections if name in each]
        yield from _differing(inner, f"{path}.{name}" if path else name)


def _distinct(all_of: Iterable[Any]) -> list[Any]:
    """Returns each distinct object once."""
    return list({id(each): each for each in all_of}.values())


def _key(value: Any) -> str:
    """Returns a key that is equal for equal values, and differs between 1, 1.0 and true."""
    return repr(value)


def _leaves(values: Values, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each value with its path."""
    for name, value in values.items():
        inner = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            yield from _leaves(value, inner)
        else:
            yield inner, value


def shown(value: Any) -> str:
    """Formats a value on one line, or `-` if there is none."""
    if value is ABSENT:
        return "-"
    if isinstance(value, Mapping):
        given = [f"{name}={shown(each)}" for name, each in _leaves(value) if each is not None]
        return ", ".join(given) or "{}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ",".join(map(shown, value)) or "[]"
    return str(value) if value != "" else "''"
