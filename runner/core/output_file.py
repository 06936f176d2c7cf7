"""Checks that the file given by `--output`, for results that fit in one file, can be written."""

from collections.abc import Callable
from pathlib import Path

from runner.errors import ConfigError

PICTURES = (".png", ".svg", ".pdf")


def named(*ends: str) -> Callable[[str, str], Path]:
    """Returns a parser of an option whose value is a file name with one of these suffixes."""

    def parse(name: str, text: str) -> Path:
        path = Path(text)
        if "://" in text:
            return path
        if path.suffix not in ends:
            raise ConfigError(f"{{{name}}}: its name must end in {', '.join(ends)}", **{name: text})
        if path.is_dir() or not path.absolute().parent.is_dir():
            why = "it is a directory" if path.is_dir() else f"there is no directory {path.parent}"
            raise ConfigError(f"{{{name}}}: {why}", **{name: text})
        return path

    return parse
