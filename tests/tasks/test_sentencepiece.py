"""SentencePiece: ids, positions in the original text, and ALBERT's normalization."""

import piece_models
import pytest
import sentencepiece
import tensorflow as tf
from wording import saying

from runner.errors import ConfigError
from tasks.text import vocabularies

TEXTS = [
    "The food was good, the service was not.",
    "A café in Zürich: naïve waiters, good wine.",
    "the food the wine the list the service",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with ALBERT's special pieces, trained on TEXTS without accents."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    texts = [text.lower().replace("é", "e") for text in TEXTS]
    return piece_models.sentencepiece_model(folder, texts, 60)


def spans(vocabulary, text):
    """The parts of a text that its pieces stand for."""
    pieces = vocabulary.encode([text])[0]
    return [text[start:end] for start, end in zip(pieces.starts, pieces.ends, strict=True)]


def test_ids_are_those_of_the_model(model):
    vocabulary = vocabularies.load(model, lower_case=False)
    known = sentencepiece.SentencePieceProcessor(model_file=model)
    texts = [text.lower() for text in TEXTS]
    assert [each.ids.tolist() for each in vocabulary.encode(texts)] == known.encode(texts)
    assert (vocabulary.pad, vocabulary.cls, vocabulary.sep) == (0, 2, 3)
    assert vocabulary.size == known.get_piece_size() == len(vocabulary.pieces)


def test_lower_case_folds_case_and_drops_accents(model):
    vocabulary = vocabularies.load(model, lower_case=True)
    one, other = vocabulary.encode(["THE Café", "the cafe"])
    assert one.ids.tolist() == other.ids.tolist()


@pytest.mark.parametrize("text", [*TEXTS, "  ẞ Straße  ﬁne — the ﬁsh", "cafe\u0301 the food", ""])
def test_positions_are_those_of_the_original_text(model, text):
    vocabulary = vocabularies.load(model, lower_case=True)
    pieces = vocabulary.encode([text])[0]
    found = [part for part in spans(vocabulary, text) if part.strip()]
    assert all(part == part.strip() for part in found)
    assert [*pieces.starts] == sorted(pieces.starts)
    assert set("".join(found)) >= {each for each in text if each.isalpha()}


def test_pieces_of_known_words_spell_the_text(model):
    vocabulary = vocabularies.load(model, lower_case=True)
    text = "The Food  was good"
    first, *rest = spans(vocabulary, text)  # the first may be the space that the model adds
    assert first in ("T", "The")
    assert "".join(rest).replace(" ", "").endswith("Foodwasgood")


def test_a_batch_gives_the_positions_of_each_text_alone(model):
    vocabulary = vocabularies.load(model, lower_case=True)
    texts = ["", *TEXTS, "", "ﬁsh", ""]
    together = vocabulary.encode(texts)
    for text, one in zip(texts, together, strict=True):
        for ours, alone in zip(one, vocabulary.encode([text])[0], strict=True):
            assert ours.tolist() == alone.tolist()


def test_the_graph_gives_the_same_ids(model):
    vocabulary = vocabularies.load(model, lower_case=True)
    ids = tf.function(vocabulary.in_graph)(tf.constant(TEXTS))
    assert ids.to_list() == [each.ids.tolist() for each in vocabulary.encode(TEXTS)]


def test_what_is_no_model_is_refused(tmp_path, model):
    other = tmp_path / "other.model"
    other.write_text("[PAD]\n[UNK]")
    with pytest.raises(ConfigError, match=saying("other.model SentencePiece")):
        vocabularies.load(str(other), lower_case=True)
    with pytest.raises(ConfigError, match=saying("no vocabulary missing.model")):
        vocabularies.load(str(tmp_path / "missing.model"), lower_case=True)
