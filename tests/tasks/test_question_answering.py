import json
from pathlib import Path

import numpy as np
import pytest
import questions
import tensorflow as tf
from official.core import task_factory
from wording import saying, says

import runner
from runner.data import pipeline
from runner.errors import ConfigError
from runner.evaluation import evaluator
from tasks.questions import made_up_questions, question_data, squad_score
from tasks.text import bert, wordpiece


def small_windows(tmp_path, count=150):
    """Some made-up questions, whose contexts are cut into several windows each."""
    path = questions.written(tmp_path / "few.json", made_up_questions.document(count, seed=9))
    return {"input_path": path, "max_context": 12, "stride": 5}


def trainer(steps, rate, **fields):
    rates = {"learning_rate": {"constant": {"learning_rate": rate}}}
    fields = {"steps_per_loop": 20, "summary_interval": 20, **fields}
    return {
        "trainer": {
            "train_steps": steps,
            "validation_interval": steps,
            "checkpoint_interval": steps,
            "optimizer_config": rates,
            **fields,
        }
    }


def piece_fields(folder):
    vocab_file = questions.vocabulary(folder / "vocab.txt")
    return {"vocab_file": vocab_file, "max_context": 100, "stride": 50, "max_question": 20}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a Match-LSTM that has nearly solved the made-up questions, and its result."""
    folder = tmp_path_factory.mktemp("trained")
    made = questions.experiment(
        questions.match_lstm(), trainer(60, 0.02), validation={"predictions": "found/them.json"}
    )
    return folder, runner.run(made, folder, "train_and_eval")


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A Match-LSTM of random weights."""
    made = questions.experiment(questions.match_lstm(), both={"unanswerable": True})
    return questions.Asked(made, tmp_path_factory.mktemp("asked"))


def test_match_lstm_nearly_solves_the_made_up_questions(trained):
    assert trained[1]["best"]["metrics"]["f1"] > 95
    assert trained[1]["best"]["metrics"]["exact_match"] > 95


def test_bert_nearly_solves_the_made_up_questions_and_a_resumed_run_is_bit_identical(tmp_path):
    both = piece_fields(tmp_path)

    def run(folder, steps, mode):
        kept = {"checkpoint_interval": 10, "max_to_keep": 16}
        overrides = trainer(steps, 0.005, steps_per_loop=10, **kept)
        made = questions.experiment(questions.bert(), overrides, both=both)
        return runner.run(made, tmp_path / folder, mode)

    best = run("once", 160, "train_and_eval")["best"]["metrics"]
    assert min(best["f1"], best["exact_match"]) > 95
    run("often", 30, "train")
    run("often", 60, "train")
    once, often = (
        tf.train.load_checkpoint(str(tmp_path / name / "ckpt-60")) for name in ("once", "often")
    )
    names = [name for name in once.get_variable_to_shape_map() if name.startswith(("model", "opt"))]
    assert names
    for name in names:
        np.testing.assert_array_equal(once.get_tensor(name), often.get_tensor(name))


def test_predictions_are_written_as_squad_wants_them_and_give_the_scores(trained):
    folder, result = trained
    predictions = json.loads((folder / "found" / "them.json").read_text())
    read = question_data.read(questions.data(False))
    assert list(predictions) == [question.id for question in read.squad.questions]
    scores = [
        squad_score.score(predictions[question.id], [answer.text for answer in question.answers])
        for question in read.squad.questions
    ]
    assert result["metrics"]["f1"] == squad_score.mean(scores).f1


def test_the_size_of_batches_changes_no_score(asked, tmp_path):
    few = small_windows(tmp_path)
    whole, predictions = asked(**few, global_batch_size=1000)
    parts = asked(**few, global_batch_size=7)
    assert parts == (whole, predictions)
    assert len(set(predictions.values())) > 10
    assert whole["f1"] > 0


def test_replicas_change_no_score(asked, tmp_path):
    few = small_windows(tmp_path, count=60)
    made = questions.experiment(questions.match_lstm(), both={"unanswerable": True})
    data = made.task.validation_data.replace(**few, global_batch_size=16)
    cpus = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    with cpus.scope():
        task = task_factory.get_task(made.task)
        model = task.build_model()
        model.set_weights(asked.model.get_weights())
        dataset = pipeline.validation(task, data)
        built = evaluator.Evaluator(made, task, model, None, validation_dataset=dataset)
    metrics = built.evaluate(tf.constant(-1))
    expected, _ = asked(**few)
    assert {name: metrics[name] for name in expected} == expected


def test_two_replicas_train_and_score_a_part_of_the_training_data_beside(tmp_path):
    both = piece_fields(tmp_path)
    path = questions.written(tmp_path / "train.json", made_up_questions.document(60, seed=5))
    made = questions.experiment(
        questions.bert(num_layers=1),
        {
            "trainer": {"best_checkpoint_eval_metric": "part/f1"},
            "runtime": {"distribution_strategy": "mirrored"},
            "run": {"logical_cpus": 2},
        },
        train={"input_path": path},
        validation={"input_path": path, "predictions": "all.json"},
        both=both,
    )
    part = questions.data(False, input_path=path, predictions="part.json", **both)
    made.run.evaluation_sets = (
        runner.run_config.EvaluationSetConfig(name="part", data=part, share=0.5),
    )
    results = runner.run(made, tmp_path / "run", "train_and_eval")
    assert (results["status"], results["step"]) == ("done", 2)
    metrics = results["metrics"]
    assert {"f1", "exact_match", "part/f1", "part/exact_match", "part/loss"} <= metrics.keys()
    assert (tmp_path / "run" / "all.json").exists()
    assert not (tmp_path / "run" / "part.json").exists()  # only half of it was seen


IN_LUND = "Anna met Bo in Lund."


def messages(tmp_path, capsys, *paragraphs, is_training=True, **fields):
    path = questions.written(tmp_path / "squad.json", questions.document(*paragraphs))
    data = questions.data(is_training, input_path=path, **fields)
    return data, data.size(), capsys.readouterr().err


def test_wrong_offsets_are_counted_and_skipped_or_mended(tmp_path, capsys):
    paragraph = (IN_LUND, [("Who?", [("Anna", 0)]), ("Whom?", [("Bo", 0)])])
    _, size, said = messages(tmp_path, capsys, paragraph)
    assert size == 1
    says(said, "1 skipped question")
    _, size, said = messages(tmp_path, capsys, paragraph, wrong_offsets="mend")
    assert size == 2
    says(said, "1 answer file")
    with pytest.raises(ConfigError, match=saying("Bo character 0")):
        messages(tmp_path, capsys, paragraph, wrong_offsets="refuse")


def test_sound_data_are_read_without_a_word(tmp_path, capsys):
    _, size, said = messages(tmp_path, capsys, (IN_LUND, [("Who?", [("Anna", 0)])]))
    assert (size, said) == (1, "")


def test_an_empty_context_trains_nothing_and_is_answered_with_nothing(asked, tmp_path, capsys):
    paragraphs = [("", [("Who?", [("Anna", 0)])]), (IN_LUND, [("Who?", [("Anna", 0)])])]
    data, size, said = messages(tmp_path, capsys, *paragraphs)
    assert size == 1
    says(said, "1 question answer")
    _, predictions = asked(input_path=data.input_path)
    assert predictions["q0"] == ""


def test_where_nothing_can_be_learned_the_file_is_named(tmp_path, capsys):
    with pytest.raises(ConfigError, match=saying("squad.json 1 questions learn")):
        messages(tmp_path, capsys, (IN_LUND, [("Who?", [("Anna", 3)])]))


def test_a_question_without_answers_trains_nothing_and_is_not_scored(tmp_path, capsys):
    nobody, anna = ("Who?", []), ("Who met Bo?", [("Anna met Bo in Lund.", 0)])
    data, size, said = messages(tmp_path, capsys, (IN_LUND, [nobody, anna]), is_training=False)
    assert size == 2
    says(said, "1 question scored")
    made = questions.experiment(questions.bert(num_layers=1), both=piece_fields(tmp_path))
    asked = questions.Asked(made, tmp_path)
    metrics, predictions = asked(input_path=data.input_path)
    assert set(predictions) == {"q0", "q1"}
    expected = squad_score.score(predictions["q1"], ["Anna met Bo in Lund."])
    assert (metrics["exact_match"], metrics["f1"]) == expected
    assert messages(tmp_path, capsys, (IN_LUND, [nobody, anna]))[1] == 1
    with pytest.raises(ConfigError, match=saying("1 questions scored")):
        messages(tmp_path, capsys, (IN_LUND, [nobody]), is_training=False)


def test_long_contexts_are_cut_into_windows_that_overlap(tmp_path, capsys):
    context = " ".join(f"w{n}" for n in range(25))
    paragraph = (context, [("Which?", [("w13 w14", context.index("w13"))])])
    for is_training, size in ((True, 2), (False, 5)):
        data, counted, _ = messages(
            tmp_path, capsys, paragraph, is_training=is_training, max_context=9, stride=4
        )
        assert counted == size
        read = question_data.read(data)
        texts = [
            read.text(window, start, end)
            for window, (start, end) in enumerate(
                zip(read.windows.start, read.windows.end, strict=True)
            )
            if start > 0
        ]
        assert texts == ["w13 w14"] * 2
    windows = read.windows
    assert [read.text(n, 1, int(windows.length[n])).split()[0] for n in range(5)] == [
        "w0", "w4", "w8", "w12", "w16"
    ]  # fmt: skip
    assert windows.start.tolist() == [-1, -1, 6, 2, -1]


def test_where_there_may_be_no_answer_windows_without_it_say_so(tmp_path, capsys):
    context = " ".join(f"w{n}" for n in range(10))
    asked = [("Which?", [("w1", 3)]), ("Where?", None), ("What?", [("nowhere", 0)])]
    data, size, _ = messages(
        tmp_path, capsys, (context, asked), max_context=5, stride=5, unanswerable=True
    )
    windows = question_data.read(data).windows
    assert size == 4  # what is said to stand somewhere, and does not, is unknown
    assert windows.question.tolist() == [0, 0, 1, 1]
    assert windows.start.tolist() == [2, 0, 0, 0]


def test_answers_to_what_is_marked_as_impossible_are_scored_but_not_learned(
    asked, tmp_path, capsys, monkeypatch
):
    """As by SQuAD's script for version 2, which does not read the mark."""
    context = "Anna met Bo."
    document = questions.document(
        (context, [("Who?", [("Anna", 0)]), ("Where?", [("", -1)]), ("When?", None)])
    )
    for item in document["data"][0]["paragraphs"][0]["qas"]:
        item["is_impossible"] = True
    fields = {"input_path": questions.written(tmp_path / "v2.json", document)}
    fields |= {"unanswerable": True, "wrong_offsets": "refuse"}
    assert question_data.read(questions.data(True, **fields)).windows.start.tolist() == [0, 0, 0]
    says(capsys.readouterr().err, "v2.json 1 unanswerable answers learned")
    monkeypatch.setattr(asked.task.task_config, "no_answer_threshold", -1e6)
    metrics, predictions = asked(**fields)
    assert list(predictions.values()) == [""] * 3
    assert metrics["exact_match"] == pytest.approx(200 / 3)
    says(capsys.readouterr().err, "1 unanswerable answers scored")


def test_the_threshold_decides_whether_an_answer_is_given(asked, tmp_path, monkeypatch):
    made_up = made_up_questions.document(30, seed=6)
    for paragraph in made_up["data"][0]["paragraphs"]:
        paragraph["qas"][0].update(is_impossible=True, answers=[])
    path = questions.written(tmp_path / "v2.json", made_up)
    for threshold, given in ((-1e6, False), (1e6, True)):
        monkeypatch.setattr(asked.task.task_config, "no_answer_threshold", threshold)
        metrics, predictions = asked(input_path=path)
        assert [bool(text) for text in predictions.values()] == [given] * 30
        assert given or metrics["exact_match"] == pytest.approx(100 / 3)


def test_a_vocabulary_that_does_not_fit_the_checkpoint_is_refused(tmp_path):
    both = piece_fields(tmp_path)
    made = questions.experiment(questions.bert(), both=both)
    task = task_factory.get_task(made.task)
    items = task.build_model().checkpoint_items
    path = tf.train.Checkpoint(**items).write(str(tmp_path / "encoder"))
    size = task.reader.vocabulary.size
    vocab_file = Path(both["vocab_file"])
    vocab_file.write_text(f"{vocab_file.read_text()}\none\nmore")
    other = task_factory.get_task(made.task.replace(init_checkpoint=path))
    with pytest.raises(ConfigError, match=saying(f"{size + 2} pieces encoder trained {size}")):
        other.build_model()


def test_a_pretrained_encoder_fills_the_reader(tmp_path):
    both = piece_fields(tmp_path)
    options = questions.bert().bert.encoder
    pieces = wordpiece.WordPiece(both["vocab_file"])
    pretrained = bert.encoder(options, pieces, pooled=True)
    path = tf.train.Checkpoint(encoder=pretrained).write(str(tmp_path / "pretrained"))
    made = questions.experiment(questions.bert(), both=both, init_checkpoint=path)
    task = task_factory.get_task(made.task)
    model = task.build_model()
    dataset = pipeline.validation(task, made.task.validation_data)
    evaluator.Evaluator(made, task, model, None, validation_dataset=dataset).initialize()
    loaded = model.checkpoint_items["encoder"].get_weights()
    for ours, theirs in zip(loaded, pretrained.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stride": 0}, "stride=0 1 max_context=400"),
        ({"stride": 401}, "stride=401"),
        ({"max_context": 0}, "max_context=0"),
        ({"wrong_offsets": "drop"}, "drop expected skip"),
        ({"predictions": "x.json"}, "predictions evaluated"),
        ({"num_examples": 5}, "num_examples=5 windows"),
    ],
)
def test_settings_out_of_range_are_refused(fields, message):
    with pytest.raises(ConfigError, match=saying(message)):
        questions.data(True, **fields).size()


def test_tokens_are_taken_from_the_cache(tmp_path, monkeypatch):
    path = questions.written(tmp_path / "squad.json", made_up_questions.document(6, seed=8))
    data = questions.data(False, input_path=path, cache_folder="cache")
    first = question_data.read(data)
    monkeypatch.setattr("tasks.text.words.tokenize", None)
    again = question_data.read(data.replace(max_context=20, stride=20))  # other windows
    assert again.tokens.words.tolist() == first.tokens.words.tolist()
    assert again.tokens.contexts.ends.tolist() == first.tokens.contexts.ends.tolist()


def test_whether_data_are_trained_on_has_to_be_said():
    with pytest.raises(ConfigError, match=saying("set True train_data")):
        question_data.QuestionData().size()


def test_an_answer_needs_a_token():
    made = questions.experiment(questions.match_lstm(), max_answer=0)
    with pytest.raises(ConfigError, match=saying("max_answer=0 1")):
        task_factory.get_task(made.task)
