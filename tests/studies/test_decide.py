"""`--mode=decide`, mostly with trials that only play: no training here."""

import json
import os
import time
from pathlib import Path
from typing import ClassVar

import pytest

import runner
from runner import main
from runner.core import child, files, layout
from runner.errors import ConfigError
from runner.run_directory import params, status
from runner.studies import trial, warm

FILES = ["baseline.gin", "candidate.gin"]


class Played(child.Child):
    """In place of a trial's process: writes one evaluation, and ends."""

    offsets: ClassVar = {}  # by the candidate's name
    codes: ClassVar = {}  # of trials that fail, by their names
    started: ClassVar = []
    modes: ClassVar = set()

    pid = os.getpid()

    def _start(self, command, *, stdout, **_):
        self.modes.update(each for each in command if each.startswith("--mode="))
        folder = Path(command[-1].removeprefix("--model_dir="))
        one = trial.read(folder)
        name = one.parameters["gin_file"].rpartition("-")[0]
        self.started.append(f"{name} {one.seed}")
        self._code = self.codes.get(self.started[-1], 0)
        if self._code in (0, 3):
            noise = (one.seed * 7919 % 13) / 1000
            noise += (one.seed * 104729 % 11) / 1000 if name != "baseline" else 0
            row = {"kind": "evaluation", "step": 1, "seconds": 0.0, "time": time.time()}
            row |= {"metrics": {"accuracy": 0.5 + noise + self.offsets.get(name, 0)}}
            files.append_json_line(folder / layout.HISTORY, {**row, "checkpoint": "ckpt-1"})
            status.StatusFile(folder).write("diverged" if self._code else "done", 1)
            (folder / layout.CLAIM).unlink(missing_ok=True)
        stdout.write(b"runner: no luck\n")

    @property
    def code(self):
        return self._code

    def wait(self, seconds):
        return self._code

    def send(self, number):
        pass


@pytest.fixture
def series(tmp_path, monkeypatch):
    """The directory of a series of decisions about three gin files."""
    monkeypatch.setattr(warm, "begin", lambda flags: None)
    monkeypatch.setattr(warm, "Fork", Played)
    for name, value in (("offsets", {}), ("codes", {}), ("started", []), ("modes", set())):
        monkeypatch.setattr(Played, name, value)
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("baseline", "candidate", "other")):
        rate = f"CosineLrConfig.initial_learning_rate = 0.00{number + 1}\n"
        Path(f"{name}.gin").write_text("include 'digits.gin'\n" + rate)
    return Path("series")


def decided(folder, capsys, given=FILES, **options):
    """The exit code of the command, and its results."""
    flags = [f"--{name}={value}" for name, value in options.items()]
    code = main.main(["--mode=decide", *given, f"--model_dir={folder}", "--jobs=1", *flags])
    out = capsys.readouterr().out.splitlines()
    return code, json.loads(out[-1]) if out else {}


@pytest.mark.parametrize(
    ("offset", "margin", "code", "answer"),
    [
        (0.1, 0, 0, "better"),
        (-0.1, 0, 7, "worse"),
        (-0.005, 0.1, 8, "equivalent"),
        (-0.005, 0, 9, "undecided"),
    ],
)
def test_the_exit_code_is_the_answer(series, capsys, offset, margin, code, answer):
    Played.offsets["candidate"] = offset
    found, results = decided(series, capsys, margin=margin)
    assert (found, results["status"]) == (code, answer)
    assert results["metric"] == "accuracy"
    if code != 9:
        low, high = results["interval"]
        assert low <= results["difference"] <= high
    assert len(results["baseline"]) == len(results["candidate"]) == results["seeds"] <= 30


def test_both_are_trained_with_the_same_seeds_and_only_as_many_as_needed(series, capsys):
    Played.offsets["candidate"] = 0.1
    _, results = decided(series, capsys)
    count = results["seeds"]
    assert count < 10
    wanted = [f"{name} {seed}" for name in ("baseline", "candidate") for seed in range(count)]
    assert sorted(Played.started) == wanted


def test_the_command_can_be_repeated(series, capsys):
    Played.offsets["candidate"] = 0.1
    first = decided(series, capsys)
    count = len(Played.started)
    assert decided(series, capsys) == first
    assert len(Played.started) == count


def test_later_decisions_share_the_budget_and_reuse_trials(series, capsys):
    Played.offsets.update(candidate=-0.1, other=0.1)
    _, first = decided(series, capsys)
    baselines = first["seeds"]
    code, second = decided(series, capsys, ["baseline.gin", "other.gin"])
    assert code == 0
    assert (first["decision"], second["decision"]) == (1, 2)
    assert first["level"] + second["level"] < 0.05
    assert second["level"] < first["level"]
    assert Played.started.count("baseline 0") == 1
    assert second["seeds"] >= baselines
    rows = json.loads((series / layout.DECISIONS).read_text())
    assert [row["results"]["status"] for row in rows] == ["worse", "better"]


def test_the_test_data_stay_sealed(series, capsys):
    Played.offsets["candidate"] = 0.1
    test = [
        "--gin_params=TestConfig.data = @test/ImageData()",
        "--gin.test/ImageData.is_training=False",
        "--gin.test/ImageData.global_batch_size=360",
    ]
    code, _ = decided(series, capsys, [*FILES, *test])
    assert code == 0
    assert Played.modes == {"--mode=train_and_eval"}


def test_an_edited_file_is_another_candidate(series, capsys):
    Played.offsets["candidate"] = 0.1
    decided(series, capsys)
    with Path("candidate.gin").open("a") as file:
        file.write("MLPConfig.hidden = (32,)\n")
    _, results = decided(series, capsys)
    assert results["decision"] == 2
    assert Played.started.count("candidate 0") == 2


def test_changed_data_files_are_another_candidate(series, capsys):
    Played.offsets["candidate"] = 0.1
    Path("photos").mkdir()
    Path("photos", "cat.png").write_bytes(b"cat")
    of_photos = {"gin.ImageData.input_path": "'photos'"}
    first = decided(series, capsys, **of_photos)
    assert first[1]["decision"] == 1
    assert decided(series, capsys, **of_photos) == first
    Path("photos", "dog.png").write_bytes(b"dog")
    _, results = decided(series, capsys, **of_photos)
    assert results["decision"] == 2
    assert Played.started.count("baseline 0") == Played.started.count("candidate 0") == 2


def test_the_budget_of_a_series_is_fixed(series, capsys):
    Played.offsets["candidate"] = 0.1
    decided(series, capsys)
    assert decided(series, capsys, level=0.1)[0] == 2


def test_trials_of_another_decision_are_left_alone(series, capsys):
    Played.offsets.update(candidate=0.1, other=0.1)
    Played.codes["candidate 1"] = 1
    assert decided(series, capsys)[0] == 1
    tried = Played.started.count("candidate 1")
    assert decided(series, capsys, ["baseline.gin", "other.gin"])[0] == 0
    assert Played.started.count("candidate 1") == tried


def test_a_diverged_candidate_is_not_promoted(series, capsys):
    Played.offsets["candidate"] = 0.1
    Played.codes["candidate 1"] = 3
    code, results = decided(series, capsys)
    assert code == 9
    assert results["diverged"] == {"candidate": 1}


def test_nothing_is_decided_without_a_trial_that_failed(series, capsys):
    Played.offsets["candidate"] = 0.1
    Played.codes["candidate 1"] = 1
    assert decided(series, capsys)[0] == 1
    Played.codes.clear()
    assert decided(series, capsys)[0] == 0


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (["baseline.gin"], {}, "baseline.gin candidate.gin"),
        (["baseline.gin", "baseline.gin"], {}, "same"),
        (["baseline.gin", "absent.gin"], {}, "absent.gin"),
        (FILES, {"seeds": 3}, "--seeds=3"),
        (FILES, {"margin": -1}, "--margin"),
        (FILES, {"level": "few"}, "--level"),
    ],
)
def test_mistakes_are_reported(series, capsys, given, options, words):
    flags = [f"--{name}={value}" for name, value in options.items()]
    assert main.main(["--mode=decide", *given, f"--model_dir={series}", *flags]) == 2
    assert words in capsys.readouterr().err
    assert not Played.started


def test_it_can_be_called_from_python(series):
    Played.offsets["candidate"] = 0.1
    results = runner.run(None, series, "decide", configurations=FILES, jobs=1, margin=0.01)
    assert results["status"] == "better"
    with pytest.raises(ConfigError, match="configurations is missing"):
        runner.run(None, series, "decide")


def test_trials_of_a_decision_are_trained_as_their_files_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, rate in (("slow", 1e-6), ("fast", 0.01)):
        text = f"include 'digits.gin'\nCosineLrConfig.initial_learning_rate = {rate}\n"
        Path(f"{name}.gin").write_text(text + "TrainerConfig.train_steps = 40\n")
    code = main.main(["--mode=decide", "slow.gin", "fast.gin", "--model_dir=series", "--seeds=5"])
    assert code == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    for side, rate in (("baseline", 1e-6), ("candidate", 0.01)):
        for seed, name in enumerate(results[side]):
            values = params.read(Path("series", layout.TRIALS, name))
            cosine = values["trainer"]["optimizer_config"]["learning_rate"]["cosine"]
            assert cosine["initial_learning_rate"] == rate
            assert values["run"]["seed"] == seed
