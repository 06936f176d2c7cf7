import signal

import finished
import pytest
import toy
import yaml
from tensorboard import context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import (
    api_pb2,
    backend_context,
    get_experiment,
    list_session_groups,
)

import runner
from runner import config, run_config
from runner.configuration import printing
from runner.core import signals
from runner.errors import RunnerError
from runner.reporting import hparams


def dashboard(folder):
    """The columns of hyperparameters and the rows that TensorBoard's own backend gives."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(folder))
    backend = backend_context.Context(
        base_plugin.TBContext(logdir=str(folder), data_provider=provider)
    )
    asked = context.RequestContext()
    request = api_pb2.GetExperimentRequest()
    experiment = get_experiment.Handler(asked, backend, "", request).run()
    request = api_pb2.ListSessionGroupsRequest(
        slice_size=100, allowed_statuses=api_pb2.Status.values()
    )
    listed = list_session_groups.Handler(asked, backend, "", request).run()
    rows = {group.name: group for group in listed.session_groups}
    return {column.name for column in experiment.hparam_infos}, rows


def hyperparameters(row):
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in row.hparams.items()}


def metrics(row):
    """By folder and chart: the step and the value."""
    return {
        (value.name.group, value.name.tag): (value.training_step, pytest.approx(value.value))
        for value in row.metric_values
    }


def status(row):
    assert len(row.sessions) == 1
    return api_pb2.Status.Name(row.sessions[0].status)


def test_the_dashboard_compares_runs_by_what_they_change_and_what_they_reach(tmp_path):
    fast = {"trainer": {"optimizer_config": {"learning_rate": {"constant": {"learning_rate": 1}}}}}
    reached = {
        "fast": runner.run(toy.experiment(fast), tmp_path / "fast", "train_and_eval"),
        "wet": runner.run(toy.experiment(dropout=0.0), tmp_path / "wet", "train_and_eval"),
    }

    columns, rows = dashboard(tmp_path)

    rate = "trainer.optimizer_config.learning_rate.constant.learning_rate"
    assert {rate, "task.dropout", "trainer.train_steps"} <= columns
    assert rows.keys() == {"fast", "wet"}
    assert hyperparameters(rows["fast"])[rate] == 1.0
    assert "task.dropout" not in hyperparameters(rows["fast"])
    assert hyperparameters(rows["wet"])["task.dropout"] == 0.0
    for name, result in reached.items():
        found = metrics(rows[name])
        best = result["best"]
        assert found["validation", "accuracy"] == (40, result["metrics"]["accuracy"])
        assert found["validation", "loss"] == (40, result["metrics"]["validation_loss"])
        assert found["", "best/accuracy"] == (best["step"], best["metrics"]["accuracy"])
        assert found["train", "learning_rate"][0] == 40
        assert status(rows[name]) == "STATUS_SUCCESS"


def test_training_alone_shows_its_metrics_and_those_of_evaluators(tmp_path):
    trained = finished.run(toy.experiment(), tmp_path / "run", "train")
    scored = runner.run(toy.experiment(), tmp_path / "run", "eval")
    found = metrics(dashboard(tmp_path)[1]["run"])
    assert found["train", "loss"] == (40, trained["metrics"]["training_loss"])
    assert found["eval-once", "accuracy"] == (40, scored["metrics"]["accuracy"])


def test_a_run_started_again_is_still_one_row_with_what_counts_now(tmp_path):
    def fail(logs):
        raise RunnerError("the disk is gone")

    half = toy.experiment({"trainer": {"train_steps": 20}})
    with pytest.raises(RunnerError):
        runner.run(half, tmp_path / "run", "train_and_eval", train_actions=[fail])
    assert status(dashboard(tmp_path)[1]["run"]) == "STATUS_FAILURE"

    runner.run(toy.experiment(), tmp_path / "run", "train_and_eval")

    _, rows = dashboard(tmp_path)
    assert rows.keys() == {"run"}
    assert status(rows["run"]) == "STATUS_SUCCESS"
    assert hyperparameters(rows["run"])["trainer.train_steps"] == 40


def test_a_run_that_is_to_be_resumed_has_no_end_yet(tmp_path):
    (tmp_path / "run").mkdir()
    with (
        pytest.raises(signals.Interrupted),
        hparams.session(toy.experiment(), tmp_path / "run"),
    ):
        raise signals.Interrupted(signal.SIGTERM)
    assert status(dashboard(tmp_path)[1]["run"]) == "STATUS_UNKNOWN"


def test_without_tensorboard_nothing_is_written(tmp_path):
    off = {"run": {"tensorboard": False}}
    runner.run(toy.experiment(off), tmp_path, "train_and_eval")
    assert not list(tmp_path.rglob("*tfevents*"))


def test_values_are_numbers_truth_values_and_texts_without_secrets():
    made = toy.experiment(
        {
            "trainer": {"loss_upper_bound": float("inf"), "validation_summary_subdir": "v"},
            "task": {
                "repeats": False,
                "init_checkpoint": "https://me:hunter2@host/ckpt",
                "train_data": {"tfds_name": None, "input_path": ["a", "b"]},
            },
            "run": {"early_stopping": {"higher": ("accuracy",)}},
        }
    )
    values = hparams.values(made)
    assert values["task.repeats"] is False
    assert values["trainer.train_steps"] == 40
    assert values["trainer.loss_upper_bound"] == ".inf"
    assert values["trainer.validation_summary_subdir"] == "v"
    assert values["task.init_checkpoint"] == "https://me:***@host/ckpt"
    assert values["task.train_data.tfds_name"] == "null"
    assert values["task.train_data.input_path"] == "[a, b]"
    assert values["run.early_stopping.higher"] == "[accuracy]"


def test_the_values_are_those_that_print_config_shows_as_changed():
    made = toy.experiment()
    made.run.evaluation_sets = (run_config.EvaluationSetConfig(name="part", interval=10),)
    shown = yaml.safe_load(printing.render(made, {}, changed=True))

    def flat(value, path):
        if isinstance(value, dict) and value:
            for name, item in value.items():
                yield from flat(item, f"{path}.{name}".removeprefix("."))
        elif path == "run.evaluation_sets":
            yield from flat(value[0], f"{path}[0]")
        else:
            yield path, value

    assert dict(flat(shown, "")) == {
        path: printing.plain(value) for path, value in printing.changed(made).items()
    }
    assert printing.changed(made)["run.evaluation_sets[0].interval"] == 10


def test_a_section_that_is_there_with_its_defaults_is_shown():
    made = runner.load("digits.gin", ["OptimizationConfig.ema = @EMAConfig()"])
    path = "trainer.optimizer_config.ema"
    assert printing.changed(made)[path] == {}
    (line,) = [
        line
        for line in printing.render(made, config.origins(made), changed=True).splitlines()
        if "ema" in line.partition("#")[0]
    ]
    assert line.split() == [
        "ema:",
        "{}",
        "#",
        "--gin_params",
        '"OptimizationConfig.ema',
        "=",
        '@EMAConfig()"',
    ]
    assert path not in printing.changed(runner.load("digits.gin"))
