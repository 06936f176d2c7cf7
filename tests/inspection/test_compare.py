"""`--mode=compare`: in what runs differ, and from which step on."""

import json
import shutil

import finished
import folders_of_runs
import pytest
import toy
from wording import says

from runner import main
from runner.checkpoints import tensor_bundle
from runner.core import files, layout
from runner.internals import checkpoint_keys


@pytest.fixture
def compared(capsys):
    """Compares; what was printed, and the last line."""

    def run(*arguments, code):
        assert main.main(["--mode=compare", *map(str, arguments)]) == code
        printed = capsys.readouterr()
        *shown, last = printed.out.splitlines() or [""]
        return "\n".join([*shown, printed.err]), json.loads(last) if last else None

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    finished.run(toy.experiment(), folder)
    return folder


@pytest.fixture
def pair(trained, tmp_path):
    """A finished run, twice."""
    return [shutil.copytree(trained, tmp_path / name) for name in "ab"]


def flip(path, key, byte=5):
    """Changes one bit of a tensor, as a failing disk would."""
    bundle = tensor_bundle.Bundle(path)
    entry = bundle.place(key)
    data = path.with_name(f"{path.name}.data-00000-of-00001")
    text = bytearray(data.read_bytes())
    text[entry + byte] ^= 1
    data.unlink()  # a best checkpoint may share the file
    data.write_bytes(bytes(text))


def test_a_run_and_its_copy_are_equal(compared, pair):
    shown, last = compared(*pair, code=0)
    assert last["equal"]
    assert last["differences"] == {}
    says(shown, f"{pair[0]} {pair[1]} bit")


def test_trials_are_named_as_a_study_names_them(compared, trained, tmp_path):
    """Their names have commas, which part the folders of --runs, too."""
    names = [tmp_path / f"000{n}-rate=0.1,seed=0" for n in (0, 1)]
    for name in names:
        shutil.copytree(trained, name)
    _, last = compared(f"--runs={names[0]},{names[1]}", code=0)
    assert last["runs"] == [str(name) for name in names]


def test_a_single_bit_of_a_checkpoint_is_found_and_its_variable_named(compared, pair):
    flip(pair[1] / "ckpt-40", f"model/layer_with_weights-0/kernel{checkpoint_keys.VALUE}")
    shown, last = compared(*pair, code=5)
    says(shown, "ckpt-40 differs 1")
    assert "model/layer_with_weights-0/kernel (dense" in shown
    assert "1 of 32 values differ" in shown
    says(shown, "changed saved")
    assert (last["parts_at"], last["same_until"], last["differ_in"]) == ([40], [30], ["training"])


def test_a_weight_that_was_saved_otherwise_is_no_damage(compared, trained, tmp_path):
    other = tmp_path / "other"
    finished.run(toy.experiment({"run": {"seed": 1}}), other)
    shown, last = compared(trained, other, code=5)
    assert "run.seed" in shown
    assert "was changed" not in shown
    assert last["differ_in"] == ["configuration", "metrics", "training"]
    assert last["parts_at"] == [10]
    assert "model" not in last["differences"], "layers are counted on in one process"


def test_the_first_step_that_differs_is_named_with_what_was_different_before(compared, tmp_path):
    same = {"python": "3.11", "host": "a", "code": {"commit": "c0ffee" * 4, "diff": ""}}
    diff = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n-a\n+b\n"
    first = folders_of_runs.make(tmp_path / "a", start={**same, "versions": {"tensorflow": "2.19"}})
    second = folders_of_runs.make(
        tmp_path / "b",
        losses=(3.0, 2.0, 1.5, 0.5),
        start={**same, "versions": {"tensorflow": "2.20"}, "code": {**same["code"], "diff": diff}},
    )
    shown, last = compared(first, second, code=5)
    says(shown, f"{first} {second} until step 20")
    says(shown, "rows 30 training_loss 1.0 1.5 second")
    says(shown, "different 30 x.py 2")
    assert "; tensorflow: 2.19 against 2.20" in shown
    assert last["differ_in"] == ["training"]
    assert set(last["differences"]) == {"code", "packages"}


def test_numbers_have_as_many_digits_as_tell_them_apart(compared, tmp_path):
    for name, accuracy in (("a", 0.7231249809265137), ("b", 0.8231249809265137)):
        folders_of_runs.make(tmp_path / name, accuracy=(0.5, accuracy))
    shown, _ = compared(tmp_path / "a", tmp_path / "b", code=5)
    says(shown, "0.7231 run 0.8231 second")
    assert "0.72312498" not in shown


def test_packages_and_machines_alone_leave_runs_equal(compared, tmp_path):
    first = folders_of_runs.make(tmp_path / "a")
    second = folders_of_runs.make(tmp_path / "b", start={"host": "elsewhere"}, tags=["x"])
    _, last = compared(first, second, code=0)
    assert {name: len(found) for name, found in last["differences"].items()} == {
        "machine": 1,
        "notes": 1,
    }


def test_data_are_compared_by_content(compared, tmp_path):
    one, other = ({"files": 1, "bytes": 9, "digest": each * 8} for each in "ab")
    starts = [{"data": {"x.npz": one}}, {"data": {"y.npz": one}}, {"data": {"x.npz": other}}, {}]
    runs = [
        folders_of_runs.make(tmp_path / str(number), start=start)
        for number, start in enumerate(starts)
    ]
    compared(runs[0], runs[1], code=0)
    assert compared(runs[0], runs[2], code=5)[1]["differ_in"] == ["data"]
    compared(runs[0], runs[3], code=0)


def test_one_that_goes_on_is_the_same_as_far_as_both_go(compared, tmp_path):
    first = folders_of_runs.make(tmp_path / "a")
    second = folders_of_runs.make(tmp_path / "b", losses=(3.0, 2.0))
    shown, last = compared(first, second, code=5)
    says(shown, "same up step 40")
    says(shown, "step 30 only first 1 more")
    assert last["parts_at"] == [None]


def test_several_runs_are_compared_with_the_first_and_written(compared, tmp_path):
    runs = [
        folders_of_runs.make(tmp_path / name, rate=rate, accuracy=(0.1, accuracy))
        for name, rate, accuracy in (("a", 0.1, 0.5), ("b", 0.2, 0.75), ("c", 0.3, 0.25))
    ]
    flag = ",".join(map(str, runs[1:]))
    shown, last = compared(f"--runs={flag}", "--output=found.json", runs[0], code=5)
    (metric,) = [each for each in last["differences"]["metrics"] if each["name"] == "last accuracy"]
    assert metric["values"] == ["0.75", "0.25", "0.5"]
    assert metric["note"] == "-0.5 -0.25"
    written = files.read_json(tmp_path / "found.json")
    assert written["curves"]["accuracy"][0] == [[20, 0.1], [40, 0.75]]
    says(shown, "accuracy 0.1 0.75 step 20 40")


def test_damaged_files_are_told_and_end_nothing(compared, pair):
    (pair[0] / "overview.json").write_text('{"parameters": 1, "layers": [3]}')
    (pair[0] / layout.TRAINING_ROWS).write_text("}\n{}\n")
    index = pair[1] / "ckpt-20.index"
    text = index.read_bytes()
    index.unlink()
    index.write_bytes(text[:-10])
    data = pair[1] / "ckpt-40.data-00000-of-00001"
    text = data.read_bytes()
    data.unlink()
    data.write_bytes(text[:100])
    shown, _ = compared(*pair, code=5)
    assert "ckpt-20.index is damaged" in shown
    says(shown, "cut short")
    says(shown, "train.jsonl compared part")


def test_runs_of_different_tasks_and_hostile_names(compared, tmp_path):
    first = folders_of_runs.make(tmp_path / "a<script>'\"", notes="\x1b[31m")
    second = folders_of_runs.make(tmp_path / "b", accuracy=(float("nan"), float("inf")))
    (first / "config.gin").write_text("E:\n  task = @task/one.Task()\n")
    (second / "config.gin").write_text("E:\n  task = @task/other.Task()\n")
    shown, last = compared(first, second, code=5)
    assert last["differences"]["configuration"][0]["values"] == ["one.Task", "other.Task"]
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "compare two"),
        ([], "compare two"),
        (["a", "nowhere"], "nowhere not exist"),
        (["a", "empty"], "empty run"),
        (["a", "a", "--output=x.csv"], "end json"),
        (["a", "a", "--model_dir=b"], "--model_dir"),
        (["a", "a", "--sed=3"], "unknown flag --sed"),
    ],
)
def test_mistakes_are_told(compared, tmp_path, arguments, said):
    folders_of_runs.make(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    shown, last = compared(*arguments, code=2)
    says(shown, said)
    assert last is None
