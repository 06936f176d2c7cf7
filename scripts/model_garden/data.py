"""Writes a few synthetic examples for each task of official.vision and official.nlp."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf
from PIL import Image

SIDE = 160  # of images, in pixels
LENGTH = 16  # of texts, in tokens
MASKED = 4  # tokens to predict
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(55))]
SENTENCE = "word1 word2 word3 word4 word5 word6"


def generate(folder: Path) -> None:
    """Writes the examples. Images have one colour, so that random crops and flips do not matter."""
    folder.mkdir(parents=True, exist_ok=True)
    picture: dict[str, list[Any]] = {
        "image/encoded": [_encoded(np.full((SIDE, SIDE, 3), 90), "JPEG")],
        "image/height": [SIDE],
        "image/width": [SIDE],
        "image/source_id": [b"7435790"],
    }
    mask = np.zeros((SIDE, SIDE), int)
    mask[40:120, 40:120] = 1
    boxes: dict[str, list[Any]] = {
        f"image/object/bbox/{side}": [value] * 2
        for side, value in (("xmin", 0.25), ("xmax", 0.75), ("ymin", 0.25), ("ymax", 0.75))
    }
    boxes |= {
        "image/object/class/label": [1, 2],
        "image/object/is_crowd": [0, 0],
        "image/object/area": [6400.0, 6400.0],
        "image/object/mask": [_encoded(mask, "PNG")] * 2,
    }
    _write(folder / "images", _example({**picture, "image/class/label": [3]}))
    _write(folder / "boxes", _example({**picture, **boxes}))
    _write(
        folder / "masks",
        _example({**picture, "image/segmentation/class/encoded": [_encoded(mask, "PNG")]}),
    )
    video = tf.train.SequenceExample(context=_example({"clip/label/index": [3]}).features)
    for _ in range(4):
        frame = video.feature_lists.feature_list["image/encoded"].feature.add()
        frame.bytes_list.value[:] = picture["image/encoded"]
    _write(folder / "videos", video)
    _write(folder / "tokens", _example(_tokens()))
    _write(folder / "tags", _example({**_tokens(), "label_ids": [1] * LENGTH}))
    text = f"{SENTENCE}. {SENTENCE}".encode()
    _write(folder / "sentences", _example({"text": [text], "label": [1]}))
    _write(folder / "pairs", _example({"en": [b"a word"], "de": [b"ein wort"]}))
    (folder / "words").write_text("\n".join(WORDS))
    (folder / "squad.json").write_text(json.dumps(_squad()))
    _pieces(folder)


def _encoded(pixels: np.ndarray, kind: str) -> bytes:
    """Encodes an image as a file."""
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, kind)
    return file.getvalue()


def _tokens() -> dict[str, list[Any]]:
    """Returns one tokenized text, with the features that any of the tasks needs."""
    ids = [2, *range(5, LENGTH + 3), 3]
    return {
        "input_ids": ids,
        "input_mask": [1] * LENGTH,
        "segment_ids": [0] * LENGTH,
        "masked_lm_positions": list(range(1, MASKED + 1)),
        "masked_lm_ids": list(range(5, MASKED + 5)),
        "masked_lm_weights": [1.0] * MASKED,
        "next_sentence_labels": [1],
        "label_ids": [1],
        "start_positions": [2],
        "end_positions": [3],
    }


def _example(features: dict[str, list[Any]]) -> tf.train.Example:
    example = tf.train.Example()
    for name, values in features.items():
        feature = example.features.feature[name]
        if isinstance(values[0], bytes):
            feature.bytes_list.value[:] = values
        elif isinstance(values[0], float):
            feature.float_list.value[:] = values
        else:
            feature.int64_list.value[:] = values
    return example


def _write(path: Path, message: Any) -> None:
    """Writes four identical examples, so that their order does not matter."""
    with tf.io.TFRecordWriter(str(path)) as file:
        for _ in range(4):
            file.write(message.SerializeToString())


def _squad() -> dict[str, Any]:
    question = {
        "id": "1",
        "question": "word1",
        "answers": [{"text": "word2", "answer_start": SENTENCE.index("word2")}],
    }
    paragraph = {"context": SENTENCE, "qas": [question]}
    return {"version": "1.1", "data": [{"title": "a", "paragraphs": [paragraph]}]}


def _pieces(folder: Path) -> None:
    (folder / "text").write_text("a word\nein wort\nthe words are two\nzwei worte sind das\n" * 9)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"),
        model_prefix=str(folder / "pieces"),
        vocab_size=22,
        minloglevel=2,
        pad_id=0,
        eos_id=1,
        bos_id=-1,
        unk_id=2,
    )
