"""The page about exit codes knows every code that an error has."""

import re
from pathlib import Path

from runner import errors


def test_every_exit_code_is_documented():
    page = Path(__file__).parents[2] / "docs" / "reference" / "exit_codes.md"
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page.read_text(), re.MULTILINE)}
    kinds = [errors.RunnerError, *errors.RunnerError.__subclasses__()]
    assert {kind.exit_code for kind in kinds} | {0, 130, 143} == documented
