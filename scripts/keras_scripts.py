"""Runs everyday Keras scripts as they are, and with `runner.fit` in place of `model.fit`.

    python -m scripts.keras_scripts                          # all of experiments/keras
    python -m scripts.keras_scripts digits_dense gan --outputs

The conversion follows one rule, and each script runs twice as a separate process. If the rule is
not enough for a line, the script has a comment with the line that replaces it:

    best = load_model("best.keras")  # runner: best = runner.load_model("runs/mine")
    patience=3,  # runner: delete
"""

import ast
import difflib
import io
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts import processes

SCRIPTS = processes.ROOT / "experiments" / "keras"
_COMMENT, _DELETE = "# runner: ", "delete"
_IMPORT = "import runner"
_MOST_SECONDS = 600
_HEAD = ("script", "Keras", "what it shows", "changed lines", "result", "Keras s", "runner s")


class Ran(NamedTuple):
    """A process that has ended.

    Attributes:
        error: The last line of its error, or "".
        output: The last line that it printed.
        seconds: Its wall time.
    """

    error: str
    output: str
    seconds: float


def main() -> int:
    """Runs the scripts that the command line names, and prints a row for each."""
    parser = processes.parser("keras_scripts", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts. None: all")
    parser.add_argument("--markdown", action="store_true", help="print a table for the manual")
    parser.add_argument("--outputs", action="store_true", help="print the last line of each run")
    flags = parser.parse_args()
    processes.use_this_checkout()
    paths = [SCRIPTS / f"{name}.py" for name in flags.names] or sorted(SCRIPTS.glob("*.py"))
    row = _in_markdown if flags.markdown else _in_columns
    print(row(_HEAD))
    if flags.markdown:
        print(row(["---"] * len(_HEAD)))
    good = 0
    for path in paths:
        text = path.read_text(encoding="utf-8")
        changed = converted(text, f"runs/{path.stem}")
        plain, run = ran(text, path.name), ran(changed, path.name)
        result = f"Keras: {plain.error}" if plain.error else run.error or "ok"
        good += result == "ok"
        seconds = [f"{each.seconds:.0f}" for each in (plain, run)]
        counts = str(changed_lines(text, changed))
        print(row([path.stem, _library(text), _shows(text), counts, result, *seconds]), flush=True)
        if flags.outputs:
            print(f"    Keras:  {plain.output}\n    runner: {run.output}", flush=True)
    print(f"\n{good} of {len(paths)} scripts run")
    return int(good < len(paths))


def converted(text: str, model_dir: str) -> str:
    """Replaces `model.fit(...)` by `runner.fit(model, ..., model_dir=...)`, and imports runner.

    Every call of a method `fit` is considered to be that of a Keras model.

    Args:
        text: A script.
        model_dir: The run's directory. Each further call gets it with a number: `runs/name-2`.
    """
    text = _with_replaced_lines(text)
    tree = ast.parse(text)
    content = text.encode()
    edits: list[tuple[int, int, str]] = []  # in bytes, as the offsets of ast
    start = [0]
    for line in content.splitlines(keepends=True):
        start.append(start[-1] + len(line))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    end_of_imports = start[imports[-1].end_lineno or 0]
    edits.append((end_of_imports, end_of_imports, f"{_IMPORT}\n"))
    for number, (call, model) in enumerate(_fits(tree), 1):
        first = _place(start, call.lineno, call.col_offset)
        arguments = _place(start, call.func.end_lineno, call.func.end_col_offset) + 1
        space = "" if content[arguments:].startswith(b"\n") else " "
        edits.append((first, arguments, f"runner.fit({ast.unparse(model)},{space}"))
        if not any(keyword.arg == "model_dir" for keyword in call.keywords):
            values = (*call.args, *(keyword.value for keyword in call.keywords))
            place = max(_place(start, each.end_lineno, each.end_col_offset) for each in values)
            name = model_dir if number == 1 else f"{model_dir}-{number}"
            edits.append((place, place, f', model_dir="{name}"'))
    for first, end, new in sorted(edits, reverse=True):
        content = content[:first] + new.encode() + content[end:]
    return content.decode()


def changed_lines(text: str, changed: str) -> int:
    """The number of lines that differ, except for `import runner`."""
    before = text.splitlines()
    after = [line for line in changed.splitlines() if line != _IMPORT]
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in codes if tag != "equal")


def ran(text: str, name: str) -> Ran:
    """Runs a script as a process in a temporary directory."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_text(text, encoding="utf-8")
        start = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, name],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Ran(f"not done after {_MOST_SECONDS} s", "", _MOST_SECONDS)
        seconds = time.monotonic() - start
    error = _last(done.stderr) or f"exit code {done.returncode}" if done.returncode else ""
    return Ran(error, _last(done.stdout), seconds)


def _with_replaced_lines(text: str) -> str:
    """Replaces the lines that have a comment for the runner."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.string.startswith(_COMMENT):
            line = lines[token.start[0] - 1]
            indent = line[: len(line) - len(line.lstrip())]
            lines[token.start[0] - 1] = indent + token.string.removeprefix(_COMMENT)
    return "".join(f"{line}\n" for line in lines if line.strip() != _DELETE)


def _fits(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yields the calls of `fit` in their order, each with the model."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "fit":
            yield call, call.func.value


def _place(start: Sequence[int], line: int | None, column: int | None) -> int:
    """The place in a text of a line and column of ast, where each line starts as given."""
    return start[(line or 1) - 1] + (column or 0)


def _library(text: str) -> str:
    """The version of Keras that a script imports."""
    return "2" if "tf_keras" in text else "3"


def _shows(text: str) -> str:
    """The first line of a script's documentation."""
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def _last(output: str) -> str:
    """The last line of an output that is not empty."""
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")


def _in_columns(parts: Sequence[str]) -> str:
    widths = (24, 6, 76, 14, 8, 8, 8)
    return " ".join(f"{part:{width}}" for part, width in zip(parts, widths, strict=True)).rstrip()


def _in_markdown(parts: Sequence[str]) -> str:
    return f"| {' | '.join(part.replace('|', '/') for part in parts)} |"


if __name__ == "__main__":
    sys.exit(main())
