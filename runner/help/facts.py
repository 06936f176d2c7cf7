"""What help knows about sections and their fields: without TensorFlow, from a table.

The table, `fields.json`, holds what `from_classes` says about every section that comes with the
runner; `scripts/write_fields.py` writes it, and a test compares the two.
"""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("fields.json")


class FieldHelp(NamedTuple):
    """A field.

    Attributes:
        field: Its name.
        type: In words: `tuple of str`.
        default: As a Python literal; empty if it must be given.
        meaning: From the field for our sections, from the class's docstring for official's.
        allowed: The requirement, such as `must be 1 or more`; empty if the type allows everything.
        resume: Why a resumed run may have another value; empty if it may not.
        is_own: Whether the section adds it to those of its base class.
    """

    field: str
    type: str
    default: str
    meaning: str = ""
    allowed: str = ""
    resume: str = ""
    is_own: bool = True


class Section(NamedTuple):
    """A dataclass of the configuration.

    Attributes:
        name: Of its class.
        module: Where its class is defined.
        path: Where it is in an experiment (`run.early_stopping`), if it has one place.
        summary: What it is.
        fields: In their order.
    """

    name: str
    module: str
    path: str
    summary: str
    fields: tuple[FieldHelp, ...]

    @property
    def full_name(self) -> str:
        """`package.module.Class`."""
        return f"{self.module}.{self.name}"


@functools.cache
def table() -> tuple[Section, ...]:
    """The sections that come with the runner: the standard ones first, then the tasks'."""
    stored = json.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(
        Section(name, module, path, summary, tuple(FieldHelp(*field) for field in fields))
        for name, module, path, summary, fields in stored
    )


def dump(sections: Iterable[Section]) -> str:
    """The text of the table, a field on each line."""
    texts = []
    for each in sections:
        fields = ",\n".join(f"  {json.dumps(field)}" for field in each.fields)
        texts.append(f"{json.dumps(each[:-1])[:-1]}, [\n{fields}\n]]")
    return "[\n" + ",\n".join(texts) + "\n]\n"
