"""The same against a server of S3: broken connections, slowness, refusals, several at once."""

import concurrent.futures
import subprocess
import sys

import buckets
import pytest
import requests
from wording import saying

from runner.core import signals
from runner.errors import ConfigError, RunnerError
from runner.run_directory import data_files
from runner.storage import attempts, bucket, data_copies, fetching, manifest, places
from tasks.files import fetching as fetching_files


@pytest.fixture(scope="module")
def running():
    server = buckets.Server()
    yield server
    server.stop()


@pytest.fixture
def server(running, monkeypatch, tmp_path):
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(attempts, "_PAUSES", (0.01, 0.01))
    yield running
    running.way.mend()


def written(url, timeout=300.0):
    return places.written(url, places.Ending(signals.Stop(), lambda _: timeout))


def held(url, folder):
    fetching.Replica(bucket.Bucket(url), folder).bring()
    return buckets.contents(folder)


def test_a_run_is_copied_and_brought(server, tmp_path, monkeypatch):
    url = f"s3://{server.bucket()}/runs/a"
    with written(url) as one:
        buckets.commit(one, 10, size=20_000_000)  # more than is held in memory
        buckets.commit(one, 20)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    with written(url) as two:
        assert buckets.contents(two) == buckets.contents(one)
        assert two != one


def test_stopped_while_it_starts_the_last_state_is_copied_for_as_long_as_it_takes(server, tmp_path):
    url = f"s3://{server.bucket()}/run"
    code = f"""
import os, signal, time
from runner.core import signals
from runner.storage import places
with signals.served() as stop, places.written({url!r}, places.Ending(stop)) as folder:
    (folder / "first.txt").write_text("1")
    print("started", flush=True)
    while True:
        time.sleep(0.1)  # a signal just before one long sleep would be handled after it
"""
    starting = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert starting.stdout.readline()
    server.way.pause = 0.5  # each request takes longer than a process that ignores a signal may
    starting.terminate()
    assert starting.wait(300)
    server.way.mend()
    assert manifest.read(bucket.Bucket(url)).whole
    assert "first.txt" in held(url, tmp_path / "read")


def test_broken_in_mid_upload_it_goes_on_when_the_server_is_back(server, tmp_path, capsys):
    url = f"s3://{server.bucket()}/run"
    with written(url) as folder:
        buckets.commit(folder, 10)
        buckets.wait_for(lambda: bucket.Bucket(url).read("mirror.json") is not None)
        server.way.after = 500_000
        buckets.commit(folder, 20, size=3_000_000)
        buckets.wait_for(lambda: server.way.is_cut)
        buckets.wait_for(lambda: "retrying" in capsys.readouterr().err)
        server.way.mend()
    assert held(url, tmp_path / "read") == buckets.contents(folder)


def test_a_server_that_never_comes_back(server, tmp_path):
    url = f"s3://{server.bucket()}/run"
    refused = pytest.raises(RunnerError, match=r"(?s)not complete after 0\.5 s.*ckpt-20\.data")
    with refused, written(url, timeout=0.5) as folder:
        buckets.commit(folder, 10)
        buckets.wait_for(lambda: bucket.Bucket(url).read("mirror.json") is not None)
        server.way.cut()
        buckets.commit(folder, 20)
    server.way.mend()
    found = held(url, tmp_path / "read")
    assert "ckpt-10.index" in found
    assert "ckpt-20.index" not in found
    with written(url):
        pass
    assert held(url, tmp_path / "again") == buckets.contents(folder)


def test_a_slow_server_holds_nothing_up(server, tmp_path):
    url = f"s3://{server.bucket()}/run"
    with written(url) as folder:
        server.way.pause = 0.1
        for step in range(10, 60, 10):
            buckets.commit(folder, step, size=500_000)
        server.way.pause = 0.0
    assert held(url, tmp_path / "read") == buckets.contents(folder)


def test_of_many_that_create_an_object_one_succeeds(server):
    there = bucket.Bucket(f"s3://{server.bucket()}/run")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: there.create("claim", b"%d" % n), range(8)))
    assert made.count(True) == 1


class TestRefused:
    def test_a_bucket_that_does_not_exist(self, server):
        refused = pytest.raises(ConfigError, match=r"--model_dir: s3://no-such-b.*no such bucket")
        with refused, written("s3://no-such-bucket-here/run"):
            pass

    def test_no_credentials(self, server, monkeypatch, tmp_path):
        for name in buckets.KEYS:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        refused = pytest.raises(ConfigError, match=saying("credentials environment"))
        with refused, written("s3://bucket/run"):
            pass

    def test_no_credentials_for_google(self, monkeypatch, tmp_path):
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        refused = pytest.raises(ConfigError, match=saying("credentials environment"))
        with buckets.refusing(401, "Anonymous caller does not have access") as (address, _):
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
            with refused, written("gs://bucket/run"):
                pass

    def test_no_permission(self, server):
        name = server.bucket()
        address = f"http://127.0.0.1:{server.port}/moto-api/reset-auth"
        requests.post(address, data=b"0", timeout=30)  # from now on keys are checked
        try:
            refused = pytest.raises(ConfigError, match=r"PermissionError|AccessKey|denied")
            with refused, written(f"s3://{name}/run"):
                pass
        finally:
            requests.post(address, data=b"inf", timeout=30)

    def test_nobody_answers(self, server):
        name = server.bucket()
        server.way.cut()
        refused = pytest.raises(RunnerError, match=f"--model_dir: s3://{name}/run")
        with refused, written(f"s3://{name}/run"):
            pass

    @pytest.mark.parametrize(
        ("url", "line"),
        [
            ("s3://b/run", "s3fs installed pip [s3]"),
            ("gs://b/run", "gcsfs installed"),
        ],
    )
    def test_an_extra_that_is_missing(self, url, line, monkeypatch):
        def missing(url, **options):
            raise ImportError("Install it")

        monkeypatch.setattr("fsspec.url_to_fs", missing)
        with pytest.raises(ConfigError, match=saying(line)), written(url):
            pass


class TestData:
    """What a configuration names by URL."""

    def test_a_file_and_a_folder_are_copied_once_and_again_when_they_change(self, server, tmp_path):
        url = f"s3://{server.bucket()}/data"
        there = bucket.Bucket(url)
        for name in ("a/x.txt", "a/b/y.txt"):
            there.write(name, name.encode())
        folder = data_copies.local(f"{url}/a", "ImageData.input_path")
        assert buckets.contents(folder) == {"x.txt": b"a/x.txt", "b/y.txt": b"a/b/y.txt"}
        one = data_copies.local(f"{url}/a/x.txt", "ImageData.input_path")
        assert (one.name, one.read_text()) == ("x.txt", "a/x.txt")
        assert data_copies.local(f"{url}/a/x.txt", "") == one
        named = {"task": {"input_path": f"{url}/a"}}
        before = data_files.fingerprints(named)
        assert before[f"{url}/a"]["files"] == 2
        there.write("a/x.txt", b"a/x.txt")
        assert data_files.fingerprints(named) == before
        there.write("a/x.txt", b"new")
        assert data_files.fingerprints(named) != before
        assert data_copies.local(f"{url}/a/x.txt", "").read_text() == "new"
        assert data_copies.local(tmp_path / "here", "") == tmp_path / "here"

    def test_what_fails_once_is_tried_again(self, server, monkeypatch):
        url = f"s3://{server.bucket()}/data"
        bucket.Bucket(url).write("x.txt", b"x")
        download, once = bucket.Bucket.download, [bucket.BucketError("slow down", is_final=False)]

        def hiccup(*arguments):
            if once:
                raise once.pop()
            download(*arguments)

        monkeypatch.setattr(bucket.Bucket, "download", hiccup)
        assert (data_copies.local(url, "") / "x.txt").read_text() == "x"

    def test_a_file_that_is_removed_while_it_is_copied(self, server, monkeypatch):
        monkeypatch.setattr(bucket.Bucket, "objects", lambda _: {"x.txt": (1, 1)})
        with pytest.raises(RunnerError, match=r"input_path: .*x\.txt was removed while"):
            data_copies.local(f"s3://{server.bucket()}/data", "ImageData.input_path")

    def test_a_file_that_is_not_there(self, server):
        with pytest.raises(ConfigError, match=saying("ImageData.input_path file")):
            data_copies.local(f"s3://{server.bucket()}/x.npz", "ImageData.input_path")

    def test_a_task_fetches_from_a_bucket(self, server, tmp_path):
        url = f"s3://{server.bucket()}/data"
        bucket.Bucket(url).write("x.bin", b"x" * 1000)
        path = tmp_path / "x.bin"
        file = fetching_files.RemoteFile(path=str(path), url=f"{url}/x.bin", size=1000)
        fetching_files.fetch([file])
        assert path.read_bytes() == b"x" * 1000


def test_a_key_that_leads_out_of_the_folder_is_refused(server, tmp_path):
    name = server.bucket()
    server.client().put_object(Bucket=name, Key="run/a/../../../escaped", Body=b"harm")
    with pytest.raises(RunnerError, match="escaped"), places.read(f"s3://{name}/run"):
        pass
    with pytest.raises(RunnerError, match="escaped"):
        data_copies.local(f"s3://{name}/run", "ImageData.path")
    assert not [*tmp_path.rglob("escaped*")]
