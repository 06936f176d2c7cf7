"""Checks that the project trains and that its model has the right shapes. Run with `pytest`."""

from pathlib import Path

import spirals

import runner

SHORT = [
    "TrainerConfig.train_steps = 4",
    "TrainerConfig.steps_per_loop = 2",
    "TrainerConfig.summary_interval = 2",
    "TrainerConfig.validation_interval = 4",
    "TrainerConfig.checkpoint_interval = 4",
]
GIN = Path(__file__).with_name("keras.gin")


def test_training_and_evaluation_finish(tmp_path):
    results = runner.run(runner.load(GIN, SHORT), tmp_path / "run", "train_and_eval")
    assert results["status"] == "done"
    assert {"validation_loss", "accuracy"} <= set(results["metrics"])


def test_the_model_predicts_each_example():
    points, _ = spirals.validation_data()
    assert spirals.build_model()(points).shape == (len(points), 2)


def test_training_and_evaluation_data_do_not_overlap():
    learnt, _ = spirals.train_data()
    others, _ = spirals.validation_data()
    assert not {each.tobytes() for each in learnt} & {each.tobytes() for each in others}
