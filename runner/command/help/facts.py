"""The config classes and fields that help shows, from a table and without TensorFlow.

The table, `fields.json`, contains the output of `from_classes` for every config class of the
runner. `scripts/write_fields.py` writes it, and a test compares the two.
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
        default: As a Python literal, or empty if the field is required.
        meaning: For our config classes from the field, for Model Garden's from the docstring.
        allowed: The requirement, such as `must be 1 or more`. Empty if the type allows everything.
        resume: Why a resumed run may have another value, in a few words. Empty if it may not.
        unless: The condition under which it may not.
        is_own: Whether the config class adds it to the fields of its base class.
    """

    field: str
    type: str
    default: str
    meaning: str = ""
    allowed: str = ""
    resume: str = ""
    unless: str = ""
    is_own: bool = True

    @property
    def requirement(self) -> str:
        """The allowed values as a sentence, or empty."""
        return f"{self.allowed[:1].upper()}{self.allowed[1:]}." if self.allowed else ""

    @property
    def may_change(self) -> str:
        """Whether a resumed run may have another value: `yes (<reason>)`, or empty if not."""
        if self.unless:
            return f"yes, unless {self.unless}"
        return f"yes ({self.resume})" if self.resume else ""


class Section(NamedTuple):
    """A config class.

    Attributes:
        name: The name of the class.
        module: The module that defines it.
        path: Its path in an experiment (`run.early_stopping`), if it has a single one.
        summary: A description.
        fields: The fields, in order.
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
    """Returns the config classes of the runner, the standard ones first, then the tasks'."""
    stored = json.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(
        Section(name, module, path, summary, tuple(FieldHelp(*field) for field in fields))
        for name, module, path, summary, fields in stored
    )


def dump(sections: Iterable[Section]) -> str:
    """Returns the text of the table, one field per line."""
    texts = []
    for each in sections:
        fields = ",\n".join(f"  {json.dumps(field)}" for field in each.fields)
        texts.append(f"{json.dumps(each[:-1])[:-1]}, [\n{fields}\n]]")
    return "[\n" + ",\n".join(texts) + "\n]\n"
