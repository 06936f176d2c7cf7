"""The README and the manual: their commands are run, their links and messages exist.

A comment before a block of commands says otherwise: `<!-- fails: 2 -->` expects an exit code,
`<!-- checked: why -->` only has the flags checked, and `<!-- not run: why -->` nothing.
"""

import ast
import contextlib
import io
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import own_task
import pytest
import tf_keras
import warm

from runner import main
from runner.command import typed
from runner.command.help import from_classes
from runner.run_directory.verification import child_run

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / "README.md", ROOT / "docs" / "index.md"),
    *sorted((ROOT / "docs").glob("[!_]*/*.md")),
]
FIRST_RUN = "--mode=train_and_eval --gin_file=digits.gin --model_dir=runs/digits"
NUMBER = r"\d[\d.,]*"


class Command(NamedTuple):
    """A line of a console block, what to do with it, and the lines shown as its output."""

    page: Path
    kind: str
    text: str
    output: list[str]


def commands(page):
    blocks = re.findall(
        r"(?:<!-- (not run|checked|fails): (.+?) -->\n)?```console\n(.*?)```",
        page.read_text(),
        re.DOTALL,
    )
    for kind, why, block in blocks:
        block = re.sub(r" \\\n +", " ", block)  # long commands are broken
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            text, *output = part.splitlines()
            yield Command(page, f"fails: {why}" if kind == "fails" else kind, text, output)


def run(command, capsys):
    """What a command prints, once it has ended with the exit code that the page expects."""
    program, *arguments = shlex.split(command.text)
    assert program in ("runner", "python"), command.text
    capsys.readouterr()
    try:
        code = main.main(arguments) if program == "runner" else script(*arguments)
    except SystemExit as ended:  # of --help
        code = ended.code
    printed = capsys.readouterr()
    expected = int(command.kind.removeprefix("fails: ") or 0)
    assert code == expected, f"{command.text}\n{printed.err}"
    return [*printed.err.splitlines(), *printed.out.splitlines()]


def script(name):
    runpy.run_path(name)
    return 0


def shown(line):
    """A line of the manual as a pattern: any number for a number, anything for three dots.

    There may be more or fewer spaces before a number, as in a column of a table.
    """
    number = r"((?:\\ )*)\d(?:[\d,]|\\?\.)*"
    parts = [re.escape(part) for part in line.split("...")]
    return ".*".join(
        re.sub(number, lambda found: (" +" if found[1] else "") + NUMBER, part) for part in parts
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a digits run that has ended, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    tf_keras.backend.reset_uids()
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert main.main(FIRST_RUN.split()) == 0
    return folder / "runs", [*err.getvalue().splitlines(), *out.getvalue().splitlines()]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(not each.kind for each in commands(page))],
    ids=lambda page: page.stem,
)
def test_commands_do_what_the_page_shows(page, finished, tmp_path, monkeypatch, capsys):
    runs, of_first_run = finished
    if page.stem != "README" and page.parent.name != "tutorials":  # which begin with nothing
        shutil.copytree(runs, tmp_path / "runs")
    monkeypatch.setattr(child_run, "Child", warm.Fork)  # processes that need not import all again
    for name, text in {**own_task.FILES, **own_task.examples(page)}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", list(sys.path))
    tf_keras.backend.reset_uids()  # layers are named as in a process of their own
    for command in commands(page):
        if not command.kind or command.kind.startswith("fails"):
            if command.text == f"runner {FIRST_RUN}" and not (tmp_path / "runs").exists():
                shutil.copytree(runs, tmp_path / "runs")  # it has run as `finished`
                printed = iter(of_first_run)
            else:
                printed = iter(run(command, capsys))
            for line in command.output:
                pattern = shown(line)
                assert line == "..." or any(re.fullmatch(pattern, each) for each in printed), line


@pytest.mark.parametrize(
    "command",
    [each for page in PAGES for each in commands(page) if each.kind == "checked"],
    ids=lambda each: f"{each.page.stem}: {each.text}",
)
def test_commands_that_need_more_than_a_test_has_are_well_formed(command):
    program, *arguments = shlex.split(command.text)
    if program == "runner":
        typed.parse(arguments)
    else:
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        assert program in scripts


def test_commands_stand_in_console_blocks():
    for page in PAGES:
        rest = re.sub(r"```console\n.*?```", "", page.read_text(), flags=re.DOTALL)
        assert not re.findall(r"^\s*\$? ?(?:runner --|pip install|python ).*$", rest, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_pages(page):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
        assert (page.parent / link).is_file(), link


def test_the_script_of_the_readme_trains_and_resumes():
    ((name, text),) = own_task.examples(PAGES[0]).items()
    Path(name).write_text(text)
    tf_keras.backend.reset_uids()
    first, again = (runpy.run_path(name)["results"] for _ in range(2))
    assert first["status"] == "done"
    assert first["metrics"]["accuracy"] > 0.8
    assert (again["step"], again["metrics"]) == (first["step"], first["metrics"])


def literals():
    """Every text in the code, with three dots for what is filled in; `{steps}` is an option."""
    for path in [*ROOT.glob("runner/**/*.py"), *ROOT.glob("tasks/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", None) for part in node.values]
                text = "".join(part if isinstance(part, str) else "..." for part in parts)
                yield re.sub(r"\{(\w+)\}", r"--\1=...", text)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def as_pattern(term):
    parts = [re.escape(part) for part in term.strip(".").split("...")]
    return re.compile("[^\0]*".join(parts))


def test_messages_of_troubleshooting_are_those_of_the_code():
    code = "\0".join(literals())
    page = (ROOT / "docs" / "reference" / "troubleshooting.md").read_text()
    terms = re.findall(r"^`(.+)`$", page, re.MULTILINE)
    assert len(terms) > 30
    assert not [term for term in terms if not as_pattern(term).search(code)]


def test_architecture_names_every_package():
    page = (ROOT / "docs" / "developers" / "architecture.md").read_text()
    for path in (ROOT / "runner").iterdir():
        if (path / "__init__.py").exists():
            assert f"| `{path.name}` |" in page


def test_every_field_of_ours_has_a_meaning():
    for kind in from_classes.standard():
        for row in from_classes.facts(kind):
            assert row.meaning or kind.__module__ != "runner.run_config", row
