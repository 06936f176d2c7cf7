"""Question answering for the tests: small readers over made-up questions."""

import itertools
import json
from pathlib import Path

import tensorflow as tf
from official.core import task_factory
from official.nlp.configs import encoders

from runner import config
from tasks import question_answering
from tasks.questions import (
    bert_reader,
    made_up_questions,
    question_data,
    readers,
)


def document(*paragraphs):
    """SQuAD's JSON of (context, [(question, [(answer, offset), ...] or None if impossible)])."""
    number = itertools.count()

    def item(question, answers):
        return {
            "id": f"q{next(number)}",
            "question": question,
            "is_impossible": answers is None,
            "answers": [{"text": text, "answer_start": start} for text, start in answers or ()],
        }

    return {
        "data": [
            {
                "paragraphs": [
                    {"context": context, "qas": [item(*each) for each in questions]}
                    for context, questions in paragraphs
                ]
            }
        ]
    }


def written(path, document):
    path.write_text(json.dumps(document), "utf-8")
    return str(path)


def vocabulary(path):
    """A WordPiece vocabulary that has the words of the made-up questions, and pieces for others."""
    text = json.dumps(made_up_questions.document(300, seed=0)).lower()
    words = set("".join(c if c.isalpha() else " " for c in text).split())
    years = map(str, range(1500, 2000))
    signs = sorted({c for c in text if not c.isspace()})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *signs, *(f"##{c}" for c in signs)]
    path.write_text("\n".join(dict.fromkeys([*pieces, *years, *sorted(words)])), "utf-8")
    return str(path)


class Asked:
    """A task with a network of random weights, that answers in `folder`."""

    def __init__(self, made, folder):
        self.task = task_factory.get_task(made.task, logging_dir=str(folder))
        self.model = self.task.build_model()
        self._step = tf.function(lambda batch: self.task.validation_step(batch, self.model))

    def __call__(self, **fields):
        """The scores of some validation data, and the predictions."""
        data = self.task.task_config.validation_data.replace(predictions="asked.json", **fields)
        state = None
        dataset = self.task.build_inputs(data)
        step = self._step.get_concrete_function(dataset.element_spec)  # one for all lengths
        for batch in dataset:
            logs = {name: (value,) for name, value in step(*tf.nest.flatten(batch)).items()}
            state = self.task.aggregate_logs(state, logs)
        metrics = self.task.reduce_aggregated_logs(state)
        path = Path(self.task.logging_dir, data.predictions)
        return metrics, json.loads(path.read_text("utf-8"))


def data(is_training, **fields):
    return question_data.QuestionData(
        **{"is_training": is_training, "global_batch_size": 32 if is_training else 50, **fields}
    )


OF_WORDS = tuple(readers.OF_WORDS)


def of_words(kind, **fields):
    """A small reader of words."""
    made = readers.ReaderConfig(type=kind)
    small = {"qanet": {"heads": 2, "blocks": 1}, "drqa": {"layers": 2}, "r_net": {"layers": 1}}
    words = {"dimension": 16, "trainable": True}
    made.get().override({"words": words, "units": 16, **small.get(kind, {}), **fields})
    return made


def match_lstm(**fields):
    return of_words("match_lstm", **fields)


def bert(kind=encoders.BertEncoderConfig, **fields):
    encoder = kind(
        **{
            "hidden_size": 32,
            "num_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 128,
            "dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
            "initializer_range": 0.1,
            **fields,
        }
    )
    return readers.ReaderConfig(type="bert", bert=bert_reader.BertReaderConfig(encoder=encoder))


def experiment(model, overrides=None, *, train=None, validation=None, both=None, **task):
    """An experiment; `train`, `validation` and `both` are fields of the data."""
    made = config.Experiment(
        task=question_answering.QuestionAnsweringConfig(
            model=model,
            train_data=data(True, **(both or {}), **(train or {})),
            validation_data=data(False, **(both or {}), **(validation or {})),
            **task,
        )
    )
    made.override(
        {
            "runtime": {"distribution_strategy": "off"},
            "trainer": {
                "train_steps": 2,
                "steps_per_loop": 1,
                "summary_interval": 1,
                "checkpoint_interval": 2,
                "validation_interval": 2,
                "best_checkpoint_eval_metric": "f1",
                "optimizer_config": {
                    "optimizer": {"type": "adam"},
                    "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}},
                },
            },
        }
    )
    made.override(overrides or {})
    return made
