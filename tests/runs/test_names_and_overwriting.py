"""Where a run is, and what begins it anew."""

import json
from pathlib import Path

import finished
import pytest
import resumed
import toy
from tensorboard.backend.event_processing import event_accumulator
from wording import saying, says

import runner
from runner import main
from runner.configuration import run_name
from runner.errors import ConfigError
from runner.run_directory import claim

DIGITS = ["--mode=train", "--gin_file=digits.gin"]


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("", "digits"),
        ("{model}.{name}", "mlp.digits"),
        ("{name}/seed-{run.seed}", "digits/seed-7"),
        ("steps-{train_steps}", "steps-40"),
        ("fixed", "fixed"),
    ],
)
def test_a_name_comes_from_the_configuration(name, made):
    given = [f"RunConfig.name = {name!r}", "RunConfig.seed = 7", "TrainerConfig.train_steps = 40"]
    assert run_name.of(runner.load("digits.gin", given), "experiments/digits.gin") == made


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("{sed}", "value mean seed"),
        ("{global_batch_size}", "{global_batch_size} 2 values"),
        ("../{name}", "makes /digits"),
        ("a b", "makes name"),
        ("{name", "makes {name"),
    ],
)
def test_a_name_that_cannot_be_is_refused(name, said):
    with pytest.raises(ConfigError) as error:
        run_name.of(runner.load("digits.gin", [f"RunConfig.name = {name!r}"]), "digits.gin")
    says(str(error.value), said)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--runs_dir=runs", "--model_dir=run"], "--runs_dir --model_dir combined"),
        (["--model_dir=runs/a", "--overwrite"], "name --overwrite=a"),
        (["--model_dir=runs/a", "--overwrite=b"], "--overwrite=b name run runs/a"),
        (["--model_dir=runs/a", "--overwrite=a", "--launch=local"], "each restart"),
        (["--model_dir=runs/a", "--overwrite=a", "--workers=2"], "each restart"),
        (["--model_dir=runs/a", "--clear_logs", "--launch=local"], "--clear_logs each restart"),
        (["--model_dir=runs/a", "--overwrite=a", "--worker_hosts=a:1,b:1"], "several workers"),
        (["--runs_dir=runs", "--workers=2"], "--workers needs --model_dir"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(flags, said, capsys):
    assert main.main([*DIGITS, *flags]) == 2
    says(capsys.readouterr().err, said)


def test_predict_overwrites_without_a_name(capsys):
    flags = ["--mode=predict", "--gin_file=digits.gin", "--model_dir=run", "--overwrite=run"]
    assert main.main(flags) == 2
    says(capsys.readouterr().err, "--overwrite=run no value")


def test_a_run_begins_anew_in_its_folder_and_leaves_what_is_not_its_own(tmp_path, capsys):
    folder = tmp_path / "run"
    made = toy.experiment()
    finished.run(made, folder)
    before = resumed.rows(folder / "train.jsonl")
    (folder / "eval-side").mkdir()
    (folder / "mine.txt").write_text("kept")
    other = toy.experiment({"run": {"seed": 1}})
    with pytest.raises(ConfigError, match=saying("name run")):
        runner.run(other, folder, "train_and_eval", overwrite="other")
    with claim.claimed(folder, note=print), pytest.raises(runner.errors.RunnerError):
        runner.run(other, folder, "train_and_eval", overwrite="run")
    assert resumed.rows(folder / "train.jsonl") == before
    runner.run(other, folder, "train_and_eval", overwrite="run")
    says(capsys.readouterr().err, f"removed {folder}")
    assert resumed.rows(folder / "train.jsonl") != before
    assert len(json.loads((folder / "run.json").read_text())["starts"]) == 1
    assert not (folder / "eval-side").exists()
    assert (folder / "mine.txt").read_text() == "kept"


def test_logs_of_each_kind_can_be_left_out(tmp_path):
    quiet = {"training_rows": False, "tensorboard_kinds": ("validation",), "system_seconds": 0.0}
    for steps in (20, 40):  # a resume does not miss them
        made = toy.experiment({"run": quiet, "trainer": {"train_steps": steps}})
        runner.run(made, tmp_path, "train_and_eval")
    assert not (tmp_path / "train.jsonl").exists()
    events = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("events.*")}
    assert events == {"validation"}


def test_events_are_cleared_and_the_run_continues_to_the_same_state(tmp_path, capsys):
    def made(steps):
        return toy.experiment({"trainer": {"train_steps": steps}})

    runner.run(made(20), tmp_path / "run", "train_and_eval")
    rows = resumed.rows(tmp_path / "run/train.jsonl")
    old = {path.name for path in (tmp_path / "run").rglob("events.*")}
    theirs = tmp_path / "run/eval-side/events.out.tfevents.1.host"
    theirs.parent.mkdir()
    theirs.write_text("of an evaluator")
    runner.run(made(40), tmp_path / "run", "train_and_eval", clear_logs=True)
    says(capsys.readouterr().err, f"removed {len(old)} event files")
    kept = {path.name for path in (tmp_path / "run").rglob("events.*")}
    assert old
    assert kept & old == set()
    assert theirs.exists()
    assert resumed.rows(tmp_path / "run/train.jsonl")[: len(rows)] == rows
    runner.run(made(40), tmp_path / "whole", "train_and_eval")
    assert resumed.state(tmp_path / "run", 40) == resumed.state(tmp_path / "whole", 40)


def test_the_graph_of_the_training_step_is_drawn_once_if_asked(tmp_path):
    for steps in (20, 40):
        made = toy.experiment(
            {"run": {"tensorboard_graph": True}, "trainer": {"train_steps": steps}}
        )
        runner.run(made, tmp_path, "train")
    graphs = []
    for path in sorted((tmp_path / "train").iterdir()):
        events = event_accumulator.EventAccumulator(str(path)).Reload()
        graphs += [events.Graph()] if events.Tags()["graph"] else []
    (graph,) = graphs
    every = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    assert {"MatMul", "BiasAdd"} <= {node.op for node in every}


def test_only_the_best_is_kept_of_a_run_that_has_ended_and_a_longer_one_goes_on_from_it(
    tmp_path, capsys
):
    def made(steps, kept):
        return toy.experiment({"trainer": {"train_steps": steps, "max_to_keep": kept}})

    results = runner.run(made(60, 0), tmp_path / "best", "train_and_eval")
    best = results["best"]["step"]
    assert not list((tmp_path / "best").glob("ckpt-*"))
    assert [path.stem for path in (tmp_path / "best" / "best").glob("*.index")] == [f"ckpt-{best}"]
    says(capsys.readouterr().err, f"command longer step {best}")
    other = made(80, 0)
    other.run.seed = 1
    with pytest.raises(ConfigError, match=saying("trained configuration")):
        runner.run(other, tmp_path / "best", "train_and_eval")
    runner.run(made(80, 5), tmp_path / "best", "train_and_eval")
    runner.run(made(80, 5), tmp_path / "whole", "train_and_eval")
    assert resumed.state(tmp_path / "best", 80) == resumed.state(tmp_path / "whole", 80)
    assert Path(tmp_path / "best" / "history.jsonl").exists()
