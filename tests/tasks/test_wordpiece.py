import pytest
import tensorflow as tf
from official.nlp.modeling import layers
from official.nlp.tools import tokenization
from wording import saying

from runner.errors import ConfigError
from tasks.text import wordpiece

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", ",", ".", "'", "don", "t", "cafe", "sang", "##s"),
    *("beyonce", "istanbul", "strasse", "fi", "##ne", "1", "##\u2044", "##2", "😀", "中", "国"),
    *("Beyoncé", "İ", "##stanbul", "ﬁ", "café"),
]
HARD = [
    "",
    "Beyoncé sang, the cafe\u0301.",
    "İstanbul ﬁne ﬁﬁ ½ straße …",
    "😀 the😀 中国 don't",
    " \u00a0the\tthe\r\n[SEP] sangs\u2019",
    "e\u0301\u0302\u0303 the\u0301",
    "한국어 हिन्दी ไทย ΟΔΥΣΣΕΥΣ",
]


@pytest.fixture
def vocabulary(tmp_path):
    return write(tmp_path / "vocab.txt", PIECES)


def write(path, pieces):
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return str(path)


def encoded(vocabulary, text, **options):
    """Each piece with the characters it stands for."""
    pieces = wordpiece.WordPiece(vocabulary, **options).encode([text])[0]
    return [(PIECES[number], text[start:end]) for number, start, end in zip(*pieces, strict=True)]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Beyoncé", [("beyonce", "Beyoncé")]),
        ("a Beyonce\u0301!", [("[UNK]", "a"), ("beyonce", "Beyonce\u0301"), ("[UNK]", "!")]),
        ("İstanbul.", [("istanbul", "İstanbul"), (".", ".")]),
        ("ﬁne Straße", [("fi", "ﬁ"), ("##ne", "ne"), ("strasse", "Straße")]),
        ("½", [("1", "½"), ("##\u2044", "½"), ("##2", "½")]),
        ("😀, 中国", [("😀", "😀"), (",", ","), ("中", "中"), ("国", "国")]),
        ("\ud800the sangx", [("[UNK]", "\ud800"), ("the", "the"), ("[UNK]", "sangx")]),
        ("", []),
    ],
)
def test_pieces_know_the_characters_they_stand_for(vocabulary, text, pieces):
    assert encoded(vocabulary, text) == pieces


def test_without_lower_case_letters_stay_as_they_are(vocabulary):
    assert encoded(vocabulary, "Beyoncé İstanbul ﬁ The", lower_case=False) == [
        ("Beyoncé", "Beyoncé"),
        ("İ", "İ"),
        ("##stanbul", "stanbul"),
        ("ﬁ", "ﬁ"),
        ("[UNK]", "The"),
    ]


@pytest.mark.parametrize("lower_case", [True, False])
def test_ids_are_those_of_model_garden(vocabulary, lower_case):
    tokenizer = wordpiece.WordPiece(vocabulary, lower_case=lower_case)
    theirs = layers.BertTokenizer(vocab_file=vocabulary, lower_case=lower_case)
    texts = [text.replace("\u00a0", " ") for text in HARD]  # which theirs takes for a letter
    expected = theirs(tf.constant(texts)).merge_dims(1, 2).to_list()
    assert [pieces.ids.tolist() for pieces in tokenizer.encode(texts)] == expected


@pytest.mark.parametrize(
    ("lower_case", "texts"), [(False, HARD), (True, [HARD[1], *HARD[3:6], "İstanbul"])]
)
def test_ids_are_those_of_berts_own_tokenizer(vocabulary, lower_case, texts):
    tokenizer = wordpiece.WordPiece(vocabulary, lower_case=lower_case)
    theirs = tokenization.FullTokenizer(vocabulary, do_lower_case=lower_case)
    expected = [theirs.convert_tokens_to_ids(theirs.tokenize(text)) for text in texts]
    assert [pieces.ids.tolist() for pieces in tokenizer.encode(texts)] == expected


@pytest.mark.parametrize("lower_case", [True, False])
def test_an_exported_graph_finds_the_same_ids_without_the_vocabularys_file(
    vocabulary, tmp_path, lower_case
):
    tokenizer = wordpiece.WordPiece(vocabulary, lower_case=lower_case)
    module = tf.Module()
    module.ids = tf.function(tokenizer.in_graph, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "saved"))
    (tmp_path / "vocab.txt").unlink()
    found = tf.saved_model.load(str(tmp_path / "saved")).ids(tf.constant(HARD))
    assert found.dtype == tf.int32
    assert found.to_list() == [pieces.ids.tolist() for pieces in tokenizer.encode(HARD)]


def test_a_graph_finds_the_same_offsets_in_bytes(vocabulary):
    tokenizer = wordpiece.WordPiece(vocabulary)
    texts = [text for text in HARD if "½" not in text]
    found = [part.to_list() for part in tokenizer.in_graph_with_offsets(tf.constant(texts))]
    for text, pieces, ids, starts, ends in zip(texts, tokenizer.encode(texts), *found, strict=True):
        assert ids == pieces.ids.tolist()
        assert starts == [len(text[:place].encode()) for place in pieces.starts]
        assert ends == [len(text[:place].encode()) for place in pieces.ends]


def test_a_vocabulary_tells_its_size_and_special_pieces(tmp_path):
    path = write(tmp_path / "vocab.txt", ["a", "[UNK]", "[SEP]", "[PAD]", "[CLS]"])
    tokenizer = wordpiece.WordPiece(path)
    assert (tokenizer.size, tokenizer.pad, tokenizer.cls, tokenizer.sep) == (5, 3, 4, 2)


def test_a_vocabulary_may_have_the_line_ends_of_windows(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join(PIECES).encode())
    assert wordpiece.WordPiece(str(path)).encode(["the"])[0].ids == [PIECES.index("the")]


def test_no_texts_are_no_pieces(vocabulary):
    assert wordpiece.WordPiece(vocabulary).encode([]) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\n[UNK]\n[CLS]\na\n", "no [SEP]"),
        (b"a\n", "[PAD] [UNK] [CLS] [SEP]"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\na\n", "vocab.txt:7 'a' line 5"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\ncaf\xe9\n", "vocab.txt:5 UTF-8 b'caf\\xe9"),
        (b"[PAD]\n\n[UNK]\n", "vocab.txt:2 empty line"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n", "vocab.txt tokens"),
    ],
)
def test_a_broken_vocabulary_is_refused(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=saying(message)):
        wordpiece.WordPiece(str(path))


def test_a_missing_vocabulary_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no vocabulary .*nowhere\.txt"):
        wordpiece.WordPiece(str(tmp_path / "nowhere.txt"))


def test_without_a_file_the_words_of_texts_are_the_pieces():
    texts = ["The café don't sell 中国 tea-cakes.", "the tea"]
    pieces = wordpiece.WordPiece("", texts=texts)
    words = ["the", "cafe", "don", "'", "t", "sell", "中", "国", "tea", "-", "cakes", "."]
    assert sorted(pieces.pieces[4:]) == sorted(words)
    (found, _) = pieces.encode(texts)
    assert [pieces.pieces[number] for number in found.ids] == words
    assert pieces.pieces[: pieces.size] == wordpiece.WordPiece("", texts=texts).pieces
