"""What a path in a local copy is called: in another process, too, as nothing is kept in memory."""

import pytest

from runner.storage import display_names, local_folders


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_path_in_a_temporary_copy_has_the_url_while_the_copy_lasts():
    with local_folders.temporary("s3://bucket/my run") as folder:
        assert display_names.of(folder / "ckpt-1") == "s3://bucket/my run/ckpt-1"
        message = display_names.in_text(f"{folder}: nothing like {folder}/ckpt-1")
        assert message == "s3://bucket/my run: nothing like s3://bucket/my run/ckpt-1"
    assert display_names.of(folder) == str(folder)


def test_a_working_directory_has_its_url_without_the_secrets(tmp_path):
    folder = local_folders.of("sftp://me:hunter2@host/run")
    folder.mkdir(parents=True)
    display_names.record(folder, "sftp://me:hunter2@host/run")
    assert "hunter2" not in display_names.of(folder)
    assert display_names.of(folder / "best").endswith("@host/run/best")
    assert display_names.of(tmp_path / "run") == str(tmp_path / "run")
