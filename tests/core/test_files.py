import errno
import json
import os

import pytest
from wording import saying

from runner.core import files


def lines(*steps):
    return "".join(json.dumps({"step": step}) + "\n" for step in steps)


def up_to(step):
    return lambda row: row["step"] <= step


@pytest.mark.parametrize(
    ("text", "newest", "left"),
    [
        (lines(1, 2, 3, 4), 2, lines(1, 2)),
        (lines(1, 2), 2, lines(1, 2)),
        (lines(3, 4), None, ""),
        (lines(1, 2) + '{"step": 2, "lo', 2, lines(1, 2)),  # cut off by a kill
        (lines(1) + "\0\0\n" + lines(3), 1, lines(1)),  # the machine went down
        ('{"step": 1}', None, ""),
        ("", None, ""),
        ("damaged\n" + lines(1, 2, 3), 2, "damaged\n" + lines(1, 2)),  # what is before is not read
    ],
)
def test_a_file_is_cut_after_the_newest_row_to_keep(tmp_path, text, newest, left):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    assert files.cut_json_lines(path, up_to(2)) == (newest and {"step": newest})
    assert path.read_text() == left


def test_where_there_is_no_file_none_is_made(tmp_path):
    assert files.cut_json_lines(tmp_path / "rows.jsonl", up_to(2)) is None
    assert files.read_json_lines(tmp_path / "rows.jsonl") == []
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(
    ("text", "damaged"),
    [
        (lines(1) + "\n" + '{"step"\n' + lines(3), 3),
        ('{"step": 1\n"loss": 2}\n' + lines(3), 1),  # two that are one row with a comma
        ('{"step": 1}, {"step": 2}\n' + lines(3), 1),
    ],
)
def test_of_damaged_lines_the_first_is_named(tmp_path, text, damaged):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=saying(f"rows.jsonl:{damaged} line JSON")):
        files.read_json_lines(path)


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (files.append_json_line, files.write_json):
        with pytest.raises(OSError, match=saying("space /a.json")):
            write(tmp_path / "a.json", {"step": 1})
