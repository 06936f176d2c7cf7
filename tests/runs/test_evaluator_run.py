"""An evaluator beside training: which checkpoints it evaluates, when it ends, what it leaves.

Most tests act the trainer: they publish checkpoints of a real run while the evaluator sleeps or
after it has evaluated. Those with processes are in test_evaluator_processes.py.
"""

import gc
import json
import shutil

import pytest
import tensorflow as tf
import toy
from tensorboard.backend.event_processing import event_accumulator
from wording import saying, says

import runner
from runner.checkpoints import checkpoint_files, compatibility, restore
from runner.core import console, signals
from runner.errors import ConfigError, RunnerError
from runner.evaluation import evaluation, handover
from runner.history import history, policies, records
from runner.run_directory import status, watch
from runner.runs import evaluator_run
from runner.runs.call import Call

STEPS = (10, 20, 30, 40, 50, 60)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run with a checkpoint at each of `STEPS`."""
    folder = tmp_path_factory.mktemp("source")
    trainer = {"train_steps": 60, "checkpoint_interval": 10, "max_to_keep": 10}
    runner.run(toy.experiment({"trainer": trainer}), folder, "train")
    return folder


class Training:
    """Acts a trainer in `folder`."""

    def __init__(self, source, folder):
        self.source = source
        self.folder = folder

    def commit(self, *steps, keep=10):
        """Publishes checkpoints one after the other, and prunes as training does."""
        for step in steps:
            name = checkpoint_files.name_of(step)
            checkpoint_files.link(self.source / name, self.folder / name)
            checkpoint_files.list_committed(self.folder, self.names())
            for path in checkpoint_files.there(self.folder)[:-keep]:
                self.remove(path)

    def remove(self, path):
        handover.Handover(self.folder).hand_over(path)
        checkpoint_files.remove(path)
        checkpoint_files.list_committed(self.folder, self.names())

    def names(self):
        return [path.name for path in checkpoint_files.there(self.folder)]

    def is_now(self, state, step=0, reason=""):
        status.StatusFile(self.folder).write(state, step, reason)


class Time:
    """Passes while the evaluator sleeps; `events` happen then, one a sleep."""

    def __init__(self, *events):
        self.now = 0.0
        self.events = list(events)

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.events.pop(0)()  # it sleeps without end, where there is none


@pytest.fixture
def training(source, tmp_path):
    return Training(source, tmp_path / "run")


def follow(training, *events, after=None, timeout=None, **options):
    """Runs an evaluator, calls `after` after each evaluation; returns it, and what it said."""
    config = toy.experiment({"run": {"evaluator": options}})
    folder = training.folder / f"eval-{options.get('name', 'x')}"
    actions = [lambda _: after(run.history.evaluations)] if after else []
    call = Call(config, training.folder, eval_actions=actions)
    run = evaluator_run.EvaluatorRun(call, policies.of(config), folder)
    said, time = [], Time(*events)
    seen = watch.Watch(training.folder, timeout=timeout, note=said.append, clock=time)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(console, "say", said.append)
            run.follow(seen, clock=time, sleep=time.sleep)
    finally:
        run.close()
    return run, said


def steps(run):
    return [row.step for row in run.history.evaluations]


def kept(folder):
    """Checkpoints in an evaluator's folder, and its registration; without the best ones."""
    found = folder.glob("**/*")
    return [path.name for path in found if "best" not in path.parts and _is_kept(path)]


def _is_kept(path):
    return path.name.startswith(("ckpt-", "evaluator", "claim")) or ".tmp" in path.name


def test_the_newest_checkpoint_is_evaluated_whenever_there_is_a_new_one(training):
    def busy(rows):
        if len(rows) == 1:
            training.commit(20, 30, 40)  # while the first was evaluated

    run, _ = follow(
        training,
        lambda: training.is_now("running"),
        lambda: training.commit(10),
        lambda: (training.commit(50, 60), training.is_now("done", 60)),
        after=busy,
    )
    assert steps(run) == [10, 40, 60]
    assert kept(training.folder / "eval-x") == []


def test_every_checkpoint_is_evaluated_though_training_keeps_one_and_is_faster(training):
    def busy(rows):
        training.commit(*STEPS[2 * len(rows) : 2 * len(rows) + 2], keep=1)
        if len(rows) == 3:
            training.is_now("done", 60)

    training.is_now("running")
    run, _ = follow(training, lambda: training.commit(10, 20, keep=1), after=busy, policy="every")
    assert training.names() == ["ckpt-60"]
    assert steps(run) == list(STEPS)
    assert kept(training.folder / "eval-x") == []


def test_a_checkpoint_removed_just_before_it_is_read_is_found_in_the_queue(training, monkeypatch):
    link = checkpoint_files.link

    def late(path, target):
        if path == training.folder / "ckpt-10":
            monkeypatch.setattr(checkpoint_files, "link", link)
            training.remove(path)
        link(path, target)

    def commit():
        training.commit(10, 20)
        monkeypatch.setattr(checkpoint_files, "link", late)

    training.is_now("running")
    run, _ = follow(training, commit, lambda: training.is_now("done"), policy="every")
    assert steps(run) == [10, 20]
    assert training.names() == ["ckpt-20"]


@pytest.mark.parametrize("policy", ["latest", "every"])
def test_a_restarted_evaluator_neither_repeats_nor_skips(training, policy):
    training.commit(10, 20, 30)
    training.is_now("running", 30)
    enough = {"latest": 1, "every": 2}[policy]
    first, _ = follow(training, policy=policy, max_evaluations=enough)
    assert steps(first) == {"latest": [30], "every": [10, 20]}[policy]
    training.commit(40)
    training.is_now("done", 40)
    again, _ = follow(training, policy=policy)
    assert steps(again) == {"latest": [30, 40], "every": [10, 20, 30, 40]}[policy]
    third, _ = follow(training, policy=policy)
    assert third.history.evaluations == again.history.evaluations


def test_what_a_kill_left_is_evaluated_and_not_left_again(training):
    folder = training.folder / "eval-x"
    training.commit(10, 20, 30)
    checkpoint_files.link(training.folder / "ckpt-20", folder / "ckpt-20")  # it was being read
    checkpoint_files.link(training.folder / "ckpt-10", folder / "ckpt-10")
    checkpoint_files.index(folder / "ckpt-10").unlink()  # it was being linked
    for step in (10, 20):
        checkpoint_files.remove(training.folder / f"ckpt-{step}")
    training.is_now("done", 30)
    run, _ = follow(training, policy="every")
    assert steps(run) == [20, 30]
    assert kept(folder) == []


def test_a_best_checkpoint_that_a_kill_kept_from_being_kept_is_made_up_for(tmp_path):
    averaged = {"trainer": {"train_steps": 20, "optimizer_config": {"ema": {"average_decay": 0.9}}}}
    config = toy.experiment(averaged)
    runner.run(config, tmp_path, "train")
    own = tmp_path / "eval-continuous"
    runner.run(config, tmp_path, "continuous_eval")
    before = contents(own / "best")
    shutil.rmtree(own / "best")
    checkpoint_files.link(tmp_path / "ckpt-20", own / "ckpt-20")  # it was being evaluated
    checkpoint_files.remove(tmp_path / "ckpt-20")
    runner.run(config, tmp_path, "continuous_eval")
    assert contents(own / "best") == before
    assert not list(own.glob("ckpt-*"))


def contents(folder):
    """What info.json says, and the tensors of what it names; not the names of layers."""
    info = json.loads((folder / "info.json").read_text())
    places = (folder, folder / "training")
    readers = [tf.train.load_checkpoint(str(place / info["checkpoint"])) for place in places]
    return info, [
        {
            key: reader.get_tensor(key).tolist()
            for key in reader.get_variable_to_shape_map()
            if "model/" in key
        }
        for reader in readers
    ]


def test_what_came_to_the_queue_after_it_was_evaluated_is_removed_there(training):
    def busy(rows):
        if len(rows) == 1:
            training.remove(training.folder / "ckpt-10")
            assert handover.queued(training.folder / "eval-x")
        else:
            assert not handover.queued(training.folder / "eval-x")

    training.commit(10, 20)
    training.is_now("done", 20)
    run, _ = follow(training, after=busy, policy="every")
    assert steps(run) == [10, 20]


def test_checkpoints_before_the_first_step_are_left_out_and_not_kept(training):
    training.is_now("running")
    run, _ = follow(
        training,
        lambda: training.commit(10, 20, 30, 40, keep=1),
        lambda: training.is_now("done", 40),
        policy="every",
        from_step=30,
    )
    assert steps(run) == [30, 40]
    assert kept(training.folder / "eval-x") == []


def test_evaluations_are_counted_over_restarts(training):
    training.commit(10, 20, 30, 40)
    training.is_now("running", 40)
    for count in (1, 1, 3):
        run, _ = follow(training, policy="every", max_evaluations=count)
        assert len(run.history.evaluations) == count
    assert kept(training.folder / "eval-x") == []


def test_a_pause_between_evaluations_ends_with_the_training(training):
    times = []
    training.commit(10, 20, 30)
    training.is_now("running")
    waits = [lambda: None] * 9  # 1.8 s
    time = Time(*waits, lambda: training.is_now("done"))
    config = toy.experiment({"run": {"evaluator": {"policy": "every", "min_seconds": 1.0}}})
    actions = [lambda _: times.append(round(time(), 3))]
    call = Call(config, training.folder, eval_actions=actions)
    run = evaluator_run.EvaluatorRun(call, policies.of(config), training.folder / "eval-x")
    seen = watch.Watch(training.folder, timeout=None, note=print, clock=time)
    run.follow(seen, clock=time, sleep=time.sleep)
    run.close()
    assert times == [0, 1, 2]
    assert steps(run) == [10, 20, 30]


@pytest.mark.parametrize("state", ["done", "stopped", "diverged"])
def test_it_ends_after_the_last_checkpoint_of_a_run_that_has_ended(training, state):
    training.commit(10, 20)
    training.is_now(state, 25, "why")
    run, said = follow(training)
    assert steps(run) == [20]
    says(said, f"training {'is done' if state == 'done' else state} 25 why")


def test_an_action_may_end_it(training):
    training.commit(10)
    training.is_now("running")
    config = toy.experiment({"run": {"evaluator": {"name": "x"}}})
    results = runner.run(
        config, training.folder, "continuous_eval", eval_actions=[lambda logs: "good enough"]
    )
    assert (results["status"], results["reason"]) == ("stopped", "good enough")
    assert (results["training"], results["step"]) == ("running", 10)


def test_what_another_run_scored_here_holds_nothing_up(training, source):
    training.commit(10, 20)
    config = toy.experiment({"run": {"evaluator": {"name": "x"}}})
    runner.run(config, training.folder, "eval", checkpoint=str(source / "ckpt-60"))
    training.is_now("done", 20)
    results = runner.run(config, training.folder, "continuous_eval")
    assert (results["step"], results["best"]["step"]) == (20, 20)


def test_it_waits_through_a_preemption_and_a_start_anew(training):
    def preempted():
        training.is_now("preempted", 30)

    def goes_on():
        training.is_now("running", 30)
        training.commit(40)

    training.commit(30)
    training.is_now("running", 30)
    nothing = [lambda: None] * 400
    run, said = follow(
        training, preempted, *nothing, goes_on, lambda: training.is_now("done", 40), timeout=600
    )
    assert steps(run) == [30, 40]
    says(said, "training preempted 30")
    says(said, "1:00 preempted 30")
    says(said, "training step 40")  # where it is by what it committed


@pytest.mark.parametrize("begun", [False, True])
def test_it_gives_up_without_a_sign_of_life_and_keeps_what_it_has(training, begun):
    if begun:
        training.commit(10)
        training.is_now("failed", 10, "no space left")
    with pytest.raises(RunnerError, match=saying("0:10 continuous_eval_timeout")):
        follow(training, *[lambda: None] * 60, timeout=10, policy="every")
    rows = history.read(training.folder / "eval-x" / "history.jsonl")
    assert [row.step for row in rows] == ([10] if begun else [])


@pytest.mark.parametrize("how", ["deleted", "truncated", "bit flipped"])
def test_a_checkpoint_that_cannot_be_read_is_recorded_and_the_loop_goes_on(training, how):
    training.commit(10, 20, 30)
    training.is_now("done", 30)
    (data,) = checkpoint_files.data(training.folder / "ckpt-20")
    content = bytearray(data.read_bytes())
    data.unlink()
    if how == "truncated":
        data.write_bytes(content[: len(content) // 2])
    elif how == "bit flipped":
        content[::7] = bytes(len(content[::7]))
        data.write_bytes(content)
    run, said = follow(training, policy="every")
    assert steps(run) == [10, 30]
    (bad,) = run.history.of(records.Damaged)
    assert (bad.step, bad.checkpoint) == (20, "ckpt-20")
    assert len([line for line in said if "ckpt-20" in line]) == 1
    again, said = follow(training, policy="every")
    assert (again.history.evaluations, again.history.of(records.Damaged)) == (
        run.history.evaluations,
        [bad],
    )
    assert not any("ckpt-20" in line for line in said)


def test_a_checkpoint_deleted_in_the_middle_of_being_restored_is_recorded(training, monkeypatch):
    compare = compatibility.compare

    def deletes(checkpoint, path):
        report = compare(checkpoint, path)
        if path.name == "ckpt-10":
            checkpoint_files.remove(path)
        return report

    monkeypatch.setattr(compatibility, "compare", deletes)
    training.commit(10, 20)
    training.is_now("done", 20)
    run, _ = follow(training, policy="every")
    assert steps(run) == [20]
    (bad,) = run.history.of(records.Damaged)
    says(bad.reason, "damaged index")


def failing(monkeypatch, *steps, error=RuntimeError):
    """Has the evaluation of some steps raise an exception."""
    score = evaluation.Evaluation.score

    def raises(self, step):
        if step in steps:
            raise error(f"no luck with {step}\nas ever")
        return score(self, step)

    monkeypatch.setattr(evaluation.Evaluation, "score", raises)


@pytest.mark.parametrize("policy", ["latest", "every"])
def test_an_evaluation_that_fails_is_recorded_and_the_next_is_done(training, monkeypatch, policy):
    def busy(rows):
        if len(rows) == 1:
            training.commit(20)

    failing(monkeypatch, 20)
    training.commit(10)
    training.is_now("running", 30)
    run, said = follow(
        training,
        lambda: (training.commit(30), training.is_now("done", 30)),
        after=busy,
        policy=policy,
    )
    assert steps(run) == [10, 30]
    (failed,) = run.history.of(records.Failed)
    assert (failed.step, failed.checkpoint) == (20, "ckpt-20")
    (line,) = (each for each in said if "ckpt-20" in each)
    says(line, "RuntimeError luck 20")
    assert "test_evaluator_run.py:" in line
    assert "as ever" not in line
    again, said = follow(training, policy=policy)
    assert (steps(again), again.history.left_out) == ([10, 30], [failed])
    assert not any("ckpt-20" in line for line in said)
    assert kept(training.folder / "eval-x") == []


def test_a_checkpoint_whose_evaluation_failed_can_be_evaluated_on_demand(training, monkeypatch):
    training.commit(10, 20)
    training.is_now("done", 20)
    named = toy.experiment({"run": {"evaluator": {"name": "x", "policy": "every"}}})
    with monkeypatch.context() as patch:
        failing(patch, 10)
        results = runner.run(named, training.folder, "continuous_eval")
    assert list(results["left_out"]) == ["ckpt-10"]
    results = runner.run(named, training.folder, "eval", checkpoint="10")
    assert (results["step"], "left_out" in results) == (10, False)
    rows = history.History(training.folder / "eval-x" / "history.jsonl")
    assert rows.steps == [10, 20]


def test_an_action_that_fails_leaves_the_evaluation_and_the_next_is_done(training):
    def fails(rows):
        if len(rows) == 1:
            raise KeyError("f1")

    training.commit(10, 20)
    training.is_now("done", 20)
    run, said = follow(training, after=fails, policy="every")
    assert steps(run) == [10, 20]
    assert [row.step for row in run.history.of(records.Failed)] == [10]
    says(said, "ckpt-10 action failed KeyError f1")


def test_so_many_failures_in_a_row_end_it(training, monkeypatch):
    failing(monkeypatch, 10, 20, 40, 50, 60)
    training.commit(*STEPS)
    training.is_now("done", 60)
    with pytest.raises(RunnerError, match=saying("3 ckpt-60 luck")) as error:
        follow(training, policy="every")
    assert error.value.exit_code == 1
    rows = history.History(training.folder / "eval-x" / "history.jsonl")
    assert rows.steps == [30]
    assert [row.step for row in rows.left_out] == [10, 20, 40, 50, 60]


def test_no_number_of_failures_ends_it_where_none_is_to(training, monkeypatch):
    failing(monkeypatch, *STEPS[:-1])
    training.commit(*STEPS)
    training.is_now("done", 60)
    run, _ = follow(training, policy="every", max_failures=0)
    assert steps(run) == [60]


def test_a_mistake_in_the_configuration_ends_it_at_once(training, monkeypatch):
    failing(monkeypatch, 10, error=ConfigError)
    training.commit(10, 20)
    training.is_now("done", 20)
    with pytest.raises(ConfigError, match="no luck with 10"):
        follow(training, policy="every")
    assert not history.read(training.folder / "eval-x" / "history.jsonl")


def test_all_checkpoints_are_evaluated_but_those_that_fail(training, monkeypatch, capsys):
    failing(monkeypatch, 20)
    training.commit(10, 20, 30)
    results = runner.run(toy.experiment(), training.folder, "eval", checkpoint="all")
    assert [row["step"] for row in results["evaluations"]] == [10, 30]
    says(results["left_out"]["ckpt-20"], "RuntimeError luck 20")
    assert "no luck with 20" in capsys.readouterr().err.splitlines()[-2]  # of the table


@pytest.mark.parametrize(
    ("committed", "options", "why"),
    [
        (
            (10, 20),
            {"from_step": 30},
            "evaluated done 20 EvaluatorConfig.from_step 30",
        ),
        ((), {}, "evaluated done"),
        ((10,), {}, "1 checkpoints evaluated ckpt-10"),
    ],
)
def test_an_end_without_one_evaluation_is_an_error_that_says_why(
    training, monkeypatch, committed, options, why
):
    failing(monkeypatch, 10)
    training.commit(*committed)
    training.is_now("done", 20)
    with pytest.raises(RunnerError, match=saying(why)) as error:
        follow(training, **options)
    assert error.value.exit_code == 1
    assert kept(training.folder / "eval-x") == []


def test_the_checkpoint_of_another_model_ends_it_with_what_differs(training, monkeypatch):
    training.commit(10)
    training.is_now("running", 10)
    build = toy.ToyTask.build_model

    def wider(self):
        model = build(self)
        out = toy.tf_keras.layers.Dense(5, dtype="float32")(model.output)
        return toy.tf_keras.Model(model.input, out)

    monkeypatch.setattr(toy.ToyTask, "build_model", wider)
    with pytest.raises(ConfigError, match=r"(?s)written for another model:.*missing.*: 2") as error:
        follow(training)
    assert error.value.exit_code == 2
    assert "config.gin" in str(error.value)
    assert not (training.folder / "eval-x" / "evaluator.json").exists()  # nothing is kept for it
    assert not history.read(training.folder / "eval-x" / "history.jsonl")


def test_what_a_broken_off_evaluator_pinned_is_removed_and_its_registration_stays(training):
    def breaks(rows):
        raise signals.Interrupted(15)

    training.commit(10, 20)
    training.is_now("running", 20)
    with pytest.raises(signals.Interrupted):
        follow(training, after=breaks, policy="every")
    assert kept(training.folder / "eval-x") == ["evaluator.json"]  # it is expected back


def test_evaluators_of_several_names_stand_beside_each_other(training):
    training.commit(10, 20)
    training.is_now("done", 20)
    before = sorted(training.folder.iterdir())
    one, _ = follow(training, name="one", policy="every")
    two, _ = follow(training, name="two")
    assert (steps(one), steps(two)) == ([10, 20], [20])
    new = set(training.folder.iterdir()) - set(before)
    assert new == {training.folder / "eval-one", training.folder / "eval-two"}


def test_the_result_says_how_training_ended_and_a_second_run_says_the_same(training):
    training.commit(20, 40)
    training.is_now("stopped", 45, "enough")
    before = {path: path.stat().st_mtime_ns for path in training.folder.iterdir()}
    results = runner.run(toy.experiment(), training.folder, "continuous_eval")
    assert (results["status"], results["training"], results["step"]) == ("done", "stopped", 40)
    assert results["best"] == {"step": 40, "metrics": results["metrics"]}
    assert runner.run(toy.experiment(), training.folder, "continuous_eval") == results
    info = training.folder / "eval-continuous" / "best" / "info.json"
    assert json.loads(info.read_text())["best_ckpt_global_step"] == 40.0
    events = event_accumulator.EventAccumulator(str(training.folder / "eval-continuous"))
    assert [event.step for event in events.Reload().Scalars("loss")] == [40]
    after = {path: path.stat().st_mtime_ns for path in training.folder.iterdir()}
    del after[training.folder / "eval-continuous"]
    assert after == before  # it wrote only in its own folder


@pytest.mark.parametrize("mode", ["continuous_eval", "eval"])
def test_a_second_evaluator_of_one_name_is_refused(training, mode):
    training.commit(10)
    training.is_now("done", 10)
    named = toy.experiment({"run": {"evaluator": {"name": "x"}}})

    def second(_):
        with pytest.raises(RunnerError, match=saying("eval-x process")) as error:
            runner.run(named, training.folder, mode)
        assert "choose another EvaluatorConfig.name" in str(error.value)
        assert error.value.exit_code == 1

    runner.run(named, training.folder, "continuous_eval", eval_actions=[second])
    rows = history.read(training.folder / "eval-x" / "history.jsonl")
    assert [row.step for row in rows] == [10]


def test_restoring_again_and_again_leaves_nothing_behind(training):
    training.commit(10, 20)
    training.is_now("running", 20)
    run, _ = follow(training, max_evaluations=1)

    def held():
        """Objects that tell where in a checkpoint something is."""
        for step in (10, 20):
            restore.restore(run.evaluator.checkpoint, training.folder / f"ckpt-{step}", partly=True)
        gc.collect()
        return sum("CheckpointPosition" in str(type(each)) for each in gc.get_objects())

    assert held() == held()
