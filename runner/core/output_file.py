"""The file of `--output` for results that fit in one: whether it can be written."""

from collections.abc import Callable
from pathlib import Path

from runner.errors import ConfigError

PICTURES = (".png", ".svg", ".pdf")


def named(*ends: str) -> Callable[[str, str], Path]:
    """What parses the value of an option: the path of a file whose name has one of these ends."""

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
