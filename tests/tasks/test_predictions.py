"""What the tasks that come with the runner predict: classes, answers, polarities."""

import json
from pathlib import Path

import image_files
import numpy as np
import pytest
import questions
from wording import saying

import runner
from runner.errors import ConfigError
from tasks.questions import made_up_questions, question_data

FEW = [
    "TrainerConfig.train_steps = 2",
    "TrainerConfig.steps_per_loop = 2",
    "TrainerConfig.summary_interval = 2",
    "TrainerConfig.validation_interval = 2",
    "TrainerConfig.checkpoint_interval = 2",
]


NAMES = ["a/1.png", "a/2.png", "b/1.png", "b/2.png"]
NO_EPOCHS = [
    f"EpochsConfig.{field} = 0" for field in ("train", "validation_interval", "checkpoint_interval")
]


MEM_NET = [  # is traced in a third of the time of an LSTM
    "ModelConfig.type = 'mem_net'",
    "ModelConfig.mem_net = @aspect_models.MemNetConfig()",
    "MemNetConfig.vectors = @embeddings.EmbeddingConfig()",
]


def predicted(gin_file, folder, *params, data=""):
    """What `gin_file` predicts after two steps, and the results."""
    return predicted_by(runner.load(gin_file, [*FEW, *params]), folder, data)


def predicted_by(config, folder, data=""):
    if not (folder / "ckpt-2.index").exists():
        runner.run(config, folder, "train")
    results = runner.run(config, folder, "predict", data=data)
    return [json.loads(line) for line in Path(results["output"]).open()], results


def test_digits_are_classes_with_probabilities(tmp_path):
    rows, _ = predicted("digits.gin", tmp_path)
    assert len(rows) == 359
    assert list(rows[0]) == ["key", "class", "probabilities", "label"]
    assert all(row["class"] == int(np.argmax(row["probabilities"])) for row in rows)
    assert sum(rows[0]["probabilities"]) == pytest.approx(1)
    training, _ = predicted("digits.gin", tmp_path, data="train")
    keys = [row["key"] for row in training]
    assert sorted(keys + [row["key"] for row in rows]) == list(range(1797))  # places in the source
    assert keys == sorted(keys)


def small_bert(tmp_path, path, **fields):
    """Questions for a BERT of one layer; `fields` are those of both kinds of data."""
    vocab_file = questions.vocabulary(tmp_path / "vocab.txt")
    return questions.experiment(
        questions.bert(num_layers=1),
        {"trainer": {"steps_per_loop": 2, "summary_interval": 2}},
        train={"max_context": 100, "stride": 50},
        validation={"max_context": 8, "stride": 4, "global_batch_size": 16, "input_path": path},
        both={"vocab_file": vocab_file, "max_question": 20, **fields},
    )


def test_questions_have_one_answer_each_by_their_ids(tmp_path):
    path = questions.written(tmp_path / "q.json", made_up_questions.document(12, seed=3))
    made = small_bert(tmp_path, path)
    rows, results = predicted_by(made, tmp_path / "run")
    read = question_data.read(made.task.validation_data)
    assert [row["key"] for row in rows] == [each.id for each in read.squad.questions]
    assert results["examples"] == len(read.windows) > results["predictions"] == len(rows)
    for row, question in zip(rows, read.squad.questions, strict=True):
        context = read.squad.contexts[question.context]
        assert row["answer"] == context[row["start"] : row["end"]] != ""
        assert row["label"] == question.answers[0].text
    with pytest.raises(ConfigError, match=saying("training questions")):
        predicted_by(made, tmp_path / "run", "train")


def test_a_question_without_an_answer_has_the_probability_of_that(tmp_path):
    asked = [("where ?", [("here", 0)]), ("when ?", None)]
    path = questions.written(tmp_path / "q.json", questions.document(("here it was .", asked)))
    made = small_bert(tmp_path, path, unanswerable=True)
    rows, _ = predicted_by(made, tmp_path / "run")
    assert [row["key"] for row in rows] == ["q0", "q1"]
    assert [row["label"] for row in rows] == ["here", ""]
    for row in rows:
        assert 0 < row["no_answer_probability"] < 1
        assert bool(row["answer"]) == (row["no_answer_probability"] <= 0.5)


def test_aspects_have_a_polarity_with_all_probabilities(tmp_path):
    path = tmp_path / "told.txt"
    path.write_text("The $T$ was stale .\nfood\nnegative\nA $T$ .\nlocal wine\nneutral\n")
    params = [
        *NO_EPOCHS,
        *MEM_NET,
        f"validation/AspectData.input_path = '{path}'",
        "AspectSentimentConfig.polarities = ('negative', 'neutral', 'positive')",
    ]
    rows, _ = predicted("aspects_tiny.gin", tmp_path / "run", *params)
    assert [row["key"] for row in rows] == [f"{path}:3", f"{path}:6"]
    assert [row["sentence"] for row in rows] == ["The food was stale .", "A local wine ."]
    assert [row["aspect"] for row in rows] == ["food", "local wine"]
    assert [row["label"] for row in rows] == ["negative", "neutral"]
    for row in rows:
        assert sum(row["probabilities"].values()) == pytest.approx(1)
        assert row["polarity"] == max(row["probabilities"], key=row["probabilities"].get)
    training, _ = predicted("aspects_tiny.gin", tmp_path / "run", *params, data="train")
    assert len(training) > 500


def test_image_files_are_named_by_their_paths_and_classes_by_theirs(tmp_path):
    shade = {
        f"{name}/{n}.png": np.full((8, 8, 3), 40 * n, np.uint8) for name in "ba" for n in (1, 2)
    }
    folder = image_files.write_folder(tmp_path / "images", shade)
    rows, _ = predicted(
        "digits.gin",
        tmp_path / "run",
        f"train/ImageData.input_path = '{folder}'",
        "train/ImageData.split = 'all'",
        "train/ImageData.global_batch_size = 2",
        f"validation/ImageData.input_path = '{folder}'",
        "validation/ImageData.split = 'all'",
    )
    assert [row["key"] for row in rows] == NAMES
    assert all(row["name"] == "ab"[row["class"]] for row in rows)
