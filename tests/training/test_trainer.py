import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from wording import saying

from runner.errors import ConfigError, RunnerError
from runner.runs import build
from runner.runs.call import Call

STRATEGIES = {
    "off": {"runtime": {"distribution_strategy": "off"}},
    "one_device": {"runtime": {"distribution_strategy": "one_device"}},
    "mirrored": {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}},
}
EMA = {"trainer": {"optimizer_config": {"ema": {"average_decay": 0.9}}}}


def made(tmp_path, *overrides, trains=True, evaluates=True, **task):
    experiment = toy.experiment(**task)
    for each in overrides:
        experiment.override(each)
    asked = Call(experiment, tmp_path)
    if not trains:
        return build.build_evaluator(asked, tmp_path)
    return build.build_trainer(asked, step=0, evaluates=evaluates)[0]


def train(trainer, steps):
    return {name: float(value) for name, value in trainer.train(tf.constant(steps)).items()}


def evaluate(trainer, batches=-1):
    logs = trainer.evaluate(tf.constant(batches))
    return {name: float(value) for name, value in logs.items()}


def bits(variables):
    return [np.asarray(v.numpy()).tobytes() for v in variables]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_whole_validation_set_counts_whatever_the_batch_and_the_replicas(tmp_path, strategy):
    reference = made(tmp_path, STRATEGIES[strategy], trains=False).model
    points, labels = toy.data(17)
    logits = reference(points).numpy()
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(17), labels]
    accuracy = (logits.argmax(axis=1) == labels).mean()
    for batch in (8, 16, 40):
        data = toy.ToyConfig().validation_data.replace(global_batch_size=batch)
        batched = made(tmp_path, STRATEGIES[strategy], trains=False, validation_data=data)
        batched.model.set_weights(reference.get_weights())
        result = evaluate(batched)
        assert result["validation_loss"] == pytest.approx(losses.mean(), abs=1e-5), batch
        assert result["accuracy"] == pytest.approx(accuracy, abs=1e-5), batch


def test_a_replica_without_examples_is_left_out_of_eager_evaluations_too(tmp_path):
    eagerly = {"trainer": {"eval_tf_function": False}}
    reference = made(tmp_path, trains=False)
    trainer = made(tmp_path, STRATEGIES["mirrored"], eagerly, trains=False)
    trainer.model.set_weights(reference.model.get_weights())
    assert evaluate(trainer) == pytest.approx(evaluate(reference))


def test_a_weight_that_the_task_returns_replaces_the_number_of_examples(tmp_path, monkeypatch):
    step = toy.ToyTask.validation_step

    def weighted(self, inputs, model, metrics=None):
        logs = step(self, inputs, model, metrics)
        heavy = tf.reduce_max(inputs[0]) > threshold
        return logs | {"loss": tf.where(heavy, 3.0, 1.0), "weight": tf.where(heavy, 5.0, 1.0)}

    monkeypatch.setattr(toy.ToyTask, "validation_step", weighted)
    points, _ = toy.data(17)
    maxima = [points[start : start + 8].max() for start in (0, 8, 16)]
    threshold = sorted(maxima)[1]
    heavy = np.array(maxima) > threshold  # one of the three batches
    weights = np.where(heavy, 5.0, 1.0)
    expected = (weights * np.where(heavy, 3.0, 1.0)).sum() / weights.sum()

    assert evaluate(made(tmp_path, trains=False))["validation_loss"] == pytest.approx(expected)


def test_examples_that_weigh_nothing_are_evaluated_but_have_no_loss(tmp_path, monkeypatch):
    step = toy.ToyTask.validation_step
    monkeypatch.setattr(
        toy.ToyTask,
        "validation_step",
        lambda *args, **kwargs: step(*args, **kwargs) | {"weight": 0.0},
    )
    assert set(evaluate(made(tmp_path, trains=False))) == {"accuracy"}


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_a_metric_that_says_it_is_not_defined_has_no_result(tmp_path, monkeypatch, strategy):
    class Count(tf_keras.metrics.Sum):
        def __init__(self, label):
            super().__init__(f"label_{label}")
            self._label = label

        def update_state(self, labels, logits):
            return super().update_state(tf.cast(labels == self._label, tf.float32))

        def is_defined(self):
            return self.total > 0

    monkeypatch.setattr(toy.ToyTask, "build_metrics", lambda self, training: [Count(0), Count(3)])
    found = evaluate(made(tmp_path, STRATEGIES[strategy], trains=False))
    assert found.pop("validation_loss") > 0
    assert found == {"label_0": (toy.data(17)[1] == 0).sum()}


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_an_evaluation_with_averages_leaves_every_bit_of_the_training_state(tmp_path, strategy):
    trainer = made(tmp_path, STRATEGIES[strategy], EMA)
    train(trainer, 7)
    state = [*trainer.model.variables, *trainer.optimizer.variables()]
    before = bits(state)

    evaluate(trainer)

    assert bits(state) == before


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_an_evaluation_is_that_of_the_averaged_weights(tmp_path, strategy):
    trainer = made(tmp_path, STRATEGIES[strategy], EMA)
    train(trainer, 7)
    averaged = evaluate(trainer)
    average = trainer.optimizer
    plain = made(tmp_path, STRATEGIES[strategy], trains=False)
    for target, source in zip(
        plain.model.trainable_variables, trainer.model.trainable_variables, strict=True
    ):
        target.assign(average.get_slot(source, "average").numpy())

    assert evaluate(plain) == averaged


def test_averages_start_at_the_weights(tmp_path):
    trainer = made(tmp_path, EMA)
    for weight in trainer.model.trainable_variables:
        average = trainer.optimizer.get_slot(weight, "average")
        np.testing.assert_array_equal(average.numpy(), weight.numpy())


def test_every_variable_exists_before_the_first_step(tmp_path):
    trainer = made(tmp_path, EMA)
    before = {v.ref() for v in tf.train.Checkpoint(root=trainer.checkpoint).root.model.variables}
    slots = len(trainer.optimizer.variables()) + len(trainer.optimizer._optimizer.variables())
    train(trainer, 1)
    assert {v.ref() for v in trainer.model.variables} == before
    after = len(trainer.optimizer.variables()) + len(trainer.optimizer._optimizer.variables())
    assert after == slots


@pytest.mark.parametrize("kind", ["adam", "adam_experimental"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_replica_traces_its_step_once(tmp_path, monkeypatch, strategy, kind):
    traced = []
    step = toy.ToyTask.train_step
    monkeypatch.setattr(
        toy.ToyTask, "train_step", lambda *a, **k: traced.append(1) or step(*a, **k)
    )
    chosen = {"trainer": {"optimizer_config": {"optimizer": {"type": kind}}}}
    trainer = made(tmp_path, STRATEGIES[strategy], chosen)
    train(trainer, 2)
    train(trainer, 1)
    assert len(traced) == trainer.strategy.num_replicas_in_sync


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_training_metrics_are_means_since_the_last_row(tmp_path, strategy):
    trainer = made(tmp_path, STRATEGIES[strategy], {"trainer": {"summary_interval": 20}})
    parts = [train(trainer, 1)["training_loss"]]
    for count in range(2, 21):
        running = train(trainer, 1)["training_loss"]
        parts.append(running * count - sum(parts))
    assert running == pytest.approx(np.mean(parts), rel=1e-4)

    fresh = train(trainer, 1)["training_loss"]  # step 21: only itself
    assert abs(fresh - running) > 1e-6


def test_a_loop_without_tf_while_loop_trains_the_same(tmp_path):
    one = made(tmp_path)
    other = made(tmp_path, {"trainer": {"train_tf_while_loop": False}})
    assert train(one, 5) == pytest.approx(train(other, 5), rel=1e-6)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_mixed_precision_keeps_float32_weights_and_moves_them(tmp_path, precision):
    trainer = made(tmp_path, {"runtime": {"mixed_precision_dtype": precision}})
    before = bits(trainer.model.trainable_variables)
    train(trainer, 5)
    assert {v.dtype for v in trainer.model.trainable_variables} == {tf.float32}
    assert trainer.model.layers[1].compute_dtype == precision
    assert all(a != b for a, b in zip(before, bits(trainer.model.trainable_variables), strict=True))


def test_training_data_that_end_are_an_error_and_not_a_stall(tmp_path):
    with pytest.raises(RunnerError, match=saying("ended repeat")):
        train(made(tmp_path, repeats=False), 10)


def test_an_empty_validation_set_is_an_error(tmp_path):
    with pytest.raises(RunnerError, match="no example"):
        evaluate(made(tmp_path, trains=False, validation_examples=0))


@pytest.mark.parametrize("part", ["train_data", "validation_data"])
def test_a_batch_that_the_replicas_cannot_share_is_refused(tmp_path, part):
    data = getattr(toy.ToyConfig(), part).replace(global_batch_size=7)
    with pytest.raises(ConfigError, match=saying(f"{part} 7 2 replicas 6 8")):
        made(tmp_path, STRATEGIES["mirrored"], **{part: data})


def test_two_replicas_train_on_the_same_global_batches_as_one(tmp_path):
    one = made(tmp_path, dropout=0.0)
    two = made(tmp_path, STRATEGIES["mirrored"], dropout=0.0)
    two.model.set_weights(one.model.get_weights())
    assert train(two, 10)["training_loss"] == pytest.approx(
        train(one, 10)["training_loss"], rel=1e-4
    )


def test_what_replicas_had_counted_does_not_come_back_after_a_start_on_one(tmp_path):
    path = str(tmp_path / "ckpt")
    for strategy, steps in (("mirrored", 3), ("off", 6), ("mirrored", 9)):
        trainer = made(tmp_path, STRATEGIES[strategy])
        if steps > 3:
            trainer.checkpoint.read(path)
            trainer.put_back_extra_state()
        train(trainer, 3)
        trainer.capture_extra_state()
        trainer.checkpoint.write(path)
    [accuracy] = trainer.train_metrics
    assert accuracy.count.numpy() == 9 * 8


class Measuring(toy.ToyTask):
    """The model has a metric of its own, which official adds to both kinds."""

    def build_model(self):
        model = super().build_model()
        model.mean_score = tf_keras.metrics.Mean("mean_score")
        return model

    def process_metrics(self, metrics, labels, model_outputs, **kwargs):
        accuracy, mean_score = metrics
        accuracy.update_state(labels, model_outputs)
        mean_score.update_state(model_outputs)


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_an_evaluation_leaves_the_models_own_metrics_to_training(tmp_path, monkeypatch, strategy):
    monkeypatch.setattr(
        "official.core.task_factory.get_task", lambda params, **_: Measuring(params)
    )
    trainer = made(tmp_path, STRATEGIES[strategy])
    train(trainer, 3)
    [metric] = trainer.model.metrics
    before = metric.result().numpy(), bits(metric.variables)
    found = evaluate(trainer)["mean_score"]
    assert (metric.result().numpy(), bits(metric.variables)) == before
    assert found != before[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("loop", [True, False], ids=["in a graph", "on the host"])
def test_what_a_number_of_batches_leaves_out_is_known(tmp_path, monkeypatch, strategy, loop):
    if not loop:
        monkeypatch.setattr(toy.ToyTask, "aggregate_logs", lambda *_: None, raising=False)
    trainer = made(tmp_path, STRATEGIES[strategy], trains=False)
    left_out = []
    for batches in (2, 3, 4, -1):  # 17 examples in batches of 8
        evaluate(trainer, batches)
        left_out.append(trainer.left_out)
    assert left_out == [True, False, False, False]


def test_data_without_an_end_are_not_left_out(tmp_path, monkeypatch):
    class Endless(toy.ToyTask):
        def build_inputs(self, params, input_context=None):
            return super().build_inputs(params, input_context).repeat()

    monkeypatch.setattr("official.core.task_factory.get_task", lambda params, **_: Endless(params))
    trainer = made(tmp_path, trains=False)
    evaluate(trainer, 2)
    assert not trainer.left_out
