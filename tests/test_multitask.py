"""Model Garden's multitask and multi-evaluation experiments, by the command and from Python."""

import inspect
import json

import numpy as np
import pytest
import resumed
import tensorflow as tf
import toy_multitask
import yaml
from official.modeling.multitask import configs, multitask, train_lib

import runner
from runner import main
from runner import multitask as ours
from runner.errors import ConfigError

NAMES = [
    f"{task}/{name}" for task in ("highest", "lowest") for name in ("accuracy", "validation_loss")
]
EXPERIMENTS = ["toy/both", "toy/one_of_two"]


def command(mode, experiment, folder, *flags):
    code = main.main(
        [f"--mode={mode}", f"--experiment={experiment}", f"--model_dir={folder}", *flags]
    )
    assert code == 0
    return folder


def rows(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module", params=EXPERIMENTS)
def trained(request, tmp_path_factory):
    """The folder of a run of 40 steps, and the name of its experiment."""
    folder = tmp_path_factory.mktemp("runs") / request.param.replace("/", "-")
    return command("train_and_eval", request.param, folder), request.param


def test_one_history_has_the_metrics_of_every_task(trained):
    folder, _ = trained
    assert [row["step"] for row in rows(folder)] == [20, 40]
    for row in rows(folder):
        assert sorted(row["metrics"]) == NAMES


def test_the_best_checkpoint_follows_from_the_metric_of_one_task(trained):
    folder, _ = trained
    best = max(row["metrics"]["lowest/accuracy"] for row in rows(folder))
    info = json.loads((folder / "best" / "info.json").read_text())
    assert info["lowest/accuracy"] == pytest.approx(best)


def test_a_stored_configuration_continues_and_evaluates_the_run(trained, capsys):
    folder, experiment = trained
    flags = ("--mode=eval", f"--gin_file={folder / 'config.gin'}", f"--model_dir={folder}")
    assert main.main([*flags, "--checkpoint=all"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [row["metrics"] for row in results["evaluations"]] == [
        pytest.approx(row["metrics"]) for row in rows(folder)
    ]
    command("continuous_eval", experiment, folder)
    assert sorted(rows(folder / "eval-continuous")[-1]["metrics"]) == NAMES
    values = yaml.safe_load((folder / "params.yaml").read_text())
    assert [each["name"] for each in values["run"]["evaluation_sets"]] == ["highest", "lowest"]


@pytest.mark.parametrize(
    ("experiment", "strategy", "streams"),
    [
        ("toy/both", "off", False),
        ("toy/both", "mirrored", True),
        ("toy/joint", "mirrored", False),
        ("toy/one_of_two", "off", False),
    ],
)
def test_stopped_and_resumed_it_ends_with_the_same_bits(
    tmp_path, monkeypatch, experiment, strategy, streams
):
    monkeypatch.setattr(toy_multitask.HighestTask, "streams", streams, raising=False)
    more = ["RunConfig.logical_cpus = 2"] if strategy == "mirrored" else []
    steps = {"validation_interval": 20, "checkpoint_interval": 20}

    def make(last):
        trainer = yaml.safe_dump({"trainer": {"train_steps": last, **steps}})
        params = [f"RuntimeConfig.distribution_strategy = '{strategy}'", *more]
        return runner.load(experiment=experiment, overrides=[trainer], gin_params=params)

    resumed.compare(tmp_path, make)


def plain(experiment):
    """Without what draws at random, or would make a last batch of its own."""
    for routine in [
        *getattr(experiment, "eval_tasks", ()),
        *getattr(experiment.task, "task_routines", ()),
    ]:
        routine.task_config.validation_examples = 16
    return experiment


def weights(model):
    return [value.numpy() for value in model.trainable_variables]


class Plain(toy_multitask.TwoHeads):
    """Always with the same weights at first, and without dropout."""

    def _instantiate_sub_tasks(self):
        made = super()._instantiate_sub_tasks()
        self._dropout.rate = 0.0
        for number, variable in enumerate(self._shared.variables):
            variable.assign(np.random.default_rng(number).normal(size=variable.shape))
        for model in made.values():
            kernel = model.layers[-1].kernel
            kernel.assign(np.random.default_rng(7).normal(size=kernel.shape))
        return made


@pytest.mark.parametrize("trainer_type", ["interleaving", "joint"])
def test_a_program_trains_the_same_tasks_to_the_same_weights_as_under_model_garden(
    tmp_path, trainer_type
):
    ended = {}
    for name, library in (("theirs", train_lib), ("ours", ours)):
        params = plain(toy_multitask.both(trainer_type=trainer_type))
        model, logs = library.run_experiment(
            distribution_strategy=tf.distribute.get_strategy(),
            task=multitask.MultiTask.from_config(params.task),
            model=Plain(),
            mode="train_and_eval",
            params=params,
            model_dir=str(tmp_path / name),
            run_post_eval=True,
        )
        ended[name] = weights(model), logs
    for one, other in zip(*(values for values, _ in ended.values()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for task in ("highest", "lowest"):
        theirs, mine = (logs[task] for _, logs in ended.values())
        for name in ("accuracy", "validation_loss"):
            assert float(mine[name]) == pytest.approx(float(theirs[name]), rel=1e-4)


def test_model_garden_continues_a_run_with_several_tasks(tmp_path):
    params = plain(toy_multitask.both())
    arguments = {
        "distribution_strategy": tf.distribute.get_strategy(),
        "task": multitask.MultiTask.from_config(params.task),
        "mode": "train",
        "model_dir": str(tmp_path),
    }
    model = ours.run_experiment(params=params, model=Plain(), **arguments)
    continued = train_lib.run_experiment(params=params, model=Plain(), **arguments)
    for one, other in zip(weights(model), weights(continued), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_program_evaluates_other_tasks_than_it_trains(tmp_path):
    params = plain(toy_multitask.one_of_two())
    parameters = inspect.signature(train_lib.run_experiment_with_multitask_eval).parameters
    assert list(inspect.signature(ours.run_experiment_with_multitask_eval).parameters) == list(
        parameters
    )
    tasks = multitask.MultiTask.from_config(
        configs.MultiTaskConfig(task_routines=params.eval_tasks)
    ).tasks
    _, logs = runner.run_experiment_with_multitask_eval(
        distribution_strategy=tf.distribute.get_strategy(),
        train_task=toy_multitask.HighestTask(params.task),
        eval_tasks=list(tasks.values()),
        mode="train_and_eval",
        params=params,
        model_dir=str(tmp_path),
        run_post_eval=True,
    )
    assert set(logs) == {"highest", "lowest"}
    assert float(logs["lowest"]["accuracy"]) == rows(tmp_path)[-1]["metrics"]["lowest/accuracy"]


def test_tasks_without_a_model_for_all_are_refused_with_what_to_write(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.delattr(toy_multitask.Both, "build_multitask_model")
    flags = ("--mode=train", "--experiment=toy/both", f"--model_dir={tmp_path / 'run'}")
    assert main.main(list(flags)) == 2
    assert "build_multitask_model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda made: made.task.task_routines[1].override({"task_name": "highest"}), "task_name"),
        (lambda made: made.trainer.override({"trainer_type": "both"}), "trainer_type"),
    ],
)
def test_mistakes_are_named_before_anything_is_built(tmp_path, change, word):
    made = toy_multitask.both()
    change(made)
    with pytest.raises(ConfigError, match=word):
        ours.run_experiment(
            distribution_strategy=tf.distribute.get_strategy(),
            task=multitask.MultiTask.from_config(toy_multitask.both().task),
            model=Plain(),
            mode="train",
            params=made,
            model_dir=str(tmp_path),
        )


def test_a_list_in_yaml_overrides_the_tasks_one_by_one():
    lists = {"task": {"task_routines": [{"eval_steps": -1}, {"task_config": {"examples": 24}}]}}
    made = runner.load(experiment="toy/both", overrides=[yaml.safe_dump(lists)])
    highest, lowest = made.task.task_routines
    assert (highest.eval_steps, lowest.eval_steps) == (-1, 2)
    assert lowest.task_config.examples == 24
    assert isinstance(lowest.task_config, toy_multitask.LowestConfig)
    assert [each.steps for each in made.run.evaluation_sets] == [0, 2]  # 0: all
    assert made.run.evaluation_sets[1].task.examples == 24


@pytest.mark.parametrize("mode", ["predict", "export", "find_batch"])
def test_modes_for_one_task_refuse_several(tmp_path, capsys, mode):
    flags = (f"--mode={mode}", "--experiment=toy/both", f"--model_dir={tmp_path}")
    assert main.main(list(flags)) == 2
    assert mode in capsys.readouterr().err
