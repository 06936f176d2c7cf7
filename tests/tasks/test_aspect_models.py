import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.nlp.configs import encoders
from wording import each_says, saying

from runner.checkpoints import warm_start
from runner.errors import ConfigError
from tasks.aspects import (
    aspect_bert,
    aspect_features,
    aspect_models,
)
from tasks.text import bert as text_bert
from tasks.text import embeddings, vocabularies

SENTENCE = ("the ", "wine list", " was good .")
WORDS = ("the", "food", "wine", "list", "was", "good", "bad", ".")
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS)


def lstm(**fields):
    vectors = embeddings.EmbeddingConfig(dimension=8, trainable=True)
    fields = {"vectors": vectors, "units": 8, "positions": 4, **fields}
    return aspect_models.ModelConfig(
        type="attention_lstm", attention_lstm=aspect_models.AttentionLSTMConfig(**fields)
    )


def over_words(kind, **fields):
    vectors = embeddings.EmbeddingConfig(dimension=8, trainable=True)
    sizes = {} if kind == "mem_net" else {"units": 8}
    made = type(getattr(aspect_models.ModelConfig(), kind))(
        **{"vectors": vectors, **sizes, **fields}
    )
    return aspect_models.ModelConfig(type=kind, **{kind: made})


SIZES = {"hidden_size": 8, "num_attention_heads": 2, "initializer_range": 0.5}
BERT = {**SIZES, "num_layers": 1, "intermediate_size": 8, "max_position_embeddings": 64}
ENCODERS = {
    "bert": encoders.BertEncoderConfig(**BERT),
    "electra": encoders.BertEncoderConfig(**BERT, embedding_size=4),
    "albert": encoders.AlbertEncoderConfig(**BERT, embedding_width=4),
    "mobilebert": encoders.MobileBertEncoderConfig(
        **SIZES,
        num_blocks=1,
        intermediate_size=8,
        word_embed_size=4,
        intra_bottleneck_size=8,
        max_sequence_length=64,
    ),
}


def bert(kind, encoder=ENCODERS["bert"], **fields):
    made = type(getattr(aspect_models.ModelConfig(), kind))(
        **{"vocab_file": "vocab.txt", "encoder": encoder, **fields}
    )
    return aspect_models.ModelConfig(type=kind, **{kind: made})


@pytest.fixture(autouse=True)
def vocabulary(own_folder, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))


def read(config, *sentences, window=8):
    """The reader, and the features of sentences of three parts."""
    reader = aspect_models.build_reader(config, window, [t for s in sentences for t in s])
    parts = [reader.encode(tf.constant(part)) for part in zip(*sentences, strict=True)]
    return reader, reader.features(*parts)


def test_sentences_are_ids_of_words_with_the_place_of_the_aspect():
    reader, features = read(lstm(), SENTENCE, ("", "food", " was bad"))
    ids = reader.vectors.vocabulary.ids
    assert features["words"].numpy().tolist() == [
        ids(["the", "wine", "list", "was", "good", "."]).tolist(),
        [*ids(["food", "was", "bad"]), 0, 0, 0],
    ]
    assert features["aspect"].numpy().tolist() == [[1, 3], [0, 1]]


def test_pairs_are_as_bert_reads_them():
    _, features = read(bert("bert_spc"), SENTENCE, ("", "food", " was bad"))
    pieces = [[VOCABULARY[id_] for id_ in row] for row in features["input_word_ids"].numpy()]
    each_says([" ".join(row) for row in pieces], "[CLS] wine [SEP]", "[CLS] food [SEP] [PAD]")
    assert features["input_mask"].numpy().sum(axis=1).tolist() == [11, 7]
    types = features["input_type_ids"].numpy().tolist()
    assert types == [[0] * 8 + [1] * 3, [0] * 5 + [1] * 2 + [0] * 4]
    assert features["aspect"].numpy().tolist() == [[2, 4], [1, 2]]


def test_the_window_keeps_what_is_next_to_the_aspect():
    long = ("a b c d ", "e f g", " h i j")
    reader, features = read(lstm(), long, window=2)
    wanted = reader.vectors.vocabulary.ids(list("cdefhi")).tolist()
    assert features["words"].numpy().tolist() == [wanted]
    assert features["aspect"].numpy().tolist() == [[2, 4]]


def test_neighbours_are_the_nearest_aspects_of_the_same_sentence():
    parts = [
        ("the ", "food", " was good , the wine list bad"),
        ("the food was good , the ", "wine list", " bad"),
        ("the food was ", "good", " , the wine list bad"),
        ("the ", "food", " was bad"),
    ]
    reader, _ = read(bert("fast_lsa"), *parts)
    left, aspect, right = (reader.encode(tf.constant(part)) for part in zip(*parts, strict=True))
    around = tf.function(aspect_features.around)  # as in an exported model
    found = around(tf.constant(["".join(part) for part in parts]), left, aspect)
    assert found.numpy().tolist() == [
        [[0, 1], [2, 3]],  # [UNK] is the comma's
        [[-3, -2], [0, 2]],
        [[-2, -1], [3, 5]],
        [[0, 1], [0, 1]],
    ]
    features = reader.features(left, aspect, right, found)
    assert features["neighbours"][1].numpy().tolist() == [[4, 5], [7, 9]]


def test_distances_count_from_the_nearest_word_of_the_aspect():
    aspect = tf.constant([[2, 4], [0, 1], [4, 5]])
    assert aspect_features.distances(aspect, 5).numpy().tolist() == [
        [2, 1, 0, 0, 1],
        [0, 1, 2, 3, 4],
        [4, 3, 2, 1, 0],
    ]


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("cdm", [[0, 0, 1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]]),
        (
            "cdw",
            [
                [1 - 2 / 7, 1 - 1 / 7, 1, 1, 1, 1, 1 - 1 / 7, 0],
                [1, 1, 1 - 1 / 4, 1 - 2 / 4, 0, 0, 0, 0],
            ],
        ),
    ],
)
def test_local_focus_masks_or_weights_what_is_beyond_the_threshold(kind, weights):
    sentence = tf.constant([[1] * 7 + [0], [1] * 4 + [0] * 4])
    aspect = tf.constant([[3, 5], [0, 1]])
    focus = aspect_bert.LocalFocus(kind, threshold=1)
    focused = focus(tf.ones([2, 8, 3]), sentence=sentence, aspect=aspect)
    np.testing.assert_allclose(focused, np.repeat(np.array(weights)[..., None], 3, 2), rtol=1e-6)


ALL = {
    "attention_lstm": lstm(own_vectors=4),
    "atae_lstm": over_words("atae_lstm", own_vectors=4),
    "td_lstm": over_words("td_lstm"),
    "tc_lstm": over_words("td_lstm", connect_target=True),
    "ian": over_words("ian"),
    "mem_net": over_words("mem_net"),
    "ram": over_words("ram"),
    "aen": over_words("aen", heads=2),
    "bert_base": bert("bert_base"),
    "bert_spc": bert("bert_spc"),
    "lcf_bert": bert("lcf_bert", focus="fusion"),  # both of the others
    "fast_lsa": bert("fast_lsa"),
    "fast_lsa_left": bert("fast_lsa", window="l", focus="cdm"),
    "electra": bert("bert_spc", ENCODERS["electra"]),
    "albert": bert("fast_lsa", ENCODERS["albert"]),
    "mobilebert": bert("lcf_bert", ENCODERS["mobilebert"]),
}
SENTENCES = [
    ("the ", "food", " was good , the wine bad"),
    ("the food was good , the ", "wine", " bad"),
    ("good good good food was ", "the list", " and the wine was bad bad bad ."),
    ("", "food", ""),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds each model once: its reader, the model, and the features of SENTENCES."""

    @functools.cache
    def build(name):
        folder = tmp_path_factory.mktemp(name)
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
        with contextlib.chdir(folder):
            reader, batch = read(ALL[name], *SENTENCES)
        model = aspect_models.build(ALL[name], reader, 3)
        if "words" in batch:
            vectors = model.get_layer("vectors").embeddings
            vectors.assign(20 * vectors)  # or all would be near 0
        return reader, model, batch

    return build


@pytest.mark.parametrize("name", ALL)
def test_what_a_model_says_depends_on_sentence_and_aspect_but_not_on_the_rest_of_the_batch(
    name, built
):
    reader, model, batch = built(name)
    together = model(batch).numpy()
    assert together.shape == (4, 3)
    assert np.isfinite(together).all()
    assert np.abs(together[0] - together[1]).max() > 1e-6
    backwards = model({name: part[::-1] for name, part in batch.items()})
    np.testing.assert_allclose(together, backwards[::-1], atol=1e-5)
    for number in (0, 3):
        alone = reader.features(*(reader.encode(tf.constant([p])) for p in SENTENCES[number]))
        np.testing.assert_allclose(together[number], model(alone)[0], atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["atae_lstm", "td_lstm", "ian", "ram", "aen", "bert_base", "fast_lsa", "albert", "mobilebert"],
)
def test_all_of_a_model_learns(name, built):
    """The other kinds learn the made-up opinions in `test_aspect_sentiment`."""
    _, model, batch = built(name)
    optimizer, losses = tf_keras.optimizers.Adam(0.03), []
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf_keras.losses.sparse_categorical_crossentropy([1, 0, 0, 1], model(batch), True)
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        assert all(each is not None for each in gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(float(loss))
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("name", ["attention_lstm", "mem_net", "fast_lsa"])
def test_logits_are_float32_under_mixed_precision(name, built):
    reader, _, batch = built(name)
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    assert aspect_models.build(ALL[name], reader, 3)(batch).dtype == tf.float32


def test_a_word_without_a_vector_has_one_of_its_own_if_asked(tmp_path):
    (tmp_path / "vectors.txt").write_text("food 1 2\nwas 3 4\n")
    vectors = embeddings.EmbeddingConfig(path="vectors.txt", dimension=2)
    spoken = ("", "food", " was yummy")
    _, without = read(lstm(vectors=vectors), spoken)
    assert without["words"].numpy().tolist() == [[2, 3, 1]]

    reader, features = read(lstm(vectors=vectors, own_vectors=3), spoken)
    assert features["words"].numpy().tolist() == [[2, 3, 4]]
    np.testing.assert_array_equal(reader.vectors.matrix[2:], [[1, 2], [3, 4], [2, 3]])
    model = aspect_models.build(lstm(vectors=vectors, own_vectors=3), reader, 2)
    trained = {variable.name for variable in model.trainable_variables}
    assert "own_vectors/embeddings:0" in trained
    assert "vectors/embeddings:0" not in trained


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_pretrained_encoder_fills_the_model(tmp_path, encoder):
    config = bert("lcf_bert", ENCODERS[encoder])
    reader, _ = read(config, SENTENCE)
    pretrained = text_bert.encoder(config.lcf_bert.encoder, reader.pieces, pooled=True)
    tf.train.Checkpoint(encoder=pretrained).write(str(tmp_path / "bert"))
    model = aspect_models.build(config, reader, 3)
    warm_start.initialize(model, tmp_path / "bert")
    loaded = model.checkpoint_items["encoder"].get_weights()
    for ours, theirs in zip(loaded, pretrained.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    (tmp_path / "short.txt").write_text("\n".join(VOCABULARY[:-1]))
    shorter = vocabularies.load(str(tmp_path / "short.txt"), lower_case=True)
    with pytest.raises(
        ConfigError, match=saying(f"{shorter.size} pieces trained {shorter.size + 1}")
    ):
        text_bert.check_vocabulary(str(tmp_path / "bert"), shorter)


def test_the_weights_of_neighbours_are_a_group_of_their_own():
    reader, _ = read(bert("fast_lsa"), SENTENCE)
    model = aspect_models.build(bert("fast_lsa", eta=0.5), reader, 3)
    weights = {v.name: float(v) for v in model.trainable_variables if v.name.startswith("head_eta")}
    assert weights == {"head_eta_left/weight:0": 0.5, "head_eta_right/weight:0": 0.5}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            aspect_models.ModelConfig(type="lstm"),
            "type='lstm' expected attention_lstm atae_lstm",
        ),
        (over_words("ian", units=0), "UnitsConfig.units=0 above 0"),
        (over_words("ram", hops=0), "RAMConfig.hops=0 above 0"),
        (over_words("aen", heads=0), "AENConfig.heads=0 above 0"),
        (over_words("mem_net", dropout=1.0), "MemNetConfig.dropout=1.0 below"),
        (lstm(units=0), "AttentionLSTMConfig.units=0 above 0"),
        (lstm(dropout=1.0), "AttentionLSTMConfig.dropout=1.0 below"),
        (lstm(l2=-1.0), "AttentionLSTMConfig.l2=-1.0"),
        (lstm(own_vectors=-1), "AttentionLSTMConfig.own_vectors=-1"),
        (bert("bert_spc", dropout=1.0), "BertConfig.dropout=1.0 below"),
        (bert("lcf_bert", focus="cdx"), "focus='cdx' fusion"),
        (bert("fast_lsa", window="all"), "window='all' expected"),
        (bert("fast_lsa", focus="fusion"), "FastLsaConfig.focus='fusion' cdw"),
        (bert("lcf_bert", distance=-1), "LcfBertConfig.distance=-1"),
    ],
)
def test_an_impossible_model_is_refused(config, message):
    with pytest.raises(ConfigError, match=saying(message)):
        aspect_models.build(config, read(config, SENTENCE)[0], 3)


def test_an_encoder_that_is_too_short_for_the_window_is_refused():
    reader, _ = read(bert("bert_spc"), SENTENCE, window=16)
    with pytest.raises(ConfigError, match=saying("window=16 67 pieces 64")):
        aspect_models.build(bert("bert_spc"), reader, 3)
