"""One run on several workers, each a process of its own."""

import json
import signal
from pathlib import Path

import own_task
import pytest
import resumed
import tensorflow as tf
import toy
from several_workers import DIGITS, MULTI, Workers
from wording import saying, says

from runner import main
from runner.core import signals
from runner.devices import cluster, team
from runner.errors import ConfigError, RunnerError
from runner.runs import build, call
from runner.runs import workers as run_workers

STEPS = 100
SHORT = (
    f"--gin.TrainerConfig.train_steps={STEPS}",
    "--gin.TrainerConfig.checkpoint_interval=20",
    "--gin.TrainerConfig.summary_interval=10",
    "--gin.TrainerConfig.validation_interval=50",
    "--gin.TrainerConfig.steps_per_loop=5",
    "--gin.RunConfig.gradient_accumulation=2",
    "--gin.RunConfig.log_gradient_norm=True",
    "--gin.RuntimeConfig.mixed_precision_dtype='bfloat16'",
    "--params_override=trainer: {optimizer_config: {ema: {average_decay: 0.9}}, max_to_keep: 20}\n"
    "run: {variable_groups: [{name: last, pattern: logits, rate_scale: 0.5}]}",
)


def rows(folder):
    return resumed.rows(folder / "train.jsonl") if (folder / "train.jsonl").exists() else []


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def once(tmp_path_factory, log):
    """A run of two workers, and what the second printed."""
    folder = tmp_path_factory.mktemp("runs") / "once"
    with Workers(log, "train_and_eval", folder, *SHORT) as workers:
        assert workers.wait() == [0, 0], workers.said(0) + workers.said(1)
        return folder, workers.results(), workers.said(1)


def test_only_the_chief_writes_in_the_folder(once):
    folder, (chief, other), said = once
    assert chief["step"] == STEPS
    assert other == {"status": "done", "worker": 1, "model_dir": str(folder)}
    assert [path.name for path in (folder / "workers").iterdir()] == ["1.log"]
    says(said, f"worker 1 2 {folder / 'workers' / '1.log'}")
    assert [row["step"] for row in rows(folder)] == list(range(10, STEPS + 1, 10))
    assert len(json.loads((folder / "run.json").read_text())["starts"]) == 1
    assert len(list(folder.glob("*/events*"))) == 2  # train/ and validation/


def test_killed_and_stopped_it_ends_with_the_same_bits(once, log):
    folder = once[0].with_name("often")
    with Workers(log, "train_and_eval", folder, *SHORT) as workers:
        workers.wait_until(lambda: len(rows(folder)) >= 3)
        workers.processes[1].kill()
        assert workers.wait() == [1, -signal.SIGKILL]
        assert "worker 1 (localhost:" in workers.said(0)
        assert "has gone" in workers.said(0)
    stops = []
    for struck in ((1,), (0, 1)):  # a signal to one ends both, as one to all does
        before = len(rows(folder))
        with Workers(log, "train_and_eval", folder, *SHORT) as workers:
            workers.wait_until(lambda more=before + 2: len(rows(folder)) >= more)
            for index in struck:
                workers.processes[index].send_signal(signal.SIGTERM)
            assert workers.wait() == [143, 143], workers.said(0) + workers.said(1)
            assert "everything is saved" in workers.said(0)
            assert "everything is saved" in workers.said(1)
            stops.append(workers.results()[0]["step"])
    with Workers(log, "train_and_eval", folder, *SHORT) as workers:
        assert workers.wait() == [0, 0], workers.said(0) + workers.said(1)
    assert resumed.state(folder, STEPS) == resumed.state(once[0], STEPS)
    saved = {int(path.stem.removeprefix("ckpt-")) for path in folder.glob("ckpt-*.index")}
    assert saved == {*range(20, STEPS + 1, 20), *stops}  # one for each stop
    on_grid = [row for row in rows(folder) if row["step"] % 10 == 0]
    assert on_grid == rows(once[0])
    assert resumed.rows(folder / "history.jsonl") == resumed.rows(once[0] / "history.jsonl")


def test_all_agree_that_training_has_broken(log, tmp_path):
    broken = (
        "--gin.TrainerConfig.loss_upper_bound=0.1",
        "--gin.TrainerConfig.recovery_max_trials=1",
    )
    with Workers(log, "train", tmp_path / "broken", *SHORT, *broken) as workers:
        assert workers.wait() == [3, 3], workers.said(0) + workers.said(1)
        said = workers.said(0)
    says(said, "rolled back 0")
    says(said, "1 rollback good checkpoint")
    assert "worker 0 has ended: " in workers.said(1)


def test_workers_of_other_configurations_do_not_begin(log, tmp_path):
    other = {1: ("--gin.RunConfig.seed=3",)}
    with Workers(log, "train", tmp_path / "other", *SHORT, each=other) as workers:
        assert workers.wait() == [2, 2]
        for index in range(2):
            says(workers.said(index), "configuration worker 0")
            assert ": run.seed" in workers.said(index)
    assert not (tmp_path / "other").exists()


SCALED = """
import dataclasses

from official.core import task_factory
from tasks import image_classification


@dataclasses.dataclass
class ScaledConfig(image_classification.ImageClassificationConfig):
    pass


@task_factory.register_task_cls(ScaledConfig)
class ScaledTask(image_classification.ImageClassificationTask):
    def build_losses(self, labels, model_outputs, aux_losses=None):
        return SCALE * super().build_losses(labels, model_outputs, aux_losses)
"""


def copies_of_a_task(folder, *scales):
    """A directory for each worker, with its copy of a task, by the worker's index."""
    where = {index: folder / f"copy{index}" for index in range(len(scales))}
    for index, scale in enumerate(scales):
        where[index].mkdir()
        (where[index] / "scaled.py").write_text(SCALED.replace("SCALE *", f"{scale} *"))
        gin = own_task.digits_gin("scaled", "ScaledConfig", 4)
        (where[index] / "scaled.gin").write_text(gin)
    return where


def train_copies(log, folder, where):
    flags = ("--gin_file=scaled.gin", f"--gin.RuntimeConfig.distribution_strategy={MULTI!r}")
    return Workers(log, "train", folder, *flags, digits=False, where=where)


def test_workers_with_other_code_do_not_begin(log, tmp_path):
    where = copies_of_a_task(tmp_path, 1, 3)
    with train_copies(log, tmp_path / "other_code", where) as workers:
        assert workers.wait() == [2, 2], workers.said(0) + workers.said(1)
        for index in range(2):
            (line,) = [each for each in workers.said(index).splitlines() if "other code" in each]
            assert "worker 1 (localhost:" in line
            assert "worker 0 (localhost:" in line
            assert line.endswith(": scaled")
    assert not (tmp_path / "other_code").exists()


def test_workers_with_the_same_code_elsewhere_train(log, tmp_path):
    where = copies_of_a_task(tmp_path, 1, 1)
    with train_copies(log, tmp_path / "same_code", where) as workers:
        assert workers.wait() == [0, 0], workers.said(0) + workers.said(1)


def test_two_workers_evaluate_as_they_have_trained(once, log):
    folder, (chief, _), _ = once
    with Workers(log, "eval", folder, *SHORT) as workers:
        assert workers.wait() == [0, 0], workers.said(0) + workers.said(1)
        evaluated, _ = workers.results()
    assert evaluated["metrics"] == chief["metrics"]


ONE = "2 workers one process"


@pytest.mark.parametrize(
    ("mode", "flags", "said"),
    [
        ("train", ["--dry_run"], ONE),
        ("continuous_eval", [], ONE),
        ("train_and_eval", ["--gin.WeightMeanConfig.last=3"], "mean of weights one"),
        ("eval", ["--checkpoint=mean:20:60"], "mean of weights one process"),
        ("train", ["--gin_file=pruned.gin"], "task.pruning one process"),
    ],
)
def test_what_one_process_does_is_refused_to_several(mode, flags, said, tmp_path, capsys):
    Path("pruned.py").write_text(PRUNED)
    Path("pruned.gin").write_text(own_task.digits_gin("pruned", "PrunedConfig", 4))
    folder = tmp_path / "run"
    given = [*DIGITS, *flags] if "--gin_file=pruned.gin" not in flags else [*flags, DIGITS[1]]
    workers = ["--worker_hosts=a:1,b:2", "--task_index=1", f"--model_dir={folder}"]
    assert main.main([f"--mode={mode}", *given, *workers]) == 2
    says(capsys.readouterr().err, said)
    assert not (folder / "params.yaml").exists()


class NamingTask(toy.ToyTask):
    """Hands the names of examples to the host."""

    def validation_step(self, inputs, model, metrics=None):
        super().validation_step(inputs, model, metrics)
        return {"names": tf.strings.as_string(inputs[1])}

    def aggregate_logs(self, state=None, step_outputs=None):
        return [*(state or []), *step_outputs["names"]]


def test_text_for_the_host_is_refused_to_several(tmp_path):
    """Two replicas of this process stand in for the workers."""
    cpus = [each.name for each in tf.config.list_logical_devices("CPU")]
    devices = tf.distribute.MirroredStrategy(cpus, tf.distribute.ReductionToOneDevice())
    config = toy.experiment()
    given = call.Given(strategy=devices, task=NamingTask(config.task))
    asked = call.Call(config, tmp_path, given=given)
    with team.formed(team.Team(cluster.Cluster(("a:1", "b:1"), 0), devices)):
        built = build.build_evaluator(asked, tmp_path)
        with pytest.raises(ConfigError, match=saying("NamingTask returns text aggregate_logs")):
            built.evaluate(tf.constant(-1))


COORDINATION = "\n\nRPC: /tensorflow.CoordinationService/Heartbeat"


@pytest.mark.parametrize(
    ("kind", "said", "named"),
    [
        (tf.errors.DeadlineExceededError, f"Deadline Exceeded{COORDINATION}", "worker 0 (a:1)"),
        (tf.errors.UnavailableError, "/job:worker/replica:0/task:2 is gone", "worker 2 (c:1)"),
        (tf.errors.CancelledError, "the operation was cancelled", "a worker"),
        (tf.errors.InternalError, "Collective ops is aborted by: Socket closed", "a worker"),
    ],
)
def test_a_worker_that_cannot_be_reached_is_named_in_one_line(kind, said, named):
    """As TensorFlow says it to worker 1 when the network is cut or another worker is killed."""
    mates = team.Team(cluster.Cluster(("a:1", "b:1", "c:1"), 1), tf.distribute.get_strategy())
    stop = signals.Stop()
    with team.formed(mates), pytest.raises(RunnerError) as ended, run_workers.plainly(stop):
        raise kind(None, None, said)
    says(str(ended.value), f"{named} gone reached")
    assert ended.value.exit_code == 1


def test_another_error_of_tensorflow_is_not_taken_for_a_lost_worker():
    mates = team.Team(cluster.Cluster(("a:1", "b:1"), 1), tf.distribute.get_strategy())
    stop = signals.Stop()
    with team.formed(mates), pytest.raises(tf.errors.InternalError), run_workers.plainly(stop):
        raise tf.errors.InternalError(None, None, "cuDNN has failed")


PRUNED = """
import dataclasses

from official.core import task_factory
from tasks import image_classification


@dataclasses.dataclass
class PrunedConfig(image_classification.ImageClassificationConfig):
    pruning: str = "half"


task_factory.register_task_cls(PrunedConfig)(image_classification.ImageClassificationTask)
"""

WHOLE = """
import dataclasses

import tensorflow as tf
import tf_keras
from official.core import task_factory
from tasks import image_classification


class Labels(tf_keras.metrics.Metric):
    def __init__(self):
        super().__init__("labels", dtype=tf.int64)
        self.counts = self.add_weight("counts", [10], initializer="zeros", dtype=tf.int64)

    def update_state(self, labels, outputs, sample_weight=None):
        self.counts.assign_add(tf.reduce_sum(tf.one_hot(labels, 10, dtype=tf.int64), 0))

    def reset_state(self):
        self.counts.assign(tf.zeros_like(self.counts))

    def result(self):
        return tf.reduce_sum(self.counts * tf.range(1, 11, dtype=tf.int64))


@dataclasses.dataclass
class WholeConfig(image_classification.ImageClassificationConfig):
    pass


@task_factory.register_task_cls(WholeConfig)
class WholeTask(image_classification.ImageClassificationTask):
    def build_inputs(self, params):
        return super().build_inputs(params)

    def build_metrics(self, training=True):
        found, labels = super().build_metrics(training), Labels()
        return [*found, labels, labels] if training else found

    def validation_step(self, inputs, model, metrics=None):
        return {**super().validation_step(inputs, model, metrics), "labels": inputs[1]}

    def aggregate_logs(self, state=None, step_outputs=None):
        labels = [int(label) for part in step_outputs["labels"] for label in part]
        return [*(state or []), *labels]

    def reduce_aggregated_logs(self, labels, global_step=None):
        return {"examples": len(labels), "order": sum(n * each for n, each in enumerate(labels))}
"""

WHOLE_GIN = """
WholeConfig.validation_data = @validation/image_data.ImageData()
validation/ImageData.is_training = False
validation/ImageData.global_batch_size = 50
"""


def test_a_task_that_knows_nothing_of_workers_sees_every_example_once_and_in_order(log):
    Path("whole.py").write_text(WHOLE)
    Path("whole.gin").write_text(own_task.digits_gin("whole", "WholeConfig", 4) + WHOLE_GIN)
    found, labels = {}, {}
    for count in (1, 2):
        folder = Path(f"runs/{count}").absolute()
        flags = ("--gin_file=whole.gin", f"--gin.RuntimeConfig.distribution_strategy={MULTI!r}")
        with Workers(log, "train_and_eval", folder, *flags, count=count, digits=False) as workers:
            assert workers.wait() == [0] * count, workers.said(0) + workers.said(count - 1)
            found[count] = workers.results()[0]["metrics"]
            labels[count] = [row["labels"] for row in resumed.rows(folder / "train.jsonl")]
    assert labels[1] == labels[2]
    assert found[1]["examples"] == 359
    for name in ("examples", "order"):
        assert found[1][name] == found[2][name]
    assert found[1]["validation_loss"] == pytest.approx(found[2]["validation_loss"], abs=0.05)
