import json
import os
import subprocess

import pytest

from runner.run_directory import provenance


def starts(folder):
    return json.loads((folder / "run.json").read_text())["starts"]


def command(*arguments):
    flags = {"gin_params": [each.removeprefix("--gin.") for each in arguments], "token": "x"}
    return provenance.Command("train", ["runner", *arguments], flags)


def test_every_start_has_a_row_with_its_end(tmp_path):
    first = provenance.RunRecord(tmp_path, command("--mode=train", "--gin.X.token=a"))
    assert starts(tmp_path)[0]["state"] == "running"
    first.note(devices=["CPU:0"])
    first.end("preempted", 40)
    provenance.RunRecord(tmp_path, command()).end("done", 80)
    provenance.RunRecord(tmp_path, command())  # and killed
    provenance.RunRecord(tmp_path, command())
    one, two, killed, newest = starts(tmp_path)
    assert (killed["state"], newest["state"]) == ("lost", "running")
    assert (one["state"], one["step"], one["devices"]) == ("preempted", 40, ["CPU:0"])
    assert one["command"] == ["runner", "--mode=train", "--gin.X.token=***"]
    assert one["flags"] == {"gin_params": ["--mode=train", "X.token=***"], "token": "***"}
    assert one["started"] <= one["ended"] <= two["started"]
    assert (two["state"], two["step"], two["pid"]) == ("done", 80, os.getpid())
    assert two["versions"]["tensorflow"].startswith("2.")


@pytest.mark.parametrize("text", ['{"starts": [{', "[1]", "5", '{"starts": [1]}', '{"begun": 1}'])
def test_a_damaged_record_is_kept_aside(tmp_path, capsys, text):
    (tmp_path / "run.json").write_text(text)
    provenance.RunRecord(tmp_path, command())
    assert len(starts(tmp_path)) == 1
    assert (tmp_path / "damaged" / "run.json").read_text() == text
    assert "run.json was damaged" in capsys.readouterr().err


def test_the_code_is_told_by_commit_and_diff(tmp_path):
    def git(*arguments):
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *name, *arguments], check=True, capture_output=True)

    assert provenance.code(tmp_path) is None
    git("init")
    (tmp_path / "a.py").write_text("x = 1\n")
    git("add", "a.py")
    git("commit", "-m", "a")
    (tmp_path / "a.py").write_text("x = 2\npassword = 'very secret'\n")
    (tmp_path / "new.py").touch()
    found = provenance.code(tmp_path)
    assert len(found["commit"]) == 40
    assert "-x = 1\n+x = 2\n" in found["diff"]
    assert "very" not in found["diff"]
    assert found["untracked"] == ["new.py"]
