"""What is on the disk after a power cut, at any write of `runner.core.files`."""

import random

import disks
import pytest

from runner.core import files
from scripts.chaos import disk

pytestmark = disks.NEEDED


@pytest.fixture(params=list(disk.SYSTEMS))
def recorded(request, tmp_path):
    pytest.importorskip("mfusepy")
    try:
        made = disk.Disk(tmp_path, request.param)
        made.__enter__()
    except Exception as error:  # in a container without the rights
        pytest.skip(f"{request.param} cannot be mounted: {error}")
    yield made
    made.__exit__()


def left(recorded, positions, loss="unflushed"):
    """What each cut leaves: the contents by name."""
    found = []
    for position in positions:
        with recorded.after_cut(position, loss, random.Random(position)) as path:
            entries = [each for each in sorted(path.rglob("*")) if each.name != "lost+found"]
            found.append({each.name: each.is_file() and each.read_bytes() for each in entries})
    return found


def test_what_the_module_has_written_is_there_and_whole(recorded):
    folder = recorded.path
    (folder / "not_flushed").write_text("x")
    files.make_folder(folder / "new" / "below")
    files.write_text(folder / "new" / "below" / "text", "written")
    files.append_json_line(folder / "rows", {"step": 1})
    files.copy(folder / "rows", folder / "copy")
    files.link(folder / "rows", folder / "link")
    files.flush_file(folder)
    position = recorded.position
    recorded.__exit__()
    row = b'{"step": 1}\n'
    (found,) = left(recorded, [position])
    found.pop("not_flushed", None)  # its name may be there
    expected = {"new": False, "below": False, "text": b"written"}
    assert found == {**expected, "rows": row, "copy": row, "link": row}


def test_a_file_that_is_replaced_is_the_old_or_the_new_one_at_any_write(recorded):
    path = recorded.path / "file"
    files.write_text(path, "old" * 5000)
    begin = recorded.position
    files.write_text(path, "newer" * 5000)
    end = recorded.position
    recorded.__exit__()
    for loss in disk.LOSSES:
        found = left(recorded, range(begin, end + 1), loss)
        contents = {each["file"] for each in found}
        assert contents <= {b"old" * 5000, b"newer" * 5000}
        assert found[-1]["file"] == b"newer" * 5000


def test_without_a_flush_a_file_can_be_lost(recorded):
    (recorded.path / "file").write_text("x" * 5000)
    position = recorded.position
    recorded.__exit__()
    (found,) = left(recorded, [position])
    assert found.get("file") != b"x" * 5000
