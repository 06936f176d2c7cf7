import re
import signal

import orbit
import pytest

from runner.core import schedule, signals
from runner.errors import DivergedError
from runner.training import controller


class Trainer(orbit.AbstractTrainer):
    def __init__(self, log):
        self.log = log

    def train(self, num_steps):
        self.log.append(f"train {int(num_steps)}")
        return {"training_loss": 0.5}


class Checkpoints:
    def __init__(self, log):
        self.log, self.committed = log, None

    def commit(self, step):
        if step != self.committed:
            self.log.append(f"commit {step}")
            self.committed = step

    def wait(self):
        self.log.append("wait")


def refuse(reason):
    raise DivergedError(reason)


def drive(
    grid,
    *,
    step=0,
    evaluated=lambda step: False,
    finish=lambda step: None,
    reasons=None,
    actions=(),
    broken=lambda loop, commits: None,
    recover=refuse,
    stop=None,
    position=None,
    decisions=None,
):
    log = []

    def evaluate(at):
        log.append(f"evaluate {at}")
        return (reasons or {}).get(at)

    store = Checkpoints(log)
    made = controller.Controller(
        grid,
        step=step,
        trainer=Trainer(log),
        position=lambda: position,
        broken=broken,
        recover=recover,
        decide=lambda at: (decisions or {}).get(at),
        commit=store.commit,
        wait=store.wait,
        evaluate=evaluate,
        evaluated=evaluated,
        finish=lambda at: log.append(f"finish {at}"),
        after_loop=lambda loop: log.append(f"loop {loop.step}{' row' if loop.summary else ''}"),
        actions=actions,
        stop=stop,
    )
    made.log = log
    try:
        made.run()
    except (DivergedError, signals.Interrupted) as error:
        log.append(type(error).__name__)
    return made


def grid(end, loop=100, summary=1000, checkpoint=1000, evaluation=None):
    return schedule.Grid(end, loop, summary, checkpoint, (evaluation,) if evaluation else ())


def test_the_order_at_a_boundary_is_train_commit_evaluate():
    log = drive(grid(10, loop=10, summary=10, checkpoint=10, evaluation=10)).log
    assert log == ["train 10", "loop 10 row", "commit 10", "evaluate 10", "wait"]


def test_every_evaluation_commits_first():
    log = drive(grid(40, evaluation=20)).log
    assert [line for line in log if "commit" in line or "evaluate" in line] == [
        "commit 20", "evaluate 20", "commit 40", "evaluate 40"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (grid(1000, checkpoint=25), "every 25 steps and at the end"),
        (grid(1000, checkpoint=25, evaluation=100), "every 25 steps and at the end"),
        (
            grid(1000, checkpoint=25, evaluation=5),
            "every 5 steps and at the end, since each evaluation commits first",
        ),
        (
            grid(5000, checkpoint=1500, evaluation=1000),
            "every 1,000 and every 1,500 steps and at the end, since each evaluation commits first",
        ),
        (grid(1000, checkpoint=1000), "at the end alone"),
    ],
)
def test_what_is_going_to_be_committed_is_told_as_it_is(made, said):
    assert made.describe_commits() == said
    due = [step for step in range(1, made.end + 1) if made.commits(step)]
    told = [int(n.replace(",", "")) for n in re.findall(r"every ([\d,]+)", said)]
    assert due == sorted({made.end, *(n for m in told for n in range(m, made.end, m))})


def test_an_evaluation_need_not_commit_but_looks_at_what_is_broken():
    looked = []

    def broken(loop, commits):
        looked.append((loop.step, commits))

    free = schedule.Grid(60, 100, 1000, 30, (10,), evaluations_commit=False)
    log = drive(free, broken=broken, reasons={50: "enough"}).log
    assert [line for line in log if line.startswith(("commit", "evaluate", "finish"))] == [
        "evaluate 10", "evaluate 20", "commit 30", "evaluate 30", "evaluate 40", "evaluate 50",
        "commit 50", "finish 50",
    ]  # fmt: skip
    assert looked == [(step, True) for step in (10, 20, 30, 40, 50)]
    said = "every 30 steps and at the end, and where an evaluation is among the best"
    assert free.describe_commits() == said


def test_what_breaks_off_an_evaluation_without_a_commit_costs_no_training():
    def interrupted(at):
        raise signals.Interrupted(signal.SIGTERM)

    log = []
    store = Checkpoints(log)
    made = controller.Controller(
        schedule.Grid(60, 100, 1000, 30, (10,), evaluations_commit=False),
        step=0,
        trainer=Trainer(log),
        position=lambda: 0,
        broken=lambda loop, commits: None,
        recover=refuse,
        decide=lambda step: None,
        commit=store.commit,
        wait=store.wait,
        evaluate=interrupted,
        evaluated=lambda step: False,
        finish=lambda step: None,
        after_loop=lambda loop: None,
    )
    with pytest.raises(signals.Interrupted):
        made.run()
    assert log == ["train 10", "commit 10", "wait"]


def test_the_clock_asks_for_commits_beside_the_grid():
    now = [0.0]
    log = []
    store = Checkpoints(log)

    def after_loop(loop):
        now[0] += 4  # seconds a loop

    controller.Controller(
        grid(70, loop=10, evaluation=40),
        step=0,
        trainer=Trainer([]),
        position=lambda: 0,
        broken=lambda loop, commits: "weights" if loop.step == 20 and commits else None,
        recover=refuse,
        decide=lambda step: None,
        commit=store.commit,
        wait=lambda: None,
        evaluate=lambda step: log.append(f"evaluate {step}"),
        evaluated=lambda step: False,
        finish=lambda step: None,
        after_loop=after_loop,
        seconds=8,
        clock=lambda: now[0],
    ).run()
    # At 20 it is time, but the weights are broken: that is for the grid to find.
    assert log == ["commit 30", "commit 40", "evaluate 40", "commit 60", "commit 70", "evaluate 70"]


def test_the_grid_is_absolute_after_an_off_grid_restart():
    log = drive(grid(100, loop=30, evaluation=40), step=33).log
    trained = [line for line in log if line.startswith(("loop", "evaluate"))]
    assert trained == [
        "loop 40", "evaluate 40", "loop 60", "loop 80", "evaluate 80", "loop 90",
        "loop 100 row", "evaluate 100",
    ]  # fmt: skip


def test_the_last_step_is_committed_and_evaluated_off_the_grid():
    log = drive(grid(25, evaluation=20)).log
    assert log[-3:] == ["commit 25", "evaluate 25", "wait"]


def test_an_evaluation_missing_at_the_restored_step_is_done_first():
    log = drive(grid(40, evaluation=20), step=20).log
    assert log[0] == "evaluate 20"
    log = drive(grid(40, evaluation=20), step=20, evaluated=lambda step: step == 20).log
    assert log[0] == "train 20"


def test_a_finished_run_does_nothing_more():
    log = drive(grid(40, evaluation=20), step=40, evaluated=lambda step: True).log
    assert [line for line in log if "train" in line or "evaluate" in line] == []


def test_an_action_that_returns_a_reason_stops_the_run_committed():
    made = drive(grid(100, loop=10), actions=[lambda logs: "enough"])
    assert made.stop_reason == "enough"
    assert made.step == 10
    assert "commit 10" in made.log
    assert "train 10" in made.log
    assert made.log.count("train 10") == 1


def test_what_an_orbit_action_returns_otherwise_stops_nothing():
    made = drive(grid(30, loop=10), actions=[lambda logs: True, lambda logs: None])
    assert made.stop_reason is None
    assert made.step == 30


def test_an_evaluation_can_stop_the_run():
    made = drive(grid(100, evaluation=20), reasons={40: "no better"})
    assert (made.step, made.stop_reason) == (40, "no better")


def test_a_decision_from_outside_stops_the_run_at_a_commit_and_evaluates_there():
    made = drive(grid(100, loop=10, checkpoint=30, evaluation=50), decisions={20: "no", 30: "yes"})
    assert (made.step, made.stop_reason) == (30, "yes")
    assert made.log[-3:] == ["commit 30", "finish 30", "wait"]


def test_a_run_that_has_stopped_does_not_go_on():
    made = drive(
        grid(100, evaluation=20), step=40, decisions={40: "over"}, evaluated=lambda _: True
    )
    assert made.stop_reason == "over"
    assert not any("train" in line for line in made.log)


def test_what_is_broken_is_never_committed():
    log = drive(
        grid(100, loop=10, checkpoint=20, evaluation=20),
        broken=lambda loop, commits: "broken" if loop.step == 40 else None,
    ).log
    assert "commit 20" in log
    assert log[-3:] == ["train 10", "wait", "DivergedError"]
    assert "loop 40" not in log  # nor recorded


def test_a_recovered_run_goes_on_from_the_step_it_went_back_to():
    broke = iter([True])
    log = drive(
        grid(40, loop=10, checkpoint=20),
        broken=lambda loop, commits: "broken" if loop.step == 40 and next(broke, False) else None,
        recover=lambda reason: 20,
    ).log
    assert [line for line in log if line.startswith("loop")] == [
        "loop 10", "loop 20", "loop 30", "loop 30", "loop 40 row",
    ]  # fmt: skip


def test_variables_are_looked_at_when_a_commit_falls_due():
    seen = []
    drive(
        grid(40, loop=10, summary=10, checkpoint=20),
        broken=lambda loop, commits: seen.append((loop.step, commits)),
    )
    assert seen == [(10, False), (20, True), (30, False), (40, True)]


def test_a_signal_in_a_loop_commits_where_the_loop_ended():
    stop = signals.Stop()

    class Signalled(Trainer):
        def train(self, num_steps):
            stop.number = signal.SIGTERM
            return super().train(num_steps)

    log = []
    store = Checkpoints(log)
    made = controller.Controller(
        grid(100, loop=50, evaluation=50),
        step=0,
        trainer=Signalled(log),
        position=lambda: 13,
        broken=lambda loop, commits: None,
        recover=refuse,
        decide=lambda step: None,
        commit=store.commit,
        wait=store.wait,
        evaluate=lambda step: log.append("evaluate"),
        evaluated=lambda step: False,
        finish=lambda step: None,
        after_loop=lambda loop: log.append(f"loop {loop.step} of {loop.steps}"),
        stop=stop,
    )
    with pytest.raises(signals.Interrupted):
        made.run()
    assert log == ["train 50", "loop 13 of 13", "commit 13", "wait"]


def test_a_signal_off_the_grid_in_training_that_is_broken_saves_nothing_and_says_so():
    stop = signals.Stop()

    def signalled(logs):
        stop.number = signal.SIGTERM

    log = []
    store = Checkpoints(log)
    made = controller.Controller(
        grid(100, loop=10, evaluation=50),
        step=0,
        trainer=Trainer(log),
        position=lambda: 13,
        broken=lambda loop, commits: "a weight is not finite" if commits else None,
        recover=refuse,
        decide=lambda step: None,
        commit=store.commit,
        wait=store.wait,
        evaluate=lambda step: None,
        evaluated=lambda step: False,
        finish=lambda step: None,
        after_loop=lambda loop: None,
        actions=[signalled],
        stop=stop,
    )
    with pytest.raises(signals.Interrupted) as error:
        made.run()
    assert not error.value.saved
    assert log == ["train 10", "train 10", "wait"]


def test_a_signal_between_two_loops_commits_what_the_loops_before_did():
    stop = signals.Stop()
    log = []
    store = Checkpoints(log)

    def after_loop(loop):
        if loop.step == 20:
            stop.number = signal.SIGTERM  # after the look at it: the next loop does nothing

    made = controller.Controller(
        grid(100, loop=10),
        step=0,
        trainer=Trainer(log),
        position=lambda: 20,
        broken=lambda loop, commits: None,
        recover=refuse,
        decide=lambda step: None,
        commit=store.commit,
        wait=store.wait,
        evaluate=lambda step: None,
        evaluated=lambda step: False,
        finish=lambda step: None,
        after_loop=after_loop,
        stop=stop,
    )
    with pytest.raises(signals.Interrupted):
        made.run()
    assert log == ["train 10", "train 10", "train 10", "commit 20", "wait"]


@pytest.mark.parametrize("end", [1, 7, 40, 41])
@pytest.mark.parametrize("start", [0, 3, 20, 39])
def test_evaluations_still_to_come_are_counted_right(start, end):
    if start > end:
        return
    due = grid(end, loop=3, evaluation=20)
    steps, step = [], start
    while step < end:
        step = due.next(step, longest=1)
        steps += [step] if due.due(step, 20) else []
    assert due.evaluations_after(start) == len(steps)


def test_loops_are_cut_to_a_second_and_still_end_on_every_boundary():
    now, steps = [0.0], []

    class Clocked(Trainer):
        def train(self, num_steps):
            steps.append(int(num_steps))
            now[0] += steps[-1] / 50  # 50 steps a second
            return super().train(num_steps)

    grid = schedule.Grid(end=1000, loop=0, summary=1000, checkpoint=130)
    committed = []
    controller.Controller(
        grid,
        step=0,
        trainer=Clocked([]),
        position=lambda: 0,
        broken=lambda loop, commits: None,
        recover=refuse,
        decide=lambda step: None,
        commit=committed.append,
        wait=lambda: None,
        evaluate=lambda step: None,
        evaluated=lambda step: False,
        finish=lambda step: None,
        after_loop=lambda loop: None,
        clock=lambda: now[0],
    ).run()
    assert steps[:6] == [1, 4, 16, 50, 50, 9]  # 1, 4, 16, then a second; 130 is a boundary
    assert max(steps) == 50
    assert sorted({*committed}) == [130, 260, 390, 520, 650, 780, 910, 1000]
