"""Every flag of the page "Common settings" changes what the page says."""

import re
import shlex
from pathlib import Path

import pytest

from runner import config
from runner.command import typed

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "settings.md"
ROWS = re.findall(r"^\| (.+?) \| `(--.+?)` \| `(\S+) = (.+?)` \|$", PAGE.read_text(), re.MULTILINE)


def loaded(*more):
    given = typed.parse(["--print_config", "--gin_file=digits.gin", *more]).options
    return config.load(given.gin_file, given.gin_params, overrides=given.params_override)


def value(experiment, path):
    for name in path.split("."):
        name, _, index = name.partition("[")
        experiment = getattr(experiment, name, None)
        if index:
            experiment = (experiment or [None])[int(index[:-1])]
    return experiment


@pytest.fixture(scope="module")
def as_it_is():
    return loaded()


@pytest.mark.parametrize(
    ("flag", "path", "wanted"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS]
)
def test_the_flag_of_the_row_sets_it(as_it_is, flag, path, wanted):
    (argument,) = shlex.split(flag)
    changed = loaded(argument)
    assert str(value(changed, path)) == wanted
    assert str(value(as_it_is, path)) != wanted
    config.validate(changed, trains=True, evaluates=True)


def test_the_page_has_what_people_change():
    assert len(ROWS) > 20
