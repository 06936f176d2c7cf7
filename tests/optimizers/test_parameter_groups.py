"""Groups of variables have a rate and an initializer of their own."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from official.core import config_definitions as cfg
from schedules_of_official import OPTIMIZERS, SCHEDULES, config, in_force, scheduled
from wording import saying, says

from runner import config as experiments
from runner import run_config
from runner.errors import ConfigError
from runner.models import learning_rate, optimizer, parameter_groups, weight_averages
from runner.runs import build
from runner.runs.call import Call

KERNELS = {"name": "kernels", "pattern": "kernel$", "rate_scale": 4.0}
MIRRORED = {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}}
DECAYS = {"adamw": "weight_decay_rate", "adamw_experimental": "weight_decay"}


def groups(*given):
    return {"run": {"variable_groups": list(given)}}


def group(**fields):
    return run_config.VariableGroupConfig(**fields)


def trainer(tmp_path, *overrides, **task):
    made = toy.experiment(dropout=0.0, **task)
    for each in overrides:
        made.override(each)
    return build.build_trainer(Call(made, tmp_path), step=0, evaluates=False)[0]


class Two:
    """Two variables, `a/w` and `b/w`, that an optimizer moves by the same gradients."""

    def __init__(self, chosen, *given, sparse=False, **runtime):
        experiment = cfg.ExperimentConfig(
            runtime=cfg.RuntimeConfig(**runtime), trainer=cfg.TrainerConfig(optimizer_config=chosen)
        )
        self.optimizer = optimizer.build(toy.ToyTask(toy.ToyConfig()), experiment)
        self.scale = learning_rate.scale_rate(self.optimizer, floor=0.02)
        parameter_groups.change_updates(self.optimizer, given)
        start = np.linspace(0.5, 2.0, 12, dtype=np.float32).reshape(4, 3)
        self.weights = [tf.Variable(start, name=f"{name}/w") for name in "ab"]
        model = tf_keras.Sequential()
        model.weight_list = self.weights
        if optimizer.average(self.optimizer):
            weight_averages.Averages(self.optimizer, model)
        self._sparse = sparse

    def _gradient(self, step):
        gradient = tf.sin(tf.reshape(tf.range(12.0), (4, 3)) + tf.cast(step, tf.float32))
        if self._sparse:
            return tf.IndexedSlices(gradient[:3], tf.constant([2, 0, 2]), tf.constant([4, 3]))
        return gradient

    @tf.function
    def _step(self, step):
        gradient = self._gradient(step)
        gradients = [gradient, gradient]
        if isinstance(self.optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
            self.optimizer.get_scaled_loss(tf.constant(0.0))
            gradients = [each * self.optimizer.loss_scale for each in gradients]
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        self.optimizer.apply_gradients(list(zip(gradients, self.weights, strict=True)))

    def train(self, steps=4):
        for step in range(steps):
            self._step(tf.constant(step))
        return [weight.numpy() for weight in self.weights]


def faster(chosen, factor):
    """The same optimizer with its constant rate multiplied."""
    made = chosen.replace()
    made.learning_rate.constant.learning_rate *= factor
    return made


B = group(name="b", pattern="^b/", rate_scale=0.5)


def saved(two):
    """The names in a checkpoint."""
    path = tf.train.Checkpoint(optimizer=two.optimizer, weights=two.weights).write("ckpt")
    return [name for name, _ in tf.train.list_variables(path)]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_group_moves_as_under_an_optimizer_of_its_rate_and_the_rest_to_the_bit_as_before(kind):
    """Also beside a group of another rate; checkpoints hold the same as without groups."""
    chosen = config(kind)
    if kind in DECAYS:
        setattr(chosen.optimizer.get(), DECAYS[kind], 0.1)
    others = group(name="a", pattern="^a/", rate_scale=0.5), group(name="b", pattern="w")
    made = Two(chosen, B), Two(chosen, *others), Two(chosen), Two(faster(chosen, 0.5))
    grouped, other, plain, slower = (two.train() for two in made)
    assert np.array_equal(grouped[0], plain[0])
    assert np.array_equal(other[1], plain[1])
    np.testing.assert_allclose(grouped[1], slower[1], rtol=2e-6)
    assert not np.allclose(grouped[0], grouped[1], rtol=1e-4)
    assert saved(made[0]) == saved(made[2])


@pytest.mark.parametrize("kind", ["sgd", "adam", "lamb", "adagrad", "adamw_experimental"])
def test_rows_of_an_embedding_move_by_the_groups_rate(kind):
    chosen = config(kind)
    grouped = Two(chosen, B, sparse=True).train()
    slower = Two(faster(chosen, 0.5), sparse=True).train()
    np.testing.assert_allclose(grouped[1], slower[1], rtol=2e-6)


@pytest.mark.parametrize(
    ("kind", "rate"), zip(itertools.cycle(["sgd", "sgd_experimental"]), SCHEDULES, strict=False)
)
def test_warm_up_schedule_drops_and_floor_apply_to_the_groups_rate(kind, rate):
    chosen = config(kind, rate, "linear")
    two = Two(chosen, group(name="b", pattern="b/w", rate_scale=3.0))
    two.scale.assign(0.25)
    before = [weight.numpy() for weight in two.weights]
    after = two.train(1)
    expected = in_force(scheduled(chosen, 0))
    gradient = two._gradient(0).numpy()
    np.testing.assert_allclose(after[0] - before[0], -expected * gradient, atol=1e-6)
    np.testing.assert_allclose(after[1] - before[1], -3 * expected * gradient, atol=1e-6)


@pytest.mark.parametrize("kind", ["sgd", "adamw", "adamw_experimental"])
def test_below_a_loss_scale_groups_have_their_rates(kind):
    runtime = {"mixed_precision_dtype": "float16", "loss_scale": "dynamic"}
    chosen = config(kind)
    grouped = Two(chosen, B, **runtime).train()
    np.testing.assert_allclose(
        grouped[1], Two(faster(chosen, 0.5), **runtime).train()[1], rtol=2e-6
    )


def test_variables_whose_rate_is_0_stay_as_they_are():
    two = Two(config("adamw"), group(name="b", pattern="b/w", rate_scale=0.0))
    before = two.weights[1].numpy()
    assert np.array_equal(two.train()[1], before)


@pytest.mark.parametrize(
    "changes",
    [
        {"ema": {"average_decay": 0.9}},
        {"optimizer": {"type": "adamw_experimental"}},
    ],
    ids=["averages", "new"],
)
def test_replicas_apply_the_same_rates(tmp_path, changes):
    chosen = {"trainer": {"optimizer_config": changes}}
    runs = [trainer(tmp_path, groups(KERNELS), chosen, *strategy) for strategy in ((), (MIRRORED,))]
    for run in runs:
        run.train(tf.constant(5))
    for one, other in zip(*(run.model.get_weights() for run in runs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_the_rates_of_groups_are_logged(tmp_path):
    logs = trainer(tmp_path, groups(KERNELS)).train(tf.constant(1))
    assert float(logs["learning_rate"]) == pytest.approx(0.01)
    assert float(logs["learning_rate/kernels"]) == pytest.approx(0.04)


# Initializers.


def initialized(tmp_path, *overrides, seed=0, **task):
    """The trainable variables of a run that begins: kernel, bias, kernel, bias."""
    made = trainer(tmp_path, {"run": {"seed": seed}}, *overrides, **task)
    made.initialize()
    return made.model.trainable_variables


def test_a_group_begins_as_its_initializer_says_and_the_rest_as_the_model_does(tmp_path):
    kernels = {"name": "kernels", "pattern": "kernel", "initializer": "random_uniform"}
    kernel, bias, *_ = initialized(tmp_path, MIRRORED, groups(kernels))
    assert 0.03 < np.abs(kernel.numpy()).max() <= 0.05
    assert not bias.numpy().any()
    parts = [part.numpy() for part in getattr(kernel, "values", [kernel])]
    assert all(np.array_equal(part, parts[0]) for part in parts)

    biases = {"name": "biases", "pattern": "bias", "initializer": "ones"}
    kernel, bias, *_ = initialized(tmp_path, MIRRORED, groups(biases))
    own, *_ = initialized(tmp_path, MIRRORED)
    assert np.array_equal(kernel.numpy(), own.numpy())
    assert (bias.numpy() == 1).all()


def test_first_values_follow_from_the_seed_and_differ_between_variables(tmp_path):
    kernels = groups(KERNELS | {"initializer": "random_normal"})
    first, again, other = (initialized(tmp_path, kernels, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first[0].numpy(), again[0].numpy())
    assert not np.array_equal(first[0].numpy(), other[0].numpy())
    assert not np.array_equal(first[0].numpy().ravel()[:24], first[2].numpy().ravel())


def test_an_init_checkpoint_counts_for_more_than_an_initializer(tmp_path):
    plain = trainer(tmp_path)
    path = tf.train.Checkpoint(model=plain.model).write(str(tmp_path / "other"))
    kernels = KERNELS | {"initializer": "zeros"}
    found = initialized(tmp_path, groups(kernels), init_checkpoint=path)
    for variable, saved in zip(found, plain.model.trainable_variables, strict=True):
        assert np.array_equal(variable.numpy(), saved.numpy())


def test_averages_begin_at_what_an_initializer_gave(tmp_path):
    ema = {"trainer": {"optimizer_config": {"ema": {"average_decay": 0.9}}}}
    made = trainer(tmp_path, groups(KERNELS | {"initializer": "zeros"}), ema)
    made.initialize()
    for variable in made.model.trainable_variables:
        assert np.array_equal(
            made.optimizer.get_slot(variable, "average").numpy(), variable.numpy()
        )


# What is wrong.


def test_a_pattern_that_finds_nothing_is_answered_with_names(tmp_path):
    said = r"'kernal' of the group 'k' matches no .*bias; did you mean 'kernel'\?"
    with pytest.raises(ConfigError, match=said):
        trainer(tmp_path, groups(KERNELS | {"name": "k", "pattern": "kernal"}))


def test_a_group_that_others_leave_empty_is_refused(tmp_path):
    late = {"name": "late", "pattern": "dense", "rate_scale": 2.0}
    everything = {"name": "all", "pattern": ".", "rate_scale": 2.0}
    with pytest.raises(ConfigError, match=saying("late matches")):
        trainer(tmp_path, groups(everything, late))


def test_an_initializer_that_does_not_suit_a_shape_is_refused(tmp_path):
    made = trainer(tmp_path, groups({"name": "b", "pattern": "bias", "initializer": "identity"}))
    with pytest.raises(ConfigError, match=saying("identity 'b' suit")):
        made.initialize()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pattern": "("}, "expression unterminated"),
        ({"pattern": ""}, "pattern must"),
        ({"rate_scale": -1.0}, "rate_scale -1.0 0"),
        ({"rate_scale": float("nan")}, "rate_scale nan 0"),
        ({"name": ""}, "must letters"),
        ({"initializer": "glorot_unifrom"}, "mean glorot_uniform"),
        ({"rate_scale": 1.0}, "effect rate_scale trainable False"),
    ],
)
def test_a_wrong_group_is_refused_before_anything_is_built(fields, said):
    made = toy.experiment(groups(KERNELS | fields))
    with pytest.raises(ConfigError) as error:
        experiments.validate(made, trains=True, evaluates=False)
    says(str(error.value), said)
    assert "run.variable_groups[0]" in str(error.value)


def test_two_groups_of_one_name_are_refused():
    made = toy.experiment(groups(KERNELS, KERNELS))
    with pytest.raises(ConfigError, match=saying("another group")):
        experiments.validate(made, trains=True, evaluates=False)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", ["sgd", "adam", "lamb", "sgd_experimental", "adamw_experimental"])
def test_a_group_decays_by_its_own_rate_and_the_rest_stays_as_before(kind, sparse):
    """The first update differs by the decay alone: the optimizer's part is computed afterwards."""
    chosen = config(kind)
    decaying = group(name="b", pattern="^b/", rate_scale=0.5, weight_decay=0.1)
    slower = group(name="b", pattern="^b/", rate_scale=0.5)
    made = Two(chosen, decaying, sparse=sparse), Two(chosen, slower, sparse=sparse)
    start = made[0].weights[1].numpy()
    decayed, kept = (two.train(1) for two in made)
    assert np.array_equal(decayed[0], kept[0])
    rate = 0.5 * scheduled(chosen, 0)
    if kind in ("sgd", "adam", "sgd_experimental", "adamw_experimental"):
        np.testing.assert_allclose(kept[1] - decayed[1], start * rate * 0.1, rtol=0.02)
    assert np.all(decayed[1] < kept[1])


def test_weight_decay_of_a_frozen_group_is_rejected():
    frozen = {"name": "all", "pattern": ".", "trainable": False, "weight_decay": 0.1}
    made = toy.experiment({"run": {"variable_groups": [frozen]}})
    with pytest.raises(ConfigError, match=saying("weight_decay effect")):
        experiments.validate(made, trains=True, evaluates=False)
