"""A resumed run is bit-identical to one that was never stopped."""

import pytest
import tensorflow as tf
import toy
from resumed import compare, rows, state
from wording import says

import runner
from runner.data import iterators

STRATEGIES = {
    "off": {"runtime": {"distribution_strategy": "off"}},
    "one_device": {"runtime": {"distribution_strategy": "one_device"}},
    "mirrored": {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}},
}


class Own(toy.ToyTask):
    """Brings a tf.data pipeline with a shuffle buffer and no seed, over several epochs."""

    stateful = False

    def build_inputs(self, params, input_context=None):
        size = params.global_batch_size
        size = input_context.get_per_replica_batch_size(size) if input_context else size
        dataset = tf.data.Dataset.from_tensor_slices(toy.data(30))
        if params.is_training:
            dataset = dataset.shuffle(12).repeat()
            if self.stateful:
                dataset = dataset.map(lambda x, y: (x + tf.random.normal([4]), y))
        return dataset.batch(size, drop_remainder=params.is_training)


@pytest.fixture
def own_inputs(monkeypatch):
    monkeypatch.setattr("official.core.task_factory.get_task", lambda params, **kw: Own(params))
    return {"train_data": toy.cfg.DataConfig(is_training=True, global_batch_size=8)}


def experiment(strategy, steps, **task):
    ema = {"trainer": {"train_steps": steps, "optimizer_config": {"ema": {"average_decay": 0.9}}}}
    made = toy.experiment(ema, **task)
    made.override(STRATEGIES[strategy])
    return made


def test_placed_inputs_dropout_and_averages_of_replicas_resume_exactly(tmp_path, capsys):
    compare(tmp_path, lambda steps: experiment("mirrored", steps))
    says(capsys.readouterr().err, "bit-exact indexed")


def test_continuous_saving_adds_checkpoints_and_changes_nothing_else(tmp_path):
    def made(steps, seconds):
        made = experiment("off", steps)
        made.override({"run": {"checkpoint_seconds": seconds}})
        made.override({"trainer": {"steps_per_loop": 1, "checkpoint_interval": 40}})
        return made

    scheduled, continuous = tmp_path / "scheduled", tmp_path / "continuous"
    runner.run(made(40, 0.0), scheduled, "train")
    runner.run(made(40, "continuous"), continuous, "train")
    assert len(list(scheduled.glob("ckpt-*.index"))) == 1
    assert len(list(continuous.glob("ckpt-*.index"))) > 1
    assert state(continuous, 40) == state(scheduled, 40)


@pytest.mark.parametrize("strategy", ["off", "one_device"])
def test_the_state_of_own_inputs_is_in_the_checkpoint(tmp_path, capsys, own_inputs, strategy):
    compare(tmp_path, lambda steps: experiment(strategy, steps, **own_inputs))
    says(capsys.readouterr().err, "state inputs")


def test_a_commit_at_the_end_of_a_pass_is_replayed(tmp_path, capsys, own_inputs, monkeypatch):
    def batches(self, params, input_context=None):
        dataset = tf.data.Dataset.from_tensor_slices(toy.data(30))
        options = tf.data.Options()  # nothing is read ahead of the commit
        options.autotune.enabled = options.experimental_optimization.inject_prefetch = False
        if not params.is_training:
            return dataset.batch(8)
        return dataset.shuffle(30).batch(8).repeat().with_options(options)

    monkeypatch.setattr(Own, "build_inputs", batches)
    compare(tmp_path, lambda steps: experiment("off", steps, **own_inputs), stops=(20,))
    says(capsys.readouterr().err, "replaying 20 batches")


def test_a_position_that_is_too_large_is_left_out(tmp_path, capsys, own_inputs, monkeypatch):
    monkeypatch.setattr(iterators, "_LARGEST", 100)
    compare(tmp_path, lambda steps: experiment("mirrored", steps, **own_inputs))
    said = capsys.readouterr().err
    says(said, "100 RunConfig.inputs")
    says(said, "replaying 25 batches")


def test_own_inputs_of_replicas_are_replayed_where_the_strategy_changes(
    tmp_path, capsys, own_inputs
):
    compare(tmp_path, lambda steps: experiment("mirrored", steps, **own_inputs))
    said = capsys.readouterr().err
    says(said, "state inputs")
    assert "replaying" not in said
    runner.run(experiment("off", 70, **own_inputs), tmp_path / "once", "train")
    says(capsys.readouterr().err, "replaying inputs 60")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_own_inputs_that_tensorflow_cannot_tell_are_replayed(
    tmp_path, capsys, own_inputs, monkeypatch, strategy
):
    monkeypatch.setattr(Own, "stateful", True)
    compare(tmp_path, lambda steps: experiment(strategy, steps, **own_inputs))
    says(capsys.readouterr().err, "bit-exact reading start")


def test_stateful_random_ops_of_the_training_step_are_named(tmp_path, capsys, monkeypatch):
    step = toy.ToyTask.train_step

    def noisy(self, inputs, model, optimizer, metrics=None):
        points, labels = inputs
        noise = tf.random.normal(tf.shape(points), name="noise")
        return step(self, (points + noise, labels), model, optimizer, metrics)

    monkeypatch.setattr(toy.ToyTask, "train_step", noisy)
    runner.run(toy.experiment(), tmp_path, "train")
    said = capsys.readouterr().err
    says(said, "draws stateful")
    assert "RandomStandardNormal 'noise/RandomStandardNormal'" in said


@pytest.mark.parametrize(
    ("kind", "average"),
    [("adam_experimental", None), ("sgd", {"average_decay": 0.9})],
)
def test_eager_training_goes_on(tmp_path, kind, average):
    def eager(steps, **runtime):
        return toy.experiment(
            {
                "runtime": runtime,
                "trainer": {
                    "train_steps": steps,
                    "train_tf_function": not runtime,
                    "train_tf_while_loop": False,
                    "optimizer_config": {"optimizer": {"type": kind}, "ema": average},
                },
            }
        )

    runner.run(eager(10), tmp_path, "train")  # in a graph
    runner.run(eager(20, run_eagerly=True), tmp_path, "train", allow_config_change=True)
    runner.run(eager(30, run_eagerly=True), tmp_path, "train")
    assert [row["step"] for row in rows(tmp_path / "train.jsonl")] == [10, 20, 30]
    assert state(tmp_path, 30).keys() == state(tmp_path, 10).keys()
