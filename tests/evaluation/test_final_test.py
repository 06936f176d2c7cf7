import json

import finished
import pytest
import tensorflow as tf
import toy
from tensorboard.backend.event_processing import event_accumulator
from wording import saying, says

import runner
from runner.command import execution, from_python, table
from runner.core import signals
from runner.errors import ConfigError, RunnerError
from runner.evaluation import final_test
from runner.history import history, policies, records
from runner.runs import build
from runner.runs.call import Call

EMA = {"optimizer_config": {"ema": {"average_decay": 0.9}}}


def experiment(*, last=False, trainer=None, **task):
    """The toy, tested on the same data as it is validated on, so that results must be equal."""
    made = toy.experiment({"trainer": trainer or {}, "run": {"test": {"last": last}}}, **task)
    made.run.test.data = made.task.validation_data
    return made


def at_end(config, folder, *, at, stop=None):
    """Tests what a finished run left, as that run would; returns the result and all rows."""
    built = build.build_evaluator(Call(config, folder, stop=stop or signals.Stop()), folder)
    rows = history.History(folder / "history.jsonl")
    folders = [folder / name for name in policies.of(config).best_folders]
    test = final_test.build(config, built, folder, best_folders=folders, rows=rows)
    built.restore(folder / f"ckpt-{at}")
    return test.run(at, folder / f"ckpt-{at}"), rows.of(records.Test)


@pytest.fixture
def trained(tmp_path):
    """A run whose best evaluation is not its last."""
    lower = toy.experiment({"trainer": {"best_checkpoint_metric_comp": "lower"}})
    results = finished.run(lower, tmp_path)
    assert results["best"]["step"] == 20
    return {
        row.step: row.metrics for row in history.History(tmp_path / "history.jsonl").evaluations
    }


def prefixed(metrics):
    names = {"accuracy": "test/accuracy", "validation_loss": "test/loss"}
    return {names[name]: value for name, value in metrics.items()}


def test_the_best_weights_are_tested_once_and_not_again(tmp_path, trained, capsys):
    results, rows = at_end(experiment(), tmp_path, at=40)
    assert results == {"best": {"step": 20, "metrics": pytest.approx(prefixed(trained[20]))}}
    assert [(row.step, row.weights, row.tested) for row in rows] == [(40, "best", 20)]
    assert rows[0].checkpoint == "ckpt-20"

    capsys.readouterr()
    again, rows = at_end(experiment(), tmp_path, at=40)
    assert again == results
    assert len(rows) == 1
    assert "TestConfig.data" not in capsys.readouterr().err
    other = experiment()
    other.run.test.data = other.run.test.data.replace(global_batch_size=4)
    again, rows = at_end(other, tmp_path, at=40)
    assert (again, len(rows)) == (results, 1)
    says(capsys.readouterr().err, "TestConfig.data changed EvaluatorConfig.name")


def test_test_data_whose_files_cannot_be_listed_do_not_stop_the_test(tmp_path, trained):
    config = experiment()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gone").symlink_to(tmp_path / "nowhere")
    config.run.test.data = config.run.test.data.replace(input_path=str(tmp_path / "data"))
    for _ in range(2):
        _, rows = at_end(config, tmp_path, at=40)
        assert [row.data for row in rows] == [""]


def test_the_last_weights_too_where_that_is_asked_for(tmp_path, trained):
    results, rows = at_end(experiment(last=True), tmp_path, at=40)
    assert {weights: each["step"] for weights, each in results.items()} == {"last": 40, "best": 20}
    for each in results.values():
        assert each["metrics"] == pytest.approx(prefixed(trained[each["step"]]), abs=1e-6)
    assert [(row.weights, row.tested) for row in rows] == [("last", 40), ("best", 20)]


def test_without_a_best_checkpoint_the_last_weights_are_tested_and_that_is_said(
    tmp_path, trained, capsys
):
    without = experiment(trainer={"best_checkpoint_eval_metric": ""})
    results, _ = at_end(without, tmp_path, at=40)
    assert results == {"last": {"step": 40, "metrics": pytest.approx(prefixed(trained[40]))}}
    says(capsys.readouterr().err, "weights tested")


def test_where_no_evaluation_was_late_enough_to_be_best_the_last_weights_are_tested(
    tmp_path, capsys
):
    config = experiment()
    config.run.retention.from_step = 41
    results = runner.run(config, tmp_path, "train_and_eval")
    assert results["best"] is None
    assert list(results["test"]) == ["last"]
    assert not (tmp_path / "best").exists()
    says(capsys.readouterr().err, "41 later testing")


def test_results_are_drawn_at_the_step_of_the_weights(tmp_path, trained):
    at_end(experiment(last=True), tmp_path, at=40)
    for folder, step in (("test", 20), ("test-last", 40)):
        events = event_accumulator.EventAccumulator(str(tmp_path / folder))
        events.Reload()
        points = {event.step: event.value for event in events.Scalars("loss")}
        assert points == pytest.approx({step: trained[step]["validation_loss"]})


def test_the_averaged_weights_are_tested(tmp_path):
    finished.run(toy.experiment({"trainer": EMA}), tmp_path)
    info = json.loads((tmp_path / "best" / "info.json").read_text())
    results, _ = at_end(experiment(trainer=EMA), tmp_path, at=40)

    model = toy.ToyTask(toy.ToyConfig()).build_model()
    averages = tmp_path / "best" / info["checkpoint"]
    tf.train.Checkpoint(model=model).read(str(averages)).expect_partial()
    points, labels = toy.data(17)
    right = (model(points).numpy().argmax(axis=1) == labels).mean()
    assert results["best"]["metrics"]["test/accuracy"] == pytest.approx(right)


def test_empty_test_data_are_an_error_that_says_so(tmp_path, trained):
    with pytest.raises(RunnerError, match=saying("example TestConfig.data empty")):
        at_end(experiment(validation_examples=0), tmp_path, at=40)


def test_nothing_is_built_without_test_data(tmp_path):
    config = toy.experiment()
    built = build.build_evaluator(Call(config, tmp_path), tmp_path)
    rows = history.History(tmp_path / "history.jsonl")
    assert final_test.build(config, built, tmp_path, best_folders=[], rows=rows) is None


def test_a_signal_ends_the_test(tmp_path, trained):
    stop = signals.Stop()

    def interrupted():
        raise signals.Interrupted(15)

    stop.check = interrupted
    with pytest.raises(signals.Interrupted):
        at_end(experiment(), tmp_path, at=40, stop=stop)
    assert not history.History(tmp_path / "history.jsonl").of(records.Test)


def test_a_run_tests_its_best_weights_at_the_end_and_only_once(tmp_path):
    lower = {"best_checkpoint_metric_comp": "lower"}
    results = runner.run(experiment(last=True, trainer=lower), tmp_path, "train_and_eval")
    evaluated = {
        row.step: row.metrics for row in history.History(tmp_path / "history.jsonl").evaluations
    }
    assert results["best"]["step"] == 20
    assert results["test"] == {
        "best": {"step": 20, "metrics": pytest.approx(prefixed(evaluated[20]))},
        "last": {"step": 40, "metrics": pytest.approx(prefixed(evaluated[40]))},
    }
    before = (tmp_path / "history.jsonl").read_text()
    again = runner.run(experiment(last=True, trainer=lower), tmp_path, "train_and_eval")
    assert again == results
    assert (tmp_path / "history.jsonl").read_text() == before
    longer = experiment(last=True, trainer={**lower, "train_steps": 60})
    assert runner.run(longer, tmp_path, "train_and_eval")["test"]["last"]["step"] == 60


def test_an_evaluator_tests_its_best_weights_when_training_has_ended(tmp_path):
    runner.run(experiment(), tmp_path, "train")
    first = runner.run(experiment(last=True), tmp_path, "continuous_eval")
    assert first["test"]["best"]["metrics"] == pytest.approx(prefixed(first["metrics"]))
    assert first["test"]["last"] == first["test"]["best"]
    assert runner.run(experiment(last=True), tmp_path, "continuous_eval") == first
    assert (
        len(history.History(tmp_path / "eval-continuous" / "history.jsonl").of(records.Test)) == 2
    )


def after_the_end(config, folder, **options):
    mode = table.modes()["eval"]
    chosen = from_python.options_of(mode, {"data": "test", **options})
    return execution.run(mode, Call(config, folder), chosen).results["test"]


def test_a_run_that_does_not_test_at_its_end_is_tested_later_and_once(tmp_path):
    config = experiment(trainer={"best_checkpoint_metric_comp": "lower"})
    config.run.test.at_end = False
    results = finished.run(config, tmp_path)
    assert "test" not in results
    assert history.History(tmp_path / "history.jsonl").of(records.Test) == []
    for _ in range(2):
        tested = after_the_end(config, tmp_path)
        assert tested["best"]["step"] == results["best"]["step"] == 20
        assert tested["best"]["metrics"] == pytest.approx(prefixed(results["best"]["metrics"]))
    assert len(history.History(tmp_path / "eval-test" / "history.jsonl").of(records.Test)) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "train"}, "--data=train eval test"),
        ({"checkpoint": "latest"}, "leave --checkpoint"),
        ({}, "checkpoint test"),
    ],
)
def test_what_cannot_be_tested_is_refused(tmp_path, given, message):
    with pytest.raises(ConfigError, match=saying(message)):
        after_the_end(experiment(), tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_without_test_data_nothing_can_be_tested(tmp_path):
    with pytest.raises(ConfigError, match=saying("test data")):
        after_the_end(toy.experiment(), tmp_path)
