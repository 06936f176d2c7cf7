import piece_models
import pytest
import questions
import tensorflow as tf
import tensorflow_text  # noqa: F401  what is loaded needs its ops
from official.core import export_base
from official.nlp.configs import encoders

from tasks.questions import made_up_questions, question_data


@pytest.mark.parametrize(
    ("reader", "unanswerable"), [("qanet", True), ("bert", False), ("albert", False)]
)
def test_what_is_exported_answers_strings_as_an_evaluation_does(tmp_path, reader, unanswerable):
    made_up = made_up_questions.document(6, seed=7)
    accents = "Zo\u00eb \u2013 \u00abna\u00efve\u00bb \u2013 drank 3 caf\u00e9s, didn't she? " * 3
    for name, context in (("zoe", accents), ("empty", "")):
        item = {
            "id": name,
            "question": "Who?",
            "answers": [{"text": "Zo\u00eb", "answer_start": 0}],
        }
        made_up["data"][0]["paragraphs"].append({"context": context, "qas": [item]})
    both = {
        "input_path": questions.written(tmp_path / "squad.json", made_up),
        "max_context": 12,
        "stride": 5,
        "max_question": 6,
        "unanswerable": unanswerable,
    }
    models = {
        "bert": lambda: questions.bert(num_layers=1),
        "albert": lambda: questions.bert(encoders.AlbertEncoderConfig, num_layers=1),
    }
    if reader == "bert":
        both["vocab_file"] = questions.vocabulary(tmp_path / "vocab.txt")
    elif reader == "albert":
        texts = [paragraph["context"].lower() for paragraph in made_up["data"][0]["paragraphs"]]
        both["vocab_file"] = piece_models.sentencepiece_model(tmp_path, texts, 200)
    model = models[reader]() if reader in models else questions.of_words(reader)
    asked = questions.Asked(questions.experiment(model, both=both), tmp_path)
    scores, expected = asked()
    path = export_base.export(asked.task.serving(asked.model), ["serve"], str(tmp_path / "served"))
    serve = tf.saved_model.load(path).signatures["serving_default"]

    read = question_data.read(asked.task.task_config.validation_data).squad
    contexts = [read.contexts[question.context] for question in read.questions]
    found = serve(
        question=tf.constant([question.text for question in read.questions]),
        context=tf.constant(contexts),
    )
    answers = [answer.decode() for answer in found["answer"].numpy()]
    assert answers == [expected[question.id] for question in read.questions]
    assert expected["empty"] == ""
    for context, answer, start, end in zip(
        contexts, answers, found["start"].numpy(), found["end"].numpy(), strict=True
    ):
        assert context.encode()[start:end].decode() == answer

    def served(**given):
        found = serve(**{name: tf.constant(texts) for name, texts in given.items()})
        return {name: tensor.numpy() for name, tensor in found.items()}

    scored = asked.task.score_served(served, asked.task.task_config.validation_data)
    assert scored == pytest.approx({name: scores[name] for name in ("exact_match", "f1")})
