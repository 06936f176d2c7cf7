"""Buckets whose content was made to do harm: nothing is written outside the local copy."""

import json
import zlib

import pytest

from runner import main
from runner.errors import RunnerError
from runner.storage import bucket, data_copies, fetching, manifest, places

NAMES = {
    "above": "../escaped",
    "above a folder": "train/../../escaped",
    "a copy's own folder": "./escaped",
    "absolute": "{outside}/escaped",
    "empty parts": "train//escaped",
    "an end": "train/",
    "nothing": "",
    "backslashes": "..\\escaped",
    "a drive": "C:/escaped",
    "a null": "escaped\0.json",
    "a line's end": "esca\nped",
    "a terminal's codes": "esca\x1b[2Jped",
    "half a character": "escaped\ud800",
    "a long part": "e" * 300,
    "a long path": "/".join(["escaped"] * 200),
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hostile(tmp_path):
    """Makes a bucket whose mirror.json has a file of this name, as an object or as text."""
    there = tmp_path / "bucket" / "run"
    there.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()

    def make(name, *, as_text):
        name = name.format(outside=outside)
        content = b"harm"
        if not as_text and "\0" not in name and len(name) < 300 and name.isprintable():
            source = there / name.lstrip("/") if name else there / "x"
            source.parent.mkdir(parents=True, exist_ok=True)
            if not source.is_dir():
                source.write_bytes(content)
        files = {name: [len(content), zlib.crc32(content), 1]}
        texts = {name: "harm"} if as_text else {}
        (there / manifest.NAME).write_text(json.dumps({"files": files, "texts": texts}))
        return f"file://{there}", outside / "escaped"

    return make


def test_a_name_that_leads_out_of_the_copy_is_refused_and_nothing_is_written(hostile, tmp_path):
    for name in NAMES.values():
        for as_text in (False, True):
            url, escaped = hostile(name, as_text=as_text)
            before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
            with pytest.raises(RunnerError, match=r"mirror\.json"):
                fetching.Replica(bucket.Bucket(url), tmp_path / "cache" / "copy").bring()
            assert not escaped.exists()
            assert {path for path in tmp_path.rglob("*") if "cache" not in path.parts} == before
            assert not [*(tmp_path / "cache").rglob("*escaped*")]


@pytest.mark.parametrize("mode", ["report", "status", "runs", "compare"])
def test_a_mode_that_only_reads_writes_nothing_outside(
    mode, hostile, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    url, escaped = hostile("{outside}/escaped", as_text=True)
    more = [f"--runs={url},{url}"] if mode == "compare" else [f"--model_dir={url}"]
    more += ["--output=page.html"] if mode == "report" else []
    assert main.main([f"--mode={mode}", *more]) == 1
    assert not escaped.exists()
    assert "mirror.json" in capsys.readouterr().err


def test_values_of_the_wrong_kind_are_damage(tmp_path):
    for files in (
        {"status.json": ["many", None, 1]},
        {"status.json": [-1, None, 1]},
        {"status.json": [1]},
        {"status.json": 7},
        ["status.json"],
        7,
    ):
        with pytest.raises(ValueError, match=r"."):
            manifest.Manifest.loads(json.dumps({"files": files}).encode())
    for content in (b"[" * 100_000, b"7", b"null", b'{"files": {}, "claim": "x"}'):
        with pytest.raises(ValueError, match=r"."):
            manifest.Manifest.loads(content)


def test_a_link_in_the_copy_is_not_followed_out_of_it(tmp_path):
    there = tmp_path / "bucket"
    (there / "train").mkdir(parents=True)
    (there / "train" / "rows.txt").write_text("harm")
    copy, outside = tmp_path / "copy", tmp_path / "outside"
    copy.mkdir()
    outside.mkdir()
    (copy / "train").symlink_to(outside, target_is_directory=True)
    with pytest.raises(RunnerError, match="link"):
        fetching.Replica(bucket.Bucket(f"file://{there}"), copy).bring()
    assert not [*outside.iterdir()]


def test_a_listing_may_have_no_such_names_either(tmp_path):
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "..\\escaped").write_text("harm")
    url = f"file://{tmp_path}/bucket"
    with pytest.raises(bucket.BucketError, match="escaped") as refused:
        bucket.Bucket(url).objects()
    assert refused.value.is_final
    for read in (lambda: data_copies.local(url, "ImageData.path"), lambda: _read(url)):
        with pytest.raises(RunnerError, match="escaped"):
            read()


def _read(url):
    with places.read(url):
        pass
