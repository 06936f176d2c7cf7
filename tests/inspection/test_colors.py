"""A run keeps its color on every page, also when others are added."""

from pathlib import Path
from types import SimpleNamespace

from runner.inspection import curves


def run(name, started, number=None):
    trial = None if number is None else {"number": number}
    return SimpleNamespace(directory=Path(name), trial=trial, attempts=[{"started": started}])


def test_newer_runs_do_not_change_the_colors_of_older_ones():
    runs = [run(f"runs/{name}", n) for n, name in enumerate("abcdefghijkl")]
    found = curves.colors_of(runs)
    assert len(set(found)) == len(runs)
    for count in range(1, len(runs)):
        assert curves.colors_of(runs[:count]) == found[:count]
    assert curves.colors_of(runs[::-1]) == found[::-1]


def test_a_trial_has_the_color_of_its_number():
    runs = [run(f"s/trials/{n:04}-x", n, number=n) for n in (3, 11, 40)]
    assert curves.colors_of(runs) == [3, 11, 40]
