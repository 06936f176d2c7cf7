import numpy as np
import pytest
import tensorflow as tf
from wording import saying, says

from runner.errors import ConfigError
from tasks.text import embeddings

LINES = "the 1 2 3\nfood 4 5 6\n. . . 0 0 1\ncaf\u00e9 -1 0.5 1e-1\nThe 9 9 9\n"


@pytest.fixture
def load(tmp_path):
    """Loads from a file of these lines; what was noted is in `load.notes`."""

    def load(words, content=LINES, **fields):
        path = tmp_path / "vectors.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        config = embeddings.EmbeddingConfig(**{"path": str(path), "dimension": 3, **fields})
        return embeddings.load(config, words, note=load.notes.append)

    load.notes = []
    return load


def test_words_get_their_vectors_padding_zeros_and_unknown_words_the_mean(load):
    found = load(["food", "zzz", "the"])
    assert found.matrix.dtype == np.float32
    np.testing.assert_array_equal(found.matrix, [[0, 0, 0], [2.5, 3.5, 4.5], [4, 5, 6], [1, 2, 3]])
    assert found.vocabulary.ids(["the", "food", "zzz", "café"]).tolist() == [3, 2, 1, 1]
    assert found.vocabulary.ids([]).dtype == np.int32
    assert len(found.vocabulary) == len(found.matrix)


def test_words_without_a_vector_are_counted_and_reported(load):
    found = load(["the", "zzz", "the", "yyy", "zzz", "zzz", "The", "food"])
    assert (found.missing, found.total) == (2, 4)
    (note,) = load.notes
    says(note, "vectors.txt vector 2 4 words 50.0%")


def test_words_are_looked_up_in_lower_case_unless_told_otherwise(load):
    assert load(["The"]).vocabulary.ids(["THE", "The"]).tolist() == [2, 2]
    cased = load(["The", "the"], lower_case=False)
    assert cased.vocabulary.ids(["The", "the", "THE"]).tolist() == [2, 3, 1]
    np.testing.assert_array_equal(cased.matrix[2:], [[9, 9, 9], [1, 2, 3]])


def test_a_word_may_hold_blanks_and_accents(load):
    found = load([". . .", "café"])
    np.testing.assert_allclose(found.matrix[2:], [[0, 0, 1], [-1, 0.5, 0.1]])


def test_of_a_word_that_is_there_twice_the_first_vector_counts(load):
    assert load(["a"], "a 1 2 3\na 4 5 6\n").matrix[2].tolist() == [1, 2, 3]


@pytest.mark.parametrize("header", ["5 3\n", "400000 3 \r\n"])
def test_the_line_of_counts_of_word2vec_and_fasttext_is_passed_over(load, header):
    content = (header + LINES).replace("\n", " \n")
    np.testing.assert_array_equal(load(["the"], content).matrix[2], [1, 2, 3])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 1 2\n", "vectors.txt:1 2 numbers word EmbeddingConfig.dimension=3"),
        ("the 1 2 3\nfood 1 2 3 4\n", "vectors.txt:2 4 numbers word"),
        ("the 1 2 3\n\n", "vectors.txt:2 0 numbers word"),
        (b"the 1 2 3\ncaf\xe9 1 2 3\n", "vectors.txt:2 UTF-8 b'caf\\xe9"),
        ("a 1 2 3\nthe 1 x 3\n", "vectors.txt:2 convert"),
        ("the 1 nan 3\n", "vectors.txt:1 number finite"),
        ("5 2\nthe 1 2\n", "vectors.txt:1 vectors 2 EmbeddingConfig.dimension=3"),
        ("other 1 2 3\n", "vector 1 words"),
    ],
)
def test_vectors_that_do_not_fit_are_refused_with_their_place(load, content, message):
    with pytest.raises(ConfigError, match=saying(message)):
        load(["the"], content)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": "nowhere.txt"}, "file nowhere.txt"),
        ({"path": ""}, "vectors trainable=True"),
        ({"dimension": 0}, "dimension=0"),
    ],
)
def test_a_configuration_without_vectors_is_refused(load, fields, message):
    with pytest.raises(ConfigError, match=saying(message)):
        load(["the"], **fields)


def test_a_graph_finds_the_same_ids(load, tmp_path):
    vocabulary = load(["the", "food", "café"]).vocabulary
    tokens = [["The", "CAFÉ"], [], ["zzz", "İ", "food", "ΟΔΟΣ"]]

    class Serving(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = vocabulary.table()

        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.string)])
        def ids(self, tokens):
            return self.table(tokens)

    tf.saved_model.save(Serving(), str(tmp_path / "saved"))
    found = tf.saved_model.load(str(tmp_path / "saved")).ids(tf.ragged.constant(tokens))
    assert found.dtype == tf.int32
    assert found.to_list() == [vocabulary.ids(row).tolist() for row in tokens]


@pytest.mark.parametrize("lower_case", [True, False])
def test_random_vectors_are_made_for_all_words(lower_case):
    config = embeddings.EmbeddingConfig(dimension=4, trainable=True, lower_case=lower_case)
    found = embeddings.load(config, ["The", "the", "food"], note=pytest.fail)
    assert len(found.vocabulary) == (4 if lower_case else 5)
    layer = embeddings.layer(found, trainable=True)
    vectors = layer(np.arange(len(found.vocabulary))).numpy()
    assert not vectors[0].any()
    assert len(np.unique(vectors[1:])) == vectors[1:].size


def test_a_layer_looks_vectors_up_and_masks_padding(load):
    found = load(["the", "food"])
    layer = embeddings.layer(found, trainable=False, name="x")
    ids = np.array([[3, 2, 0]])
    np.testing.assert_array_equal(layer(ids)[0], found.matrix[[3, 2, 0]])
    np.testing.assert_array_equal(layer.compute_mask(ids), [[True, True, False]])
    assert layer.name == "x"


@pytest.mark.parametrize("trainable", [True, False])
def test_only_trainable_vectors_are_trained_but_all_are_saved(load, trainable):
    layer = embeddings.layer(load(["the"]), trainable=trainable)
    layer(np.array([[2]]))
    assert len(layer.trainable_variables) == trainable
    saved = tf.train.Checkpoint(layer=layer).save("saved")
    assert any("embeddings" in name for name, _ in tf.train.list_variables(saved))


def test_vectors_are_no_part_of_a_layers_configuration(load):
    layer = embeddings.layer(load(["the"]), trainable=False)
    assert layer.get_config()["embeddings_initializer"]["config"] == {}
