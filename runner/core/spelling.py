"""Suggests the names that the user probably meant."""

import difflib
from collections.abc import Iterable, Mapping

_RATE = (
    "; the learning rate is the schedule's, which LrConfig.type names: "
    "ConstantLrConfig.learning_rate, or initial_learning_rate of another one"
)
_SHORT = 3
_LONGEST = 200
_ELSEWHERE = dict.fromkeys(("learning_rate", "learningrate", "lr", "initial_learning_rate"), _RATE)


def elsewhere(word: str) -> str:
    """Returns the end of a message about a field that is often set in the wrong config class."""
    return _ELSEWHERE.get(word.lower(), "")


def did_you_mean(word: str, known: Iterable[str], aliases: Mapping[str, str] | None = None) -> str:
    """Returns `"; did you mean 'adam'?"`, the end of a message, or `""` if no name is close.

    For a valid name, it returns `""` too.

    Args:
        word: The word to correct.
        known: The valid names.
        aliases: Other names in common use, and the valid names that they mean.
    """
    if len(word) > _LONGEST:  # cannot be a typo, and comparing it takes long
        return ""
    names = {name.lower(): meant for name, meant in (aliases or {}).items()}
    names |= {name.lower(): name for name in known}
    if names.get(word.lower()) == word:
        return ""
    cutoff = 0.6 if len(word) > _SHORT else 0.76  # too many short words are similar
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=cutoff)
    if not near and len(word) >= _SHORT:
        near = sorted((name for name in names if name.startswith(word.lower())), key=len)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def metric_name(configured: str) -> str:
    """Returns a metric's name in history rows, which have `/` where Model Garden has `|`."""
    return configured.replace("|", "/")
