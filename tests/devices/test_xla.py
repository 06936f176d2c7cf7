"""XLA compiles training steps where it is asked to, or says why not."""

import pytest
import tensorflow as tf
import tf_keras
import toy
from resumed import compare
from trainers import ADAM, BFLOAT16, MIRRORED, XLA, sgd, train, trainer
from wording import says

CLIPPED = {**sgd(global_clipnorm=0.1), "run": {"log_gradient_norm": True}}


def compiled(made):
    """The functions of a training step that XLA must compile."""
    functions = made.training_graph.as_graph_def().library.function
    return [each for each in functions if each.attr["_XlaMustCompile"].b]


@pytest.mark.parametrize("strategy", ["off", "one_device"])
def test_the_tasks_step_is_compiled_with_its_update(tmp_path, strategy):
    runtime = {"distribution_strategy": strategy, "enable_xla": True}
    (step,) = compiled(trainer(tmp_path, {"runtime": runtime}))
    ops = {node.op for node in step.node_def}
    assert {"MatMul", "ResourceApplyKerasMomentum"} <= ops
    runtime["enable_xla"] = False
    assert not compiled(trainer(tmp_path, {"runtime": runtime}))


@pytest.mark.parametrize(
    ("overrides", "accuracy"),
    [((ADAM,), 1e-5), ((CLIPPED,), 1e-5), ((BFLOAT16, ADAM), 3e-3)],
    ids=["adam", "clipped", "bfloat16"],
)
def test_a_compiled_step_logs_what_any_other_does(tmp_path, overrides, accuracy):
    plain, _ = train(tmp_path, *overrides)
    logs, _ = train(tmp_path, *overrides, XLA)
    assert logs == pytest.approx(plain, rel=accuracy)


def test_a_run_with_compiled_steps_resumes_exactly(tmp_path):
    compare(tmp_path, lambda steps: toy.experiment({**XLA, "trainer": {"train_steps": steps}}))


class Pooled(toy.ToyTask):
    def build_model(self):
        points = tf_keras.Input((4,))
        x = tf_keras.layers.Reshape((4, 1))(tf_keras.layers.Dense(4)(points))
        x = tf_keras.layers.Flatten()(tf_keras.layers.MaxPooling1D()(x))
        return tf_keras.Model(points, tf_keras.layers.Dense(3)(x))


def test_max_pooling_is_compiled_where_a_run_need_not_be_deterministic(tmp_path, capsys):
    made = trainer(tmp_path, XLA, task=Pooled)
    assert not compiled(made)
    made.train(tf.constant(1))
    err = capsys.readouterr().err
    says(err, "not compiled XLA deterministic max pooling")
    assert err.count("max pooling") == 1
    made = trainer(tmp_path, XLA, {"run": {"deterministic": False}}, task=Pooled)
    assert compiled(made)
    made.train(tf.constant(1))
    assert "max pooling" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (MIRRORED, "compile mirrored CPUs"),
        ({"runtime": {"distribution_strategy": "mirrored"}}, "mirrored step CPUs"),
        ({"runtime": {"run_eagerly": True}}, "run_eagerly True graph"),
    ],
    ids=["two", "one", "eager"],
)
def test_what_cannot_be_compiled_is_trained_all_the_same_and_that_is_said(
    tmp_path, overrides, said, capsys
):
    made = trainer(tmp_path, XLA, overrides)
    made.train(tf.constant(1))
    (line,) = (each for each in capsys.readouterr().err.splitlines() if "enable_xla" in each)
    says(line, "steps compiled")
    says(line, said)
