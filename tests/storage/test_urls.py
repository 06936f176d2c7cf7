from pathlib import Path

import pytest
from wording import saying

from runner.errors import ConfigError
from runner.storage import urls


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("s3://bucket/run", "s3://bucket/run"),
        ("S3://bucket/run/", "s3://bucket/run"),
        ("gs://bucket/a/b", "gs://bucket/a/b"),
        ("memory://run", "memory://run"),
        ("file:///tmp/run", "file:///tmp/run"),
        ("abfs://box@account.dfs.core.windows.net/run",) * 2,
    ],
)
def test_a_url_is_the_same_after_it_was_a_path(given, url):
    assert urls.check(given, "--model_dir=") == urls.check(Path(given), "--model_dir=") == url


@pytest.mark.parametrize("path", ["runs/a", "/tmp/lr=[0.1]", "C:/run", "a:b/c", ""])
def test_a_local_path_is_no_url(path):
    assert not urls.is_url(path)
    assert urls.shown(path) == path


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "s4://b/run",
            "--model_dir=s4://b/run unknown kind URL s4:// s3://",
        ),
        ("gcss://b/run", "mean gcs://"),
        ("https://host/run", "https:// written"),
        ("s3://", "bucket expected s3://bucket/run"),
        ("zip://a::s3://b/run", "only bucket"),
        ("s3://b/run?versionId=1", "only bucket"),
    ],
)
def test_what_cannot_be_a_runs_folder_is_refused(url, said):
    with pytest.raises(ConfigError, match=saying(said)):
        urls.check(Path(url), "--model_dir=")


@pytest.mark.parametrize(
    "url", ["s3://AKIAX:se/cret@bucket/run", "gs://secret@bucket/run", "sftp://me:secret@host/run"]
)
def test_credentials_in_a_url_are_refused_and_never_shown(url):
    with pytest.raises(ConfigError, match=saying("credentials URL")) as caught:
        urls.check(Path(url), "--model_dir=")
    for shown in (str(caught.value), urls.shown(url), urls.shown(Path(url))):
        assert "cret" not in shown
        assert "AKIAX" not in shown
        assert "***@" in shown


def test_folders_for_urls_that_look_alike_differ():
    names = {urls.folder_name(url) for url in ("s3://a/b-c", "s3://a/b/c", "gs://a/b-c")}
    assert len(names) == 3
    assert all("/" not in name for name in names)
