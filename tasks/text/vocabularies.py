"""The vocabulary of a file: WordPiece, or SentencePiece if its name ends with `.model`."""

from collections.abc import Iterable

from tasks.text import pieces, sentencepiece, wordpiece


def load(vocab_file: str, *, lower_case: bool, texts: Iterable[str] = ()) -> pieces.Vocabulary:
    """Reads a vocabulary.

    Args:
        vocab_file: a SentencePiece model, or WordPiece's pieces, one per line. Empty: whole words.
        lower_case: fold case and drop accents, as the vocabulary expects.
        texts: if there is no file, the words of these texts are the pieces.

    Raises:
        ConfigError: the file is missing or is not such a vocabulary.
    """
    if vocab_file.endswith(".model"):
        return sentencepiece.SentencePiece(vocab_file, lower_case=lower_case)
    return wordpiece.WordPiece(vocab_file, lower_case=lower_case, texts=texts)
