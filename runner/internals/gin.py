"""The wording of gin's messages, which no API guarantees, and gin's state.

tests/internals fails if they change.
"""

import contextlib
import copy
import re
from collections.abc import Iterator
from typing import Any

import gin

_CALL = "\n  In call to configurable '"
REFUSED_TOKEN = re.compile(r"Failed to parse token '(\w+)'")
"""The message of gin's parser for a value that is not a literal."""


STATE = ("_CONFIG", "_IMPORTS", "_SINGLETONS")
"""The names under which gin keeps bindings, imports and singletons."""

OPERATIVE = "_OPERATIVE_CONFIG"
"""The name under which gin keeps used parameters, for `gin.operative_config_str`."""


def bindings() -> dict[str, Any]:
    """Returns all that gin's bindings and imports have set in this process."""
    state = {name: copy.copy(getattr(gin.config, name)) for name in STATE}
    state["_CONFIG"] = {key: dict(values) for key, values in state["_CONFIG"].items()}
    return {**state, "_CONFIG_IS_LOCKED": gin.config._CONFIG_IS_LOCKED}


def set_bindings(state: dict[str, Any]) -> None:
    """Restores what `bindings` returned."""
    for name in STATE:
        held = getattr(gin.config, name)
        held.clear()
        held.update(state[name])
    gin.config._CONFIG_IS_LOCKED = state["_CONFIG_IS_LOCKED"]


@contextlib.contextmanager
def use_unrecorded() -> Iterator[None]:
    """Stops gin from recording calls as used inside the context. Earlier records stay."""
    held = getattr(gin.config, OPERATIVE)
    before = dict(held)
    try:
        yield
    finally:
        held.clear()
        held.update(before)


def split_line(error: Exception) -> tuple[str, int]:
    """Returns gin's error in a text that it parsed, and the line number, 0 if unknown."""
    what, _, where = str(error).partition("\n  In ")
    line = re.search(r"line (\d+)", where)
    return what, int(line[1]) if line else 0


def split_call(error: Exception) -> tuple[str, str]:
    """Returns the error of a constructor that gin called, and its class's name, "" if unknown."""
    what, *calls = str(error).split(_CALL)
    return what, calls[0].partition("'")[0] if calls else ""


@contextlib.contextmanager
def without_calls() -> Iterator[None]:
    """Re-raises the original error from inside the context, without the calls that gin adds."""
    try:
        yield
    except Exception as error:
        first: BaseException | None = error
        while first is not None and _CALL in str(first):
            first = first.__context__
        if first is None or first is error:
            raise
        raise first from first.__cause__
