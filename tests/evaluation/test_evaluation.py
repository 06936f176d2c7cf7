import dataclasses
import json
import os
import signal
import threading

import finished
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from official.core import config_definitions as cfg
from tensorboard.backend.event_processing import event_accumulator
from wording import saying

import runner
from runner import inputs, run_config
from runner.core import signals
from runner.data import batches
from runner.errors import ConfigError, RunnerError
from runner.evaluation import evaluation_sets, evaluator, handover, metric_names
from runner.history import policies
from runner.runs import build
from runner.runs.call import Call

MIRRORED = {"runtime": {"distribution_strategy": "mirrored"}, "run": {"logical_cpus": 2}}


@dataclasses.dataclass
class Moved(inputs.DataConfig):
    """The toy's points, moved; `size` says how many, unless it is told not to."""

    is_training: bool = False
    global_batch_size: int = 8
    by: float = 0.0
    count: int = 23
    declared: bool = True

    def size(self):
        return self.count if self.declared else None


def moved(data):
    points, labels = toy.data(data.count)
    return points + np.float32(data.by), labels


original = toy.ToyTask.build_inputs


def build_inputs(self, params, input_context=None):
    if isinstance(params, Moved):
        points, labels = moved(params)

        def load(index):
            return tf.gather(points, index), tf.gather(labels, index)

        return inputs.in_order(params.count, load, config=params, input_context=input_context)
    if type(params) is cfg.DataConfig:
        replicas = input_context.num_replicas_in_sync if input_context else 1
        return tf.data.Dataset.from_tensor_slices(toy.data(23)).batch(
            params.global_batch_size // replicas, drop_remainder=params.drop_remainder
        )
    return original(self, params, input_context)


@pytest.fixture(autouse=True)
def task(monkeypatch):
    """The toy task, which can read `Moved` and pipelines with official's options, too."""
    monkeypatch.setattr(toy.ToyTask, "build_inputs", build_inputs)


def evaluated_on(name, data=None, **fields):
    return run_config.EvaluationSetConfig(name=name, data=data or Moved(), **fields)


def experiment(*sets, overrides=None, **task):
    made = toy.experiment(overrides, **task)
    made.run.evaluation_sets = sets
    return made


def expected(model, points, labels):
    """Accuracy and mean loss of the examples, by NumPy."""
    logits = model(points).numpy()
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
    return {"accuracy": (logits.argmax(axis=1) == labels).mean(), "loss": losses.mean()}


def model_at(folder, step):
    model = toy.ToyTask(toy.ToyConfig()).build_model()
    tf.train.Checkpoint(model=model).read(str(folder / f"ckpt-{step}")).expect_partial()
    return model


def rows(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def chart(folder, tag):
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


NEAR = evaluated_on("near", Moved(by=0.5))
FAR = evaluated_on("far", Moved(by=3.0), interval=10, prefix="moved_")


def test_a_row_holds_all_that_was_due_at_its_step_and_is_right(tmp_path):
    finished.run(experiment(NEAR, FAR), tmp_path)
    scored = rows(tmp_path)

    assert [row["step"] for row in scored] == [10, 20, 30, 40]
    far = {"moved_accuracy", "moved_loss"}
    every = far | {"accuracy", "validation_loss", "near/accuracy", "near/loss"}
    assert [set(row["metrics"]) for row in scored] == [far, every, far, every]
    for row in scored:
        model = model_at(tmp_path, row["step"])
        for each in (NEAR, FAR) if row["step"] % 20 == 0 else (FAR,):
            right = expected(model, *moved(each.data))
            prefix = evaluation_sets.prefix(each)
            for name, value in right.items():
                assert row["metrics"][prefix + name] == pytest.approx(value, abs=1e-5)


def test_sets_are_drawn_under_the_tags_of_validation_and_purged_on_resume(tmp_path):
    finished.run(experiment(NEAR, FAR), tmp_path)
    for tag in ("loss", "accuracy"):
        assert [step for step, _ in chart(tmp_path / "sets" / "far", tag)] == [10, 20, 30, 40]
        assert [step for step, _ in chart(tmp_path / "sets" / "near", tag)] == [20, 40]
        assert [step for step, _ in chart(tmp_path / "validation", tag)] == [20, 40]
    last = chart(tmp_path / "sets" / "far", "loss")[-1]
    assert last[1] == pytest.approx(rows(tmp_path)[-1]["metrics"]["moved_loss"])

    for path in tmp_path.rglob("ckpt-[34]0.*"):
        path.unlink()
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-20"\n')
    shorter = experiment(NEAR, FAR, overrides={"trainer": {"train_steps": 30}})
    runner.run(shorter, tmp_path, "train_and_eval")
    assert [step for step, _ in chart(tmp_path / "sets" / "far", "loss")] == [10, 20, 30]


def test_sets_change_nothing_of_the_training(tmp_path):
    part_of_training = toy.ToyConfig().train_data.replace(is_training=False)
    fixed = evaluated_on("fixed", part_of_training, examples=8, interval=5)
    finished.run(toy.experiment(), tmp_path / "without")
    runner.run(experiment(FAR, fixed), tmp_path / "with", "train_and_eval")
    for one, other in zip(
        model_at(tmp_path / "without", 40).get_weights(),
        model_at(tmp_path / "with", 40).get_weights(),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_an_evaluator_and_eval_evaluate_every_set_whatever_its_interval(tmp_path):
    finished.run(toy.experiment({"trainer": {"train_steps": 20}}), tmp_path)
    never = evaluated_on("far", FAR.data, interval=1000)
    for mode, name in (("eval", "once"), ("continuous_eval", "continuous")):
        results = runner.run(experiment(never), tmp_path, mode)
        right = expected(model_at(tmp_path, 20), *moved(FAR.data))
        assert results["metrics"]["far/accuracy"] == pytest.approx(right["accuracy"], abs=1e-5)
        folder = tmp_path / f"eval-{name}"
        assert [step for step, _ in chart(folder / "sets" / "far", "loss")] == [20]
        assert [step for step, _ in chart(folder, "loss")] == [20]


def test_where_nothing_is_evaluated_no_set_is_read(tmp_path):
    impossible = evaluated_on("x", examples=24)
    runner.run(experiment(impossible), tmp_path, "train")
    with pytest.raises(ConfigError, match="there are 23"):
        runner.run(experiment(impossible), tmp_path, "train_and_eval")


def test_evaluations_stay_on_the_grid_after_a_run_that_ended_off_it(tmp_path):
    for steps in (25, 50):
        config = experiment(FAR, overrides={"trainer": {"train_steps": steps}})
        runner.run(config, tmp_path, "train_and_eval", allow_config_change=True)
    far_only = {row["step"]: "accuracy" not in row["metrics"] for row in rows(tmp_path)}
    assert list(far_only) == [10, 20, 25, 30, 40, 50]
    assert [step for step in far_only if far_only[step]] == [10, 30]


def test_a_crash_in_the_last_evaluation_loses_no_training(tmp_path, monkeypatch):
    evaluate_on = evaluator.Evaluator.evaluate_on

    def crash_at_the_end(self, *args, **options):
        if self.global_step == 40:
            raise KeyboardInterrupt
        return evaluate_on(self, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(evaluator.Evaluator, "evaluate_on", crash_at_the_end)
        with pytest.raises(KeyboardInterrupt):
            runner.run(experiment(FAR), tmp_path, "train_and_eval")
    assert (tmp_path / "ckpt-40.index").exists()
    assert [row["step"] for row in rows(tmp_path)] == [10, 20, 30]

    loops = []
    runner.run(experiment(FAR), tmp_path, "train_and_eval", train_actions=[loops.append])
    assert not loops  # only evaluated
    assert [row["step"] for row in rows(tmp_path)] == [10, 20, 30, 40]
    assert set(rows(tmp_path)[-1]["metrics"]) > {"accuracy", "moved_accuracy"}


def test_the_best_checkpoint_may_be_that_of_a_set(tmp_path):
    overrides = {"trainer": {"best_checkpoint_eval_metric": "moved_accuracy"}}
    results = runner.run(experiment(FAR, overrides=overrides), tmp_path, "train_and_eval")
    accuracies = {row["step"]: row["metrics"]["moved_accuracy"] for row in rows(tmp_path)}
    assert results["best"]["step"] == max(accuracies, key=accuracies.get)


def made(tmp_path, *sets, overrides=None, **task):
    config = experiment(*sets, overrides=overrides, **task)
    built = build.build_evaluator(Call(config, tmp_path), tmp_path)
    with built.strategy.scope():
        return built, evaluation_sets.build(config, built)


@pytest.mark.parametrize("overrides", [{}, MIRRORED], ids=["one replica", "mirrored"])
def test_the_norm_of_the_validation_gradient_is_that_of_the_first_batch(tmp_path, overrides):
    overrides = {
        **overrides,
        "run": {**overrides.get("run", {}), "log_validation_gradient_norm": True},
    }
    built, _ = made(tmp_path, overrides=overrides)
    local = built.strategy.experimental_local_results
    features, labels = map(local, next(iter(built.eval_dataset)))
    gradients = []
    for part, known in zip(features, labels, strict=True):
        with tf.GradientTape() as tape:
            loss = built.task.build_losses(known, built.model(part, training=False))
        gradients.append(tape.gradient(loss, built.model.trainable_variables))
    mean = [tf.add_n(each) / len(gradients) for each in zip(*gradients, strict=True)]
    norms = [float(built.evaluate(tf.constant(-1))["validation_gradient_norm"]) for _ in range(2)]
    assert norms == [pytest.approx(float(tf.linalg.global_norm(mean)), rel=1e-5)] * 2
    assert norms[0] == norms[1] > 0


def test_a_set_that_is_switched_off_is_gone_and_later_ones_keep_their_places(tmp_path):
    sets = ", ".join(f"@{name}/run_config.EvaluationSetConfig()" for name in "abc")
    bindings = [f"RunConfig.evaluation_sets = ({sets})"]
    for name in "abc":
        bindings.append(f"{name}/EvaluationSetConfig.name = {name!r}")
        bindings.append(f"{name}/EvaluationSetConfig.data = @validation/image_data.ImageData()")
    (tmp_path / "sets.gin").write_text(
        "from __gin__ import dynamic_registration\nfrom runner import run_config\n"
        "from tasks.images import image_data\ninclude 'digits.gin'\n" + "\n".join(bindings)
    )
    off = "b/EvaluationSetConfig.enabled = False"
    loaded = runner.load(str(tmp_path / "sets.gin"), [off])
    assert [each.name for each in loaded.run.evaluation_sets] == ["a", "c"]
    wrong = "c/EvaluationSetConfig.share = 2.0"
    with pytest.raises(ConfigError, match=saying(f'"{wrong}" evaluation_sets[1].share')):
        runner.run(runner.load(str(tmp_path / "sets.gin"), [off, wrong]), tmp_path / "run", "eval")


def score(built, each):
    logs = built.evaluate_on(each.dataset, each.name)
    return {name: float(value) for name, value in logs.items()}


@pytest.mark.parametrize(("batch", "overrides"), [(8, MIRRORED), (16, None)])
def test_a_share_is_exact_in_examples(tmp_path, overrides, batch):
    portions = {
        11: {"examples": 11},
        16: {"examples": 16},
        1: {"examples": 1},
        12: {"share": 0.5},
        2: {"share": 0.1},
        23: {"share": 1.0},
    }
    data = Moved(by=0.5, global_batch_size=batch)
    asked = [evaluated_on(f"x{count}", data, **given) for count, given in portions.items()]
    tiny = evaluated_on("tiny", data, share=0.001)  # one example at least
    built, (_, *sets) = made(tmp_path, *asked, tiny, overrides=overrides)
    points, labels = moved(data)
    for count, each in zip([*portions, 1], sets, strict=True):
        right = expected(built.model, points[:count], labels[:count])
        scored = score(built, each)
        assert scored["accuracy"] == pytest.approx(right["accuracy"], abs=1e-6)
        assert scored["validation_loss"] == pytest.approx(right["loss"], abs=1e-5)


def test_a_share_of_data_that_do_not_say_how_many_they_are_counts_them(tmp_path):
    data = [Moved(declared=False), cfg.DataConfig(is_training=False, global_batch_size=8)]
    for each in data:
        built, (_, found) = made(tmp_path, evaluated_on("x", each, share=0.3))
        points, labels = toy.data(23)
        right = expected(built.model, points[:7], labels[:7])
        assert score(built, found)["validation_loss"] == pytest.approx(right["loss"], abs=1e-5)


@pytest.mark.parametrize("overrides", [None, MIRRORED], ids=["one replica", "two replicas"])
def test_official_data_count_to_the_last_example_though_they_would_drop_it(tmp_path, overrides):
    data = cfg.DataConfig(is_training=False, global_batch_size=8)
    assert data.drop_remainder
    built, (_, each) = made(
        tmp_path, evaluated_on("x", data), overrides=overrides, validation_data=data
    )
    right = expected(built.model, *toy.data(23))["loss"]
    assert float(built.evaluate(tf.constant(-1))["validation_loss"]) == pytest.approx(right, 1e-5)
    assert score(built, each)["validation_loss"] == pytest.approx(right, 1e-5)


def batches_seen(monkeypatch, then=lambda batch: None):
    """The shapes of the points with which `validation_step` is called, as it is when traced."""
    seen = []
    step = toy.ToyTask.validation_step

    def counting(self, batch, *args, **kwargs):
        seen.append(batch[0].shape)
        then(batch)
        return step(self, batch, *args, **kwargs)

    monkeypatch.setattr(toy.ToyTask, "validation_step", counting)
    return seen


def test_a_process_traces_the_evaluation_once_however_many_there_are(tmp_path, monkeypatch):
    traced = batches_seen(monkeypatch)
    every = {"trainer": {"checkpoint_interval": 10, "validation_interval": 10}}
    runner.run(experiment(NEAR, overrides=every), tmp_path, "train_and_eval")
    assert len(rows(tmp_path)) == 4
    assert len(traced) == 1
    runner.run(experiment(NEAR), tmp_path, "eval", checkpoint="all")
    assert len(rows(tmp_path / "eval-once")) == 4
    assert len(traced) == 2


@pytest.mark.parametrize("overrides", [None, MIRRORED], ids=["one replica", "two replicas"])
def test_a_loop_in_a_graph_finds_what_one_on_the_host_finds(tmp_path, monkeypatch, overrides):
    built, _ = made(tmp_path, overrides=overrides, validation_examples=33)
    batches = {-1: 5, 2: 2, 5: 5}  # of 8
    in_graph = {steps: bits(built.evaluate(tf.constant(steps))) for steps in batches}
    gathered = []
    monkeypatch.setattr(toy.ToyTask, "aggregate_logs", lambda *_: gathered.append(1))
    for steps, count in batches.items():
        gathered.clear()
        assert bits(built.evaluate(tf.constant(steps))) == in_graph[steps]
        assert len(gathered) == count


def bits(logs):
    return {name: value.numpy().tobytes() for name, value in logs.items()}


def test_a_signal_ends_the_loop_after_the_batch_that_is_running(tmp_path, monkeypatch):
    scored, told = [], threading.Event()

    def note():
        scored.append(1)
        if len(scored) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            assert told.wait(300)

    batches_seen(monkeypatch, lambda _: tf.py_function(note, [], []))
    with signals.served() as stop:
        config = toy.experiment(validation_examples=80)
        built = build.build_evaluator(Call(config, tmp_path, stop=stop), tmp_path)
        stop.tell(told.set)
        with stop.deferred(), pytest.raises(signals.Interrupted):
            built.evaluate(tf.constant(-1))
    assert len(scored) == 2  # of 10


def test_a_mistake_that_python_finds_in_an_evaluation_is_said_in_one_line(tmp_path, monkeypatch):
    def refuse():
        raise ConfigError("2.png: no image")

    batches_seen(monkeypatch, lambda _: tf.py_function(refuse, [], []))
    with pytest.raises(ConfigError, match=saying("2.png image")):
        runner.run(toy.experiment(), tmp_path, "train_and_eval")


def test_replicas_are_given_batches_of_the_one_shape_that_the_data_declare(tmp_path, monkeypatch):
    seen = batches_seen(monkeypatch)
    built, _ = made(tmp_path, overrides=MIRRORED)

    def read(_):
        return tf.data.Dataset.from_tensor_slices(toy.data(16)).batch(4, drop_remainder=True)

    same = built.strategy.distribute_datasets_from_function(read)
    scored = float(built.evaluate_on(same, "same")["validation_loss"])
    assert scored == pytest.approx(expected(built.model, *toy.data(16))["loss"], abs=1e-5)
    assert {tuple(shape) for shape in seen} == {(4, 4)}


def test_each_set_is_traced_once_and_validation_is_not_traced_again(tmp_path, monkeypatch):
    traced = batches_seen(monkeypatch)
    static = cfg.DataConfig(is_training=False, global_batch_size=23)  # a batch of another shape
    built, (_, near, cut, other) = made(
        tmp_path, NEAR, evaluated_on("cut", examples=3), evaluated_on("other", static)
    )
    counts = []
    for _ in range(3):
        for each in (near, cut, other):
            built.evaluate(tf.constant(-1))
            score(built, each)
        counts.append(len(traced))
    assert counts[0] <= 2  # what has one specification shares a graph
    assert counts == [counts[0]] * 3


@pytest.mark.parametrize("options", [{"eval_tf_while_loop": True}, {"eval_tf_function": False}])
def test_a_set_is_evaluated_whole_whatever_loop_validation_has(tmp_path, options):
    built, (_, each) = made(tmp_path, NEAR, overrides={"trainer": options})
    right = expected(built.model, *moved(NEAR.data))
    for _ in range(2):
        built.evaluate(tf.constant(1))
        assert score(built, each)["validation_loss"] == pytest.approx(right["loss"], abs=1e-5)


def test_sets_are_evaluated_with_the_averaged_weights(tmp_path):
    ema = {"trainer": {"optimizer_config": {"ema": {"average_decay": 0.9}}}}
    config = experiment(NEAR, overrides=ema)
    results = runner.run(config, tmp_path, "train_and_eval")
    info = json.loads((tmp_path / "best" / "info.json").read_text())
    model = toy.ToyTask(toy.ToyConfig()).build_model()
    averages = tmp_path / "best" / info["checkpoint"]
    tf.train.Checkpoint(model=model).read(str(averages)).expect_partial()
    right = expected(model, *moved(NEAR.data))
    assert results["best"]["metrics"]["near/loss"] == pytest.approx(right["loss"], abs=1e-5)


def test_an_empty_set_is_an_error_that_names_it(tmp_path):
    nothing = toy.ToyConfig().validation_data
    built, (_, each) = made(tmp_path, evaluated_on("void", nothing), validation_examples=0)
    with pytest.raises(RunnerError, match=saying("void empty")):
        score(built, each)


def test_more_examples_than_there_are_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=saying("EvaluationSetConfig.examples 24 'x' 23")):
        made(tmp_path, evaluated_on("x", examples=24))


def test_a_prefix_that_gives_two_metrics_one_name_is_refused(tmp_path):
    collides = experiment(evaluated_on("a", prefix="validation_"))
    with pytest.raises(ConfigError, match=saying("metric validation_loss")):
        runner.run(collides, tmp_path, "train_and_eval")
    assert not list(tmp_path.glob("ckpt-*"))


@pytest.mark.parametrize("prefix", ["val", "acc"])
def test_a_prefix_that_a_validation_metric_begins_with_is_refused(tmp_path, prefix):
    with pytest.raises(ConfigError, match=saying(f"EvaluationSetConfig.prefix '{prefix}'")):
        runner.run(experiment(evaluated_on("a", prefix=prefix)), tmp_path, "train_and_eval")


def test_sets_whose_prefixes_begin_alike_are_all_evaluated_at_the_end(tmp_path):
    sets = evaluated_on("a", prefix="x_y_"), evaluated_on("b", prefix="x_", interval=1000)
    stop = [lambda _: "enough"]
    runner.run(experiment(*sets), tmp_path, "train_and_eval", eval_actions=stop)
    names = {name for row in rows(tmp_path) for name in row["metrics"]}
    assert {"accuracy", "x_y_accuracy", "x_accuracy"} <= names


def test_a_metric_called_loss_cannot_be_told_from_a_sets_loss(tmp_path, monkeypatch):
    metrics = [tf_keras.metrics.Mean("loss")]
    monkeypatch.setattr(toy.ToyTask, "build_metrics", lambda self, training: metrics)
    with pytest.raises(ConfigError, match=saying("metric near/loss")):
        check(tmp_path, experiment(NEAR))


FIELDS = [
    ("run.retention.or_higher", "RetentionConfig.or_higher"),
    ("run.retention.or_lower", "RetentionConfig.or_lower"),
    ("run.retention.higher", "RetentionConfig.higher"),
    ("run.retention.lower", "RetentionConfig.lower"),
    ("run.early_stopping.higher", "EarlyStoppingConfig.higher"),
    ("run.early_stopping.lower", "EarlyStoppingConfig.lower"),
    ("run.plateau.higher", "PlateauConfig.higher"),
    ("run.plateau.lower", "PlateauConfig.lower"),
]


def watching(path, metric, source=None):
    config = experiment(FAR)
    _, section, order = path.split(".")
    values = {order: (metric,)}
    if source:
        values["source"] = source
    config.override({"run": {section: values}})
    return config


def check(tmp_path, config, **kwargs):
    built = build.build_evaluator(Call(config, tmp_path), tmp_path)
    return metric_names.check(config, built, tmp_path, **{"evaluates": True, **kwargs})


def test_a_misspelt_metric_is_refused_by_its_field_with_those_there_are(tmp_path):
    built = build.build_evaluator(Call(experiment(FAR), tmp_path), tmp_path)
    names = "accuracy, moved_accuracy, moved_loss, validation_loss"
    for path, field in FIELDS:
        said = rf"{field} = 'moved_los': .*{names}; .*'moved_loss'"
        metric_names.check(watching(path, "moved_loss"), built, tmp_path, evaluates=True)
        with pytest.raises(ConfigError, match=said):
            metric_names.check(watching(path, "moved_los"), built, tmp_path, evaluates=True)


def test_a_misspelt_metric_of_a_rule_stops_a_run_before_its_first_step(tmp_path):
    with pytest.raises(ConfigError, match=r"EarlyStoppingConfig.higher = 'acuracy'"):
        runner.run(watching("run.early_stopping.higher", "acuracy"), tmp_path, "train_and_eval")
    assert not list(tmp_path.glob("ckpt-*"))
    assert not (tmp_path / "train.jsonl").exists()


def test_the_metrics_of_an_evaluator_are_those_that_it_says_it_produces(tmp_path):
    path = "run.plateau.higher"
    with handover.registered(tmp_path / "eval-x", policy="latest", metrics=["f1"]):
        check(tmp_path, watching(path, "f1", source="x"))
        with pytest.raises(ConfigError, match=r"PlateauConfig.higher.*evaluator 'x' produces f1$"):
            check(tmp_path, watching(path, "accuracy", source="x"))


def test_where_an_evaluator_is_not_running_the_tasks_own_metrics_count(tmp_path):
    path = "run.early_stopping.lower"
    check(tmp_path, watching(path, "moved_loss", source="x"))
    with pytest.raises(ConfigError, match=saying("'x' produces")):
        check(tmp_path, watching(path, "f1", source="x"))


def test_an_evaluator_answers_for_the_rules_that_name_it(tmp_path):
    path = "run.early_stopping.higher"
    check(tmp_path, watching(path, "f1", source="x"), evaluator="y")
    with pytest.raises(ConfigError, match=r"EarlyStoppingConfig.higher = 'f1': the evaluation"):
        check(tmp_path, watching(path, "f1", source="x"), evaluator="x")


def test_a_rule_on_evaluations_that_nobody_makes_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"PlateauConfig has no effect.*source.*train_and_eval"):
        runner.run(watching("run.plateau.higher", "accuracy"), tmp_path, "train")
    runner.run(watching("run.plateau.higher", "accuracy", source="x"), tmp_path, "train")


def test_metrics_that_the_task_aggregates_itself_are_known_for_sets_too(tmp_path, monkeypatch):
    monkeypatch.setattr(toy.ToyTask, "aggregate_logs", lambda self, state, logs: (state or 0) + 1)
    monkeypatch.setattr(
        toy.ToyTask,
        "reduce_aggregated_logs",
        lambda self, count, global_step=None: {"own": {"batches": float(count)}},
    )
    config = watching("run.retention.higher", "moved_own/batches")
    assert "own/batches" in check(tmp_path, config)
    results = runner.run(config, tmp_path, "train_and_eval")
    assert results["metrics"]["moved_own/batches"] == 3.0
    assert results["metrics"]["own/batches"] == 3.0


def elements(dataset):
    return list(dataset.as_numpy_iterator())


def test_a_pipeline_of_batches_is_cut_to_examples():
    numbers = np.arange(20, dtype=np.int64)
    pairs = tf.data.Dataset.from_tensor_slices((numbers, {"x": numbers * 2})).batch(6)
    assert batches.count(pairs) == 20
    cut = elements(batches.first(pairs, 8))
    assert [first.tolist() for first, _ in cut] == [[0, 1, 2, 3, 4, 5], [6, 7]]
    assert cut[1][1]["x"].tolist() == [12, 14]
    assert batches.count(batches.first(pairs, 6)) == 6
    assert batches.count(batches.first(pairs, 100)) == 20


def test_a_cut_keeps_the_structure_of_elements():
    rows = tf.ragged.constant([[1], [2, 3], [], [4]])
    ragged = tf.data.Dataset.from_tensor_slices({"x": rows}).batch(3)
    cut = batches.first(ragged, 2)
    assert [each["x"].to_list() for each in cut] == [[[1], [2, 3]]]
    sparse = tf.data.Dataset.from_tensor_slices(tf.sparse.eye(5)).batch(2)
    assert [tf.sparse.to_dense(each).shape[0] for each in batches.first(sparse, 3)] == [2, 1]
    alone = tf.data.Dataset.from_tensor_slices((np.arange(4),)).batch(3)
    assert type(elements(batches.first(alone, 2))[0]) is tuple
    weighted = alone.map(lambda x: (x, tf.constant(2.0)))
    assert [w for _, w in elements(batches.first(weighted, 4))] == [2.0, 2.0]


def test_the_interval_of_each_set_is_on_the_grid():
    config = experiment(NEAR, FAR)
    assert sorted(policies.of(config).grid.evaluations) == [10, 20]
    assert policies.of(config, evaluates=False).grid.evaluations == ()


def test_of_a_loss_for_each_example_every_example_counts_once(tmp_path, monkeypatch):
    def each(self, labels, model_outputs, aux_losses=None):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model_outputs)

    once = finished.run(toy.experiment(), tmp_path / "mean")
    monkeypatch.setattr(toy.ToyTask, "build_losses", each)
    found = runner.run(toy.experiment(), tmp_path, "eval", checkpoint=str(tmp_path / "mean"))
    assert found["metrics"]["validation_loss"] == pytest.approx(
        once["metrics"]["validation_loss"], rel=1e-5
    )


@pytest.mark.parametrize(
    ("names", "mode"),
    [(("accuracy", "accuracy"), "train_and_eval"), (("training_loss",), "train")],
)
def test_two_metrics_of_one_name_are_a_mistake(tmp_path, monkeypatch, names, mode):
    def metrics(self, training=True):
        return [tf_keras.metrics.SparseCategoricalAccuracy(name) for name in names]

    monkeypatch.setattr(toy.ToyTask, "build_metrics", metrics)
    with pytest.raises(ConfigError, match=saying(f"ToyTask two called {names[0]}")):
        runner.run(toy.experiment(), tmp_path, mode)


def test_a_metric_cannot_have_the_name_of_the_validation_loss(tmp_path, monkeypatch):
    def metrics(self, training=True):
        name = "accuracy" if training else "validation_loss"
        return [tf_keras.metrics.SparseCategoricalAccuracy(name)]

    monkeypatch.setattr(toy.ToyTask, "build_metrics", metrics)
    with pytest.raises(ConfigError, match="two metrics called 'validation_loss'"):
        runner.run(toy.experiment(), tmp_path, "train_and_eval")
