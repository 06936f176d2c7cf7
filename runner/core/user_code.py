"""Finds the lines of the user's code that led to an error, without the libraries around them.

A traceback through TensorFlow has a hundred lines, but the user wrote only two of them. AutoGraph,
Keras and a graph that fails while it runs put their part of the frames in the error's text.
"""

import contextlib
import inspect
import linecache
import os
import re
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner import errors
from runner.core import files
from runner.errors import ConfigError, LostError, RunnerError

_OTHERS = [
    Path(__file__).parents[1],
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib", "scripts")),
]
_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+).*$', re.M)
_AFTERWORDS = re.compile(r"\n\s*(Call arguments received by|\[\[\{\{node|\[Op:).*", re.DOTALL)
_GRAPH = re.compile(
    r"^in user code:"
    r"|^\{\{function_node [^}]*\}\}\s*"
    r"|^Graph execution error:\s*(Detected at node .+\n<stack traces unavailable>\s*)*"
)
_KNOWN = (
    (
        r"has type b?float16 that does not match type float32|"
        r"has type float32 that does not match type b?float16",
        "with RuntimeConfig.mixed_precision_dtype a model's outputs are of that type: give its "
        "last layer dtype='float32', or tf.cast(model_outputs, tf.float32) in the loss",
    ),
    (
        "No gradients provided for any variable",
        "the task's loss does not depend on any weight of its model",
    ),
)
_WIDEST = 200
_LONGEST = 8  # lines of an error's own message


def loaded() -> list[str]:
    """Returns the files of the user's modules that this process has imported."""
    return list(modules().values())


def of_script() -> dict[str, Any]:
    """Returns the classes and functions of the running script or notebook, by name."""
    return {
        name: value
        for name, value in vars(sys.modules["__main__"]).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == "__main__"
    }


def modules() -> dict[str, str]:
    """Returns the user's modules that this process has imported: their files, by name."""
    libraries = tuple(f"{folder}{os.sep}" for folder in _OTHERS)
    loaded_modules = list(sys.modules.items())
    files = {
        name: getattr(module, "__dict__", {}).get("__file__") for name, module in loaded_modules
    }
    return {name: file for name, file in files.items() if file and not file.startswith(libraries)}


class Frame(NamedTuple):
    """A line of code that was being executed."""

    file: str
    line: int
    function: str

    @property
    def place(self) -> str:
        """`task.py:12`, relative to the working directory."""
        return f"{_shown(self.file)}:{self.line}"

    @property
    def code(self) -> str:
        """The text of the line, if it is known."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def is_users(self) -> bool:
        """Whether the user wrote it: it is not the runner's, a library's or generated."""
        if self.file.startswith("<") or "__autograph_generated_file" in self.file:
            return False
        return not any(Path(self.file).is_relative_to(folder) for folder in _OTHERS)


def explain(error: BaseException) -> str | None:
    """Returns the user's lines that led to `error`, and its message, or None without user code.

    A failure in a graph comes from the task, even if every known line is a library's.
    """
    frames = [frame for frame in _frames(error) if frame.is_users]
    if not frames and not _GRAPH.search(str(error)):
        return None
    lines = ["in your code:"] if frames else ["in a graph that the task made:"]
    for frame in dict.fromkeys(frames):
        lines.append(f"    {frame.place}, in {frame.function}")
        if frame.code:
            lines.append(f"        {frame.code}")
    return "\n".join([*lines, textwrap.indent(_message(error), "    ")])


def advice(error: BaseException) -> ConfigError | None:
    """Returns advice on a common error, recognized by the message of TensorFlow or Keras."""
    said = _message(error)
    for pattern, what_to_do in _KNOWN:
        if re.search(pattern, said):
            frames = [frame.place for frame in _frames(error) if frame.is_users]
            first = said.splitlines()[0][:_WIDEST]
            return ConfigError(f"{': '.join([*frames[-1:], first])}\n{what_to_do}")
    return None


def keep(error: BaseException, path: Path, known: Sequence[str] = ()) -> None:
    """Writes the whole traceback, with `known` and other secrets masked, and notes its path.

    It adds the path to `error`. It skips errors that are shown as one line. If the disk rejects the
    file, the traceback is shown instead.
    """
    if not isinstance(error, Exception) or errors.readable(error):
        return
    from runner.core import secrets  # late: it takes 8 ms

    with contextlib.suppress(OSError, LostError):
        text = "".join(traceback.format_exception(error))
        files.write_text(path, secrets.masked(text, known))
        error.add_note(f"    the whole traceback is in {path}")


def summary(error: BaseException) -> str:
    """Returns one line with the message of `error` and its place in the user's code."""
    if isinstance(error, RunnerError | KeyboardInterrupt):
        return str(errors.readable(error) or error) or type(error).__name__
    said = str(errors.readable(error) or _message(error)).splitlines()[0]
    users = [frame for frame in _frames(error) if frame.is_users]
    return f"{said} ({users[-1].place})" if users else said


def blame(error: BaseException) -> str:
    """Returns the file and line in the user's code where `error` came from."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    found = [
        frame
        for frame in _frames(error)
        if not frame.file.startswith("<") and not Path(frame.file).is_relative_to(_OTHERS[0])
    ]
    users = [frame for frame in found if frame.is_users]
    return "".join(f"{frame.file}:{frame.line}" for frame in (users or found)[-1:])


def place(target: Callable[..., Any] | type) -> str:
    """Returns the file and line where a class or a function is defined, as far as known."""
    try:
        target = inspect.unwrap(target)
        _, line = inspect.getsourcelines(target)
        return f"{_shown(inspect.getsourcefile(target) or '')}:{line}"
    except (OSError, TypeError):  # entered interactively, or a builtin
        return getattr(target, "__module__", "") or repr(target)


def users(stack: Iterable[traceback.FrameSummary]) -> list[Frame]:
    """Returns the frames of a stack that are in the user's code, the innermost last."""
    frames = (Frame(each.filename, each.lineno or 0, each.name) for each in stack)
    return [frame for frame in frames if frame.is_users]


def _frames(error: BaseException) -> Iterator[Frame]:
    for each in traceback.extract_tb(error.__traceback__):
        yield Frame(each.filename, each.lineno or 0, each.name)
    for found in _FRAME.finditer(str(error)):
        yield Frame(found["file"], int(found["line"]), found["function"])


def _message(error: BaseException) -> str:
    """Returns the error's own message, with its class."""
    text = str(error)
    told = [*_FRAME.finditer(text)]
    if told:
        text = re.split(r"\n\s*\n", text[told[-1].end() :], maxsplit=1)[-1]
    text = textwrap.dedent(_AFTERWORDS.sub("", _GRAPH.sub("", text))).strip()
    lines = text.splitlines()[:_LONGEST]
    name = type(error).__name__
    if not told or not re.match(r"\w+: ", text):
        lines[:1] = [f"{name}: {lines[0]}" if lines else name]
    return "\n".join(lines)


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
