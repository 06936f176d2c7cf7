"""Which names the user probably meant."""

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
    """Where to find fields that are often put in the wrong section, as the end of a message."""
    return _ELSEWHERE.get(word.lower(), "")


def did_you_mean(word: str, known: Iterable[str], aliases: Mapping[str, str] | None = None) -> str:
    """`"; did you mean 'adam'?"`, as the end of a message, or `""` if no known name is close.

    There is nothing to suggest to who wrote a valid name.

    Args:
        word: What was written.
        known: The valid names.
        aliases: Other names that people write, and the valid names that they mean.
    """
    if len(word) > _LONGEST:  # which nobody meant, and to compare it takes long
        return ""
    names = {name.lower(): meant for name, meant in (aliases or {}).items()}
    names |= {name.lower(): name for name in known}
    if names.get(word.lower()) == word:
        return ""
    cutoff = 0.6 if len(word) > _SHORT else 0.76  # of short words, too many are alike
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=cutoff)
    if not near and len(word) >= _SHORT:
        near = sorted((name for name in names if name.startswith(word.lower())), key=len)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def metric_name(configured: str) -> str:
    """A metric's name in rows of history; Model Garden nests names with `|`, rows with `/`."""
    return configured.replace("|", "/")
