"""Predictions as CSV: a column for each number of an array."""

import numpy as np
import pyarrow as pa
import pytest

from runner.errors import ConfigError
from runner.evaluation.prediction import writers


def part(folder, number, rows):
    path = folder / f"part-{number}.arrow"
    with path.open("wb") as file:
        writers.write_part(pa.Table.from_pylist(rows), file)
    return path


def written(folder, *parts):
    output = folder / "a.csv"
    paths = [part(folder, number, rows) for number, rows in enumerate(parts)]
    with output.open("wb") as file:
        writers.of(output).write(paths, file)
    return output.read_text().splitlines()


def test_arrays_and_nested_fields_become_columns(tmp_path):
    row = {"key": 1, "p": [[0.5, 1.5], [2.5, 3.5]], "box": {"name": "a,b", "at": [7]}}
    found = written(tmp_path, [row], [{**row, "key": 2}])
    assert found[0].replace('"', "") == "key,p/0/0,p/0/1,p/1/0,p/1/1,box/name,box/at/0"
    assert found[1:] == ['1,0.5,1.5,2.5,3.5,"a,b",7', '2,0.5,1.5,2.5,3.5,"a,b",7']


@pytest.mark.parametrize("parts", [([{"p": [1]}, {"p": [1, 2]}],), ([{"p": [1]}], [{"p": [1, 2]}])])
def test_arrays_of_different_shapes_are_rejected(tmp_path, parts):
    with pytest.raises(ConfigError, match="shapes"):
        written(tmp_path, *parts)


def test_an_image_in_each_row_is_rejected(tmp_path):
    with pytest.raises(ConfigError, match="columns"):
        written(tmp_path, [{"p": np.zeros(20_000).tolist()}])
