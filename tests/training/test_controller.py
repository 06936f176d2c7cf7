import re
import signal

import pytest
from fake_run import FakeRun
from wording import says

from runner.core import schedule, signals
from runner.errors import DivergedError
from runner.training import controller


def grid(end, loop=100, summary=1000, checkpoint=1000, evaluation=None, **fields):
    evaluations = (evaluation,) if evaluation else ()
    return schedule.Grid(end, loop, summary, checkpoint, evaluations, **fields)


def drive(run, grid, *, actions=(), stop=None):
    """The controller that has driven `run`, whose log ends with what ended it, if anything."""
    made = controller.Controller(run, grid, actions, stop)
    try:
        made.run()
    except (DivergedError, signals.Interrupted) as error:
        run.log.append(type(error).__name__)
    return made


def log(grid, run=None, **fields):
    run = run or FakeRun()
    drive(run, grid, **fields)
    return run.log


def test_the_order_at_a_boundary_is_train_commit_evaluate():
    lines = log(grid(10, loop=10, summary=10, checkpoint=10, evaluation=10))
    assert lines == ["train 10", "loop 10 row", "commit 10", "evaluate 10", "wait"]


def test_every_evaluation_commits_first():
    run = FakeRun()
    drive(run, grid(40, evaluation=20))
    assert run.of("commit", "evaluate") == ["commit 20", "evaluate 20", "commit 40", "evaluate 40"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (grid(1000, checkpoint=25), "25 end"),
        (grid(1000, checkpoint=25, evaluation=100), "25 end"),
        (grid(1000, checkpoint=25, evaluation=5), "5 end RunConfig.evaluations_commit"),
        (
            grid(5000, checkpoint=1500, evaluation=1000),
            "1,000 1,500 end RunConfig.evaluations_commit",
        ),
        (grid(1000, checkpoint=1000), "end only"),
        (grid(1000, seconds=90), "end only 90"),
        (grid(1000, continuous=True), "end only whenever"),
    ],
)
def test_what_is_going_to_be_committed_is_told_as_it_is(made, said):
    says(made.describe_commits(), said)
    due = [step for step in range(1, made.end + 1) if made.commits(step)]
    told = [int(n.replace(",", "")) for n in re.findall(r"every ([\d,]+)", made.describe_commits())]
    assert due == sorted({made.end, *(n for m in told for n in range(m, made.end, m))})


def test_an_evaluation_need_not_commit_but_looks_at_what_is_broken():
    looked = []

    class Run(FakeRun):
        def broken(self, loop, *, variables):
            looked.append((loop.step, variables))

    free = grid(60, checkpoint=30, evaluation=10, evaluations_commit=False)
    run = Run(reasons={50: "enough"})
    drive(run, free)
    assert run.of("commit", "evaluate", "finish") == [
        "evaluate 10", "evaluate 20", "commit 30", "evaluate 30", "evaluate 40", "evaluate 50",
        "commit 50", "finish 50",
    ]  # fmt: skip
    assert looked == [(step, True) for step in (10, 20, 30, 40, 50)]
    says(free.describe_commits(), "30 end evaluation best")


def test_what_breaks_off_an_evaluation_without_a_commit_costs_no_training():
    class Run(FakeRun):
        def evaluate(self, step):
            raise signals.Interrupted(signal.SIGTERM)

    free = grid(60, checkpoint=30, evaluation=10, evaluations_commit=False)
    assert log(free, Run()) == ["train 10", "loop 10", "commit 10", "wait", "Interrupted"]


def test_the_clock_asks_for_commits_beside_the_grid():
    now = [0.0]

    class Run(FakeRun):
        def after_loop(self, loop):
            now[0] += 4  # seconds a loop

        def broken(self, loop, *, variables):
            return "weights" if loop.step == 20 and variables else None

    run = Run()
    due = grid(70, loop=10, evaluation=40, seconds=8)
    controller.Controller(run, due, clock=lambda: now[0]).run()
    # At 20 it is time, but the weights are broken: that is for the grid to find.
    assert run.of("commit", "evaluate") == [
        "commit 30", "commit 40", "evaluate 40", "commit 60", "commit 70", "evaluate 70",
    ]  # fmt: skip


def test_continuous_saving_waits_for_the_last_write_and_takes_a_small_part_of_the_time():
    now = [0.0]

    class Run(FakeRun):
        def after_loop(self, loop):
            now[0] += 1  # a second a loop
            self.writing_cost = None if 50 <= loop.step < 80 else 0.02

        def commit(self, step):
            super().commit(step)
            now[0] += 0.03

    run = Run()
    controller.Controller(run, grid(120, loop=10, continuous=True), clock=lambda: now[0]).run()
    # The first is saved at once. 0.05 s are 2 % of 2.5 s, three loops. At 40 it is time, and at 70,
    # but the one before is still being written until 80.
    assert run.of("commit") == [f"commit {step}" for step in (10, 40, 80, 110, 120)]


def test_the_grid_is_absolute_after_an_off_grid_restart():
    run = FakeRun(step=33)
    drive(run, grid(100, loop=30, evaluation=40))
    assert run.of("loop", "evaluate") == [
        "loop 40", "evaluate 40", "loop 60", "loop 80", "evaluate 80", "loop 90",
        "loop 100 row", "evaluate 100",
    ]  # fmt: skip


def test_the_last_step_is_committed_and_evaluated_off_the_grid():
    assert log(grid(25, evaluation=20))[-3:] == ["commit 25", "evaluate 25", "wait"]


class Evaluated(FakeRun):
    def has_evaluated(self, step):
        return step == self.step


def test_an_evaluation_missing_at_the_restored_step_is_done_first():
    assert log(grid(40, evaluation=20), FakeRun(step=20))[0] == "evaluate 20"
    assert log(grid(40, evaluation=20), Evaluated(step=20))[0] == "train 20"


def test_a_finished_run_does_nothing_more():
    run = Evaluated(step=40)
    drive(run, grid(40, evaluation=20))
    assert run.of("train", "evaluate") == []


def test_an_action_that_returns_a_reason_stops_the_run_committed():
    run = FakeRun()
    made = drive(run, grid(100, loop=10), actions=[lambda logs: "enough"])
    assert (made.step, made.stop_reason) == (10, "enough")
    assert run.log == ["train 10", "loop 10", "commit 10", "wait"]


def test_what_an_orbit_action_returns_otherwise_stops_nothing():
    actions = [lambda logs: True, lambda logs: None]
    made = drive(FakeRun(), grid(30, loop=10), actions=actions)
    assert (made.step, made.stop_reason) == (30, None)


def test_an_evaluation_can_stop_the_run():
    made = drive(FakeRun(reasons={40: "no better"}), grid(100, evaluation=20))
    assert (made.step, made.stop_reason) == (40, "no better")


def test_a_decision_from_outside_stops_the_run_at_a_commit_and_evaluates_there():
    run = FakeRun(decisions={20: "no", 30: "yes"})
    made = drive(run, grid(100, loop=10, checkpoint=30, evaluation=50))
    assert (made.step, made.stop_reason) == (30, "yes")
    assert run.log[-3:] == ["commit 30", "finish 30", "wait"]


def test_a_run_that_has_stopped_does_not_go_on():
    run = Evaluated(step=40, decisions={40: "over"})
    assert drive(run, grid(100, evaluation=20)).stop_reason == "over"
    assert run.of("train") == []


class Breaks(FakeRun):
    """Breaks once at a step, and has a way back only where a test gives one."""

    at = 40
    way_back = None

    def broken(self, loop, *, variables):
        if loop.step == self.at:
            self.at = None
            return "broken"
        return None

    def recover(self, reason):
        return self.way_back or super().recover(reason)


def test_what_is_broken_is_never_committed():
    lines = log(grid(100, loop=10, checkpoint=20, evaluation=20), Breaks())
    assert "commit 20" in lines
    assert lines[-3:] == ["train 10", "wait", "DivergedError"]
    assert "loop 40" not in lines  # nor recorded


def test_a_recovered_run_goes_on_from_the_step_it_went_back_to():
    run = Breaks()
    run.way_back = 20
    drive(run, grid(40, loop=10, checkpoint=20))
    assert run.of("loop") == ["loop 10", "loop 20", "loop 30", "loop 30", "loop 40 row"]


def test_a_run_that_an_action_stops_where_it_is_broken_goes_back_first():
    class Run(FakeRun):
        def broken(self, loop, *, variables):
            return "a weight is not finite" if variables and loop.step == 30 else None

        def recover(self, reason):
            return 20

    run = Run()
    stopping = [lambda logs: "enough" if "loop 30" in run.log else None]
    made = drive(run, grid(100, loop=10, checkpoint=20), actions=stopping)
    assert (made.step, made.stop_reason) == (20, "enough")
    assert run.of("commit") == ["commit 20"]


def test_variables_are_looked_at_when_a_commit_falls_due():
    seen = []

    class Run(FakeRun):
        def broken(self, loop, *, variables):
            seen.append((loop.step, variables))

    drive(Run(), grid(40, loop=10, summary=10, checkpoint=20))
    assert seen == [(10, False), (20, True), (30, False), (40, True)]


def test_a_signal_in_a_loop_commits_where_the_loop_ended():
    stop = signals.Stop()

    class Run(FakeRun):
        def train(self, steps):
            stop.number = signal.SIGTERM
            self.step = 13
            return super().train(steps)

    lines = log(grid(100, loop=50, evaluation=50), Run(), stop=stop)
    assert lines == ["train 50", "loop 13", "commit 13", "wait", "Interrupted"]


def test_a_signal_off_the_grid_in_training_that_is_broken_saves_nothing_and_says_so():
    stop = signals.Stop()

    def signalled(logs):
        stop.number = signal.SIGTERM

    class Run(FakeRun):
        def train(self, steps):
            self.step = 13
            return super().train(steps)

        def broken(self, loop, *, variables):
            return "a weight is not finite" if variables else None

    run = Run()
    made = controller.Controller(run, grid(100, loop=10, evaluation=50), [signalled], stop)
    with pytest.raises(signals.Interrupted) as error:
        made.run()
    assert not error.value.saved
    assert run.of("train", "commit") == ["train 10", "train 10"]


def test_a_signal_between_two_loops_commits_what_the_loops_before_did():
    stop = signals.Stop()

    class Run(FakeRun):
        def train(self, steps):
            if not stop.requested:
                self.step += steps
            return super().train(steps)

        def after_loop(self, loop):
            if loop.step == 20:
                stop.number = signal.SIGTERM  # after the look at it: the next loop does nothing

    lines = log(grid(100, loop=10), Run(), stop=stop)
    assert lines == ["train 10", "train 10", "train 10", "commit 20", "wait", "Interrupted"]


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

    class Run(FakeRun):
        def train(self, count):
            steps.append(count)
            now[0] += count / 50  # 50 steps a second
            return super().train(count)

    run = Run()
    due = grid(1000, loop=0, checkpoint=130)
    controller.Controller(run, due, clock=lambda: now[0]).run()
    assert steps[:6] == [1, 4, 16, 50, 50, 9]  # 1, 4, 16, then a second; 130 is a boundary
    assert max(steps) == 50
    due = (130, 260, 390, 520, 650, 780, 910, 1000)
    assert run.of("commit") == [f"commit {step}" for step in due]
