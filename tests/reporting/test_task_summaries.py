"""What tasks, actions and summary managers write with `tf.summary`."""

import orbit
import pytest
import tensorflow as tf
import toy
from official.core import train_lib
from tensorboard.backend.event_processing import event_accumulator

import runner
from runner import inputs, run_config

EVERYTHING = {event_accumulator.TENSORS: 0, event_accumulator.IMAGES: 0}
WIDE = event_accumulator.EventAccumulator


@pytest.fixture
def writing(monkeypatch):
    """The toy task writes its loss while it trains, and points while it evaluates."""
    train_step, validation_step = toy.ToyTask.train_step, toy.ToyTask.validation_step

    def train(self, *args, **kwargs):
        logs = train_step(self, *args, **kwargs)
        tf.summary.scalar("own/loss", logs[self.loss])
        return logs

    def validate(self, inputs, *args, **kwargs):
        tf.summary.image("own/points", tf.reshape(inputs[0], [1, -1, 4, 1]))
        return validation_step(self, inputs, *args, **kwargs)

    monkeypatch.setattr(toy.ToyTask, "train_step", train)
    monkeypatch.setattr(toy.ToyTask, "validation_step", validate)


def steps(folder):
    """By tag, the steps that TensorBoard shows; the tags of scalars, images and tensors."""
    events = WIDE(str(folder), size_guidance=EVERYTHING)
    events.Reload()
    tensors = {tag: [each.step for each in events.Tensors(tag)] for tag in events.Tags()["tensors"]}
    scalars = {tag: [each.step for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return tensors | scalars


def under(library, folder, **more):
    made = toy.experiment()
    strategy = tf.distribute.get_strategy()
    task = toy.ToyTask(made.task)
    return library.run_experiment(strategy, task, "train_and_eval", made, str(folder), **more)


@pytest.mark.usefixtures("writing")
def test_they_are_where_model_garden_has_them(tmp_path):
    under(train_lib, tmp_path / "theirs")
    under(runner, tmp_path / "ours")
    for name in ("train", "validation"):
        theirs, ours = (steps(tmp_path / side / name) for side in ("theirs", "ours"))
        for tag in theirs:
            assert ours[tag] == theirs[tag], tag
        assert len(list((tmp_path / "ours" / name).glob("*tfevents*"))) == 1
    assert steps(tmp_path / "ours/train")["own/loss"] == [0, 10, 20, 30]
    assert set(steps(tmp_path / "ours/validation")["own/points"]) == {20, 40}


@pytest.mark.usefixtures("writing")
@pytest.mark.parametrize(
    "overrides",
    [
        {"runtime": {"enable_xla": True}},
        {"runtime": {"run_eagerly": True}},
        {"trainer": {"train_tf_function": False, "train_tf_while_loop": False}},
    ],
    ids=str,
)
def test_however_steps_run_they_are_written(overrides, tmp_path, capsys):
    runner.run(toy.experiment(overrides), tmp_path / "run", "train")
    assert steps(tmp_path / "run/train")["own/loss"] == [0, 10, 20, 30]
    assert ("tf.summary" in capsys.readouterr().err) == ("enable_xla" in str(overrides))


@pytest.mark.usefixtures("writing")
def test_a_resumed_run_goes_on_and_every_set_has_its_own(tmp_path):
    made = toy.experiment()
    data = inputs.DataConfig(is_training=False, global_batch_size=5)
    made.run.evaluation_sets = (run_config.EvaluationSetConfig(name="part", data=data),)
    runner.run(made, tmp_path, "train_and_eval", train_actions=[stopping(once=[])])
    assert steps(tmp_path / "train")["own/loss"] == [0]
    runner.run(made, tmp_path, "train_and_eval")
    assert set(steps(tmp_path / "train")["own/loss"]) == {0, 10, 20, 30}
    for folder in ("validation", "sets/part"):
        assert {20, 40} <= set(steps(tmp_path / folder)["own/points"])
    runner.run(made, tmp_path, "eval")
    assert set(steps(tmp_path / "eval-once")["own/points"]) == {40}


def stopping(once):
    """An action that stops the first training loop that it sees."""

    def stop(logs):
        del logs
        return None if once else once.append(1) or "enough"

    return stop


def test_actions_and_summary_managers_need_no_step(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path / "action"))

    def write(logs):
        with writer.as_default():
            tf.summary.scalar("seen", logs["training_loss"])

    managers = {
        "summary_manager": orbit.utils.SummaryManager(str(tmp_path / "train"), tf.summary.scalar),
        "eval_summary_manager": orbit.utils.SummaryManager(
            str(tmp_path / "eval"), tf.summary.scalar
        ),
    }
    under(runner, tmp_path / "run", train_actions=[write], **managers)
    writer.flush()
    assert steps(tmp_path / "action")["seen"] == [10, 20, 30, 40]
    assert steps(tmp_path / "train")["training_loss"] == [10, 20, 30, 40]
    assert steps(tmp_path / "eval")["validation_loss"] == [20, 40]
    assert not (tmp_path / "run/train").exists()
    assert not list((tmp_path / "run/validation").glob("*tfevents*"))


@pytest.mark.usefixtures("writing")
def test_what_tasks_write_goes_to_the_managers_that_were_given(tmp_path):
    train = orbit.utils.SummaryManager(str(tmp_path / "mine"), tf.summary.scalar)
    under(runner, tmp_path / "run", summary_manager=train)
    assert steps(tmp_path / "mine")["own/loss"] == [0, 10, 20, 30]
    assert set(steps(tmp_path / "run/validation")["own/points"]) == {20, 40}
