"""SentencePiece models for the tests."""

from collections.abc import Iterable
from pathlib import Path

import sentencepiece


def sentencepiece_model(folder: Path, texts: Iterable[str], size: int) -> str:
    """Trains a model of at most `size` pieces with ALBERT's special pieces. Returns its path."""
    (folder / "texts.txt").write_text("\n".join(texts), "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "texts.txt"),
        model_prefix=str(folder / "pieces"),
        vocab_size=size,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]"],
        minloglevel=2,
    )
    return str(folder / "pieces.model")
