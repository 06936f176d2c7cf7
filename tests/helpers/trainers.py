"""Trainers of the toy task, and what they train."""

import tensorflow as tf
import toy

from runner.runs import build, call

MIRRORED = {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}}


FLOAT16 = {"runtime": {"mixed_precision_dtype": "float16"}}


XLA = {"runtime": {"enable_xla": True}}


IN_FOUR = {"run": {"gradient_accumulation": 4}}


def sgd(**fields):
    chosen = {"optimizer": {"type": "sgd", "sgd": fields}, "learning_rate": {"type": "constant"}}
    chosen["learning_rate"]["constant"] = {"learning_rate": 0.5}
    return {"trainer": {"optimizer_config": chosen}}


def trainer(tmp_path, *overrides, task=None, **fields):
    made = toy.experiment(**({"dropout": 0.0} | fields))
    for each in (sgd(momentum=0.9), *overrides):
        made.override(each)
    given = call.Given(task=task(made.task) if task else None)
    asked = call.Call(made, tmp_path, given=given)
    return build.build_trainer(asked, step=0, evaluates=False)[0]


def train(tmp_path, *overrides, steps=3, **fields):
    """What is logged, and the weights, after some steps."""
    made = trainer(tmp_path, *overrides, **fields)
    logs = made.train(tf.constant(steps))
    return {name: float(value) for name, value in logs.items()}, made.model.get_weights()


ADAM = {
    "trainer": {
        "optimizer_config": {
            "optimizer": {"type": "adam"},
            "learning_rate": {"constant": {"learning_rate": 0.05}},
        }
    }
}
BFLOAT16 = {"runtime": {"mixed_precision_dtype": "bfloat16"}}
