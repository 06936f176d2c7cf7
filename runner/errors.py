"""What goes wrong in a way the user should read: one short message, and an exit code."""

import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

_LIBRARIES = (
    Path(__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
)
_LONGEST = 300


class RunnerError(Exception):
    """The run cannot go on; the message says why. No traceback is shown for it."""

    exit_code = 1


class ConfigError(RunnerError):
    """A mistake in flags or configuration: what is wrong, where it was written, what was meant."""

    exit_code = 2


class DivergedError(RunnerError, RuntimeError):  # official raises a RuntimeError
    """The loss is no longer finite; the message names the last good checkpoint."""

    exit_code = 3


def from_graph(error: Exception) -> RunnerError | None:
    """What the user should read of an error of TensorFlow's, None for one that needs a traceback.

    Of a ConfigError that Python inside a graph raised, TensorFlow tells the class, the message and
    a traceback, all as the text of its own error. Of memory, it tells which tensor was too much; of
    a disk that is full, the file.
    """
    if found := re.search(r"\bConfigError: (.+)", str(error)):
        return ConfigError(found[1])
    if found := re.search(r"OOM when (allocating .+)", str(error)):
        return RunnerError(
            f"out of memory when {found[1]}\nless is needed with a smaller global_batch_size, or "
            "with RunConfig.gradient_accumulation, which takes a batch in parts"
        )
    if found := re.search(r"(.+No space left on device)", str(error)):
        return RunnerError(found[1])
    return None


def gist(error: BaseException) -> str:
    """An exception of any kind in a line: what it says, and the line of the user's that raised it.

    TensorFlow tells that of what goes wrong in a graph at the end of a text of its own, in which
    the user's lines are.
    """
    text = str(error).strip()
    blocks = [block for block in re.split(r"\n\s*\n", text) if "{{node" not in block.lstrip()[:9]]
    in_graph = re.search(r"in user code:|Graph execution error:|Traceback \(most recent", text)
    said = (blocks[-1 if in_graph else 0] if blocks else "").strip().partition("\n")[0][:_LONGEST]
    kind = "" if re.match(r"\w+(Error|Exception): ", said) else type(error).__name__
    what = ": ".join(part for part in (kind, said) if part)
    place = "".join([*_users(error)][-1:])
    return f"{what} ({place})" if place else what


def _users(error: BaseException) -> Iterator[str]:
    """The lines of the user's in a traceback, and in TensorFlow's text, the innermost last."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    for name, line in [*frames, *re.findall(r'File "(.+)", line (\d+)', str(error))]:
        file = Path(name)
        own = not any(file.is_relative_to(folder) for folder in _LIBRARIES)
        if own and file.is_file() and "__autograph_generated" not in name:
            yield f"{name}:{line}"
