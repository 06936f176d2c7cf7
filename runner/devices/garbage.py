"""Python's search for garbage: not while modules are imported, nor among what they left."""

import contextlib
import gc
import sys
from collections.abc import Iterator

_frozen = {"tokenizer": False}


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Inside, Python does not collect garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def freeze() -> None:
    """Exempts what is in memory now from collection, the first time that a process asks for it.

    Later there is garbage of finished runs too, which would be kept for good.
    """
    if not gc.get_freeze_count():
        _frozen["tokenizer"] = _is_a_tokenizer_collected()
        gc.freeze()


def has_tokenizer() -> bool:
    """Whether this process holds a SentencepieceTokenizer."""
    return _frozen["tokenizer"] or _is_a_tokenizer_collected()


def _is_a_tokenizer_collected() -> bool:
    """Whether there is one among the objects that are not frozen, which Python does not search."""
    kind = getattr(sys.modules.get("tensorflow_text"), "SentencepieceTokenizer", None)
    if kind is None:
        return False
    kinds = [kind]
    for each in kinds:
        kinds += each.__subclasses__()
    return any(type(each) in kinds for each in gc.get_referrers(*kinds))
