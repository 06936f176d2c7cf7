"""Programs around `run_experiment`: each does with the runner what it does with Model Garden.

A program is a function. It gets the library that a user imports, and an empty directory. Programs
that need nothing but an ordinary training share one. What a program returns is compared: values
must be equal, and a set must contain what Model Garden's has.
"""

import copy
import dataclasses
import json
import pickle
import signal
import threading
from pathlib import Path

import gin
import numpy as np
import orbit
import pytest
import tensorflow as tf
import tf_keras
import yaml
from official.core import base_trainer, exp_factory, train_lib, train_utils
from official.core import config_definitions as cfg
from official.modeling import hyperparams, performance
from official.utils.testing import mock_task
from official.vision.utils import summary_manager

import runner

PROGRAMS = []
AFTER_TRAINING = []
STEPS = 4
TRAINER = {
    "train_steps": STEPS,
    "steps_per_loop": 2,
    "summary_interval": 2,
    "checkpoint_interval": 2,
    "validation_interval": 2,
    "validation_steps": 1,
    "continuous_eval_timeout": 1,
    "optimizer_config": {
        "optimizer": {"type": "sgd"},
        "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.1}},
    },
}


def program(function):
    """Marks one of the programs."""
    PROGRAMS.append(function)
    return function


def after_training(function):
    """Marks a program that also gets an `Ordinary` training, which the others get as well."""
    AFTER_TRAINING.append(function)
    return function


def experiment(**trainer):
    """Model Garden's test experiment. Its inputs are zeros, so its losses are always the same."""
    params = exp_factory.get_exp_config("mock")
    params.override({"trainer": TRAINER | trainer})
    return params


def unchanging():
    """The test experiment, with a learning rate that leaves the weights as they are."""
    params = experiment()
    params.trainer.optimizer_config.learning_rate.constant.learning_rate = 0.0
    return params


def train(library, folder, mode="train_and_eval", *, params=None, task=None, strategy=None, **more):
    """Runs the test experiment."""
    params = params or experiment()
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        task = (task or mock_task.MockTask)(params.task)
    return library.run_experiment(strategy, task, mode, params, str(folder), **more)


def numbers(logs):
    """The logs but speeds, as floats."""
    return {
        name: pytest.approx(float(value))
        for name, value in logs.items()
        if "per_second" not in name
    }


def events(folder):
    """The tags and steps of all event files of a directory."""
    points = set()
    for path in folder.rglob("*.tfevents.*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                points.add((str(path.relative_to(folder).parent), value.tag, event.step))
    return points


def newest(folder):
    """The newest checkpoint of a directory, as TensorFlow finds it."""
    return Path(tf.train.latest_checkpoint(folder))


def load(path, model):
    """Restores a model as a script without the runner does."""
    tf.train.Checkpoint(model=model).restore(str(path)).expect_partial()


def without_speeds(points):
    """The points but speeds, which the managers of a program do not get here."""
    return {point for point in points if point[1] != "steps_per_second"}


def weights(model):
    return [weight.tolist() for weight in model.get_weights()]


class Wide(mock_task.MockTask):
    """A task with inputs and initial weights that are not zero."""

    def build_inputs(self, params):
        points = tf.ones((2, 2)), tf.zeros((2, 1), tf.int32)
        return tf.data.Dataset.from_tensors(points).repeat()


class Ordinary:
    """A training with validations and actions, scored at its end.

    Its parameters are a copy, are pickled, and are saved before it.
    """

    def __init__(self, library, folder):
        self.folder = folder / "run"
        self.params = pickle.loads(pickle.dumps(copy.deepcopy(experiment())))
        self.steps, self.training, self.validation = [], [], []
        self.events_of_an_action = folder / "mine"
        self._writer = tf.summary.create_file_writer(str(self.events_of_an_action))
        train_utils.serialize_config(self.params, str(self.folder))
        self.model, self.logs = train(
            library,
            self.folder,
            params=self.params,
            train_actions=[self._trained, self._step],
            eval_actions=[self._validated, self._step],
            run_post_eval=True,
        )
        self._writer.close()

    def _trained(self, logs):
        self.training.append({name: float(value) for name, value in logs.items()})
        with self._writer.as_default():
            tf.summary.scalar("mine", logs["training_loss"])

    def _validated(self, logs):
        self.validation.append({name: float(value) for name, value in logs.items()})

    def _step(self, _):
        self.steps.append(int(tf.summary.experimental.get_step()))


@after_training
def logs_after_training(ordinary):
    """The results of `run_post_eval` are read."""
    logs, model = ordinary.logs, ordinary.model
    return {"keys": set(logs), "logs": numbers(logs), "weights": len(model.get_weights())}


@after_training
def action_with_own_writer(ordinary):
    """An action writes points of its own, at the step of the run."""
    return {"points": sorted(events(ordinary.events_of_an_action))}


@after_training
def step_in_an_action(ordinary):
    """An action reads the step of the run where summaries find it."""
    return {"steps": ordinary.steps}


@after_training
def tags_of_events(ordinary):
    """The points of an ordinary training, as a dashboard reads them."""
    return {"points": events(ordinary.folder)}


@after_training
def actions_that_read_logs(ordinary):
    """Lists of actions read the values of training and validation, also of the one at the end."""
    training, validation = ordinary.training, ordinary.validation
    return {
        "training": [numbers(logs) for logs in training],
        "validation": [numbers(logs) for logs in validation],
        "training keys": set(training[0]),
        "validation keys": set(validation[0]),
    }


@after_training
def checkpoint_read_by_its_keys(ordinary):
    """A tool reads the step, the model and the optimizer of a checkpoint by their names."""
    path = newest(ordinary.folder)
    step = tf.train.load_checkpoint(path).get_tensor("global_step/.ATTRIBUTES/VARIABLE_VALUE")
    return {"keys": {name for name, _ in tf.train.list_variables(path)}, "step": int(step)}


@after_training
def copies_of_params(ordinary):
    """Parameters are copied and pickled before a run and after it."""
    again = pickle.loads(pickle.dumps(copy.deepcopy(ordinary.params)))
    return {"same": again == experiment(), "type": type(again).__name__}


@after_training
def params_read_back(ordinary):
    """`params.yaml` is written before the run, and read again strictly after it."""
    file = str(ordinary.folder / "params.yaml")
    again = exp_factory.get_exp_config("mock")
    again = hyperparams.override_params_dict(again, file, is_strict=True)
    return {"same": again.as_dict() == ordinary.params.as_dict()}


@after_training
def exported_afterwards(ordinary):
    """The model that is returned is called, saved and loaded."""
    saved = str(ordinary.folder.with_name("saved"))
    tf.saved_model.save(ordinary.model, saved)
    loaded = tf.saved_model.load(saved)
    points = tf.zeros((3, 2))
    return {
        "called": ordinary.model(points).shape.as_list(),
        "same": bool(tf.reduce_all(loaded(points) == ordinary.model(points))),
    }


@program
def scored_at_the_end_alone(library, folder):
    """A training without validations is scored at its end; the events are read."""
    _, logs = train(library, folder, "train", run_post_eval=True)
    return {
        "logs": numbers(logs),
        "points": {point for point in events(folder) if point[0] == "validation"},
    }


@program
def best_metric_in_the_logs(library, folder):
    """The best value is returned and reported."""
    params = experiment(
        best_checkpoint_export_subdir="best",
        best_checkpoint_eval_metric="counter",
        best_checkpoint_metric_comp="higher",
    )
    _, logs = train(library, folder, params=params, run_post_eval=True)
    return {"keys": set(logs), "logs": numbers(logs)}


@program
def best_checkpoint(library, folder):
    """The best checkpoint and the file that describes it are read."""
    params = experiment(
        best_checkpoint_export_subdir="exported",
        best_checkpoint_eval_metric="validation_loss",
        best_checkpoint_metric_comp="lower",
    )
    model, _ = train(library, folder, params=params)
    before = weights(model)
    load(newest(folder / "exported"), model)
    info = json.loads((folder / "exported" / "info.json").read_text())
    return {
        "same": weights(model) == before,
        "keys": set(info),
        "step": info["best_ckpt_global_step"],
        "loss": pytest.approx(info["validation_loss"]),
    }


class Summaries(mock_task.MockTask):
    def train_step(self, inputs, model, optimizer, metrics=None):
        logs = super().train_step(inputs, model, optimizer, metrics)
        tf.summary.scalar("of a step", logs[self.loss])
        return logs

    def validation_step(self, inputs, model, metrics=None):
        tf.summary.image("drawn", tf.zeros((1, 4, 4, 3)))
        return super().validation_step(inputs, model, metrics)


@program
def summaries_in_steps(library, folder):
    """The steps of a task write points and images."""
    train(library, folder, task=Summaries)
    return {"points": {point for point in events(folder) if "step" in point[1] or "dr" in point[1]}}


@program
def orbits_summary_manager(library, folder):
    """Orbit's summary managers write training and validation where the user wants it."""
    managers = {
        name: orbit.utils.SummaryManager(str(folder / name), tf.summary.scalar)
        for name in ("summary_manager", "eval_summary_manager")
    }
    train(library, folder / "run", **managers)
    return {name: without_speeds(events(folder / name)) for name in managers}


class Images(mock_task.MockTask):
    def reduce_aggregated_logs(self, aggregated_logs, global_step=None):
        logs = super().reduce_aggregated_logs(aggregated_logs, global_step)
        return {**logs, "image/mine": np.zeros((1, 4, 4, 3), np.uint8), "of": {"one": 1.0}}


@program
def images_of_a_validation(library, folder):
    """A task returns images and nested results for the manager of official/vision."""
    manager = summary_manager.ImageScalarSummaryManager(
        str(folder / "drawn"), tf.summary.scalar, tf.summary.image
    )
    _, logs = train(
        library, folder / "run", task=Images, eval_summary_manager=manager, run_post_eval=True
    )
    return {
        "points": without_speeds(events(folder / "drawn")),
        "keys": set(logs),
        "nested": set(logs["of"]),
    }


@program
def actions_that_read_tensors(library, folder):
    """Actions call the methods of tensors, and return something."""
    values = []

    def note(name):
        return lambda logs: values.append(float(logs[name].numpy())) or "noted"

    actions = {"train_actions": [note("training_loss")], "eval_actions": [note("validation_loss")]}
    train(library, folder, **actions)
    return {"values": [pytest.approx(value) for value in values]}


@program
def lists_of_actions(library, folder):
    """Tuples and lists of actions, after `run_post_eval` as well, which get tensors."""
    seen = []

    def look(logs):
        seen.append({name: tf.is_tensor(value) for name, value in logs.items()})

    train(library, folder, eval_actions=[look], run_post_eval=True)
    return {"seen": seen}


@program
def seeds_of_the_user(library, folder):
    """The user's seed decides on the initial weights."""
    results = []
    for number, seed in enumerate((1, 1, 2)):
        tf_keras.utils.set_random_seed(seed)
        model, _ = train(library, folder / str(number), "train")
        results.append(weights(model))
    return {"same": results[0] == results[1], "another": results[0] != results[2]}


@program
def draws_after_a_run(library, folder):
    """The user's own random numbers go on after a run, and ops without a seed work."""
    np.random.seed(3)
    train(library, folder, "train")
    tf.image.sample_distorted_bounding_box(
        [8, 8, 3], tf.zeros((1, 1, 4)), use_image_if_no_bounding_boxes=True
    )
    return {"numpy": float(np.random.random()), "shape": tf.random.normal([2]).shape.as_list()}


@program
def precision_of_the_user(library, folder):
    """The user's policy decides on the model's precision, and holds afterwards."""
    performance.set_mixed_precision_policy("bfloat16")
    model, _ = train(library, folder)
    dense = model.network.layers[-1]
    return {
        "model": dense.compute_dtype,
        "variables": dense.kernel.dtype.name,
        "after": tf_keras.mixed_precision.global_policy().name,
    }


@program
def debugging_eagerly(library, folder):
    """The user switches graphs off: Python code of a step sees values."""
    losses = []

    class Eager(mock_task.MockTask):
        def train_step(self, inputs, model, optimizer, metrics=None):
            logs = super().train_step(inputs, model, optimizer, metrics)
            losses.append(float(logs[self.loss].numpy()))
            return logs

    tf.config.run_functions_eagerly(True)
    train(library, folder, "train", task=Eager)
    return {
        "losses": [pytest.approx(loss) for loss in losses],
        "after": tf.config.functions_run_eagerly(),
    }


@program
def breakpoints_by_the_trainers_options(library, folder):
    """`train_tf_function: false` lets Python code run in every step."""
    calls = []

    class Counted(mock_task.MockTask):
        def train_step(self, inputs, model, optimizer, metrics=None):
            calls.append(tf.executing_eagerly())
            return super().train_step(inputs, model, optimizer, metrics)

    params = experiment(train_tf_function=False, train_tf_while_loop=False)
    train(library, folder, "train", params=params, task=Counted)
    return {"ran": bool(calls)}


@program
def trainer_of_the_user(library, folder):
    """A trainer that counts its loops."""

    class Counting(base_trainer.Trainer):
        loops = 0

        def train_loop_begin(self):
            self.loops += 1
            super().train_loop_begin()

    params = experiment()
    task = mock_task.MockTask(params.task)
    trainer = Counting(
        params,
        task,
        model=task.build_model(),
        optimizer=task.create_optimizer(params.trainer.optimizer_config),
    )
    _, logs = train(library, folder, params=params, trainer=trainer, run_post_eval=True)
    return {"loops": trainer.loops, "step": int(trainer.global_step), "logs": numbers(logs)}


@program
def controller_of_the_user(library, folder):
    """A controller that counts its evaluations."""
    evaluations = []

    class Counting(orbit.Controller):
        def evaluate(self, steps=-1):
            evaluations.append(steps)
            return super().evaluate(steps)

    train(library, folder, controller_cls=Counting)
    return {"evaluations": evaluations}


@program
def runner_of_the_user(library, folder):
    """A subclass of Model Garden's runner that has a checkpoint manager of its own."""

    class Own(library.OrbitExperimentRunner):
        def _maybe_build_checkpoint_manager(self):
            return tf.train.CheckpointManager(
                self.trainer.checkpoint,
                str(folder / "mine"),
                max_to_keep=1,
                step_counter=self.trainer.global_step,
                checkpoint_interval=2,
                init_fn=self.trainer.initialize,
            )

    params = experiment()
    task = mock_task.MockTask(params.task)
    Own(
        distribution_strategy=tf.distribute.get_strategy(),
        task=task,
        mode="train",
        params=params,
        model_dir=str(folder / "run"),
    ).run()
    return {"newest": newest(folder / "mine").name}


@program
def checkpoints_written_at_the_side(library, folder):
    """Asynchronous checkpoints are there when the call returns."""
    model, _ = train(library, folder, "train", enable_async_checkpointing=True)
    other = mock_task.MockTask(experiment().task).build_model()
    load(newest(folder), other)
    return {"newest": newest(folder).name, "same": weights(model) == weights(other)}


@program
def one_mode_after_the_other(library, folder):
    """Trains, evaluates, and evaluates all that is there, in one program."""
    results = {}
    for mode in ("train", "eval", "continuous_eval"):
        _, logs = train(library, folder, mode, run_post_eval=mode != "train")
        results[mode] = numbers(logs)
    return results


@program
def one_task_and_params_for_two_runs(library, folder):
    """The same objects are passed twice."""
    params = experiment()
    task = mock_task.MockTask(params.task)
    strategy = tf.distribute.get_strategy()
    results = []
    for name in ("a", "b"):
        _, logs = library.run_experiment(
            strategy, task, "train_and_eval", params, str(folder / name), run_post_eval=True
        )
        results.append(numbers(logs))
    return {"logs": results, "params": params == experiment()}


@program
def continued_from_an_earlier_run(library, folder):
    """The same directory is trained further by a longer run, and its weights by another one.

    The other run's task reads them itself, as tasks of official do, or by the hook that all have.
    """

    class Initialized(mock_task.MockTask):
        def initialize(self, model):
            path = tf.train.latest_checkpoint(self.task_config.init_checkpoint)
            status = tf.train.Checkpoint(model=model).restore(path)
            status.expect_partial().assert_existing_objects_matched()

    trained, _ = train(library, folder / "first", "train")
    alone = tf.train.Checkpoint(model=trained).write(str(folder / "only_the_model"))
    same = []
    for task, path in {Initialized: str(folder / "first"), mock_task.MockTask: alone}.items():
        params = unchanging()
        params.task.init_checkpoint = path
        model, _ = train(library, folder / task.__name__, "train", params=params, task=task)
        same.append(weights(model) == weights(trained))
    steps = []
    train(
        library,
        folder / "first",
        "train",
        params=experiment(train_steps=2 * STEPS),
        train_actions=[lambda logs: steps.append(int(tf.summary.experimental.get_step()))],
    )
    return {"same": same, "steps": steps, "newest": newest(folder / "first").name}


@program
def in_a_thread(library, folder):
    """A run in a thread of the program."""
    results = []
    thread = threading.Thread(
        target=lambda: results.append(train(library, folder, run_post_eval=True)[1])
    )
    thread.start()
    thread.join()
    return {"logs": [numbers(found) for found in results]}


@gin.configurable
def width(value=1):
    return value


@program
def gin_bindings_of_the_user(library, folder):
    """The user's bindings hold in the task, and are saved as Model Garden's programs do."""
    gin.parse_config("width.value = 3")
    seen = []

    class Configured(mock_task.MockTask):
        def build_model(self):
            seen.append(width())
            return super().build_model()

    train(library, folder, "train", task=Configured)
    train_utils.save_gin_config("train", str(folder))
    saved = (folder / "operative_config.train.gin").read_text()
    return {"seen": seen[-1], "after": width(), "saved": "width.value = 3" in saved}


@program
def averaged_weights(library, folder):
    """An average of the weights is kept, and saved apart."""
    averages = {"ema": {"average_decay": 0.5, "trainable_weights_only": False}}
    params = experiment(optimizer_config=TRAINER["optimizer_config"] | averages, max_to_keep=1)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    train(library, folder / "run", params=params, strategy=strategy, task=Wide)
    saved = folder / "run" / "ema_checkpoints"
    other = Wide(params.task).build_model()
    load(newest(saved), other)
    return {
        "saved": newest(saved).name,
        "kept": [path.name for path in saved.glob("*.index")],
        "bias": pytest.approx(float(other.get_weights()[1][0]), rel=0.05),
    }


@program
def handler_of_the_user(library, folder):
    """A handler of SIGTERM that leaves the program."""

    def leave(number, frame):
        raise SystemExit(7)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit) as left:
            train(
                library,
                folder,
                "train",
                train_actions=[lambda logs: signal.raise_signal(signal.SIGTERM)],
            )
        kept = signal.getsignal(signal.SIGTERM) is leave
    finally:
        signal.signal(signal.SIGTERM, before)
    return {"code": left.value.code, "kept": kept}


@program
def interrupted_by_hand(library, folder):
    """Ctrl-C in a task ends the run, and the program can catch it."""

    class Pressed(mock_task.MockTask):
        def build_inputs(self, params):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(library, folder, "train", task=Pressed)
    _, logs = train(library, folder, run_post_eval=True)
    return {"logs": numbers(logs)}


@program
def error_of_an_action(library, folder):
    """An error of the user's reaches him as it is, also one of TensorFlow's."""
    caught = []
    for name, error in {
        "a": ZeroDivisionError("mine"),
        "b": tf.errors.AbortedError(None, None, ""),
    }.items():

        def fail(logs, error=error):
            raise error

        try:
            train(library, folder / name, "train", train_actions=[fail])
        except Exception as raised:
            caught.append(raised is error)
    return {"caught": caught}


@dataclasses.dataclass
class OwnTrainerConfig(cfg.TrainerConfig):
    """A trainer's section with a field of the user's."""

    mine: int = 3


@dataclasses.dataclass
class OwnExperimentConfig(cfg.ExperimentConfig):
    """An experiment with a section of the user's."""

    trainer: OwnTrainerConfig = dataclasses.field(default_factory=OwnTrainerConfig)
    mine: OwnTrainerConfig = dataclasses.field(default_factory=OwnTrainerConfig)


@program
def sections_of_the_user(library, folder):
    """The parameters are of the user's classes, with more sections and fields."""
    params = OwnExperimentConfig(task=mock_task.MockTaskConfig())
    params.override({"trainer": TRAINER, "mine": {"mine": 5}})
    _, logs = train(library, folder, params=params, run_post_eval=True)
    return {"logs": numbers(logs), "mine": params.mine.mine}


@program
def optimizer_of_the_task(library, folder):
    """A task makes its optimizer itself."""

    class Momentum(Wide):
        @classmethod
        def create_optimizer(cls, optimizer_config, runtime_config=None, dp_config=None):
            return tf_keras.optimizers.legacy.SGD(0.1, momentum=0.5)

    _, logs = train(library, folder, task=Momentum, run_post_eval=True)
    return {"keys": set(logs)}


@program
def compiled_metrics(library, folder):
    """The model is compiled with its metrics; the task has none."""

    class Compiled(mock_task.MockTask):
        def build_model(self):
            model = super().build_model()
            model.compile(metrics=[tf_keras.metrics.MeanSquaredError("mse")])
            return model

        def build_metrics(self, training=True):
            return []

        def process_compiled_metrics(self, compiled_metrics, labels, model_outputs):
            compiled_metrics.update_state(labels, model_outputs)

    _, logs = train(library, folder, task=Compiled, run_post_eval=True)
    return {"keys": set(logs)}


@program
def recovery_from_a_loss(library, folder):
    """A loss above its bound ends the run with a RuntimeError after so many trials."""
    params = experiment(loss_upper_bound=0.1, recovery_max_trials=1)
    with pytest.raises(RuntimeError):
        train(library, folder, "train", params=params)
    return {}


@program
def params_from_yaml(library, folder):
    """Parameters come from a file, over those of a registered experiment."""
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump({"trainer": TRAINER | {"train_steps": 2}}))
    params = exp_factory.get_exp_config("mock")
    params = hyperparams.override_params_dict(params, str(file), is_strict=True)
    params.validate()
    params.lock()
    train(library, folder / "run", "train", params=params)
    return {"newest": newest(folder / "run").name}


@program
def mirrored(library, folder):
    """Two devices, by a strategy that the user has made."""
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    model, logs = train(library, folder, strategy=strategy, run_post_eval=True)
    replicas = strategy.experimental_local_results(model.trainable_variables[0])
    return {"replicas": len(replicas), "loss": pytest.approx(float(logs["validation_loss"]))}


@program
def within_the_scope_of_a_strategy(library, folder):
    """The whole program runs within the scope, and passes no strategy."""
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        params = experiment()
        task = mock_task.MockTask(params.task)
        _, logs = library.run_experiment(
            None, task, "train_and_eval", params, str(folder), run_post_eval=True
        )
    return {"logs": numbers(logs)}


class Aggregated(mock_task.MockTask):
    def aggregate_logs(self, state=None, step_outputs=None):
        return (state or 0) + 1

    def reduce_aggregated_logs(self, aggregated_logs, global_step=None):
        return {"batches": aggregated_logs, "at": int(global_step)}


@program
def results_of_all_batches(library, folder):
    """A task collects something over the batches of a validation."""
    params = experiment(validation_steps=3)
    _, logs = train(library, folder, params=params, task=Aggregated, run_post_eval=True)
    return {"keys": set(logs), "batches": int(logs["batches"]), "at": int(logs["at"])}


@program
def more_values_of_a_step(library, folder):
    """A step returns more than its loss, and the task's metrics are of its own kind."""

    class More(mock_task.MockTask):
        def train_step(self, inputs, model, optimizer, metrics=None):
            logs = super().train_step(inputs, model, optimizer, metrics)
            return {**logs, "mine": tf.constant(2.0)}

        def validation_step(self, inputs, model, metrics=None):
            return {**super().validation_step(inputs, model, metrics), "mine": tf.constant([3.0])}

    seen = []
    train(library, folder, task=More, train_actions=[lambda logs: seen.append(set(logs))])
    return {"keys": seen[-1]}


@program
def no_summaries(library, folder):
    """`save_summary=False` writes no events."""
    train(library, folder, save_summary=False)
    return {"events": sorted(events(folder))}


@program
def validation_in_a_directory_of_the_users(library, folder):
    """`validation_summary_subdir` names the directory of validation's events."""
    params = experiment(validation_summary_subdir="scored")
    train(library, folder, params=params)
    return {"points": {point for point in events(folder) if point[0] == "scored"}}


@program
def directory_of_two_levels(library, folder):
    """The directory does not exist, nor does its parent; checkpoints are limited in number."""
    params = experiment(checkpoint_interval=1, steps_per_loop=1, max_to_keep=2)
    train(library, folder / "of" / "mine", "train", params=params)
    return {"kept": sorted(path.name for path in (folder / "of" / "mine").glob("ckpt-*.index"))}


def contains(ours, theirs):
    """Whether what a program returned holds what it returned with Model Garden."""
    if isinstance(theirs, set):
        return theirs <= ours
    return ours == theirs


def alone(write, library, folder):
    """What a program returns, with the settings of a new process before and after it."""
    folder.mkdir()
    tf_keras.utils.set_random_seed(0)
    try:
        return write(library, folder)
    finally:
        gin.clear_config()
        tf.summary.experimental.set_step(None)
        tf_keras.mixed_precision.set_global_policy("float32")
        tf.config.run_functions_eagerly(False)


def check(ours, theirs):
    """Compares what a program returned."""
    assert ours.keys() == theirs.keys()
    missing = {
        name: (
            theirs[name] - ours[name] if isinstance(theirs[name], set) else theirs[name],
            ours[name],
        )
        for name in theirs
        if not contains(ours[name], theirs[name])
    }
    assert not missing


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_does_what_it_does_with_model_garden(program, tmp_path):
    theirs = alone(program, train_lib, tmp_path / "theirs")
    check(alone(program, runner, tmp_path / "ours"), theirs)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """An ordinary training with either library."""
    folder = tmp_path_factory.mktemp("trainings")
    return [alone(Ordinary, runner, folder / "ours"), alone(Ordinary, train_lib, folder / "theirs")]


@pytest.mark.parametrize("program", AFTER_TRAINING, ids=lambda program: program.__name__)
def test_what_a_program_reads_after_training_is_there_with_the_runner(program, trainings):
    check(*map(program, trainings))
