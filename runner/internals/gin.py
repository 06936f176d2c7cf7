"""What gin's messages say, which no API guarantees. tests/internals fails if they change."""

import contextlib
import re
from collections.abc import Iterator

_CALL = "\n  In call to configurable '"
REFUSED_TOKEN = re.compile(r"Failed to parse token '(\w+)'")
"""What gin's parser says about a value that is not a literal."""


def split_line(error: Exception) -> tuple[str, int]:
    """What gin objects to in a text that it parsed, and the line's number, 0 if unknown."""
    what, _, where = str(error).partition("\n  In ")
    line = re.search(r"line (\d+)", where)
    return what, int(line[1]) if line else 0


def split_call(error: Exception) -> tuple[str, str]:
    """The error of a constructor that gin called, and its class's name, "" if unknown."""
    what, *calls = str(error).split(_CALL)
    return what, calls[0].partition("'")[0] if calls else ""


@contextlib.contextmanager
def without_calls() -> Iterator[None]:
    """Inside, an error in a class of gin's is raised as it was, without the calls that gin adds."""
    try:
        yield
    except Exception as error:
        first: BaseException | None = error
        while first is not None and _CALL in str(first):
            first = first.__context__
        if first is None or first is error:
            raise
        raise first from first.__cause__
