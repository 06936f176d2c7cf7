"""Pictures of a study, from made trials."""

from pathlib import Path

import pytest
from PIL import Image

from runner.studies import pictures, summary, trial


def made(number, rate, seed, *, state="done", values=(0.5, 0.7, 0.6)):
    rows = [(100 * (n + 1), {"part/f1": value, "loss": 1.0}) for n, value in enumerate(values)]
    best, last = ({}, {}) if not rows else (max(rows, key=lambda row: row[1]["part/f1"]), rows[-1])
    return trial.Trial(
        number, Path("x"), {"A.rate": rate}, seed, None, state, 300,
        best=best and best[1], last=last and last[1], evaluations=rows,
        objective=trial.Objective("part/f1"),
    )  # fmt: skip


@pytest.fixture
def found():
    return summary.of(
        [
            *(made(n, 0.1, n, values=(0.5, 0.7, 0.6 + n / 10)) for n in range(3)),
            made(3, 0.2, 0),  # one run: neither density nor interval
            *(made(4 + n, 0.3, n) for n in range(2)),  # equal runs: no density
            made(6, 0.4, 0, state="waiting", values=()),
            made(7, 0.5, 0, state="diverged"),
        ]
    )


def test_each_metric_has_four_pictures_in_two_formats(found, tmp_path):
    made = pictures.draw(tmp_path / "plots", found)
    kinds = [f"{kind}.{end}" for kind in pictures.KINDS for end in ("svg", "png")]
    names = [f"{metric}-{kind}" for metric in ("part-f1", "loss") for kind in kinds]
    assert [path.name for path in made] == names
    assert all(path.read_text().startswith("<?xml") for path in made[::2])
    assert all(min(Image.open(path).size) > 200 for path in made[1::2])


def test_the_same_trials_give_the_same_bytes(found):
    first = [path.read_bytes() for path in pictures.draw(Path("a"), found, ["part/f1"])]
    again = [path.read_bytes() for path in pictures.draw(Path("b"), found, ["part/f1"])]
    assert first == again


def test_a_trajectory_names_what_has_evaluations_and_no_other(found):
    pictures.draw(Path(), found, ["part/f1"])
    text = Path("part-f1-trajectory.svg").read_text()
    assert all(f">{name}<" in text for name in ("0.1", "0.2", "0.3"))
    assert ">0.4<" not in text
    assert ">0.5<" not in text


def test_without_any_value_there_is_no_picture():
    assert pictures.draw(Path(), summary.of([made(0, 0.1, 0, state="waiting", values=())])) == []
