"""The flag `--workers`, and the parts of a supervisor."""

import errno
import json
import re
import socket

import pytest
from wording import saying, says

from runner import main
from runner.errors import ConfigError
from runner.launch import bounds, membership, ports, slots, stragglers
from runner.run_directory import claim_file

TRAIN = ["--mode=train", "--gin_file=digits.gin"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--workers=0"], "--workers=0 run 1 4,096 workers"),
        (["--workers=4..2"], "--workers=4..2 mean 2..4"),
        (["--workers=two"], "--workers=two expected range 2..4"),
        (["--workers=-1"], "--workers=-1 expected range 2..4"),
        (["--workers="], "--workers= empty"),
        (["--workers=2", "--task_index=1"], "--task_index=1 machines"),
        (["--workers=2", "--task_index=x"], "--task_index=x expected number"),
        (["--workers=2", "--mode=runs"], "--workers --mode=runs train eval train_and_eval"),
    ],
)
def test_a_wrong_number_of_workers_is_a_mistake_in_the_flags(flags, said, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main.main([*TRAIN, f"--model_dir={folder}", *flags]) == 2
    says(capsys.readouterr().err, said)
    assert not folder.exists()


def test_each_machine_of_a_list_has_one_worker(tmp_path, capsys, monkeypatch):
    task = {"type": "worker", "index": 1}
    cluster = {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": task}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    assert main.main([*TRAIN, f"--model_dir={tmp_path / 'run'}", "--workers=2..3"]) == 2
    says(capsys.readouterr().err, "2 machines worker")
    assert not (tmp_path / "run").exists()


def test_the_strategy_follows_from_the_flag(capsys):
    assert main.main([*TRAIN, "--workers=2", "--print_config=changed"]) == 0
    assert re.search(r"distribution_strategy: multi_worker_mirrored\s+# --workers=2", _out(capsys))


def _out(capsys):
    return capsys.readouterr().out


def test_as_many_workers_are_taken_as_there_are_within_the_range():
    wanted = bounds.Bounds.parse("2..4")
    assert [wanted.best(available) for available in range(7)] == [0, 0, 2, 3, 4, 4, 4]
    assert wanted.best(4, refused={3, 4}) == 2
    assert wanted.best(3, refused={2, 3}) == 0


def test_ports_are_different_and_nobody_listens_on_them():
    found = ports.free(50)
    assert len(set(found)) == 50
    with socket.create_server(("", found[0])):
        assert found[0] not in ports.free(50)


def test_a_port_that_was_given_is_used_and_another_is_found():
    assert slots.Slots(1, "b:2222").addresses(1) == ["b:2222"]
    first, second = slots.Slots(2).addresses(2)
    assert first != second
    assert first.startswith("127.0.0.1:")


def test_workers_of_one_machine_share_its_gpus():
    four = slots.Slots(2, gpus=["0", "1", "2", "3"])
    assert [four.gpus(0), four.gpus(1)] == ["0,2", "1,3"]
    assert slots.Slots(1, gpus=["0", "1"]).gpus(0) is None
    with pytest.raises(ConfigError, match=saying("1 GPU worker needs")):
        slots.Slots(2, gpus=["0"])


def test_a_slot_rests_for_a_while():
    now = [0.0]
    places = slots.Slots(3, clock=lambda: now[0])
    places.rest(1, 60.0)
    assert places.awake == [0, 2]
    now[0] = 60.0
    assert places.awake == [0, 1, 2]


def write(folder, index, number, **times):
    text = {"pid": index, "step": number, "seconds": 0.1, "working": 0.1, "waiting": 0.0}
    (folder / f"{index}.json").write_text(json.dumps({**text, **times}))


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"waiting": 0.08}, "waits inputs 0.08 0"),
        ({"working": 0.2}, "computes 0.2 others 0.1"),
    ],
)
def test_a_slow_worker_is_named_once_it_was_slow_three_times(tmp_path, times, said):
    watched = stragglers.Stragglers(tmp_path, ["a:1", "b:1", "c:1"])
    news = []
    for number in range(5):
        for index in range(3):
            write(tmp_path, index, number, **(times if index == 1 else {}))
        news.append(watched.look())
    assert news == [False, False, True, False, False]
    assert len(watched.found) == 1
    assert "worker 1 on b" in watched.found[0]
    says(watched.found[0], said)


def test_a_worker_that_is_not_much_slower_is_not_named(tmp_path):
    watched = stragglers.Stragglers(tmp_path, ["a:1", "b:1"])
    for number in range(5):
        write(tmp_path, 0, number)
        write(tmp_path, 1, number, working=0.115, waiting=0.01)
        assert not watched.look()


def test_a_share_that_is_away_for_a_moment_takes_no_supervisor_with_it(tmp_path, monkeypatch):
    def stale(path):
        raise OSError(errno.ESTALE, "Stale file handle")

    with membership.joined(tmp_path, 0) as meeting:
        meeting.say("ready", ["a:1"])
        (there,) = meeting.present()
        with monkeypatch.context() as away:
            away.setattr(claim_file, "look", stale)
            assert meeting.present() == [there]
