"""The file of `--output` for results that fit in one: whether it can be written."""

from pathlib import Path

from runner.errors import ConfigError

PICTURES = (".png", ".svg", ".pdf")
ENDS = {"find_rate": (".json", *PICTURES), "find_batch": (".json",), "compare": (".json",)}
"""The ends of names that a mode takes."""


def check(mode: str, path: Path) -> None:
    """Raises ConfigError if a mode of `ENDS` cannot write its results there."""
    if path.suffix not in ENDS[mode]:
        raise ConfigError(f"--output={path}: its name must end in {', '.join(ENDS[mode])}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        why = "it is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise ConfigError(f"--output={path}: {why}")
