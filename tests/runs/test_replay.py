"""--mode=replay: steps of a run again, seen from inside, until one that broke."""

import json

import finished
import numpy as np
import poisoned_runs
import pytest
import toy
from wording import saying, says

import runner
from runner import main
from runner.checkpoints import checkpoint_files
from runner.errors import ConfigError, DivergedError
from runner.history import history, records
from runner.runs import replay
from runner.runs.call import Call


def replayed(folder, steps, **options):
    return replay.replay(Call(None, folder), steps, **options)


def rows(output):
    return [json.loads(line) for line in (output / "steps.jsonl").read_text().splitlines()]


def test_the_steps_are_the_runs_own(tmp_path):
    finished.run(toy.experiment({"trainer": {"summary_interval": 1}}), tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    results = replayed(tmp_path, (17, 22))
    output = tmp_path / "replay" / "17-22"
    assert results["output"] == str(output)
    assert results["same_as_the_run"] is True  # at ckpt-20
    assert results["not_finite"] is None
    found = rows(output)
    assert [row["step"] for row in found] == [17, 18, 19, 20, 21, 22]
    logged = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    own = {row["step"]: row["training_loss"] for row in logged}
    for row in found:
        assert row["loss"] == pytest.approx(own[row["step"]], rel=1e-5)
        assert row["learning_rate"] == pytest.approx(0.01)
        norms = [each["norm"] for each in row["gradients"].values()]
        assert row["gradient_norm"] == pytest.approx(np.linalg.norm(norms))
        assert len(norms) == 4
        assert all(each["not_finite"] == 0 for each in row["outputs"].values())
    kinds = [name.partition("_")[0] for name in found[0]["outputs"]]
    assert kinds == ["dense", "dropout", "dense", "model"]
    batch = np.load(output / "batch-22.npz")
    assert sorted(array.shape for array in batch.values()) == [(8,), (8, 4)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "replay"])


@pytest.mark.parametrize(("kind", "kept"), [("constant", 5), ("constant", 1), ("exponential", 1)])
def test_the_learning_rate_is_the_runs_own_after_a_drop(tmp_path, kind, kept):
    schedules = {
        "constant": {"learning_rate": 1e-12},
        "exponential": {"initial_learning_rate": 1e-12, "decay_steps": 10, "decay_rate": 0.9},
    }
    trainer = {
        "summary_interval": 1,
        "validation_interval": 10,
        "max_to_keep": kept,
        "optimizer_config": {"learning_rate": {"type": kind, kind: schedules[kind]}},
    }
    run = {
        "plateau": {"higher": ("accuracy",), "factor": 0.1},
        "early_stopping": {"higher": ("accuracy",), "patience": 9},
    }
    runtime = {"distribution_strategy": "mirrored"}
    config = toy.experiment({"trainer": trainer, "run": run, "runtime": runtime})
    runner.run(config, tmp_path, "train_and_eval")
    results = replayed(tmp_path, (21, 32))
    assert results["same_as_the_run"] is (True if kept > 1 else None)
    logged = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    own = {row["step"]: row["learning_rate"] for row in logged}
    assert own[32] < own[21] / 5
    found = {row["step"]: row["learning_rate"] for row in rows(tmp_path / "replay" / "21-32")}
    assert found == pytest.approx({step: own[step] for step in found})


def test_drops_of_an_evaluator_are_repeated(tmp_path, capsys):
    evaluator = history.History(tmp_path / "eval-side" / "history.jsonl")
    for step in (5, 10, 15):
        row = records.Evaluation(step, {"accuracy": 0.5}, 0.1, 0.0, f"ckpt-{step}")
        evaluator.append(row)
    plateau = {"higher": ("accuracy",), "factor": 0.1, "source": "side", "tolerance": 2}
    trainer = {"max_to_keep": 1, "summary_interval": 1, "best_checkpoint_eval_metric": ""}
    config = toy.experiment({"trainer": trainer, "run": {"plateau": plateau}})
    runner.run(config, tmp_path, "train")
    capsys.readouterr()
    replayed(tmp_path, (19, 25))
    assert "side" not in capsys.readouterr().err
    found = [row["learning_rate"] for row in rows(tmp_path / "replay" / "19-25")]
    assert found == pytest.approx([0.01] * 2 + [0.001] * 5)


def test_from_a_checkpoint_to_a_batch_that_broke_the_run(tmp_path, poisoned):
    poisoned(bad_gradient=(45,))
    with pytest.raises(DivergedError):
        runner.run(poisoned_runs.experiment(0), tmp_path, "train")
    results = replayed(tmp_path, (44, 46), output=tmp_path / "broken")
    assert results["not_finite"]["step"] == 46
    says(results["not_finite"]["not_finite"], "gradient dense")
    assert results["not_finite"]["op"].startswith("SelectV2 (")
    before = checkpoint_files.open_reader(tmp_path / "broken" / "ckpt-45")
    names = [name for name in before.get_variable_to_shape_map() if name.startswith("model/")]
    assert names
    assert all(np.isfinite(before.get_tensor(name)).all() for name in names)


def test_an_output_is_not_replaced_unasked(tmp_path):
    finished.run(toy.experiment(), tmp_path)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").touch()
    with pytest.raises(ConfigError, match="--overwrite replaces it"):
        replayed(tmp_path, (1, 2), output=tmp_path / "kept")
    replayed(tmp_path, (1, 2), output=tmp_path / "kept", overwrite=True)
    assert len(rows(tmp_path / "kept")) == 2


def test_mistakes(tmp_path, capsys):
    finished.run(toy.experiment(), tmp_path / "run")
    with pytest.raises(ConfigError, match=saying("--steps=30:50 run 40 steps")):
        replayed(tmp_path / "run", (30, 50))
    for flags, said in {
        (): "--steps is missing",
        ("--steps=9",): "--steps=9 FIRST:LAST",
        ("--steps=9:3",): "--steps=9:3 FIRST:LAST",
        ("--steps=1:2", "--gin_file=digits.gin"): "--gin_file no effect --launch",
    }.items():
        assert main.main(["--mode=replay", f"--model_dir={tmp_path}/run", *flags]) == 2
        says(capsys.readouterr().err, said)
    with pytest.raises(ConfigError, match=saying("config.gin trained")):
        replayed(tmp_path, (1, 2))
