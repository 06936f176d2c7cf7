from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the ops of exported models)
import tf_keras
from official.core import export_base, task_factory
from official.nlp.configs import encoders
from sklearn import metrics as sklearn_metrics
from wording import saying

import runner
from runner import config
from runner.checkpoints import warm_start
from runner.errors import ConfigError
from tasks import aspect_sentiment, question_answering
from tasks.aspects import aspect_data, aspect_features, aspect_models, macro_f1
from tasks.questions import question_data, readers
from tasks.text import embeddings, words

LSTM = aspect_models.AttentionLSTMConfig(
    vectors=embeddings.EmbeddingConfig(dimension=24, trainable=True),
    units=24,
    positions=8,
    dropout=0.1,
)
ENCODER = encoders.BertEncoderConfig(
    hidden_size=32,
    num_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    initializer_range=0.1,
)


def data(**fields):
    training = fields.get("is_training", False)
    return aspect_data.AspectData(
        **{"is_training": training, "global_batch_size": 32 if training else 50, **fields}
    )


def build_config(model=None, **fields):
    fields = {"train_data": data(is_training=True), "validation_data": data(), **fields}
    model = model or aspect_models.ModelConfig(attention_lstm=LSTM)
    return aspect_sentiment.AspectSentimentConfig(model=model, window=15, **fields)


def build_task(*args, **fields):
    return task_factory.get_task(build_config(*args, **fields))


def constants(given):
    return {name: tf.constant(value) for name, value in given.items()}


def bert(kind, *sources, **fields):
    """A tiny random BERT whose vocabulary is the words of some data."""
    found = {
        token.text
        for source in sources or (data(split="all"),)
        for example in aspect_data.read(aspect_data.source_of(source))
        for token in words.tokenize(example.sentence)
    }
    Path("vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(found)]))
    made = type(getattr(aspect_models.ModelConfig(), kind))
    options = made(vocab_file="vocab.txt", dropout=0.0, **{"encoder": ENCODER, **fields})
    return aspect_models.ModelConfig(type=kind, **{kind: options})


def one_opinion_file():
    """Sentences that say one thing only, and mention another."""
    lines = []
    for example in aspect_data.read(aspect_data.source_of(data(split="all")))[:24]:
        for place in ("window", "door", "bar", "stairs", "kitchen", "garden"):
            right = example.right.replace(" .", f" , we sat by the {place} .")
            lines += [f"{example.left}$T${right}", example.aspect, example.polarity]
    Path("one.seg").write_text("\n".join(lines))
    return "one.seg"


def learn(task, steps, rate):
    """Trains, and returns the validation metrics by name."""
    tf_keras.utils.set_random_seed(0)
    decay = tf_keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.0)
    model, optimizer = task.build_model(), tf_keras.optimizers.Adam(decay)
    batches = iter(task.build_inputs(task.task_config.train_data))

    @tf.function
    def train():
        for _ in tf.range(steps):
            task.train_step(next(batches), model, optimizer)

    train()
    metrics = task.build_metrics(training=False)
    for batch in task.build_inputs(task.task_config.validation_data):
        task.validation_step(batch, model, metrics)
    return {metric.name: float(metric.result()) for metric in metrics}


def mem_net():
    """Traced in a third of the time of an LSTM."""
    vectors = embeddings.EmbeddingConfig(dimension=64, trainable=True)
    made = aspect_models.MemNetConfig(vectors=vectors, dropout=0.1)
    return aspect_models.ModelConfig(type="mem_net", mem_net=made)


def test_an_attention_lstm_tells_two_opinions_of_one_sentence_apart():
    scores = learn(build_task(), 60, 0.02)
    assert scores["accuracy"] > 0.95
    assert scores["macro_f1"] > 0.95


def test_a_memory_of_words_tells_two_opinions_of_one_sentence_apart():
    assert learn(build_task(mem_net()), 300, 0.01)["accuracy"] > 0.9


def test_a_local_focus_tells_two_opinions_of_one_sentence_apart():
    scores = learn(build_task(bert("lcf_bert", focus="cdw")), 100, 0.005)
    assert scores["accuracy"] > 0.95
    assert scores["macro_f1"] > 0.95


def test_a_bert_finds_the_opinion_of_a_sentence():
    train, validation = (
        data(input_path=one_opinion_file(), split=split, is_training=split == "train")
        for split in ("train", "validation")
    )
    task = build_task(bert("bert_spc", train), train_data=train, validation_data=validation)
    scores = learn(task, 80, 0.005)
    assert scores["accuracy"] > 0.95
    assert scores["macro_f1"] > 0.95


@pytest.mark.parametrize("batch", [1, 7, 100])
@pytest.mark.parametrize("classes", [3, 5])
def test_macro_f1_is_that_of_scikit_learn_for_any_batching(batch, classes):
    generator = np.random.default_rng(classes)
    labels = generator.integers(0, 3, 100)  # of five classes two do not occur
    logits = generator.normal(size=(100, classes)).astype(np.float32)
    logits[:, 3:] = -9
    metric = macro_f1.MacroF1(classes)
    for first in range(0, 100, batch):
        metric.update_state(labels[first : first + batch], logits[first : first + batch])
    expected = sklearn_metrics.f1_score(labels, logits.argmax(axis=1), average="macro")
    assert float(metric.result()) == pytest.approx(expected, rel=1e-6)
    metric.reset_state()
    assert float(metric.result()) == 0


def test_polarities_come_from_the_training_data_or_are_given(tmp_path):
    assert build_task().polarities == ("negative", "neutral", "positive")
    given = ("positive", "neutral", "negative")
    assert build_task(polarities=given).polarities == given


def write(name, *polarities):
    Path(name).write_text("".join(f"a $T$ b\nc\n{polarity}\n" for polarity in polarities))
    return name


def test_a_polarity_that_training_does_not_know_is_refused_with_its_line():
    train = data(input_path=write("train.seg", "good", "bad"), is_training=True)
    validation = data(input_path=write("other.seg", "good", "goood"))
    task = build_task(train_data=train, validation_data=validation)
    with pytest.raises(ConfigError, match=saying("other.seg:6 goood bad")):
        task.build_inputs(validation)


def test_one_polarity_is_refused():
    train = data(input_path=write("train.seg", "good", "good"), is_training=True)
    with pytest.raises(ConfigError, match=saying("train.seg polarity good")):
        build_task(train_data=train).build_inputs(train)


def test_scoring_on_what_was_learnt_is_refused():
    path = write("x.seg", "good", "bad")
    with pytest.raises(ConfigError, match=saying("share x.seg files")):
        build_task(
            train_data=data(input_path=path, is_training=True),
            validation_data=data(input_path=path),
        )
    with pytest.raises(ConfigError, match="window=0"):
        task_factory.get_task(aspect_sentiment.AspectSentimentConfig(window=0))


def test_words_of_further_files_are_known():
    Path("test.seg").write_text("Gorgeous $T$\nfood\nanything\n")
    token = tf.constant(["gorgeous"])
    known = build_task(vocabulary_paths=("test.seg",)).reader.encode(token)
    unknown = build_task().reader.encode(token)
    assert unknown.to_list() == [[embeddings.UNKNOWN]]
    assert known.to_list() != unknown.to_list()


@pytest.mark.parametrize("kind", ["attention_lstm", "bert_spc"])
def test_a_cache_holds_the_ids_of_sentences_until_a_file_changes(kind, monkeypatch):
    train = data(input_path=write("train.seg", "good", "bad"), is_training=True, cache_folder="c")

    def features():
        model = None if kind == "attention_lstm" else bert(kind, train)
        task = build_task(model, train_data=train, validation_data=data(input_path="other.seg"))
        return next(iter(task.build_inputs(train.replace(is_training=False))))[0]

    write("other.seg", "good")
    made = features()
    with monkeypatch.context() as patch:
        patch.setattr(aspect_features.SentenceReader, "encode", None)
        patch.setattr(aspect_features.PairReader, "encode", None)
        cached = features()
    for name, values in made.items():
        np.testing.assert_array_equal(cached[name], values)
    write("train.seg", "good", "bad", "good")
    again = features()
    assert len(again["aspect"]) == 3


def test_a_vocabulary_that_does_not_fit_the_checkpoint_is_refused_with_both_sizes():
    task = build_task(bert("bert_spc"))
    model = task.build_model()
    path = tf.train.Checkpoint(**model.checkpoint_items).write("encoder")
    size = task.reader.pieces.size
    vocabulary = Path("vocab.txt")
    vocabulary.write_text(vocabulary.read_text() + "\nanother")
    message = rf"vocab\.txt has {size + 1} pieces, but .* {size}"
    with pytest.raises(ConfigError, match=message):
        build_task(task.task_config.model, init_checkpoint=path).build_model()


@pytest.mark.parametrize("kind", ["mem_net", "fast_lsa"])
def test_an_exported_model_takes_strings_and_says_polarities(kind):
    task = build_task(mem_net() if kind == "mem_net" else bert(kind))
    model = task.build_model()
    export_base.export(task.serving(model), ["serve"], "exported", timestamped=False)
    served = tf.saved_model.load("exported").signatures["serving_default"]

    examples = aspect_data.read(aspect_data.source_of(data()))[:5]
    answers = served(
        sentence=tf.constant([f"{e.left}$T${e.right}" for e in examples]),
        aspect=tf.constant([e.aspect for e in examples]),
    )
    features, _ = next(iter(task.build_inputs(data(global_batch_size=5))))
    logits = model(features, training=False)
    np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(logits), atol=1e-5)
    names = [task.polarities[place] for place in np.argmax(logits, axis=1)]
    assert [name.decode() for name in answers["polarity"].numpy()] == names
    every = task.build_metrics(training=False)
    for features, labels in task.build_inputs(data()):
        task.process_metrics(every, labels, model(features, training=False))
    scored = task.score_served(
        lambda **given: {k: v.numpy() for k, v in served(**constants(given)).items()}, data()
    )
    assert scored == pytest.approx({metric.name: float(metric.result()) for metric in every})
    one, two = (
        served(sentence=tf.constant([text]), aspect=tf.constant(["food"]))["probabilities"]
        for text in ("the $T$ was stale , but food", "the $T$ was stale , but $T$")
    )
    np.testing.assert_array_equal(one, two)
    with pytest.raises(tf.errors.InvalidArgumentError, match="needs"):
        served(sentence=tf.constant(["the food"]), aspect=tf.constant(["food"]))


def test_two_replicas_score_every_example_once(tmp_path):
    model = mem_net()
    made = config.Experiment(task=build_config(model))
    made.override(
        {
            "runtime": {"distribution_strategy": "mirrored"},
            "run": {"logical_cpus": 2, "tensorboard": False},
            "trainer": {
                "train_steps": 2,
                "steps_per_loop": 2,
                "checkpoint_interval": 2,
                "validation_interval": 2,
                "best_checkpoint_eval_metric": "macro_f1",
                "optimizer_config": {
                    "optimizer": {"type": "sgd"},
                    "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.1}},
                },
            },
        }
    )
    result = runner.run(made, tmp_path / "two", "train_and_eval")["metrics"]
    task = build_task(model)
    network = task.build_model()
    tf.train.Checkpoint(model=network).read(str(tmp_path / "two/ckpt-2")).expect_partial()
    labels, answers = [], []
    for features, part in task.build_inputs(data()):
        labels.extend(part.numpy())
        answers.extend(np.argmax(network(features, training=False), axis=1))
    assert result["accuracy"] == pytest.approx(np.mean(np.equal(labels, answers)))
    expected = sklearn_metrics.f1_score(labels, answers, average="macro")
    assert result["macro_f1"] == pytest.approx(expected)


def test_the_fine_tuned_encoder_alone_begins_another_task(tmp_path):
    model = bert("bert_base")
    made = config.Experiment(task=build_config(model))
    made.override(
        {
            "run": {"tensorboard": False, "export": {"formats": ("pretrained",)}},
            "trainer": {
                "train_steps": 2,
                "optimizer_config": {
                    "optimizer": {"type": "adamax"},
                    "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.1}},
                },
            },
        }
    )
    runner.run(made, tmp_path / "run", "train")
    (exported,) = runner.run(made, tmp_path / "run", "export")["exports"]
    assert exported["items"] == ["encoder"]

    reader = readers.ReaderConfig(type="bert")
    reader.bert.encoder = model.bert_base.encoder
    data = {"vocab_file": "vocab.txt", "max_context": 20, "stride": 10, "max_question": 10}
    other = question_answering.QuestionAnsweringConfig(
        init_checkpoint=exported["path"],
        model=reader,
        train_data=question_data.QuestionData(is_training=True, **data),
        validation_data=question_data.QuestionData(is_training=False, **data),
    )
    network = task_factory.get_task(other).build_model()
    report = warm_start.initialize(network, Path(exported["path"]))
    assert not report.different
    saved = tf.train.Checkpoint(model=(trained := task_factory.get_task(made.task).build_model()))
    saved.read(str(tmp_path / "run/ckpt-2")).expect_partial()
    ours, theirs = (each.checkpoint_items["encoder"].get_weights() for each in (network, trained))
    for one, another in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, another)
