"""Keeps Python's garbage collection away from module imports and from what they leave in memory."""

import contextlib
import gc
import sys
from collections.abc import Iterator

_frozen = {"done": False, "tokenizer": False}


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disables garbage collection inside the context."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def freeze() -> None:
    """Exempts current objects from garbage collection, on the first call in a process.

    Later calls have no effect, because memory then also holds garbage of finished runs, which would
    never be freed.
    """
    if not _frozen["done"]:
        _frozen["done"] = True
        _frozen["tokenizer"] = _is_a_tokenizer_collected()
        gc.freeze()


def has_tokenizer() -> bool:
    """Returns whether this process holds a SentencepieceTokenizer."""
    return _frozen["tokenizer"] or _is_a_tokenizer_collected()


def _is_a_tokenizer_collected() -> bool:
    """Returns whether one is among the objects that are not frozen. Python does not list others."""
    kind = getattr(sys.modules.get("tensorflow_text"), "SentencepieceTokenizer", None)
    if kind is None:
        return False
    kinds = [kind]
    for each in kinds:
        kinds += each.__subclasses__()
    return any(type(each) in kinds for each in gc.get_referrers(*kinds))
