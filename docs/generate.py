"""Generates the parts of the manual that come from the code: fields, flags, modes, packages."""

import ast
import dataclasses
import runpy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from runner import inputs, run_config
from runner.command import parser
from runner.command import table as modes
from runner.command.help import facts, from_classes
from runner.command.modes import option

ROOT = Path(__file__).parents[1]
FIELDS = runpy.run_path(str(ROOT / "scripts" / "write_fields.py"))
CLASSES = ROOT / "docs" / "reference" / "classes"


def write(folder: Path) -> None:
    """Writes each part to a file in `folder`, which pages include, and a page for each class."""
    parts = {
        "resume.md": resume(),
        "help.txt": usage(),
        "modes.md": table(("mode", "what it does"), mode_rows()),
        "options.md": "\n".join(options()),
        "packages.svg": packages(),
        "modules.md": modules(),
    }
    for name, text in parts.items():
        update(folder / name, text)
    groups = {
        "runner": our_classes(),
        "official": official_classes(),
        "tasks": FIELDS["task_sections"](),
    }
    for group, kinds in groups.items():
        for kind in kinds:
            update(CLASSES / group / f"{title(kind)}.md", page(kind))


def update(path: Path, text: str) -> None:
    """Writes a file if its text has changed, because Sphinx rebuilds the pages of newer files."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# Config classes


def our_classes() -> list[type]:
    """Returns the classes of `Experiment.run`, and those of indexed inputs."""
    standard = from_classes.standard()
    return [
        *(kind for kind in standard if kind.__module__ == run_config.__name__),
        inputs.DataConfig,
        inputs.FoldedData,
    ]


def official_classes() -> list[type]:
    """Returns Model Garden's standard classes."""
    return [kind for kind in from_classes.standard() if kind.__module__.startswith("official.")]


def title(kind: type) -> str:
    """Returns a class's name in gin files. Only standard classes are named without a module."""
    package, _, module = kind.__module__.rpartition(".")
    is_standard = package.startswith("official") or kind.__module__ == run_config.__name__
    return kind.__name__ if is_standard else f"{module}.{kind.__name__}"


def page(kind: type) -> str:
    """Describes a class, with a heading for each field that its base class does not have."""
    base = kind.__bases__[0]
    inherits = dataclasses.is_dataclass(base) and dataclasses.fields(base)
    more = f" It also has the fields of `{base.__name__}`." if inherits else ""
    own = [row for row in from_classes.facts(kind) if row.is_own]
    fields = [
        f"## {row.field}\n\n{code(row.type)}, default {code(row.default)}\n\n{meaning(row)}\n"
        for row in own
    ]
    return "\n".join([f"# {title(kind)}\n\n{from_classes.summary(kind)}{more}\n", *fields])


def meaning(row: facts.FieldHelp) -> str:
    """Describes a field: its meaning, its range, and whether a resumed run may change it."""
    text = " ".join(filter(None, [reflow(row.meaning), row.requirement and f"*{row.requirement}*"]))
    changes = f"**May change on resume:** {row.may_change}" if row.resume else ""
    return "\n\n".join(filter(None, [text, changes]))


def resume() -> str:
    """Lists the fields that a resumed run may change, grouped by the reason."""
    reasons: dict[str, list[str]] = {}
    for kind in from_classes.standard():
        rows = from_classes.facts(kind)
        if all(row.resume for row in rows):
            continue  # the field that holds the config class is listed
        for row in rows:
            if row.resume:
                why = ", unless ".join(filter(None, [row.resume, row.unless]))
                reasons.setdefault(why, []).append(f"{kind.__name__}.{row.field}")
    rows = [(sentence(why), ", ".join(map(code, names))) for why, names in reasons.items()]
    return table(("reason", "fields"), rows)


# Modes


def mode_rows() -> Iterator[tuple[str, str]]:
    """Yields each mode with the first sentence of its function's docstring."""
    for name, mode in modes.modes().items():
        yield code(name), mode.summary


def usage() -> str:
    """Returns the output of `runner --help`."""
    return parser.overview()


def options() -> Iterator[str]:
    """Yields a table of each mode's own options, then the tables of shared options."""
    shared: dict[str, list[option.Option]] = {}
    for name, mode in modes.modes().items():
        own = [each for each in option.of(mode.options) if each.section == f"Options of {name}"]
        others = [each for each in option.of(mode.options) if each not in own]
        for each in others:
            if each not in shared.setdefault(each.section, []):
                shared[each.section].append(each)
        sections = ", ".join(dict.fromkeys(each.section for each in others))
        yield f"### {name}\n\n{mode.summary} Shared options: {sections}.\n"
        if own:
            yield option_table(own)
    for section, rows in shared.items():
        yield f"### {section}\n\n{option_table(rows)}"


def option_table(rows: Iterable[option.Option]) -> str:
    """Lists options with their flags, their values in Python and their meanings.

    The value in Python is empty for options that only the command line has.
    """
    return table(
        ("flag", "in Python", "meaning"),
        (
            (
                code(f"--{row.name}{f'={row.metavar}' if row.metavar else ''}"),
                "" if row.shell else code(f"{row.name}={row.default!r}"),
                sentence(row.help),
            )
            for row in rows
        ),
    )


# Packages


def packages() -> str:
    """Draws the packages of `runner` as SVG. Each is above the packages that it imports."""
    order, public = declared()
    imports = {name: imported(name, public) for name in order}
    height: dict[str, int] = {}
    for name in order:  # from the bottom up
        height[name] = max((height[below] + 1 for below in imports[name]), default=0)
    return drawing(height, reduced(imports))


def modules() -> str:
    """Lists all modules of the packages with the first paragraph of their docstrings."""
    rows = []
    for path in sorted((ROOT / "runner").glob("*/**/*.py")):
        if path.stem != "__init__":
            said = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
            name = path.relative_to(ROOT / "runner").with_suffix("").as_posix()
            rows.append((code(name), said))
    return table(("module", "purpose"), rows)


def declared() -> tuple[list[str], dict[str, str]]:
    """Reads the order of packages and the packages of public modules from the tests."""
    tree = ast.parse((ROOT / "tests" / "test_packages.py").read_text())
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id in ("PACKAGES", "PUBLIC")
    }
    return values["PACKAGES"], values["PUBLIC"]


def imported(package: str, public: Mapping[str, str]) -> set[str]:
    """Returns the other packages that a package's files import."""
    found = set()
    for path in sorted((ROOT / "runner").rglob("*.py")):
        if package_of(path.relative_to(ROOT / "runner").with_suffix("").parts, public) != package:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("runner"):
                for name in node.names:
                    parts = [*node.module.split("."), name.name][1:3]
                    found.add(package_of(parts, public))
    return found - {package}


def package_of(parts: Sequence[str], public: Mapping[str, str]) -> str:
    """Returns the package of a module. Some public modules belong to a package below the face."""
    if (ROOT / "runner" / parts[0]).is_dir():
        return parts[0]
    return public.get(parts[0], "face")


def reduced(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Drops imports that follow from others, to keep the drawing readable."""

    def below(name: str) -> set[str]:
        return imports[name].union(*(below(each) for each in imports[name]))

    return {
        name: {each for each in own if not any(each in below(other) for other in own - {each})}
        for name, own in imports.items()
    }


def drawing(height: Mapping[str, int], arrows: Mapping[str, set[str]]) -> str:
    """Draws boxes in rows by height, and a line from each box to the boxes that it imports."""
    width, box, row = 760, (120, 30), 64
    rows = [[name for name in height if height[name] == h] for h in range(max(height.values()) + 1)]
    centre = {
        name: (width * (index + 1) / (len(names) + 1), (len(rows) - 1 - h) * row + 24)
        for h, names in enumerate(rows)
        for index, name in enumerate(names)
    }
    lines, boxes = [], []
    for name, (x, y) in centre.items():
        for other in sorted(arrows[name]):
            to_x, to_y = centre[other]
            lines.append(
                f'<path d="M{x:.0f} {y + box[1] / 2:.0f} C{x:.0f} {y + row * 0.8:.0f} '
                f'{to_x:.0f} {to_y - row * 0.8:.0f} {to_x:.0f} {to_y - box[1] / 2:.0f}"/>'
            )
        boxes.append(
            f'<rect x="{x - box[0] / 2:.0f}" y="{y - box[1] / 2:.0f}" width="{box[0]}" '
            f'height="{box[1]}" rx="5"/><text x="{x:.0f}" y="{y + 5:.0f}">{name}</text>'
        )
    style = (
        "path{fill:none;stroke:#888;stroke-width:1.2} rect{fill:#eef3fa;stroke:#4a6fa5} "
        "text{font:14px sans-serif;text-anchor:middle;fill:#223}"
    )
    size = f'viewBox="0 0 {width} {len(rows) * row}"'
    inner = "\n".join([f"<style>{style}</style>", *lines, *boxes])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{inner}\n</svg>\n'


# Markdown


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Returns a Markdown table."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def cell(text: str) -> str:
    """Escapes text for a cell of a table."""
    return reflow(text).replace("|", "\\|")


def code(text: str) -> str:
    """Formats text as code."""
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """Adds a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def reflow(text: str) -> str:
    """Joins the lines of a text."""
    return " ".join(text.split())
