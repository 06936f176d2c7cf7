"""The snapshot of all messages: no other test pins a sentence, so wording is cheap to improve."""

import ast
import difflib
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
SNAPSHOT = ROOT / "tests" / "messages.txt"
WRITER = runpy.run_path(str(ROOT / "scripts" / "write_messages.py"))
DATA = {  # looks like messages of the runner
    "No such file or directory",  # of the operating system
    "no matches for kind JobSet",  # of kubectl
}


def test_the_snapshot_has_the_messages_of_the_source():
    stored = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    changed = list(
        difflib.unified_diff(stored, WRITER["render"]().splitlines(), "stored", "source", n=0)
    )
    assert not changed, "run: python scripts/write_messages.py\n" + "\n".join(changed)


def test_the_snapshot_shows_inserted_values_by_name_and_leaves_out_docstrings():
    module = '''
def check(run):
    """A docstring of several words."""
    if run.step < 0:
        raise ConfigError(f"{run.folder}: " + f"step {run.step:,} is below 0")
    console.say("ready", style="red")
    return {"key": "of the mapping"}
'''
    assert list(WRITER["messages"](module)) == [
        "    {folder}: step {step} is below 0",
        "    ready",
        "    of the mapping",
    ]


def in_a_row(text):
    """Each four words in a row, whatever their punctuation."""
    words = [word.strip("`'\".,:;()!?") for word in text.split()]
    fours = zip(*(words[n:] for n in range(4)), strict=False)
    return {four for four in fours if all(re.fullmatch(r"[^\W\d_]+", word) for word in four)}


def texts(path):
    """The texts of a module, without docstrings and programs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = (part.value for part in node.values)
            yield "".join(value if isinstance(value, str) else "{}" for value in values)
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield "" if "import " in str(node.value) else str(node.value)


def test_no_other_test_has_four_words_of_a_message_in_a_row():
    messages = in_a_row(SNAPSHOT.read_text(encoding="utf-8"))
    for path in (ROOT / "tests").rglob("*.py"):
        pinned = [text for text in texts(path) if text not in DATA and in_a_row(text) & messages]
        assert not pinned, f"{path.relative_to(ROOT)}: see tests/helpers/wording.py"
