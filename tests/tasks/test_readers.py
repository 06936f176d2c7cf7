import functools

import numpy as np
import pytest
import questions
import tensorflow as tf
import tf_keras
from wording import saying

from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from tasks.questions import answer_spans, question_batches, question_data, readers, word_features

KINDS = [*questions.OF_WORDS, "bert"]


def features(reader, data):
    """The evaluation data, in one batch."""
    read = question_data.read(data)
    dataset = question_batches.dataset(read, data, table=reader.table(read), pad=reader.pad)
    return next(iter(dataset))


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Data of a long text, of one word and of none, for words and for BERT."""
    folder = tmp_path_factory.mktemp("asked")
    answer = [("Anna", 0)]
    texts = [("Anna met Bo. " * 9, [("Who met whom?", answer)])]
    texts.append(("", [("Who was it that met whom where?", answer)]))
    texts.append(("Bo", [("Who?", answer)]))
    path = questions.written(folder / "squad.json", questions.document(*texts))
    vocab_file = questions.vocabulary(folder / "vocab.txt")

    def data(kind, **fields):
        more = {"vocab_file": vocab_file} if kind == "bert" else {}
        both = {"max_context": 60, "stride": 30, "input_path": path, **more, **fields}
        return questions.data(False, **both)

    return data


@pytest.fixture(scope="module")
def networks(asked):
    """Builds once for each kind: a reader, its network, a batch, and the logits of the batch."""

    @functools.cache
    def build(kind):
        config = questions.bert() if kind == "bert" else questions.of_words(kind)
        data = asked(kind, unanswerable=True)
        reader = readers.make(config, data)
        tf_keras.backend.experimental.enable_tf_random_generator()  # as each run does
        network, (batch, _) = reader.network(), features(reader, data)
        return reader, network, batch, network(batch)

    return build


@pytest.fixture(params=KINDS)
def made(request, networks):
    """A reader, its network, for which there may be no answer, a batch and its logits."""
    return networks(request.param)


def test_padding_changes_nothing(made):
    reader, network, batch, together = made
    lengths = [tf.reduce_sum(tf.cast(rows != reader.pad, tf.int32), 1) for rows in single(batch)]
    short = np.flatnonzero(np.less(lengths[1], together.shape[1] - 1))
    assert len(short) >= 2, "that without words, and one with few"
    for row in short:
        alone = network(
            {
                name: batch[name][row : row + 1, : max(length[row], 1)]
                for name, length in zip(("question", "context"), lengths, strict=True)
            }
        )
        np.testing.assert_allclose(alone[0], together[row, : alone.shape[1]], atol=1e-5)


def test_every_weight_learns(made):
    _, network, batch, _ = made
    with tf.GradientTape() as tape:
        logits = network(batch, training=True)
        loss = tf.reduce_sum(tf.nn.softmax(logits, axis=1)[:, :2] ** 2)
    for weight, gradient in zip(
        network.trainable_weights, tape.gradient(loss, network.trainable_weights), strict=True
    ):
        assert gradient is not None, weight.name
        assert np.isfinite(tf.convert_to_tensor(gradient)).all(), weight.name


def saved(network):
    """What a run's checkpoint holds of a network."""
    return tf.train.Checkpoint(network=network, generators=keras_internals.hidden_state(network))


@pytest.mark.parametrize("kind", ["drqa", "qanet"])
def test_a_resumed_reader_goes_on_with_its_dropout(kind, networks, tmp_path):
    """The other readers drop with the layers of these, and BERT drops nothing here."""
    _, network, batch, _ = networks(kind)
    path = saved(network).write(str(tmp_path / "ckpt"))
    first, second = (network(batch, training=True) for _ in range(2))
    assert (first.numpy() != second.numpy()).any()
    saved(network).read(path).assert_consumed()
    for expected in (first, second):
        np.testing.assert_array_equal(network(batch, training=True), expected)


def test_a_new_network_takes_over_the_weights_and_the_dropout_of_another(networks, tmp_path):
    reader, network, batch, _ = networks("drqa")
    resumed = reader.network()
    path = saved(network).write(str(tmp_path / "ckpt"))
    expected = network(batch, training=True)
    saved(resumed).read(path).assert_consumed()
    np.testing.assert_array_equal(resumed(batch, training=True), expected)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("fusion_net", "mixed_float16"),
        ("mnemonic", "mixed_float16"),
        ("qanet", "mixed_float16"),
        ("r_net", "mixed_float16"),
        ("bert", "mixed_float16"),
        ("bert", "mixed_bfloat16"),
    ],
)
def test_half_precision_gives_logits_close_to_those_of_whole_and_finite_gradients(
    kind, dtype, networks
):
    """The other readers consist of the layers of these."""
    reader, whole, batch, expected = networks(kind)
    tf_keras.mixed_precision.set_global_policy(dtype)
    half = reader.network()
    half.set_weights(whole.get_weights())
    with tf.GradientTape() as tape:
        logits = half(batch)
        loss = tf.reduce_mean(tf.nn.log_softmax(logits, axis=1)[:, 0])
    assert logits.dtype == tf.float32
    atol = {"mixed_float16": 0.05, "mixed_bfloat16": 0.25}[dtype]
    np.testing.assert_allclose(logits, expected, rtol=0.05, atol=atol)
    assert np.isfinite(loss)
    for gradient in tape.gradient(loss, half.trainable_weights):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


def single(batch):
    """The ids of the question's tokens and the context's."""
    parts = batch["question"], batch["context"]
    return [word_features.ids(rows) if rows.shape.rank == 3 else rows for rows in parts]


def test_an_answer_stands_in_the_context_or_nowhere(made):
    reader, _, batch, logits = made
    assert possible(logits) == expected(reader, batch, unanswerable=True)


@pytest.mark.parametrize(
    "config",
    [
        questions.match_lstm(),
        questions.of_words("qanet"),
        questions.of_words("mnemonic", hops=1),
        questions.bert(num_layers=1),
    ],
    ids=lambda config: config.type,
)
def test_where_there_is_always_an_answer_it_stands_in_the_context(config, asked):
    """A reader for each way to point at an answer."""
    data = asked(config.type)
    reader = readers.make(config, data)
    batch, _ = features(reader, data)
    assert possible(reader.network()(batch)) == expected(reader, batch, unanswerable=False)


def possible(logits):
    return (logits.numpy() > answer_spans.IMPOSSIBLE / 2).all(-1).tolist()


def expected(reader, batch, *, unanswerable):
    told = single(batch)[1] != reader.pad
    return np.pad(told, [[0, 0], [1, 0]], constant_values=unanswerable).tolist()


def test_bert_is_given_question_and_context_between_its_marks(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nwho\nanna\nmet")
    data = questions.data(False, vocab_file=str(path))
    vocabulary = readers.PieceReader(questions.bert().bert, data).vocabulary
    join = readers.bert_reader.Join(vocabulary, name="join")
    joined = join(tf.constant([[4, 0], [4, 6]]), tf.constant([[5, 6, 5], [5, 0, 0]]))
    assert joined["input_word_ids"].numpy().tolist() == [
        [2, 4, 3, 5, 6, 5, 3],
        [2, 4, 6, 3, 5, 3, 0],
    ]
    assert joined["input_mask"].numpy().tolist() == [[1] * 7, [1] * 6 + [0]]
    assert joined["input_type_ids"].numpy().tolist() == [[0, 0, 0, 1, 1, 1, 1], [0] * 4 + [1, 1, 0]]


def test_words_match_by_spelling_lower_case_and_stem():
    def rows(*words):
        texts = tf.constant(words)
        return word_features.rows(texts, tf.ones([len(words)], tf.int32))[tf.newaxis]

    context, question = rows("Bridge", "bridge", "bridges", "Lund", ""), rows("Bridge", "", "x")
    assert word_features.matches(context, question).numpy().tolist() == [
        [[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    ]


def test_the_shapes_of_words_are_told():
    words = tf.constant(["\u00c9mile", "\u00e9mile", "a1", "1,000", "\u2013", "$", ""])
    shapes = word_features.shapes(word_features.rows(words, tf.ones([7], tf.int32)))
    capitals, numbers, signs = shapes.numpy().T.astype(bool).tolist()
    assert [n for n, is_so in enumerate(capitals) if is_so] == [0]
    assert [n for n, is_so in enumerate(numbers) if is_so] == [2, 3]
    assert [n for n, is_so in enumerate(signs) if is_so] == [4, 5]


@pytest.mark.parametrize("longest", [1, 3, 20])
def test_the_best_span_is_the_best_of_all(longest):
    logits = np.random.default_rng(longest).normal(size=(5, 9, 2)).astype(np.float32)
    found = answer_spans.best(tf.constant(logits), longest)
    for row, (score, start, end, none) in enumerate(zip(*map(np.asarray, found), strict=True)):
        spans = {
            (a, b): logits[row, a, 0] + logits[row, b, 1]
            for a in range(1, 9)
            for b in range(a, min(a + longest, 9))
        }
        assert (start, end) == max(spans, key=spans.get)
        assert score == pytest.approx(max(spans.values()))
        assert none == pytest.approx(logits[row, 0].sum())


def choose(threshold, **columns):
    spans = {name: np.array(values) for name, values in columns.items()}
    return answer_spans.choose(spans, np.array([0, 0, 1, 1]), threshold)


def test_the_best_window_answers_in_whatever_order_they_come():
    spans = {"start": [4, 3, 2, 1], "end": [5, 4, 3, 2], "none": [0, 0, 0, 0]}
    found = choose(None, window=[3, 2, 1, 0], score=[7.0, 7.0, 2.0, 1.0], **spans)
    assert found == {1: (2, 3, 4), 0: (1, 2, 3)}


@pytest.mark.parametrize(("threshold", "answered"), [(1.9, False), (2.0, True), (None, True)])
def test_no_answer_is_given_where_none_scores_higher_in_every_window(threshold, answered):
    spans = {"window": [0, 1], "score": [1.0, 3.0], "start": [1, 2], "end": [1, 3]}
    found = choose(threshold, none=[9.0, 5.0], **spans)
    assert found == {0: (1, 2, 3) if answered else (1, 0, 0)}


def test_what_does_not_fit_the_reader_is_refused(tmp_path):
    vocab_file = questions.vocabulary(tmp_path / "vocab.txt")
    words, pieces = questions.data(True), questions.data(True, vocab_file=vocab_file)
    with pytest.raises(ConfigError, match=saying("type='lstm' 'match_lstm' 'bert'")):
        readers.make(readers.ReaderConfig(type="lstm"), words)
    with pytest.raises(ConfigError, match=r"vocab_file='.*' is for ReaderConfig.type='bert'"):
        readers.make(questions.match_lstm(), pieces)
    with pytest.raises(ConfigError, match=saying("type='bert' needs vocabulary pieces")):
        readers.make(questions.bert(), words)
    with pytest.raises(ConfigError, match=saying("max_context=400 443 encoder reads 128")):
        readers.make(questions.bert(), pieces)
    small = pieces.replace(max_context=50, stride=50)
    with pytest.raises(ConfigError, match=saying("lower_case=False training data True")):
        readers.make(questions.bert(), small, small.replace(lower_case=False))
    with pytest.raises(ConfigError, match=r"MatchLSTMConfig.units=16, dropout=1.5"):
        readers.make(questions.match_lstm(dropout=1.5), words).network()
    with pytest.raises(ConfigError, match=saying("RNetConfig.layers=0 1")):
        readers.make(questions.of_words("r_net", layers=0), words).network()
    with pytest.raises(ConfigError, match=r"QANetConfig.units=18, heads=2: .* multiple of 2 \* h"):
        readers.make(questions.of_words("qanet", units=18), words).network()


def test_the_first_characters_of_words_are_told_and_padded():
    words = tf.constant(["ab", "abc", "\u00e9\U0001f600", ""])
    rows = word_features.rows(words, tf.ones([4], tf.int32), 2)
    codes = word_features.characters(rows).numpy()
    assert codes[0].tolist() == [1 + ord("a"), 1 + ord("b")] == codes[1].tolist()
    assert codes[3].tolist() == [0, 0]
    assert ((codes[2] > 0) & (codes[2] < word_features.CHARACTERS)).all()
    np.testing.assert_array_equal(
        rows[:, : word_features.COLUMNS], word_features.rows(words, tf.ones([4], tf.int32))
    )
