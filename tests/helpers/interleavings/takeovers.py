"""Hosts that train one run: one may be suspended, and another takes the run over meanwhile."""

import contextlib
import fcntl
import functools
import json

from interleavings.evaluators import Checkpoints, damage
from interleavings.locks import PATIENCE, no_locks
from interleavings.scheduler import ViolationError
from runner.checkpoints import checkpoint_files, extra_state, integrity, recovery
from runner.core import files, layout
from runner.errors import RunnerError
from runner.history import history, records
from runner.run_directory import claim
from runner.runs import open_run

STEPS = (10, 20, 30, 40)


class Takeover:
    """The processes.

    Properties:
        Each step has a training row and an evaluation at the end, whichever process wrote the
            checkpoints, and even if a suspended process completes one late. (It may also complete
            one write late that it has begun, so one row may be there twice.)
    """

    def __init__(self, world):
        self.world = world
        self.folder = world.root / "run"
        self.folder.mkdir()
        self.extents = {}
        self.is_done = False
        first = world.process("first", self.train, host="a")
        second = world.process("second", functools.partial(self.train, begins=2.5), host="b")

        def are_over():
            return world.is_over(first) and world.is_over(second)

        world.process("last", self.train, host="c", crashes=False, after=are_over)
        world.replace(fcntl, "flock", no_locks)
        world.replace(integrity, "damage", damage)
        world.replace(extra_state.LogState, "read", lambda path: self.extents.get(path.name))

    def train(self, begins=0.0):
        self.world.sleep(begins)
        while not self.is_done:
            try:
                with claim.claimed(
                    self.folder,
                    note=[].append,
                    patience=PATIENCE,
                    clock=self.world.time,
                    sleep=self.world.sleep,
                ):
                    self.steps()
                    self.is_done = True
            except (RunnerError, OSError):  # in use, or lost, also between two operations
                self.world.sleep(10.0)

    def steps(self):
        rows = history.History(self.folder / layout.HISTORY)
        newest = recovery.newest_good(
            self.folder,
            best_folders=(),
            note=[].append,
            lost=functools.partial(open_run._lost, rows, self.folder),
        )
        begun = checkpoint_files.step_in(newest.name) if newest else 0
        rows.drop_after(begun)
        self.drop_after(begun)
        checkpoints = Checkpoints(self.folder, keep=2)
        for step in STEPS:
            if step < begun:
                continue
            if step > begun:
                self.world.sleep(1.0)
                files.append_json_line(self.folder / layout.TRAINING_ROWS, {"step": step})
                extents = extra_state.LogExtents(rows.extent, step)
                self.extents.setdefault(f"ckpt-{step}", extents)
                checkpoints.commit(step)
            if not rows.has(step):
                rows.append(records.Evaluation(step, {}, 0.0, 0.0, f"ckpt-{step}"))

    def drop_after(self, step):
        path = self.folder / layout.TRAINING_ROWS
        kept = [row for row in self.training_rows() if row["step"] <= step]
        files.write_text(path, "".join(f"{json.dumps(row)}\n" for row in kept))

    def training_rows(self):
        with contextlib.suppress(FileNotFoundError):
            return list(files.read_json_lines(self.folder / layout.TRAINING_ROWS))
        return []

    def check(self):
        if not self.is_done:
            raise ViolationError("the run has not ended")
        evaluations = history.History(self.folder / layout.HISTORY).evaluations
        for what, rows in (
            ("training rows", [row["step"] for row in self.training_rows()]),
            ("evaluations", [row.step for row in evaluations]),
        ):
            if sorted(set(rows)) != list(STEPS) or len(rows) > len(STEPS) + 1:
                raise ViolationError(f"the steps of the {what} are {rows}")


def of_three_hosts(world):
    return Takeover(world).check
