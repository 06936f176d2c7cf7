"""A group of variables with `trainable = False` stays as it is, and costs no gradient."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from wording import saying, says

import runner
from runner import config
from runner.errors import ConfigError
from runner.models import optimizer as optimizers
from runner.reporting import overview
from runner.runs import build, call

BODY = {"name": "body", "pattern": "^body", "trainable": False}
MIRRORED = {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}}
NEW = {"optimizer": {"type": "adamw_experimental", "adamw_experimental": {"weight_decay": 0.1}}}


class Normed(toy.ToyTask):
    """The toy model in two parts, the first with batch normalization."""

    def build_model(self):
        points = tf_keras.Input((4,))
        body = tf_keras.Sequential(
            [
                tf_keras.layers.Dense(8, name="body_dense"),
                tf_keras.layers.BatchNormalization(name="body_norm"),
                tf_keras.layers.BatchNormalization(name="body_plain", center=False, scale=False),
            ],
            name="body",
        )
        return tf_keras.Model(points, tf_keras.layers.Dense(3, name="head")(body(points)))


class Lazy(toy.ToyTask):
    """A model whose variables the first step makes."""

    def build_model(self):
        return tf_keras.Sequential(
            [tf_keras.layers.Dense(8, name="body"), tf_keras.layers.Dense(3)]
        )


def trainer(tmp_path, *overrides, groups=(BODY,), kind=Normed):
    made = toy.experiment({"run": {"variable_groups": list(groups)}})
    for each in overrides:
        made.override(each)
    asked = call.Call(made, tmp_path, given=call.Given(task=kind(made.task)))
    return build.build_trainer(asked, step=0, evaluates=False)[0]


def values(model):
    return {variable.name.partition(":")[0]: variable.numpy() for variable in model.variables}


def changed(made, steps=5):
    """The names of the variables that training changes."""
    made.initialize()
    before = values(made.model)
    made.train(tf.constant(steps))
    after = values(made.model)
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"trainer": {"optimizer_config": {"ema": {"average_decay": 0.9}}}},
        {"trainer": {"optimizer_config": NEW}},
        {"run": {"gradient_accumulation": 2}},
        {"runtime": {"mixed_precision_dtype": "bfloat16"}},
        MIRRORED,
    ],
    ids=["adam", "averages", "decay", "in parts", "bfloat16", "replicas"],
)
def test_a_frozen_group_stays_to_the_bit_with_its_statistics_and_has_no_slots(tmp_path, overrides):
    made = trainer(tmp_path, overrides)
    assert changed(made) == {"head/kernel", "head/bias"}
    slots = [each.name for each in optimizers.variables(made.optimizer) if "body" in each.name]
    assert all("average" in name for name in slots)
    if made.averages:
        with made.averages.in_force():
            averaged = values(made.model)
        now = values(made.model)
        assert all(np.array_equal(averaged[n], now[n]) for n in now if "body" in n)


def test_a_part_of_a_layer_is_frozen_by_variable_and_its_statistics_go_on(tmp_path):
    made = trainer(tmp_path, groups=[BODY | {"pattern": "gamma|dense/kernel"}])
    everything = values(made.model).keys()
    assert everything - changed(made) == {"body_norm/gamma", "body_dense/kernel"}


def test_a_frozen_group_costs_no_gradient(tmp_path):
    frozen, whole = (
        overview.count(trainer(tmp_path, groups=groups, kind=toy.ToyTask).training_graph)
        for groups in ([BODY | {"pattern": "dense.*/kernel$"}], [])
    )
    assert frozen.multiply_adds < whole.multiply_adds


def test_the_gradient_norm_is_that_of_what_is_trained(tmp_path):
    sgd = {"optimizer": {"type": "sgd"}, "learning_rate": {"constant": {"learning_rate": 0.5}}}
    made = trainer(
        tmp_path, {"trainer": {"optimizer_config": sgd}, "run": {"log_gradient_norm": True}}
    )
    before = values(made.model)
    logs = made.train(tf.constant(1))
    moved = [value - before[name] for name, value in values(made.model).items()]
    norm = np.sqrt(sum(np.square(each / 0.5).sum() for each in moved))
    assert float(logs["gradient_norm"]) == pytest.approx(norm, rel=1e-4)
    assert "learning_rate/body" not in logs


def test_the_overview_counts_what_is_frozen(tmp_path):
    made = trainer(tmp_path)
    view = build.build_costs(made.config, made).view
    assert (view.trainable, view.frozen, view.as_dict()["frozen_parameters"]) == (27, 56, 56)
    says(overview.render(view).plain, "27 trainable 88 56 frozen")


def test_freezing_changes_no_first_value(tmp_path):
    kernels = {"name": "kernels", "pattern": "kernel", "initializer": "random_normal"}
    first = {"name": "first", "pattern": "dense/kernel", "initializer": "random_normal"}
    for_all = trainer(tmp_path, groups=[first, kernels])
    frozen = trainer(tmp_path, groups=[first | {"trainable": False}, kernels])
    for made in (for_all, frozen):
        made.initialize()
    one, other = (values(made.model) for made in (for_all, frozen))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def run(steps, *, optimizer="adam", **group):
    made = toy.experiment({"trainer": {"train_steps": steps}})
    made.run.override(
        {"variable_groups": [{"name": "all kernels"[4:], "pattern": "kernel"} | group]}
    )
    made.trainer.optimizer_config.override({"optimizer": {"type": optimizer}})
    return made


def test_a_run_takes_up_other_frozen_variables_only_without_slots(tmp_path):
    for optimizer in ("adam", "sgd"):
        folder = tmp_path / optimizer
        runner.run(run(20, optimizer=optimizer, trainable=False), folder, "train")
        thawed = run(40, optimizer=optimizer, rate_scale=2.0)
        with pytest.raises(ConfigError, match=r"variable_groups\[0\].trainable: False -> True"):
            runner.run(thawed, folder, "train")
        if optimizer == "adam":
            with pytest.raises(ConfigError, match=saying("optimizer variables")):
                runner.run(thawed, folder, "train", allow_config_change=True)
        else:
            runner.run(thawed, folder, "train", allow_config_change=True)


# What is wrong.


def test_a_model_that_is_all_frozen_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=saying("body leaves 6 trainable")):
        trainer(tmp_path, groups=[BODY | {"pattern": "."}])


def test_a_frozen_group_that_finds_nothing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=saying("bodi body matches")):
        trainer(tmp_path, groups=[BODY | {"pattern": "bodi"}])


def test_variables_that_only_the_first_step_makes_are_not_frozen(tmp_path):
    with pytest.raises(ConfigError, match=saying("trainable False build_model built")):
        trainer(tmp_path, groups=[BODY | {"pattern": "body"}], kind=Lazy)


def test_a_rate_for_what_is_frozen_is_refused():
    made = toy.experiment({"run": {"variable_groups": [BODY | {"rate_scale": 2.0}]}})
    with pytest.raises(ConfigError, match=saying("rate_scale 2.0 effect")):
        config.validate(made, trains=True, evaluates=False)
