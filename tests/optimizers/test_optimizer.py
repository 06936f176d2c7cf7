"""Decisions scale the rate that training applies, whatever the optimizer and its schedule."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from official.core import config_definitions as cfg
from schedules_of_official import (
    FLOOR,
    OPTIMIZERS,
    SCALE,
    SCHEDULES,
    STEPS,
    WARMUPS,
    config,
    in_force,
    scheduled,
)

import runner
from runner.models import learning_rate, optimizer, weight_averages

# Official names it and ships no code for it; a configuration with it is refused.
UNIMPLEMENTED = ("slide",)

GRADIENT = np.arange(1, 13, dtype=np.float32).reshape(4, 3) / 10


def build(chosen, **runtime):
    """What a task of official's makes of it."""
    experiment = cfg.ExperimentConfig(
        runtime=cfg.RuntimeConfig(**runtime), trainer=cfg.TrainerConfig(optimizer_config=chosen)
    )
    return optimizer.build(toy.ToyTask(toy.ToyConfig()), experiment)


def seen(made):
    """The rate as it is logged: that of the next step from a schedule, else of the last step."""
    rate = made.learning_rate
    return float(rate(made.iterations) if callable(rate) else rate)


class Training:
    """A weight that an optimizer moves, one traced step at a time, by `times` the gradient."""

    def __init__(self, made, times=1):
        self.made = made
        self._gradient = GRADIENT * times
        model = tf_keras.Sequential([tf_keras.layers.Dense(3, use_bias=False)])
        model.build((None, 4))
        (self.weight,) = model.weights
        self.weight.assign(tf.fill((4, 3), 2.0))
        if optimizer.average(made):
            weight_averages.Averages(made, model)

    @functools.cached_property
    def _traced(self):
        @tf.function
        def step():
            gradient = tf.constant(self._gradient)
            if isinstance(self.made, tf_keras.mixed_precision.LossScaleOptimizer):
                gradient = gradient * self.made.loss_scale
                (gradient,) = self.made.get_unscaled_gradients([gradient])
            self.made.apply_gradients([(gradient, self.weight)])

        return step

    def step(self, times=1):
        """The change of the weight over the last step."""
        for _ in range(times):
            before = self.weight.numpy()
            self._traced()
        return self.weight.numpy() - before


def check(chosen, **runtime):
    """The rate in force is what it should be, from a step that was traced before it was scaled."""
    made = build(chosen, **runtime)
    scale = learning_rate.scale_rate(made, floor=FLOOR)
    training = Training(made)
    training.step(STEPS)
    scale.assign(SCALE)
    training.step()
    done = STEPS if innermost_is_new(made) else STEPS + 1
    np.testing.assert_allclose(seen(made), in_force(scheduled(chosen, done)), rtol=1e-5)


def innermost_is_new(made):
    return not isinstance(optimizer._layers(made)[-1], tf_keras.optimizers.legacy.Optimizer)


CONSTANT, COSINE = ("constant", None), ("cosine", "linear")
LEGACY_AND_NEW = ["sgd", "sgd_experimental"]
ALTERNATELY = [
    (LEGACY_AND_NEW[number % 2], rate, warmup)
    for number, (rate, warmup) in enumerate(itertools.product(SCHEDULES, WARMUPS))
]


@pytest.mark.parametrize(
    ("kind", "rate", "warmup"),
    [
        *((kind, *COSINE) for kind in OPTIMIZERS),
        *((kind, *CONSTANT) for kind in ("sgd", "lamb", "adam_experimental", "adafactor_keras")),
    ],
)
def test_every_optimizer_takes_the_scale(kind, rate, warmup):
    check(config(kind, rate, warmup))


@pytest.mark.parametrize(("kind", "rate", "warmup"), ALTERNATELY)
def test_every_schedule_and_warm_up_is_scaled_down_to_the_floor(kind, rate, warmup):
    """Plain SGD changes a weight by the rate times the gradient: what is logged is applied."""
    chosen = config(kind, rate, warmup)
    made = build(chosen)
    scale = learning_rate.scale_rate(made, floor=FLOOR)
    training = Training(made)
    before = training.step(STEPS)
    np.testing.assert_allclose(before / -GRADIENT, scheduled(chosen, STEPS - 1), rtol=1e-3)
    scale.assign(SCALE)
    after = training.step()
    np.testing.assert_allclose(after / -GRADIENT, in_force(scheduled(chosen, STEPS)), rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "rate", "warmup"),
    [*((kind, *COSINE) for kind in OPTIMIZERS), *((kind, *CONSTANT) for kind in LEGACY_AND_NEW)],
)
def test_a_scale_of_1_leaves_every_bit_as_it_was(kind, rate, warmup):
    chosen = config(kind, rate, warmup)
    plain, scaled = build(chosen), build(chosen)
    learning_rate.scale_rate(scaled, floor=FLOOR)
    runs = [Training(plain), Training(scaled)]
    for run in runs:
        run.step(STEPS)
    assert np.array_equal(runs[0].weight.numpy(), runs[1].weight.numpy())


def test_without_a_floor_the_rate_is_the_scheduled_one_times_the_scale_to_the_bit():
    schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.1, 1, 1.0)
    rate = learning_rate.ScaledRate(schedule)
    rate.scale.assign(0.3)
    constant = tf.Variable(0.1)
    learning_rate.ScaledConstant(constant).assign(0.3)
    expected = np.float32(0.1) * np.float32(0.3)
    assert float(rate(0)) == float(constant) == expected


@pytest.mark.parametrize(
    ("kind", "rate", "warmup"),
    [
        *((kind, *COSINE) for kind in ("sgd", "adamw", "lamb", "lars", "adagrad")),
        *((kind, *CONSTANT) for kind in ("adam", "rmsprop")),
    ],
)
def test_below_averaged_weights_the_rate_is_scaled(kind, rate, warmup):
    check(config(kind, rate, warmup, ema={"average_decay": 0.9}))


@pytest.mark.parametrize(
    ("kind", "rate", "warmup"),
    [("adam", *COSINE), ("sgd", *CONSTANT), ("adamw_experimental", *COSINE)],
)
def test_below_a_loss_scale_the_rate_is_scaled(kind, rate, warmup):
    chosen = config(kind, rate, warmup)
    made = build(chosen, mixed_precision_dtype="float16", loss_scale="dynamic")
    assert isinstance(made, tf_keras.mixed_precision.LossScaleOptimizer)
    check(chosen, mixed_precision_dtype="float16", loss_scale="dynamic")


def test_a_warm_up_is_linear_and_a_cosine_follows_to_the_end():
    """The cosine is of the step, not of the steps since the warm-up, which only covers it."""
    fields = {"initial_learning_rate": 1e-3, "decay_steps": 20, "alpha": 0.1}
    chosen = config("adam")
    chosen.override(
        {
            "learning_rate": {"type": "cosine", "cosine": fields},
            "warmup": {"type": "linear", "linear": {"warmup_steps": 5}},
        }
    )
    made = build(chosen)
    learning_rate.scale_rate(made)
    steps = np.arange(25)
    cosine = 0.5 * (1 + np.cos(np.pi * np.minimum(steps, 20) / 20))
    decayed = 1e-3 * (0.9 * cosine + 0.1)
    expected = np.where(steps < 5, decayed[5] * steps / 5, decayed)
    found = [float(made.learning_rate(tf.constant(step))) for step in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_constant_rate_drops_on_plateaus_to_a_floor_of_1e_8():
    chosen = config("adam")
    chosen.learning_rate.constant.learning_rate = 1e-3
    made = build(chosen)
    scale = learning_rate.scale_rate(made, floor=1e-8)
    for drops, rate in ((0, 1e-3), (1, 5e-4), (16, 1e-3 / 2**16), (17, 1e-8), (40, 1e-8)):
        scale.assign(0.5**drops)
        assert seen(made) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("kind", ["sgd", "sgd_experimental"])
def test_a_rate_that_is_a_whole_number_takes_any_scale(kind):
    chosen = config(kind)
    chosen.learning_rate.constant.learning_rate = 1
    made = build(chosen)
    learning_rate.scale_rate(made).assign(0.25)
    assert seen(made) == 0.25
    np.testing.assert_allclose(Training(made).step(), -0.25 * GRADIENT, rtol=1e-5)


@pytest.mark.parametrize("kind", ["sgd", "sgd_experimental"])
def test_the_gradient_is_clipped_by_its_global_norm(kind):
    chosen = config(kind)
    chosen.optimizer.get().global_clipnorm = 10.0
    factor = 10 / np.linalg.norm(GRADIENT * 100)
    training = Training(build(chosen), times=100)
    np.testing.assert_allclose(training.step(), -0.1 * factor * GRADIENT * 100, rtol=1e-5)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (5,)])
def test_adafactor_is_that_of_the_paper(shape):
    chosen = config("adafactor")
    chosen.optimizer.adafactor.override({"min_dim_size_to_factor": 2, "beta1": 0.5})
    made, weight = build(chosen), tf.Variable(tf.fill(shape, 2.0))
    gradients = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    x, moment, first = np.full(shape, 2.0), np.zeros(shape), np.zeros(shape)
    big = np.argsort(shape, kind="stable")[-2:]
    row = column = 0.0
    for step, gradient in enumerate(gradients, start=1):
        made.apply_gradients([(tf.constant(gradient), weight)])
        decay, square = 1 - step**-0.8, gradient.astype(np.float64) ** 2 + 1e-30
        if len(shape) > 1:
            row = decay * row + (1 - decay) * square.mean(big[1], keepdims=True)
            column = decay * column + (1 - decay) * square.mean(big[0], keepdims=True)
            moment = row * column / row.mean(big[0], keepdims=True)
        else:
            moment = decay * moment + (1 - decay) * square
        update = gradient / np.sqrt(moment)
        update /= max(1, np.sqrt(np.mean(update**2)))
        first = 0.5 * first + 0.5 * 0.1 * max(np.sqrt(np.mean(x**2)), 1e-3) * update
        x = x - first
        np.testing.assert_allclose(weight, x, rtol=1e-5)


@pytest.mark.parametrize("kind", UNIMPLEMENTED)
def test_what_official_does_not_implement_is_still_not_implemented(kind):
    with pytest.raises(TypeError):
        build(config(kind))


def test_adafactor_trains_from_a_configuration_file(tmp_path):
    given = ["OptimizerConfig.type = 'adafactor'", "TrainerConfig.train_steps = 2"]
    assert runner.run(runner.load("digits.gin", given), tmp_path, "train")["step"] == 2
