import itertools

import numpy as np
import pytest
import record_files
import tensorflow as tf
import toy
from official.core import config_definitions as cfg
from official.core import input_reader

from runner.data import pipeline, windows
from runner.data.determinism import Determinism

COUNT = 48


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def number(record):
    return tf.strings.to_number(record, tf.int64)


class Reads(toy.ToyTask):
    """A task that reads TFRecords as Model Garden's tasks do."""

    parser = staticmethod(lambda value: {"number": value})

    def build_inputs(self, params, input_context=None):
        return self.reader(params).read(input_context)

    def reader(self, params, **functions):
        return input_reader.InputReader(
            params, decoder_fn=number, parser_fn=self.parser, **functions
        )


def draws(value):
    """Draws random numbers in all the ways that augmentations do."""
    chosen = tf.cond(
        tf.random.uniform([]) < 0.5,
        lambda: tf.random.normal([2]),
        lambda: tf.random.truncated_normal([2]),
    )
    _, summed = tf.while_loop(
        lambda turn, _: turn < 3,
        lambda turn, total: (turn + 1, total + tf.random.uniform([4])),
        (0, tf.zeros([4])),
    )
    return {
        "number": value,
        "chosen": chosen,
        "summed": summed,
        "whole": tf.random.uniform([3], maxval=1000, dtype=tf.int32),
        "shuffled": tf.random.shuffle(tf.range(20)),
        "kind": tf.random.categorical(tf.zeros([1, 50]), 2),
        "box": tf.image.sample_distorted_bounding_box([50, 50, 3], tf.zeros([1, 0, 4]),
            use_image_if_no_bounding_boxes=True, min_object_covered=0.1)[0],
        "gamma": tf.random.gamma([2], 1.5),
        "poisson": tf.random.poisson([2], 40.0),
    }  # fmt: skip


class Draws(Reads):
    parser = staticmethod(draws)


class Mixes(Reads):
    """A task that draws for whole batches, as for mixup."""

    def reader(self, params, **functions):
        def mixed(batch):
            return {**batch, "share": tf.random.uniform([])}

        return super().reader(params, postprocess_fn=mixed)


class Filters(Reads):
    """A task that leaves out some of its records."""

    def reader(self, params, **functions):
        return super().reader(params, filter_fn=lambda parsed: parsed["number"] > 3)


def data(folder, **fields):
    record_files.numbers(folder, COUNT, shards=3)
    return cfg.DataConfig(
        input_path=str(folder / "*.tfrecord"), is_training=True, global_batch_size=8, **fields
    )


def read(task, config, count, *, step=0, **arguments):
    """Batches of a pipeline, flat, and what it says about itself."""
    kept = Determinism()
    made = pipeline.training(
        task(toy.ToyConfig()), config, step=step, determinism=kept, by_index=True, **arguments
    )
    batches = [tf.nest.map_structure(np.asarray, batch) for batch in itertools.islice(made, count)]
    return batches, kept


def test_every_example_is_read_once_in_an_epoch(tmp_path):
    batches, kept = read(Reads, data(tmp_path), 12)
    numbers = np.array([batch["number"] for batch in batches])
    assert not kept.not_indexed
    for epoch in (numbers[:6], numbers[6:]):
        assert sorted(epoch.ravel()) == list(range(COUNT))
    assert numbers[:6].tolist() != numbers[6:].tolist()


@pytest.mark.parametrize("task", [Reads, Draws, Mixes])
def test_a_resume_has_the_bits_of_a_run_through(tmp_path, task):
    config = data(tmp_path)
    through, _ = read(task, config, 9)
    resumed, kept = read(task, config, 3, step=6)
    assert not kept.not_indexed
    for old, new in zip(through[6:], resumed, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, old, new)


def test_what_is_drawn_differs_from_example_to_example_and_in_every_epoch(tmp_path):
    batches, _ = read(Draws, data(tmp_path), 12)
    columns = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    assert (np.sort(columns["shuffled"], axis=1) == np.arange(20)).all()
    for key in ("chosen", "summed", "shuffled", "gamma"):
        assert len(np.unique(columns[key], axis=0)) == 2 * COUNT, key
    assert 0.3 < (columns["summed"] / 3).mean() < 0.7
    assert columns["summed"].std() > 0.3  # each turn of a loop draws other numbers


def test_a_seed_makes_another_order(tmp_path):
    config = data(tmp_path)
    first, _ = read(Reads, config, 6, seed=1)
    second, _ = read(Reads, config, 6, seed=2)
    assert not all((a["number"] == b["number"]).all() for a, b in zip(first, second, strict=True))


def test_the_replicas_of_a_batch_share_it(tmp_path):
    config = data(tmp_path)
    alone, _ = read(Reads, config, 6)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        kept = Determinism()
        task = Reads(toy.ToyConfig())
        iterator = iter(pipeline.training(task, config, determinism=kept, by_index=True))
        parts = [strategy.experimental_local_results(next(iterator)["number"]) for _ in range(6)]
    assert not kept.not_indexed
    for batch, part in zip(alone, parts, strict=True):
        np.testing.assert_array_equal(batch["number"], np.concatenate(part))


def test_the_examples_of_a_batch_are_known(tmp_path):
    batches, kept = read(Reads, data(tmp_path), 4)
    (placement,) = kept.placements
    for step, batch in enumerate(batches):
        identities = placement.identities(step)
        assert [identity.index for identity in identities] == batch["number"].tolist()


def test_batches_that_a_rollback_leaves_out_are_left_out(tmp_path):
    config = data(tmp_path)
    through, _ = read(Reads, config, 6)
    others, _ = read(Reads, config, 4, reading=windows.Reading([(1, 3)]))
    for number, batch in zip((0, 3, 4, 5), others, strict=True):
        np.testing.assert_array_equal(batch["number"], through[number]["number"])


def test_a_pipeline_that_filters_is_streamed_and_says_why(tmp_path):
    batches, kept = read(Filters, data(tmp_path), 2)
    assert "Filter" in kept.not_indexed
    assert len(batches) == 2


def test_pipelines_that_do_not_read_tfrecords_are_streamed(tmp_path):
    class Counts(toy.ToyTask):
        def build_inputs(self, params, input_context=None):
            return tf.data.Dataset.range(1000).batch(8)

    _, kept = read(Counts, data(tmp_path), 2)
    assert kept.not_indexed
