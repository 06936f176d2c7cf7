"""Search spaces: `CosineLrConfig.initial_learning_rate=log(1e-4, 0.1)`. No TensorFlow."""

import ast
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.core import sizes
from runner.core import text as words
from runner.errors import ConfigError

FILE = "gin_file"
"""The parameter of a trial whose configuration is in its own config.gin."""
_BEYOND = 2**63  # too large for an int in a configuration
MOST = 10_000
_SHORT = 9  # characters of a float that is shown as it was typed
"""The largest number of trials in a study."""

NOTHING_VARIES = (
    "nothing varies: pass --seeds, --folds or --vary, or set RunConfig.study = @StudyConfig() in a "
    "gin file"
)

_NAME = re.compile(r"[A-Za-z_][\w./]*\.[A-Za-z_]\w*")
_RANGES = ("uniform", "log", "int")
_EXAMPLE = '--vary="CosineLrConfig.initial_learning_rate=0.001,0.01" or "...=log(1e-4, 0.1)"'


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter that varies.

    Attributes:
        name: As for `--gin`: `AdamConfig.beta_1`.
        kind: `list`, `uniform`, `log` or `int`.
        values: The list, or the two ends.
        when: Another parameter and the value at which this one varies, or None if it always varies.
        text: As it was written.
    """

    name: str
    kind: str
    values: tuple[Any, ...]
    when: tuple[str, Any] | None
    text: str

    @property
    def examples(self) -> tuple[Any, ...]:
        """Values that are all valid if the parameter is: the list, or the ends."""
        return self.values

    def applies(self, chosen: Mapping[str, Any]) -> bool:
        """Returns whether the parameter varies given these chosen values."""
        return self.when is None or chosen.get(self.when[0]) == self.when[1]


def gin(name: str, value: Any) -> str:
    """Returns the gin binding that sets a parameter to a value."""
    return f"{name} = {value if is_reference(value) else repr(_tuples(value))}"


def _tuples(value: Any) -> Any:
    """Restores the tuples of a value from JSON, which has none."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def plain(value: Any) -> str:
    """Returns a value as JSON, for comparisons."""
    return json.dumps(value)


def is_reference(value: Any) -> bool:
    """Returns whether a value is a gin reference to a config class or a macro."""
    return isinstance(value, str) and value[:1] in ("@", "%")


def parse(texts: Sequence[str]) -> list[Parameter]:
    """Parses parameters.

    Raises:
        ConfigError: all problems, one line each.
    """
    found, problems = [], []
    for text in texts:
        try:
            sizes.check_length(text)
            found.append(_parameter(text))
        except (ConfigError, sizes.TooLargeError) as error:
            problems.append(f"--vary={words.shortened(text)}: {error}")
    problems += _contradictions(found)
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def grid(parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
    """Returns all combinations. The last parameter varies fastest.

    Raises:
        ConfigError: a parameter has a range instead of a list, or there are too many combinations.
    """
    for each in parameters:
        if each.kind != "list":
            raise ConfigError(
                f"--vary={each.text}: a grid needs lists of values. For a range, set "
                "StudyConfig.strategy = 'random' (or 'tpe') and pass --trials"
            )
    if (count := math.prod(len(each.values) for each in parameters)) > MOST:
        raise ConfigError(
            f"--vary has {count:,} combinations; the maximum is {MOST:,}. To try some of them, set "
            "StudyConfig.strategy = 'random' and pass --trials"
        )
    found: dict[str, dict[str, Any]] = {}
    for values in itertools.product(*(each.values for each in parameters)):
        chosen = only_applying(parameters, [each.name for each in parameters], values)
        found[repr(chosen)] = chosen
    return list(found.values())


def only_applying(
    parameters: Sequence[Parameter], names: Sequence[str], values: Sequence[Any]
) -> dict[str, Any]:
    """Drops the values of parameters that do not vary given the other values."""
    given = dict(zip(names, values, strict=True))
    chosen: dict[str, Any] = {}
    for each in parameters:
        if each.name in given and each.applies(chosen):
            chosen[each.name] = given[each.name]
    return chosen


def probes(parameters: Sequence[Parameter]) -> Iterator[dict[str, Any]]:
    """Yields choices that cover each value of a list, and each end of a range, at least once."""
    first = {each.name: each.values[0] for each in parameters}
    for each in parameters:
        for value in each.values:
            given = {**first, each.name: value}
            if each.when:
                given[each.when[0]] = each.when[1]
            yield only_applying(parameters, list(given), list(given.values()))


def shown(value: Any) -> str:
    """Formats a value: a float as it was typed if that is short, else with four digits."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if len(repr(value)) > _SHORT else f"{value:.{_SHORT}g}"


def described(chosen: Mapping[str, Any]) -> str:
    """Returns a short text for a directory's name: `initial_learning_rate=0.01,hidden=128`."""
    words = []
    for name, value in chosen.items():
        said = shown(value)
        words.append(f"{name.rpartition('.')[2]}={said}")
    return re.sub(r"[^\w.,=+-]+", "_", ",".join(words)).strip("_")[:60]


def _parameter(text: str) -> Parameter:
    name, equals, rest = text.partition("=")
    name = name.strip()
    if not equals or not _NAME.fullmatch(name):
        raise ConfigError(f"expected Name.parameter=VALUES, as in {_EXAMPLE}")
    values, found, condition = rest.rpartition(" if ")
    values, when = (values, _condition(condition)) if found else (rest, None)
    kind, numbers = _range(values.strip())
    if kind:
        return Parameter(name, kind, numbers, when, text)
    listed = tuple(_value(part) for part in words.parts(values))
    if len({repr(each) for each in listed}) < len(listed):
        raise ConfigError("lists a value twice")
    return Parameter(name, "list", listed, when, text)


def _condition(text: str) -> tuple[str, Any]:
    name, equals, value = text.replace("==", "=").partition("=")
    if not equals or not _NAME.fullmatch(name.strip()):
        raise ConfigError(
            f"after `if`, expected Name.parameter=value instead of {words.quoted(text.strip())}"
        )
    return name.strip(), _value(value)


def _range(text: str) -> tuple[str, tuple[Any, ...]]:
    """Returns the kind and the ends of a range, or an empty kind for anything else."""
    match = re.fullmatch(r"(\w+)\((.*)\)", text)
    if not match:
        return "", ()
    kind, ends = match[1], [_value(part) for part in words.parts(match[2])]
    if kind not in _RANGES:
        raise ConfigError(
            f"unknown range {words.shortened(kind)}(...); available: {', '.join(_RANGES)}"
        )
    wanted = (int,) if kind == "int" else (int, float)
    if len(ends) != 2 or any(type(end) not in wanted for end in ends):
        raise ConfigError(f"{kind}(a, b) takes two {'integers' if kind == 'int' else 'numbers'}")
    if not ends[0] < ends[1] or not all(-_BEYOND < end < _BEYOND for end in ends):
        raise ConfigError(f"{kind}(a, b): a must be below b, both between -2**63 and 2**63")
    if kind == "log" and ends[0] <= 0:
        raise ConfigError("log(a, b): a must be above 0")
    return kind, tuple(ends) if kind == "int" else tuple(map(float, ends))


def _value(text: str) -> Any:
    text = text.strip()
    if is_reference(text):
        return text
    try:
        value = ast.literal_eval(text)
        sizes.check(value)
        json.dumps(value)  # trial.json cannot hold bytes or sets
        return value
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        hint = f" (text needs quotes: '{text}')" if re.fullmatch(r"[\w-]+", text) else ""
        raise ConfigError(f"{words.quoted(text)} is not a valid value{hint}") from None


def _contradictions(parameters: Sequence[Parameter]) -> Iterator[str]:
    known: dict[str, Parameter] = {}
    for each in parameters:
        if each.name in known:
            yield f"--vary={each.text}: {each.name} already varies"
        if each.when and each.when[0] not in known:
            yield f"--vary={each.text}: {each.when[0]} must also vary, and must come first"
        elif each.when and each.when[1] not in known[each.when[0]].values:
            yield f"--vary={each.text}: {each.when[0]} is never {each.when[1]!r}"
        known[each.name] = each
