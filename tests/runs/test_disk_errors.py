"""Runs on disks that lose their power, and in directories where an operation fails."""

import argparse

import disks
import pytest

from scripts.chaos import disk, power, storage

pytestmark = disks.NEEDED


@pytest.fixture(autouse=True, scope="module")
def mounts(tmp_path_factory):
    pytest.importorskip("mfusepy")
    try:
        with disk.Disk(tmp_path_factory.mktemp("disk"), "ext4"):
            pass
    except Exception as error:  # in a container without the rights
        pytest.skip(f"no disk can be mounted: {error}")


def flags(folder, **values):
    return argparse.Namespace(folder=folder, seed=0, names="run", disks=folder, **values)


def test_a_run_survives_power_cuts(tmp_path, capfd):
    assert power.power(flags(tmp_path, cuts=8, file_systems="ext4"), []) == []
    assert "| run | ext4 | 8 |" in capfd.readouterr().out


def test_a_run_goes_on_or_ends_with_one_line_when_an_operation_fails(tmp_path, capfd):
    errors = "ENOSPC,EIO,short"
    assert storage.storage(flags(tmp_path, points=6, errors=errors), []) == []
    assert "operations" in capfd.readouterr().out
