"""The snapshot of all messages: no other test pins a sentence, so wording is cheap to improve."""

import difflib
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRITER = runpy.run_path(str(ROOT / "scripts" / "write_messages.py"))


def test_the_snapshot_has_the_messages_of_the_source():
    stored = (ROOT / "tests" / "messages.txt").read_text(encoding="utf-8").splitlines()
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
