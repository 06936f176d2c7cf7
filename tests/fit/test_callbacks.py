"""Callbacks of Keras in `runner.fit`: converted to settings, or called as Keras calls them."""

import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import runner

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = X[:, :3].argmax(1)
LIBRARIES = ["tf_keras", "keras"]


def network(keras):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    model.set_weights([np.linspace(-1, 1, 12).reshape(4, 3), np.zeros(3)])
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=["accuracy"])
    return model


DATA = {"x": X, "y": Y, "validation_split": 0.25, "batch_size": 15, "shuffle": False, "verbose": 0}


def pair(keras, callbacks, *, epochs=6, **arguments):
    """Both models after the same call, and the results of the run.

    The weights must be equal.
    """
    ours, theirs = network(keras), network(keras)
    shared = {**DATA, "epochs": epochs, **arguments}
    results = runner.fit(ours, callbacks=callbacks(), model_dir="run", **shared)
    theirs.fit(callbacks=callbacks(), **shared)
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return results


SETTINGS = {
    "stops": (
        "tf_keras",
        "EarlyStopping",
        {"monitor": "val_accuracy", "patience": 1, "min_delta": 0.05},
    ),
    "restores": (
        "keras",
        "EarlyStopping",
        {"monitor": "val_accuracy", "restore_best_weights": True, "start_from_epoch": 1},
    ),
    "on training": (
        "tf_keras",
        "EarlyStopping",
        {"monitor": "loss", "mode": "max", "patience": 2},
    ),
    "baseline": ("keras", "EarlyStopping", {"baseline": 0.1, "patience": 3}),
    "drops": (
        "keras",
        "ReduceLROnPlateau",
        {"monitor": "val_accuracy", "patience": 1, "factor": 0.3, "cooldown": 2, "min_lr": 0.02},
    ),
    "drops by training": (
        "tf_keras",
        "ReduceLROnPlateau",
        {"monitor": "loss", "mode": "max", "patience": 1, "factor": 0.5},
    ),
    "schedule": (
        "keras",
        "LearningRateScheduler",
        {"schedule": lambda n, rate: rate / 2 if n % 2 else rate},
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_callback_has_the_effect_that_it_has_in_keras(case, capfd):
    library, name, arguments = SETTINGS[case]
    keras = pytest.importorskip(library)
    pair(keras, lambda: [getattr(keras.callbacks, name)(**arguments)])
    (line,) = [each for each in capfd.readouterr().err.splitlines() if name in each][:1]
    is_called = case in ("on training", "baseline", "drops by training")
    assert ("called" if is_called else "became") in line


def test_many_learning_rates_are_set_as_epochs_begin():
    pair(
        tf_keras,
        lambda: [tf_keras.callbacks.LearningRateScheduler(lambda epoch: 0.001 * (1 + epoch))],
        epochs=52,
        validation_freq=52,
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_line_names_arguments_without_effect(library, capfd):
    keras = pytest.importorskip(library)
    kinds = keras.callbacks
    callbacks = [
        kinds.ModelCheckpoint("mine.keras", monitor="val_accuracy", save_best_only=True),
        kinds.CSVLogger("mine.csv"),
        kinds.TensorBoard("mine", histogram_freq=1),
        kinds.TerminateOnNaN(),
        kinds.BackupAndRestore("backup"),
    ]
    runner.fit(network(keras), callbacks=callbacks, model_dir="run", **DATA)
    said = capfd.readouterr().err
    for word in ("mine.keras", "mine.csv", "histogram_freq", "TerminateOnNaN", "BackupAndRestore"):
        assert word in said
    assert "best_checkpoint_eval_metric = 'accuracy'" in Path("run/config.gin").read_text()


def recording(keras):
    """A callback that records its calls."""

    class Recording(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.calls = []

    def record(name):
        def method(self, *args, **kwargs):
            (*when, logs) = [*args, *kwargs.values()] or [None]
            values = {key: round(float(value), 4) for key, value in (logs or {}).items()}
            self.calls.append((name, *when, values))

        return method

    for name in (
        *("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end"),
        *("on_train_batch_begin", "on_train_batch_end"),
        *("on_test_begin", "on_test_batch_begin", "on_test_batch_end", "on_test_end"),
    ):
        setattr(Recording, name, record(name))
    return Recording()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_callback_is_called_when_and_with_what_keras_calls_it(library):
    keras = pytest.importorskip(library)
    made = []

    def callbacks():
        made.append(recording(keras))
        return made[-1:]

    pair(keras, callbacks, epochs=2, validation_freq=2)
    ours, theirs = (each.calls for each in made)
    assert [call[:-1] for call in ours] == [call[:-1] for call in theirs]
    for own, other in zip(ours, theirs, strict=True):
        assert own[-1] == pytest.approx(other[-1], abs=2e-4)
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} == ours[-2][-1].keys()


def test_a_callback_stops_the_run_and_sets_the_rate_of_the_trained_model():
    keras = pytest.importorskip("keras")

    class Own(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            self.tests = getattr(self, "tests", 0) + 1

        def on_epoch_begin(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.1 / (1 + epoch)

        def on_epoch_end(self, epoch, logs=None):
            assert self.model.predict(X, verbose=0).shape == (60, 3)
            self.model.stop_training = self.tests == 3

    results = pair(keras, lambda: [Own()])
    assert (results["status"], results["step"]) == ("stopped", 9)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_callback_may_use_the_model_of_the_script(library):
    """It has current weights at the end of each epoch, and stops training."""
    keras = pytest.importorskip(library)
    scores = []

    def callbacks(model):
        def on_epoch_end(epoch, logs):
            scores.append(model.predict(X[:1], verbose=0))
            model.stop_training = epoch == 2

        return [keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)]

    ours, theirs = network(keras), network(keras)
    options = {**DATA, "epochs": 5}
    results = runner.fit(ours, callbacks=callbacks(ours), model_dir="run", **options)
    theirs.fit(callbacks=callbacks(theirs), **options)
    np.testing.assert_allclose(scores[:3], scores[3:], rtol=1e-5)
    assert results["status"] == "stopped"


class Counts(tf_keras.callbacks.Callback):
    """Stops after a number of epochs, or never."""

    def __init__(self, most=0):
        super().__init__()
        self.most, self.epochs = most, []

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(epoch)
        self.model.stop_training = len(self.epochs) == self.most


def test_a_run_that_a_callback_has_stopped_stays_stopped_unless_it_is_longer():
    def fitted(epochs, callback):
        options = {**DATA, "epochs": epochs, "model_dir": "run"}
        results = runner.fit(network(tf_keras), callbacks=[callback], **options)
        return results["status"], results["step"], callback.epochs

    assert fitted(5, Counts(2)) == ("stopped", 6, [0, 1])
    assert fitted(5, Counts(2)) == ("stopped", 6, [])
    assert fitted(6, Counts(2)) == ("stopped", 12, [2, 3])
    assert fitted(6, Counts()) == ("stopped", 12, [])
    assert fitted(7, Counts()) == ("done", 21, [4, 5, 6])


@pytest.mark.parametrize("validates", [False, True])
def test_a_rate_that_a_callback_has_set_survives_a_resume(validates):
    class Halves(tf_keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.1 * 0.5 ** (epoch + 1)

    def fitted(folder, *, break_at=0):
        def fail(_):
            steps.append(1)
            if len(steps) == break_at:
                raise RuntimeError("broken")

        steps = []
        data = DATA if validates else {name: DATA[name] for name in ("x", "y", "batch_size")}
        options = {
            "epochs": 4,
            "model_dir": folder,
            "gin_params": ["TrainerConfig.steps_per_loop=1"],
        }
        results = runner.fit(
            network(tf_keras), callbacks=[Halves()], train_actions=[fail], **data, **options
        )
        return results.history["learning_rate"]

    whole = fitted("whole")
    assert whole == pytest.approx([0.1, 0.05, 0.025, 0.0125])
    with pytest.raises(RuntimeError):
        fitted("resumed", break_at=8)  # in the second epoch, from whose start it resumes
    assert fitted("resumed") == whole


PLATEAU = [
    *("PlateauConfig.higher = ('accuracy',)", "PlateauConfig.min_delta = 0.9"),
    *("PlateauConfig.factor = 0.3", "PlateauConfig.cooldown = 3", "PlateauConfig.floor = 0.01"),
]
RATES = {  # when a callback sets it, and the rate in an epoch, given the current one
    "at the end, once": ("on_epoch_end", lambda epoch, now: 0.01 if epoch == 2 else now, []),
    "at the end, below the floor": ("on_epoch_end", lambda epoch, _: 0.07 / (10 * epoch + 1), []),
    "at the end, with drops": ("on_epoch_end", lambda epoch, _: 0.07 / (epoch + 1), PLATEAU),
    "at the begin, of the current": ("on_epoch_begin", lambda _, now: now * 0.9, []),
    "in mid-epoch": (
        "on_epoch_begin",
        lambda _, now: now * 0.9,
        ["TrainerConfig.steps_per_loop=1"],
    ),
}


@pytest.mark.parametrize("broken", ["on_test_begin", "on_epoch_begin", "on_epoch_end", "middle"])
@pytest.mark.parametrize("kind", RATES)
def test_a_run_with_rates_of_a_callback_resumes_to_the_same_bits(kind, broken):
    method, rate, params = RATES[kind]
    every = ["TrainerConfig.checkpoint_interval = 1"] if broken == "middle" else []

    class Sets(tf_keras.callbacks.Callback):
        pass

    def sets(self, epoch, logs=None):
        optimizer = self.model.optimizer
        optimizer.learning_rate = rate(epoch, float(optimizer.learning_rate.numpy()))

    setattr(Sets, method, sets)

    class Breaks(tf_keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

    def breaks(self, *args, logs=None):
        if args and isinstance(args[0], int):
            self.epoch = args[0]
        if self.epoch == 3:
            raise RuntimeError("broken")

    def fitted(folder, *callbacks, actions=()):
        model = network(tf_keras)
        results = runner.fit(
            model,
            callbacks=[Sets(), *callbacks],
            train_actions=actions,
            **DATA,
            epochs=6,
            model_dir=folder,
            gin_params=[*params, *every],
        )
        return results.history["learning_rate"], [each.tobytes() for each in model.get_weights()]

    whole = fitted("whole")
    steps = []

    def after_loop(_):
        steps.append(1)
        if len(steps) == 11:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        if broken == "middle":
            fitted("resumed", actions=[after_loop])
        else:
            setattr(Breaks, broken, breaks)
            fitted("resumed", Breaks())
    assert fitted("resumed") == whole


def test_a_rollback_to_the_start_of_an_epoch_keeps_the_rate_that_it_began_with():
    class Sets(tf_keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            optimizer = self.model.optimizer
            optimizer.learning_rate = 0.9 * float(optimizer.learning_rate.numpy())

    calls = []

    def breaks_once(labels, outputs):
        def factor():
            calls.append(1)
            return np.float32(math.nan if len(calls) == 8 else 1)  # in the third epoch

        loss = tf_keras.losses.sparse_categorical_crossentropy(labels, outputs)
        return loss * tf.numpy_function(factor, [], tf.float32)

    model = network(tf_keras)
    model.compile(tf_keras.optimizers.SGD(0.1), loss=breaks_once)
    given = {name: DATA[name] for name in ("x", "y", "batch_size")}  # four steps an epoch
    params = ["TrainerConfig.recovery_max_trials = 1", "TrainerConfig.steps_per_loop = 1"]
    results = runner.fit(
        model, callbacks=[Sets()], epochs=4, model_dir="run", gin_params=params, **given
    )
    assert len(runner.Run("run").reading.skipped) == 1
    rates = results.history["learning_rate"]
    assert rates == pytest.approx([0.1 * 0.9**n for n in range(1, 5)], rel=1e-5)


def test_a_drop_applies_to_the_rate_that_a_callback_has_just_set():
    class Sets(tf_keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.04 if epoch == 1 else 0.02

    params = [*PLATEAU[:3], "PlateauConfig.tolerance = 1"]
    given = {**DATA, "epochs": 4, "model_dir": "run", "gin_params": params}
    rates = runner.fit(network(tf_keras), callbacks=[Sets()], **given).history["learning_rate"]
    assert rates == pytest.approx([0.1, 0.02, 0.3 * 0.04, 0.02 * 0.3], rel=1e-5)


def test_the_state_that_a_resume_loses_is_named(capfd):
    first, second = Counts(), Counts()
    options = {**DATA, "model_dir": "run"}
    runner.fit(network(tf_keras), epochs=2, callbacks=[first], **options)
    assert "changes" not in capfd.readouterr().err
    runner.fit(network(tf_keras), epochs=5, callbacks=[second], **options)
    (line,) = [each for each in capfd.readouterr().err.splitlines() if "changes" in each]
    assert "Counts changes epochs" in line
    assert (first.epochs, second.epochs) == ([0, 1], [2, 3, 4])


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_files_that_callbacks_name_are_written_as_keras_writes_them(library):
    keras = pytest.importorskip(library)
    best = {"monitor": "val_accuracy", "mode": "max", "save_best_only": True}
    made = network(keras)
    results = runner.fit(
        made,
        callbacks=[
            keras.callbacks.ModelCheckpoint("kept/best.keras", **best),
            keras.callbacks.ModelCheckpoint("last.weights.h5", save_weights_only=True),
            keras.callbacks.CSVLogger("logs/log.csv"),
        ],
        model_dir="run",
        epochs=3,
        **DATA,
    )
    scored = keras.models.load_model("kept/best.keras").evaluate(X[45:], Y[45:])
    assert scored[1] == pytest.approx(results.best["metrics"]["accuracy"])
    last = network(keras)
    last.load_weights("last.weights.h5")
    for ours, theirs in zip(made.get_weights(), last.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    header, *rows = Path("logs/log.csv").read_text().splitlines()
    assert header == "epoch,accuracy,learning_rate,loss,val_accuracy,val_loss"
    assert [row.partition(",")[0] for row in rows] == ["0", "1", "2"]
