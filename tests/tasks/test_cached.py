import os
from pathlib import Path

import numpy as np
import pytest
from wording import saying

from runner.errors import ConfigError
from tasks.files import cached


class Maker:
    """Makes the same arrays each time, and counts how often it had to."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1
        return {"ids": np.arange(6, dtype=np.int32).reshape(2, 3), "words": np.array(["é", "ab"])}


@pytest.fixture
def source():
    path = Path("data.txt")
    path.write_text("content")
    return path


def read(make, source, **arguments):
    arguments = {"files": [source], "settings": {"a": 1}, "version": 1, **arguments}
    return cached.cached("cache", "squad", make=make, **arguments)


def test_what_was_made_is_read_back(source):
    make = Maker()
    made, found = read(make, source), read(make, source)
    assert make.times == 1
    assert list(found) == list(made) == ["ids", "words"]
    for name in made:
        np.testing.assert_array_equal(made[name], found[name], strict=True)


def test_without_a_folder_nothing_is_kept(source):
    make = Maker()
    for _ in range(2):
        cached.cached("", "squad", files=[source], settings=None, version=1, make=make)
    assert make.times == 2
    assert list(Path().iterdir()) == [source]


def test_other_content_settings_or_code_are_made_anew_and_the_old_is_kept(source):
    make = Maker()
    read(make, source)
    read(make, source, settings={"a": 2})
    read(make, source, version=2)
    read(make, source, files=[source, source])
    source.write_text("CONTENT")
    read(make, source)
    assert make.times == 5
    source.write_text("content")
    read(make, source)
    assert make.times == 5
    assert len(list(Path("cache").iterdir())) == 5


def test_a_files_name_and_date_and_the_order_of_settings_do_not_matter(source):
    make = Maker()
    read(make, source, settings={"a": 1, "b": 2})
    moved = source.rename("moved.txt")
    os.utime(moved, (0, 0))
    read(make, moved, settings={"b": 2, "a": 1})
    assert make.times == 1


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_cache_is_made_anew(source, damage):
    make = Maker()
    made = read(make, source)
    (path,) = Path("cache").iterdir()
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(
        {"cut": content[:300], "flipped": content, "empty": b"", "text": b"hello"}[damage]
    )
    for _ in range(2):
        np.testing.assert_array_equal(read(make, source)["ids"], made["ids"])
    assert make.times == 2


def test_nothing_is_left_of_a_cache_that_could_not_be_made(source):
    with pytest.raises(TypeError, match=saying("'x' Python objects")):
        read(lambda: {"x": np.array([[1], [1, 2]], dtype=object)}, source)
    assert not Path("cache").exists()

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read(fail, source)
    assert not Path("cache").exists()


def test_a_write_that_fails_leaves_nothing_behind(source, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=saying("space left")):
        read(Maker(), source)
    assert not list(Path("cache").iterdir())


def test_a_missing_file_is_refused(source):
    with pytest.raises(ConfigError, match=r"no file nowhere\.txt"):
        read(Maker(), source, files=[Path("nowhere.txt")])


def test_a_folder_that_cannot_be_one_is_refused(source):
    Path("cache").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        read(Maker(), source)
