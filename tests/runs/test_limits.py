"""RunConfig.limit_train and limit_evaluation: a few batches, and results that say so."""

import contextlib
import io
import json

import numpy as np
import pytest
import resumed
import tensorflow as tf
import toy
from wording import saying, says

import runner
from runner import inputs
from runner.configuration import epochs
from runner.data import pipeline, windows
from runner.errors import ConfigError
from runner.history import policies
from runner.runs import build, call, evaluator_run

MIRRORED = {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}}
LIMITED = {"run": {"limit_train": 2, "limit_evaluation": 1}}


class Shuffled(toy.ToyTask):
    """A pipeline of its own, shuffled anew in each pass."""

    def build_inputs(self, params, input_context=None):
        batch = 8 // (input_context.num_replicas_in_sync if input_context else 1)
        points, labels = toy.data(40)
        dataset = tf.data.Dataset.from_tensor_slices((points, labels))
        if params.is_training:
            dataset = dataset.shuffle(40).repeat()
        return dataset.batch(batch)


class ByLength(toy.ToyTask):
    """Batches of similar lengths, noise added."""

    def build_inputs(self, params, input_context=None):
        points, labels = toy.data(30)
        return inputs.bucketed(
            np.arange(30) % 7,
            lambda index: (tf.gather(points, index), tf.gather(labels, index)),
            config=params,
            input_context=input_context,
            augment=lambda batch, seeds: (batch[0] + inputs.uniform(seeds, 4), batch[1]),
        )


@pytest.mark.parametrize(
    ("kind", "replicas"), [(toy.ToyTask, 1), (Shuffled, 1), (Shuffled, 2), (ByLength, 2)]
)
def test_the_first_batches_come_again_and_at_any_step_the_same(kind, replicas):
    strategy = tf.distribute.get_strategy()
    if replicas == 2:
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    config = toy.cfg.DataConfig if kind is Shuffled else inputs.DataConfig
    task, data = kind(toy.ToyConfig()), config(is_training=True, global_batch_size=8)

    def points(count, **options):
        with strategy.scope():
            iterator = iter(pipeline.training(task, data, seed=3, **options))
        parts = [strategy.experimental_local_results(next(iterator)[0]) for _ in range(count)]
        return [np.concatenate([np.asarray(p) for p in part]).tolist() for part in parts]

    first = points(3)
    assert points(7, limit=3) == [*first, *first, first[0]]
    assert points(3, limit=3, step=5) == [first[2], *first[:2]]
    assert points(2, limit=3, step=2, reading=windows.Reading([(3, 4)])) == [first[2], first[1]]


def test_one_batch_is_overfitted_while_the_validation_data_stay_whole(tmp_path):
    made = toy.experiment(
        {"run": {"limit_train": 1}, "trainer": {"train_steps": 300, "validation_interval": 300}},
        dropout=0.0,
        examples=400,
    )
    made.trainer.override({"steps_per_loop": 100, "summary_interval": 100})
    results = runner.run(made, tmp_path, "train_and_eval")
    rows = resumed.rows(tmp_path / "train.jsonl")
    assert rows[-1]["training_loss"] < 0.02 < results["metrics"]["validation_loss"]
    assert results["limited"] == {"train": 1}
    assert "limited" not in resumed.rows(tmp_path / "history.jsonl")[0]


@pytest.mark.parametrize("own", [False, True], ids=["placed", "own pipeline"])
def test_a_limited_run_resumes_to_the_same_bits(tmp_path, monkeypatch, own):
    if own:
        monkeypatch.setattr(
            "official.core.task_factory.get_task", lambda params, **kw: Shuffled(params, **kw)
        )
    in_two = {"run": {"gradient_accumulation": 2}}

    def make(steps):
        task = {"train_data": toy.cfg.DataConfig(is_training=True)} if own else {}
        made = toy.experiment({"trainer": {"train_steps": steps}}, **task)
        for each in (LIMITED, {} if own else MIRRORED, in_two):
            made.override(each)
        return made

    resumed.compare(tmp_path, make)


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """The folder of a limited run that has ended, its results, and what it printed."""
    folder = tmp_path_factory.mktemp("limited")
    made = experiment()
    with contextlib.chdir(folder), contextlib.redirect_stderr(io.StringIO()) as printed:
        results = runner.run(made, folder, "train_and_eval")
    return folder, results, printed.getvalue()


def experiment(**run):
    sets = {"name": "more", "data": toy.inputs.DataConfig(is_training=False, global_batch_size=4)}
    made = toy.experiment(LIMITED)
    made.run.override({"evaluation_sets": [sets], "test": {"data": sets["data"]}})
    made.run.override(run)
    return made


def test_each_set_is_evaluated_on_its_first_batches_and_the_rows_say_so(limited):
    folder, results, _ = limited
    rows = resumed.rows(folder / "history.jsonl")
    assert [row["kind"] for row in rows] == ["evaluation", "evaluation", "test"]
    assert all(row["limited"] == 1 for row in rows)
    assert results["limited"] == {"train": 2, "evaluation": 1}
    for name, count in (("accuracy", 8), ("more/accuracy", 4), ("test/accuracy", 4)):
        found = next(row["metrics"][name] for row in reversed(rows) if name in row["metrics"])
        assert float(found * count).is_integer()  # so many examples, of 17


def test_what_is_printed_says_that_it_is_a_trial(limited):
    *_, printed = limited
    says(printed, "repeats 2 RunConfig.limit_train")
    says(printed, "evaluations only first batch")
    assert printed.count("on 1 batch only: ") == 3


@pytest.mark.parametrize("field", ["limit_train", "limit_evaluation"])
def test_a_limit_does_not_change_in_a_resume(limited, field):
    with pytest.raises(ConfigError, match=f"run.{field}: . -> 0"):
        runner.run(experiment(**{field: 0}), limited[0], "train_and_eval")


def test_an_evaluators_limited_values_are_not_compared_with_whole_ones(limited, tmp_path):
    own = tmp_path / "eval-cpu"

    def evaluator(**run):
        asked = call.Call(experiment(**run), limited[0])
        return evaluator_run.EvaluatorRun(asked, policies.of(asked.config), own)

    own.mkdir()
    first = evaluator()
    first.evaluate(limited[0] / "ckpt-40")
    assert json.loads((own / "history.jsonl").read_text())["limited"] == 1
    with pytest.raises(ConfigError, match=saying("limit_evaluation 0 evaluations 1")):
        evaluator(limit_evaluation=0)


def test_an_epoch_is_as_long_as_the_limit():
    made = toy.experiment({"run": {"limit_train": 2, "epochs": {"train": 5.0}}})
    made.trainer.train_steps = 0
    says(epochs.resolve(made)[0], "epochs 16 batches 8 2")
    assert made.trainer.train_steps == 10


@pytest.mark.parametrize(
    ("run", "data", "said"),
    [
        ({"limit_train": -1}, {}, "run limit_train -1 0"),
        ({"limit_evaluation": -1}, {}, "run limit_evaluation -1 0"),
        (
            {"limit_train": 5},
            {"num_examples": 30},
            "limit_train 5 effect 30 8 4",
        ),
    ],
)
def test_a_limit_that_there_is_not_is_refused(tmp_path, run, data, said):
    made = toy.experiment({"run": run})
    made.task.train_data.override(data)
    with pytest.raises(ConfigError, match=saying(said)):
        runner.run(made, tmp_path, "train")


def test_a_limit_above_the_number_of_batches_evaluates_all(tmp_path):
    made = toy.experiment({"run": {"limit_evaluation": 50}})
    built = build.build_evaluator(call.Call(made, tmp_path), tmp_path)
    logs = built.evaluate(tf.constant(50))
    assert float(logs["accuracy"]) * 17 == pytest.approx(round(float(logs["accuracy"]) * 17))
    assert not built.left_out
