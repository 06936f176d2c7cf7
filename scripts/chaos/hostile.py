"""Attacks with buckets whose names lead out of the local copy, on the disk and in S3."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from scripts import processes, s3_server

HOSTILE = ("../escaped", "train/../../escaped", "/{outside}/escaped", "a//b", "..\\escaped", "e\0")
READING = ("report", "status", "runs", "compare")


def hostile(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Reads such buckets. No file may appear outside the copy, and each rejection is one line."""
    folder, content = flags.folder, "harm"
    (folder / "outside").mkdir()
    wrong: list[str] = []
    with s3_server.running() as server:
        for number, name in enumerate(HOSTILE):
            name = name.format(outside=folder / "outside")
            listing = {"files": {name: [len(content), None, 1]}, "texts": {name: content}}
            local = folder / f"bucket-{number}" / "run"
            local.mkdir(parents=True)
            (local / "mirror.json").write_text(json.dumps(listing))
            urls = [f"file://{local}", f"s3://{server.bucket}/{number}/run"]
            _put(server, f"{number}/run/mirror.json", json.dumps(listing))
            for url, mode in zip(
                urls, (READING[number % 4], READING[-1 - number % 4]), strict=True
            ):
                wrong += _accepted(folder, mode, url, server.environment, "mirror.json")
        _put(server, "keys/run/a/../../../escaped", content)
        url = f"s3://{server.bucket}/keys/run"
        for mode in READING:
            wrong += _accepted(folder, mode, url, server.environment, "escaped")
    return wrong + [f"{path} was written" for path in folder.rglob("escaped")]


def _put(server: s3_server.Server, key: str, content: str) -> None:
    """Writes an object with exactly this key, as the owner of a bucket can."""
    code = (
        "import boto3, sys; boto3.client('s3').put_object("
        "Bucket=sys.argv[1], Key=sys.argv[2], Body=sys.argv[3].encode())"
    )
    command = [sys.executable, "-c", code, server.bucket, key, content]
    subprocess.run(command, env={**os.environ, **server.environment}, check=True)


def _accepted(
    folder: Path, mode: str, url: str, environment: Mapping[str, str], word: str
) -> list[str]:
    """Returns the problem if a reading mode does not reject a bucket in a line with this word."""
    own = {**os.environ, **environment, "XDG_CACHE_HOME": str(folder / "cache")}
    where = [f"--runs={url},{url}"] if mode == "compare" else [f"--model_dir={url}"]
    where += ["--output=page.html"] if mode == "report" else []
    command = processes.runner(mode, *where)
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)
    line = done.stderr.strip().rpartition("\n")[2]
    if done.returncode in (1, 2) and "Traceback" not in done.stderr and word in line:
        return []
    return [f"{mode} {url}: exit code {done.returncode}\n{done.stderr}"]
