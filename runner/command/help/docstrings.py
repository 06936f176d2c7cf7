"""Parses the docstring of a config class: its first paragraph and its `Attributes:`."""

import inspect
import re
import textwrap


def summary(text: str, name: str) -> str:
    """Returns a docstring's first paragraph, unless `dataclass` made it for the class `name`."""
    return "" if text.startswith(f"{name}(") else " ".join(text.split("\n\n")[0].split())


def attributes(text: str) -> dict[str, str]:
    """Returns the meanings of fields by name."""
    text = inspect.cleandoc(text).partition("Attributes:\n")[2]
    block = textwrap.dedent(re.split(r"\n(?=\S)", f"\n{text}", maxsplit=1)[0].strip("\n"))
    meanings = {}
    for entry in re.split(r"\n(?=\w+: )", block):
        name, colon, meaning = entry.partition(":")
        if colon and name.isidentifier():
            meaning = " ".join(meaning.split())
            meanings[name] = meaning[:1].upper() + meaning[1:]
    return meanings
