"""Extracting aspect terms with their polarity: tags, scores, learning, resuming and serving."""

import functools
import json
import operator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the ops of exported models)
from official.core import export_base, task_factory
from wording import saying

import runner
from runner.errors import ConfigError
from tasks import aspect_extraction
from tasks.aspects import aspect_data, fast_lcf_atepc, term_tags, three_lines

OUTSIDE, BEGIN, INSIDE, IGNORED = 0, 1, 2, -1


def experiment(steps):
    """The tiny preset, shortened."""
    return runner.load(
        "aspect_terms_tiny.gin",
        [
            "EpochsConfig.train = 0",
            "EpochsConfig.validation_interval = 0",
            "EpochsConfig.checkpoint_interval = 0",
            f"TrainerConfig.train_steps = {steps}",
            "TrainerConfig.validation_interval = 160",
            "TrainerConfig.checkpoint_interval = 20",
            "TrainerConfig.max_to_keep = 16",
            "CosineLrConfig.decay_steps = 160",
        ],
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory and the result of a run that has learned the synthetic sentences."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, runner.run(experiment(160), folder, "train_and_eval")


@pytest.fixture(scope="module")
def built(trained):
    """The task and the model of that run."""
    folder, _ = trained
    task = task_factory.get_task(experiment(160).task)
    model = task.build_model()
    checkpoint = tf.train.latest_checkpoint(str(folder))
    tf.train.Checkpoint(model=model).read(checkpoint).expect_partial()
    return task, model


def extraction(folder, text, **fields):
    """A task on a file of examples."""
    paths = [folder / f"{name}.seg" for name in ("train", "validation")]
    for path in paths:
        path.write_text(text)
    train, validation = (
        aspect_data.TermData(input_path=str(path), is_training=training, global_batch_size=2)
        for path, training in zip(paths, (True, False), strict=True)
    )
    config = aspect_extraction.AspectExtractionConfig(
        train_data=train, validation_data=validation, **fields
    )
    return task_factory.get_task(config)


def spans_of(tags):
    """The terms of a row of tags, as (first, last), read one tag at a time."""
    found = []
    for place, tag in enumerate(tags):
        if tag == BEGIN or (tag == INSIDE and (place == 0 or tags[place - 1] <= OUTSIDE)):
            found.append([place, place])
        elif tag == INSIDE:
            found[-1][1] = place
    return {tuple(each) for each in found}


def test_terms_are_those_that_reading_tag_by_tag_finds():
    tags = np.random.default_rng(0).integers(-1, 3, [200, 9])
    begins, ends = (part.numpy() for part in term_tags.spans(tf.constant(tags)))
    for row, tagged in enumerate(tags):
        found = {(first, ends[row, first]) for first in np.flatnonzero(begins[row])}
        assert found == spans_of(tagged)


def test_f1_counts_whole_terms_of_weighted_sentences():
    random = np.random.default_rng(1)
    labels = random.integers(-1, 3, [40, 7]).astype(np.int32)
    predicted = random.integers(0, 3, [40, 7])
    weights = random.integers(0, 2, [40])
    metric = term_tags.SpanF1()
    assert float(metric.result()) == 0
    for part in (slice(0, 15), slice(15, 40)):
        metric.update_state(labels[part], tf.one_hot(predicted[part], 3), weights[part])
    kept = [
        (true, np.where(true < 0, -1, found)) for true, found in zip(labels, predicted, strict=True)
    ]
    true, found = ([spans_of(each) for each in side] for side in zip(*kept, strict=True))
    both = [t & f for t, f in zip(true, found, strict=True)]
    correct, said, asked = (
        sum(len(each) * weight for each, weight in zip(side, weights, strict=True))
        for side in (both, found, true)
    )
    assert correct
    assert float(metric.result()) == pytest.approx(2 * correct / (said + asked))


def test_tags_mark_all_aspects_of_a_sentence_and_the_first_example_scores_them(tmp_path):
    text = "\n".join(
        [
            *("the $T$ was good but the service slow", "wine list", "Positive"),
            *("the wine list was good but the $T$ slow", "service", "Negative"),
            *("a $T$ of mine", "friend", "Positive"),
        ]
        * 1
    )
    task = extraction(tmp_path, text, window=5)
    examples = three_lines.read(str(tmp_path / "train.seg"))
    ids = [task.reader.encode(tf.constant(part)) for part in list(zip(*examples, strict=True))[:3]]
    tags = [part.to_list() for part in term_tags.of_examples(examples, *ids)]
    joined = [functools.reduce(operator.iadd, parts, []) for parts in zip(*tags, strict=True)]
    assert joined[0] == joined[1] == [0, 1, 2, 0, 0, 0, 0, 1, 0]
    assert tags[1] == [[1, 2], [1], [1]]
    assert term_tags.firsts(examples).tolist() == [True, False, True]


def test_a_row_is_cut_to_the_window_with_its_tags(tmp_path):
    far = "one two three four five six seven $T$ was nice and that is all of it"
    near = "the $T$ was bad"
    text = "\n".join(
        part for n in range(9) for part in (f"{far} {n}", "food", "good", near, "wine", "bad")
    )
    task = extraction(tmp_path, text, window=3)
    features, labels = next(iter(task.build_inputs(task.task_config.train_data)))
    assert features["input_word_ids"].shape == labels["tags"].shape
    assert (labels["tags"].numpy() == BEGIN).sum(axis=1).tolist() == [1, 1]
    at = features["aspect"].numpy()[:, 0]
    assert labels["tags"].numpy()[range(2), at].tolist() == [BEGIN, BEGIN]
    outside = (labels["tags"].numpy() == IGNORED).sum(axis=1)
    padded = (features["input_mask"].numpy() == 0).sum(axis=1)
    assert (outside == padded + 2).all()


def test_the_synthetic_sentences_are_solved(trained):
    metrics = trained[1]["metrics"]
    assert min(metrics[name] for name in ("apc_accuracy", "apc_f1", "ate_f1")) > 0.95


def test_a_resumed_run_is_bit_identical(trained, tmp_path):
    runner.run(experiment(40), tmp_path, "train")
    runner.run(experiment(80), tmp_path, "train")
    once, twice = (
        tf.train.load_checkpoint(str(folder / "ckpt-80")) for folder in (trained[0], tmp_path)
    )
    names = [name for name in once.get_variable_to_shape_map() if name.startswith(("model", "opt"))]
    assert names
    for name in names:
        np.testing.assert_array_equal(once.get_tensor(name), twice.get_tensor(name))


def test_tags_do_not_depend_on_the_aspect_that_is_asked(built):
    task, model = built
    features, _ = next(iter(task.build_inputs(task.task_config.validation_data)))
    other = {**features, "aspect": tf.ones_like(features["aspect"]) * [[1, 2]]}
    one, two = (model(each, training=False) for each in (features, other))
    np.testing.assert_array_equal(one["tags"], two["tags"])
    assert np.abs(one["polarity"] - two["polarity"]).max() > 0.1


def test_an_exported_model_takes_strings_and_gives_terms_with_polarities(built, tmp_path):
    task, model = built
    export_base.export(task.serving(model), ["serve"], str(tmp_path), timestamped=False)
    serve = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    sentences = [
        "the wine was superb , but the bill was outrageous .",
        "",
        "the view was northern .",
    ]
    found = {name: part.numpy() for name, part in serve(sentence=tf.constant(sentences)).items()}
    assert found["term"].tolist() == [[b"wine", b"bill"], [b"", b""], [b"view", b""]]
    assert found["polarity"].tolist() == [[b"positive", b"negative"], [b"", b""], [b"neutral", b""]]
    for sentence, starts, ends, terms in zip(
        sentences, found["start"], found["end"], found["term"], strict=True
    ):
        for start, end, term in zip(starts, ends, terms, strict=True):
            assert (sentence[start:end] if start >= 0 else "") == term.decode()
    assert found["probabilities"].shape == (3, 2, 3)

    data = task.task_config.validation_data
    metrics = task.build_metrics(training=False)
    for batch in task.build_inputs(data):
        task.validation_step(batch, model, metrics)
    scored = task.score_served(
        lambda sentence: {k: v.numpy() for k, v in serve(sentence=tf.constant(sentence)).items()},
        data,
    )
    assert scored == {"ate_f1": pytest.approx(float(metrics[-1].result()))}


def test_predictions_name_all_terms_of_a_sentence(trained):
    folder, _ = trained
    path = runner.run(experiment(160), folder, "predict")["output"]
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    both = [row for row in rows if " , but " in row["sentence"]]
    assert both
    wrong = sum(
        row["terms"] != [part.split()[1] for part in row["sentence"].split(" , but ")]
        or row["polarity"] != row["label"]
        for row in both
    )
    assert wrong < 0.05 * len(both)


def test_a_wrong_focus_is_refused():
    config = aspect_extraction.AspectExtractionConfig(
        model=fast_lcf_atepc.FastLcfAtepcConfig(focus="all")
    )
    with pytest.raises(ConfigError, match=saying("FastLcfAtepcConfig.focus='all' cdw")):
        task_factory.get_task(config).build_model()
