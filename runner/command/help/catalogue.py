"""The config classes that help can show, from the runner and from gin files, by name."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from runner.command.help import facts, from_source
from runner.command.help.facts import FieldHelp, Section
from runner.command.help.values import is_base
from runner.configuration import gin_parser


class Found(NamedTuple):
    """A config class, with one of its fields if help for that field was requested."""

    section: Section
    field: FieldHelp | None = None


class Catalogue:
    """The config classes that help can show.

    Args:
        statements: Statements of gin files. The modules that they import are read, too.
        modules: Additional modules to read.
    """

    def __init__(
        self, statements: Iterable[gin_parser.Statement] = (), modules: Sequence[str] = ()
    ) -> None:
        imports = [each for each in statements if isinstance(each, gin_parser.Import)]
        self._folders = list(dict.fromkeys([Path.cwd(), *(each.source.folder for each in imports)]))
        self._imported = {each.module for each in imports if not is_base(each.source)}
        self._sections: dict[str, Section] = {each.full_name: each for each in facts.table()}
        shipped = {each.module for each in facts.table()}
        for module in sorted({*(each.module for each in imports), *modules} - shipped):
            self._read(module)

    @property
    def sections(self) -> list[Section]:
        """All config classes, the standard ones first."""
        return list(self._sections.values())

    def find(self, name: str) -> list[Found]:
        """Returns the matches of a name: `RunConfig`, `module.MyConfig`, `run`, or a field of one.

        If several config classes have the name, those in modules that the gin files import win.
        """
        if found := self.named(name):
            return [Found(each) for each in found]
        above, _, last = name.rpartition(".")
        return [
            Found(each, field)
            for each in self.named(above)
            for field in each.fields
            if field.field == last
        ]

    def named(self, name: str) -> list[Section]:
        """Returns the config classes with a name or a path."""
        if not name:
            return []
        found = [each for each in self.sections if f".{each.full_name}".endswith(f".{name}")]
        imported = [each for each in found if each.module in self._imported]
        return imported or found or [each for each in self.sections if each.path == name][:1]

    def _read(self, module: str) -> None:
        file = from_source.find(module, self._folders)
        for each in from_source.sections(file, module, self.sections) if file else ():
            self._sections[each.full_name] = each
