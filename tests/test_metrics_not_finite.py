"""A metric that is NaN or infinite, such as an F1 score without positives, breaks no mode."""

import dataclasses
import json

import pytest
import tensorflow as tf
import tf_keras
import toy
from official.core import task_factory

import runner
from runner import config


class Constant(tf_keras.metrics.Metric):
    """A metric that has one value, whatever the examples are."""

    def __init__(self, name, value):
        super().__init__(name)
        self._value = value

    def update_state(self, labels, outputs, sample_weight=None):
        del labels, outputs, sample_weight

    def result(self):
        return tf.constant(self._value)

    def reset_state(self):
        pass


@dataclasses.dataclass
class UndefinedMetricsConfig(toy.ToyConfig):
    pass


@task_factory.register_task_cls(UndefinedMetricsConfig)
class UndefinedMetrics(toy.ToyTask):
    def build_metrics(self, training=True):
        undefined = [Constant("f1", float("nan")), Constant("log_odds", float("-inf"))]
        return [*super().build_metrics(training), *(() if training else undefined)]


def experiment():
    made = config.Experiment(task=UndefinedMetricsConfig())
    made.override(toy.experiment().as_dict() | {"task": {}})
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, runner.run(experiment(), folder, "train_and_eval")


def undefined(metrics):
    return {name: metrics[name] for name in ("f1", "log_odds")}


def test_a_run_is_done(trained):
    folder, results = trained
    assert results["status"] == "done"
    assert undefined(results["metrics"]) == {"f1": "nan", "log_odds": "-inf"}
    assert json.loads((folder / "status.json").read_text())["state"] == "done"


def test_the_same_run_again_is_done(trained):
    folder, results = trained
    assert runner.run(experiment(), folder, "train_and_eval")["metrics"] == results["metrics"]


def test_an_evaluation_and_what_looks_at_the_run_have_the_values(trained):
    folder, results = trained
    evaluated = runner.run(experiment(), folder, "eval")
    assert evaluated["metrics"] == results["metrics"]
    shown = runner.run(None, folder, "status")
    assert undefined(shown["metrics"]) == undefined(results["metrics"])
    assert runner.run(None, folder, "report")["status"] == "done"


def test_an_export_is_accepted_where_it_has_the_same_values(trained):
    folder, _ = trained
    results = runner.run(experiment(), folder, "export")
    assert results["status"] == "done"
