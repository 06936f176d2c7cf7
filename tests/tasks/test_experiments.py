"""Every experiment that travels along builds, and opens with what a reader wants to know."""

import json
import re
from pathlib import Path

import pytest
import questions
import tensorflow as tf
from evaluations import folded, rows
from official.nlp.configs import encoders

import runner
from runner import config
from runner.errors import ConfigError
from runner.history import learning_rate_drops

FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*.gin"))
NEED_FILES = [
    path for path in FILES if path.stem.startswith(("chinese", "cifar", "restaurant", "squad"))
]
OVER_BERT = ["chinese_bert_spc", "restaurant_fast_lsa"]  # the others differ little
EAGERLY = "RuntimeConfig.run_eagerly = True"
"""For models that are traced slowly: the tests of their tasks do that."""
WITHOUT_FILES = [path for path in FILES if path not in NEED_FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_experiment_opens_with_command_duration_and_score(path):
    header = "".join(line for line in path.read_text().splitlines(True) if line.startswith("#"))
    assert re.search(rf"runner --mode=\w+ --gin_file={path.name} --model_dir=\S+", header)
    assert re.search(r"\d+ (s|min|h) on ", header)
    assert re.search(r"(accuracy \d\.\d+|F1 \d+)", header)


def test_match_lstm_has_intqas_settings_and_lets_one_evaluation_without_a_gain_pass(tmp_path):
    document = questions.document(("Rome fell.", [("What fell?", [("Rome", 0)])]))
    data = questions.written(tmp_path / "data.json", document)
    (tmp_path / "vectors.txt").write_text(f"rome{' 0.1' * 100}\n")
    paths = {"TRAIN": data, "DEV": data, "GLOVE": str(tmp_path / "vectors.txt")}
    params = [f"{name}={path!r}" for name, path in paths.items()]
    experiment = config.load(["squad_match_lstm.gin"], params)
    reader = experiment.task.model.match_lstm
    assert (reader.units, reader.dropout) == (100, 0.2)
    rule = learning_rate_drops.PlateauRule.of(experiment.run.plateau)
    scales = [
        rule.scale(folded(rule, rows(*scores, name="f1")))
        for scores in ((50, 49), (50, 49, 48), (50, 49, 51, 50), (50, 49, 48, 47, 46))
    ]
    assert scales == [1, 0.5, 1, 0.25]


@pytest.mark.parametrize("path", WITHOUT_FILES, ids=lambda path: path.stem)
def test_an_experiment_that_needs_no_files_trains_by_its_name_from_any_folder(path, tmp_path):
    short = [
        "TrainerConfig.train_steps=2",
        "TrainerConfig.steps_per_loop=2",
        "EpochsConfig.train=0",
    ]
    if not path.stem.startswith("digits"):
        short.append(EAGERLY)
    experiment = runner.load(path.name, short)
    assert isinstance(experiment, config.Experiment)
    assert runner.run(experiment, tmp_path, "train_and_eval")["step"] == 2


@pytest.mark.parametrize("path", NEED_FILES, ids=lambda path: path.stem)
def test_an_experiment_whose_files_are_missing_names_one_of_them(path, tmp_path):
    with pytest.raises(ConfigError, match=r"\bdata/[\w./-]+"):
        runner.run(runner.load(path.name), tmp_path, "train_and_eval")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """Three-line files, and a tiny BERT as if it were pretrained; the bindings that name them."""
    folder = tmp_path_factory.mktemp("bert")
    said = (("good", "Positive"), ("bad", "Negative"), ("usual", "Neutral"))
    lines = [
        (f"$T$ {number} {word} 很", "food 饭", polarity)
        for number in range(12)
        for word, polarity in said
    ]
    text = "\n".join("\n".join(each) for each in lines)
    (folder / "x.seg").write_text(text)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(text.lower().split()), "饭", "很"]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)))
    sizes = {"hidden_size": 8, "num_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = encoders.BertEncoderConfig(vocab_size=len(dict.fromkeys(pieces)), **sizes)
    encoder = encoders.build_encoder(encoders.EncoderConfig(type="bert", bert=config))
    tf.train.Checkpoint(encoder=encoder).write(str(folder / "bert_model.ckpt"))
    return [
        *(f"{name} = '{folder / 'x.seg'}'" for name in ("TRAIN", "TEST")),
        f"VOCABULARY = '{folder / 'vocab.txt'}'",
        f"ENCODER = '{folder / 'bert_model.ckpt'}'",
        *(f"BertEncoderConfig.{name} = {size}" for name, size in sizes.items()),
    ]


@pytest.mark.parametrize("name", OVER_BERT)
def test_a_preset_over_a_bert_trains_from_its_weights(name, bert, tmp_path):
    short = ["EPOCHS = 0", "TrainerConfig.train_steps = 2", "AspectSentimentConfig.window = 8"]
    experiment = runner.load(f"{name}.gin", [*bert, *short, EAGERLY])
    assert runner.run(experiment, tmp_path, "train_and_eval")["step"] == 2
    groups = ("head", "eta") if name == "restaurant_fast_lsa" else ("head",)
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert all(f"learning_rate/{group}" in str(rows[-1]) for group in groups)


def test_there_are_experiments():
    assert {path.stem for path in WITHOUT_FILES} >= {"digits", "digits_cnn"}
