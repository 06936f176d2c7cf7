import finished
import pytest
import tensorflow as tf
import toy
from tensorflow.tsl.profiler.protobuf import xplane_pb2
from wording import saying, says

import runner
from runner import main
from runner.errors import ConfigError
from runner.run_directory.verification import comparison
from runner.training import profiling

ONCE_A_STEP = "IsFinite:IsFinite"  # of its loss
BACKWARD = "gradient_tape"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run that nobody profiles."""
    folder = tmp_path_factory.mktemp("plain")
    finished.run(toy.experiment(), folder)
    return folder


def events(folder):
    """The names of all events of the only profile in a run's folder, and the steps it marks."""
    (path,) = (folder / "train" / "plugins" / "profile").glob("*/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    names, steps = [], []
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            names.append(plane.event_metadata[event.metadata_id].name)
            for stat in event.stats:
                if plane.stat_metadata[stat.metadata_id].name == "step_num":
                    steps.append(stat.int64_value)
    return names, sorted(steps)


def test_of_the_steps_asked_for_there_is_a_profile_with_their_ops(tmp_path, capsys):
    runner.run(toy.experiment(), tmp_path, "train", profile_steps=(12, 14))
    names, steps = events(tmp_path)
    assert steps == [12, 13, 14]
    says(capsys.readouterr().err, "profiled steps 12 14")
    assert sum(name.endswith(ONCE_A_STEP) for name in names) == 3
    assert any(BACKWARD in name for name in names)


def test_profiling_changes_no_bit_and_no_row_whatever_falls_due_within(tmp_path, plain):
    runner.run(toy.experiment(), tmp_path, "train_and_eval", profile_steps=(8, 21))
    assert events(tmp_path)[1] == list(range(8, 22))
    assert not comparison.differing(comparison.compare(tmp_path, plain))
    for log in ("train.jsonl", "history.jsonl", "checkpoint"):
        lines = [(run / log).read_text().count("\n") for run in (tmp_path, plain)]
        assert lines[0] == lines[1], log


def test_what_a_resumed_run_has_left_of_the_steps_is_profiled(tmp_path, capsys):
    finished.run(toy.experiment({"trainer": {"train_steps": 20}}), tmp_path, "train")
    runner.run(toy.experiment(), tmp_path, "train", profile_steps=(15, 22))
    assert events(tmp_path)[1] == [21, 22]

    runner.run(toy.experiment(), tmp_path, "train", profile_steps=(1, 22))
    says(capsys.readouterr().err, "profile 40 past 22")
    assert events(tmp_path)[1] == [21, 22]


def test_training_that_ends_among_the_steps_leaves_a_profile_of_those_before(tmp_path):
    stops = [lambda logs: "enough"]
    runner.run(toy.experiment(), tmp_path, "train", profile_steps=(9, 30), train_actions=stops)
    assert events(tmp_path)[1] == [9, 10]


def test_a_profiler_that_is_taken_is_noted_and_the_run_goes_on(tmp_path, capsys):
    tf.profiler.experimental.start(str(tmp_path / "other"))
    try:
        results = runner.run(toy.experiment(), tmp_path / "run", "train", profile_steps=(2, 3))
    finally:
        tf.profiler.experimental.stop(save=False)
    assert results["step"] == 40
    says(capsys.readouterr().err, "profiling profiler")


def test_a_profile_that_cannot_be_written_is_noted_and_the_run_goes_on(tmp_path, capsys):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "plugins").write_text("no folder")
    assert runner.run(toy.experiment(), tmp_path, "train", profile_steps=(2, 3))["step"] == 40
    says(capsys.readouterr().err, "profile written")


class Trainer:
    """Counts; a brake ends a loop at `brake`."""

    def __init__(self, brake=1000):
        self.step, self.brake, self.loops = 0, brake, []

    def train(self, num_steps):
        before, self.step = self.step, min(self.step + int(num_steps), self.brake)
        self.loops.append((before, self.step))
        return {"at": self.step}


def profiled(trainer, steps, folder):
    return profiling.Profiled(trainer, profiling.Steps(*steps), folder, note=lambda text: None)


def profiles(folder):
    return sorted(path.name for path in (folder / "train" / "plugins" / "profile").iterdir())


def test_a_few_steps_are_profiled_again_and_again_and_the_newest_are_kept(tmp_path, plain, capsys):
    every = toy.experiment({"run": {"profile_every": 5}})
    runner.run(every, tmp_path, "train_and_eval")
    found = ["steps-18-20", "steps-23-25", "steps-28-30", "steps-33-35", "steps-38-40"]
    assert profiles(tmp_path) == found
    says(capsys.readouterr().err, "profiled steps 3 5")
    assert not comparison.differing(comparison.compare(tmp_path, plain))

    other = tmp_path / "train" / "plugins" / "profile" / "2026_11_22_10_00_00"
    other.mkdir()  # of a start with --profile_steps
    every.override({"trainer": {"train_steps": 50}, "run": {"profile_every": 7}})
    runner.run(every, tmp_path, "train_and_eval")
    found = ["steps-28-30", "steps-33-35", "steps-38-40", "steps-41-42", "steps-47-49"]
    assert profiles(tmp_path) == [other.name, *found]


@pytest.mark.parametrize(
    ("step", "expected"), [(0, (3, 5)), (3, (3, 5)), (4, (3, 5)), (5, (8, 10)), (10, (13, 15))]
)
def test_the_steps_to_profile_next_are_those_after_the_present_one(step, expected):
    assert profiling.each(5).after(step) == expected


def test_steps_that_are_profiled_again_and_again_are_run_one_at_a_time(tmp_path):
    trainer = Trainer()
    made = profiled(trainer, (5, 6, 5), tmp_path)
    made.train(tf.constant(12))
    assert trainer.loops == [(0, 4), (4, 5), (5, 6), (6, 9), (9, 10), (10, 11), (11, 12)]
    made.close()


def test_the_steps_are_run_one_at_a_time_and_the_others_in_loops(tmp_path):
    trainer = Trainer()
    made = profiled(trainer, (5, 6), tmp_path)
    assert made.train(tf.constant(10)) == {"at": 10}
    made.train(tf.constant(10))
    assert trainer.loops == [(0, 4), (4, 5), (5, 6), (6, 10), (10, 20)]


def test_a_brake_ends_the_loop_around_the_steps_too(tmp_path):
    trainer = Trainer(brake=3)
    assert profiled(trainer, (5, 6), tmp_path).train(tf.constant(10)) == {"at": 3}
    assert trainer.loops == [(0, 3)]


def test_a_rollback_ends_the_profile(tmp_path):
    trainer = Trainer()
    made = profiled(trainer, (5, 20), tmp_path)
    made.train(tf.constant(10))
    trainer.step = 0
    made.train(tf.constant(10))
    assert trainer.loops[-2:] == [(0, 4), (4, 10)]
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--mode=train", "--profile_steps=100"], "expected FIRST:LAST, as in 100:102"),
        (["--mode=train", "--profile_steps=-1:3"], "expected FIRST:LAST, as in 100:102"),
        (["--mode=train", "--profile_steps="], "--profile_steps= is empty"),
        (
            ["--mode=train", "--profile_steps=5:3"],
            "5:3: expected FIRST:LAST, both included",
        ),
        (
            ["--mode=train", "--profile_steps=0:3"],
            "0:3: expected FIRST:LAST, both included",
        ),
        (["--mode=eval", "--profile_steps=1:3"], "train, train_and_eval, "),
        (["--mode=verify_resume", "--profile_steps=1:3"], "train, train_and_eval, "),
    ],
)
def test_steps_that_cannot_be_profiled_are_refused(capsys, tmp_path, flags, said):
    assert main.main([*flags, "--model_dir=run", "--gin_file=digits.gin"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("eval", {"profile_steps": (1, 2)}, "profile_steps mode='eval' train train_and_eval"),
        ("train", {"profile_steps": (2, 1)}, "2:1 FIRST:LAST included"),
        ("train", {"profile_steps": (30, 41)}, "30:41 ends step 40"),
        ("train", {"profile_steps": (1, 2), "dry_run": True}, "dry_run no effect"),
    ],
)
def test_from_python_too(tmp_path, mode, options, said):
    with pytest.raises(ConfigError, match=saying(said)):
        runner.run(toy.experiment(), tmp_path / "run", mode, **options)
    assert not (tmp_path / "run").exists()
