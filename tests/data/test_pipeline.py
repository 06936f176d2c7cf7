import gc
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import tensorflow_text
import toy
from tensorflow.python.framework import config as tf_config
from wording import saying, says

import runner
from runner import inputs
from runner.data import pipeline, windows
from runner.devices import garbage
from runner.errors import ConfigError


@pytest.mark.parametrize(
    ("step", "skipped", "expected"),
    [
        (0, [], [(0, None)]),
        (7, [], [(7, None)]),
        (0, [(3, 5)], [(0, 3), (5, None)]),
        (2, [(3, 5)], [(2, 1), (5, None)]),
        (3, [(3, 5)], [(5, None)]),
        (10, [(3, 5)], [(12, None)]),
        (0, [(0, 2)], [(2, None)]),
        (0, [(3, 5), (4, 6)], [(0, 3), (6, None)]),  # a window widened by a later decision
        (0, [(8, 9), (3, 5)], [(0, 3), (5, 3), (9, None)]),
    ],
)
def test_what_is_read_from_a_step_on(step, skipped, expected):
    assert windows.segments(step, skipped) == expected


def test_a_step_has_the_batch_that_reading_through_would_give_it():
    skipped = [(3, 5), (9, 10), (10, 12)]
    kept = [batch for batch in range(40) if not any(a <= batch < b for a, b in skipped)]
    assert [windows.batch_of(step, skipped) for step in range(20)] == kept[:20]


LEFT_OUT = windows.Reading([(4, 6)])


class Own(toy.ToyTask):
    """A task that brings a pipeline of its own, which cannot be told where to begin."""

    def build_inputs(self, params, input_context=None):
        batch = 8 // (input_context.num_replicas_in_sync if input_context else 1)
        return tf.data.Dataset.range(10_000).batch(batch, drop_remainder=True)


def read(dataset, strategy, count):
    iterator = iter(dataset)
    return [
        np.concatenate([np.asarray(part) for part in strategy.experimental_local_results(each)])
        for each in (next(iterator) for _ in range(count))
    ]


@pytest.fixture(params=["one replica", "two replicas"])
def strategy(request):
    if request.param == "one replica":
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def test_own_inputs_are_replayed_to_any_step(strategy):
    task, data = Own(toy.ToyConfig()), toy.cfg.DataConfig()
    with strategy.scope():
        through = read(pipeline.training(task, data), strategy, 12)
        resumed = read(pipeline.training(task, data, step=5), strategy, 3)
        skipping = read(pipeline.training(task, data, step=2, reading=LEFT_OUT), strategy, 4)
    np.testing.assert_array_equal(resumed, through[5:8])
    np.testing.assert_array_equal(skipping, [through[i] for i in (2, 3, 6, 7)])


def test_own_inputs_with_a_configuration_for_placed_ones_are_replayed(strategy):
    data = inputs.DataConfig(is_training=True, global_batch_size=8)  # has a start_step
    task = Own(toy.ToyConfig())
    with strategy.scope():
        through = read(pipeline.training(task, data), strategy, 8)
        made = pipeline.training(task, data, step=5)
        resumed = read(made, strategy, 3)
    assert not made.is_placed
    np.testing.assert_array_equal(resumed, through[5:])


def test_placed_inputs_begin_at_the_step_and_leave_batches_out(strategy):
    task = toy.ToyTask(toy.ToyConfig())
    data = inputs.DataConfig(is_training=True, global_batch_size=8)

    def labels(dataset, count):
        iterator = iter(dataset)
        parts = [strategy.experimental_local_results(next(iterator)[1]) for _ in range(count)]
        return [np.concatenate([np.asarray(p) for p in part]).tolist() for part in parts]

    with strategy.scope():
        through = labels(pipeline.training(task, data, seed=3), 12)
        skipping = labels(pipeline.training(task, data, step=2, reading=LEFT_OUT, seed=3), 4)
    assert skipping == [through[i] for i in (2, 3, 6, 7)]


@pytest.mark.parametrize("task", [toy.ToyTask, Own])
def test_threads_and_autotuning_are_as_configured_whoever_builds_the_pipeline(task):
    data = inputs.DataConfig(is_training=True, global_batch_size=8)
    tuned = data.replace(autotune_algorithm="MAX_PARALLELISM", ram_budget=2)
    train = pipeline.training(task(toy.ToyConfig()), tuned, threads=3).dataset.options()
    assert train.threading.private_threadpool_size == 3
    algorithms = tf.data.experimental.AutotuneAlgorithm
    assert train.autotune.autotune_algorithm == algorithms.MAX_PARALLELISM
    assert train.autotune.ram_budget == 2 * 2**30
    fixed = pipeline.validation(task(toy.ToyConfig()), data.replace(autotune=False)).options()
    assert fixed.autotune.enabled is False


def test_the_batches_are_the_same_however_they_are_tuned(strategy):
    def labels(data, **options):
        with strategy.scope():
            iterator = iter(pipeline.training(toy.ToyTask(toy.ToyConfig()), data, **options))
        parts = [strategy.experimental_local_results(next(iterator)[1]) for _ in range(12)]
        return [np.concatenate([np.asarray(p) for p in part]).tolist() for part in parts]

    data = inputs.DataConfig(is_training=True, global_batch_size=8)
    same = labels(data)
    for fields in ({"autotune": False}, {"autotune_algorithm": "HILL_CLIMB"}, {"ram_budget": 1}):
        assert labels(data.replace(**fields)) == same, fields
    for threads in (1, 4):
        assert labels(data, threads=threads) == same, threads


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"autotune_algorithm": "BEST"}, "DataConfig.autotune_algorithm='BEST' HILL_"),
        ({"ram_budget": -1}, "DataConfig.ram_budget=-1 1"),
        ({"ram_budget": 1, "autotune": False}, "ram_budget=1 autotune"),
        ({"threads": -2}, "RuntimeConfig.dataset_num_private_threads=-2 1"),
    ],
)
def test_tuning_that_there_is_not_is_refused(fields, message):
    threads = fields.pop("threads", None)
    data = inputs.DataConfig(is_training=True, global_batch_size=8).replace(**fields)
    with pytest.raises(ConfigError, match=saying(message)):
        pipeline.training(toy.ToyTask(toy.ToyConfig()), data, threads=threads)


def test_advice_names_what_the_kind_of_pipeline_has():
    placed = pipeline.advice(inputs.DataConfig())
    assert "DataConfig.num_parallel_calls" in placed
    assert "cache" not in placed
    assert "DataConfig.cache" in pipeline.advice(toy.cfg.DataConfig())


class Global(toy.ToyTask):
    """A task that knows nothing of replicas."""

    def build_inputs(self, params):
        return tf.data.Dataset.range(10_000).batch(8, drop_remainder=True)


def test_global_batches_are_split_and_replayed_to_any_step(strategy):
    task, data = Global(toy.ToyConfig()), toy.cfg.DataConfig()
    with strategy.scope():
        through = read(pipeline.training(task, data), strategy, 6)
        resumed = read(pipeline.training(task, data, step=4), strategy, 2)
    np.testing.assert_array_equal(through, np.arange(48).reshape(6, 8))
    np.testing.assert_array_equal(resumed, through[4:])


class Shuffled(toy.ToyTask):
    def build_inputs(self, params, input_context=None):
        return tf.data.Dataset.range(100).shuffle(100).repeat().batch(8)


def test_a_shuffle_without_a_seed_has_one_order_also_after_what_is_left_out():
    task, data = Shuffled(toy.ToyConfig()), toy.cfg.DataConfig()
    alone = tf.distribute.get_strategy()
    through = read(pipeline.training(task, data, seed=3), alone, 12)
    skipping = read(pipeline.training(task, data, step=2, reading=LEFT_OUT, seed=3), alone, 4)
    np.testing.assert_array_equal(skipping, [through[i] for i in (2, 3, 6, 7)])


@pytest.fixture
def tokenizer():
    """It keeps its model in TensorFlow's cache of kernels, which tf.random.set_seed empties."""
    Path("text").write_text("a word\nein wort\nthe words are two\nzwei worte sind das\n" * 9)
    sentencepiece.SentencePieceTrainer.train(
        input="text", model_prefix="pieces", vocab_size=22, minloglevel=2
    )
    return tensorflow_text.SentencepieceTokenizer(model=Path("pieces.model").read_bytes())


def test_a_tokenizer_of_the_tasks_lives_through_training_resuming_and_evaluating(
    tokenizer, tmp_path, monkeypatch
):
    def speak(self, logs, global_step=None):
        return {"length": float(len(tokenizer.detokenize(tokenizer.tokenize("a word")).numpy()))}

    monkeypatch.setattr(toy.ToyTask, "aggregate_logs", lambda self, state, logs: True)
    monkeypatch.setattr(toy.ToyTask, "reduce_aggregated_logs", speak)
    monkeypatch.setattr(toy.ToyTask, "build_inputs", Unseeded.build_inputs)
    for steps in (20, 40):
        config = toy.experiment({"trainer": {"train_steps": steps}})
        results = runner.run(config, tmp_path / "run", "train_and_eval")
        assert results["metrics"]["length"] == len("a word")


class Unseeded(toy.ToyTask):
    """Inputs of its own, in an order that no seed is given for."""

    def build_inputs(self, params, input_context=None):
        dataset = tf.data.Dataset.from_tensor_slices(toy.data(32)).shuffle(32)
        return dataset.repeat().batch(8) if params.is_training else dataset.batch(8)


@pytest.fixture
def thawed():
    """Nothing is frozen, and afterwards what is left is."""
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.collect()
    garbage.freeze()


def test_beside_a_tokenizer_a_shuffle_without_a_seed_is_replayed_too(thawed, tokenizer):
    task, data = Unseeded(toy.ToyConfig()), toy.cfg.DataConfig(is_training=True)
    first, again = (pipeline.training(task, data, seed=3).dataset for _ in range(2))
    for one, other in zip(first.take(5), again.take(5), strict=True):
        np.testing.assert_array_equal(one[1], other[1])
    garbage.freeze()  # as the command does when modules are imported
    pipeline.training(task, data, seed=3)
    assert tokenizer.tokenize("a word").shape[0] > 0


def refused(point, label):
    """A random op that TensorFlow refuses to build where ops are to be deterministic."""
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
    begin, *_ = tf.image.sample_distorted_bounding_box([8, 8, 3], whole)
    return point + tf.cast(begin[0], tf.float32), label


def not_rewritten(point, label):
    """A map that TensorFlow fails to rewrite so that it is deterministic."""
    with tf.control_dependencies([label]):
        limit = tf.constant(0.5)
    return tf.where(tf.random.uniform([]) > limit, point, -point), label


@pytest.mark.parametrize("augment", [refused, not_rewritten])
def test_inputs_that_cannot_be_deterministic_are_used_all_the_same_and_that_is_said_once(
    augment, tmp_path, monkeypatch, capsys
):
    def build_inputs(self, params, input_context=None):
        dataset = tf.data.Dataset.from_tensor_slices(toy.data(32)).repeat()
        if params.is_training:
            dataset = dataset.map(augment, num_parallel_calls=2)
        else:
            dataset = dataset.take(17)
        return dataset.batch(8, drop_remainder=params.is_training)

    monkeypatch.setattr(toy.ToyTask, "build_inputs", build_inputs)
    seen = []
    train_step = toy.ToyTask.train_step

    def step(*args, **kwargs):
        seen.append(tf_config.is_op_determinism_enabled())
        return train_step(*args, **kwargs)

    monkeypatch.setattr(toy.ToyTask, "train_step", step)
    results = runner.run(toy.experiment(), tmp_path / "run", "train_and_eval")
    assert results["step"] == 40
    err = capsys.readouterr().err
    says(err, "not bit-exact inputs TensorFlow deterministic")
    assert err.count("not bit-exact") == 1
    assert seen
    assert all(seen)


@pytest.mark.parametrize("augment", [refused, not_rewritten])
def test_inputs_of_evaluations_that_cannot_be_deterministic_are_used_all_the_same(
    augment, tmp_path, monkeypatch, capsys
):
    build_inputs = toy.ToyTask.build_inputs

    def augmented(self, params, input_context=None):
        dataset = build_inputs(self, params, input_context)
        if params.is_training:
            return dataset
        dataset = dataset.unbatch().map(augment, num_parallel_calls=2)
        return dataset.batch(8, drop_remainder=True)

    monkeypatch.setattr(toy.ToyTask, "build_inputs", augmented)
    runner.run(toy.experiment(), tmp_path / "run", "train_and_eval")
    err = capsys.readouterr().err
    assert err.count("inputs of evaluations") == 1
    says(err, "bit-exact indexed")
