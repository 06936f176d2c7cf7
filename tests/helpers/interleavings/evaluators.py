"""Training that keeps one checkpoint, alongside an evaluator that evaluates all of them."""

import contextlib
import functools
import os
import time
import types
from pathlib import Path

from interleavings.scheduler import ViolationError
from runner.checkpoints import checkpoint_files, checkpoint_manager, integrity, recovery, retention
from runner.core import layout, signals
from runner.errors import RunnerError
from runner.evaluation import handover
from runner.history import history, records
from runner.run_directory import claim, status, watch
from runner.run_directory.state import State
from runner.runs import evaluator_run

STEPS = (10, 20, 30)
RESTART_SECONDS = 1.5
_DATA = ".data-00000-of-00001"


def damage(path):
    """In place of `integrity.damage`: whether one of the small files is missing or wrong."""
    try:
        data = Path(f"{path}{_DATA}").read_text()
        index = checkpoint_files.index(path).read_text()
    except OSError:
        return "a file is missing"
    return None if data == index == path.name else "the files do not match"


class Checkpoints(checkpoint_manager.Checkpoints):
    """Saves small files in place of a model's variables."""

    def __init__(self, folder, before_removal=lambda path: None, *, keep=1):
        checkpoint = types.SimpleNamespace(sync=lambda: None)
        super().__init__(
            checkpoint,
            folder,
            keep=retention.Keep(keep),
            asynchronous=False,
            before_removal=before_removal,
            note=[].append,
        )

    def commit(self, step):
        path = self.path(step)
        checkpoint_files.unshare(path)
        Path(f"{path}{_DATA}").write_text(path.name)
        checkpoint_files.index(path).write_text(path.name)
        self._written(str(path))


class EvaluatorRun(evaluator_run.EvaluatorRun):
    """Evaluates by reading the small files."""

    def __init__(self, world, model_dir, folder):
        self.world = world
        self._model_dir, self._folder = model_dir, folder
        self._options = types.SimpleNamespace(
            policy="every", from_step=0, min_seconds=0.0, max_evaluations=0
        )
        self._metrics = ("accuracy",)
        self.history = history.History(folder / layout.HISTORY)

    def _catch_up(self):
        pass

    def attempt(self, path):
        step = checkpoint_files.step_in(path.name)
        if reason := damage(path):
            raise ViolationError(f"a checkpoint cannot be evaluated: {reason}")
        if self.world.happens("term"):
            raise signals.Interrupted(15)
        row = records.Evaluation(step, {"accuracy": 0.5}, 0.0, time.time(), path.name)
        self.history.append(row)


class Alongside:
    """The processes.

    Properties:
        No evaluation is done twice, and none is missed, of all checkpoints that training saved or
            removed since the evaluator registered.
        No incomplete checkpoint is evaluated.
        Neither process ends with an error.
    """

    def __init__(self, world):
        self.world = world
        self.model_dir = world.root / "run"
        self.model_dir.mkdir()
        self.folder = layout.evaluator(self.model_dir, "a")
        self.registration = self.folder / layout.EVALUATOR
        self.removed = set()
        self.is_trained = self.is_evaluated = False
        before = None
        for _ in range(2):
            before = world.process("training", self.train, after=self.over(before))
        before = None
        for number in range(3):
            run = functools.partial(self.evaluate, number * RESTART_SECONDS)
            before = world.process("evaluator", run, after=self.over(before))
        world.replace(integrity, "damage", damage)
        world.replace(evaluator_run, "_POLL_SECONDS", 1.0)

    def over(self, process):
        return (lambda: self.world.is_over(process)) if process else None

    def claimed(self, folder):
        return claim.claimed(folder, note=[].append, clock=self.world.time, sleep=self.world.sleep)

    def train(self):
        if self.is_trained:
            return
        hand_over = handover.Handover(self.model_dir, clock=lambda: self.world.now).hand_over

        def before_removal(path):
            if os.access(self.registration, os.F_OK):
                self.removed.add(checkpoint_files.step_in(path.name))
            hand_over(path)

        with self.claimed(self.model_dir), status.StatusFile(self.model_dir) as state:
            newest = recovery.newest_good(self.model_dir, best_folders=(), note=[].append)
            begun = checkpoint_files.step_in(newest.name) if newest else 0
            checkpoints = Checkpoints(self.model_dir, before_removal)
            for step in STEPS:
                if step > begun:
                    self.world.sleep(1.0)
                    checkpoints.commit(step)
            state.write(State.DONE, STEPS[-1])
        self.is_trained = True

    def evaluate(self, delay):
        if self.is_evaluated:
            return
        self.world.sleep(delay)
        training = watch.Watch(
            self.model_dir, timeout=None, note=[].append, clock=lambda: self.world.now
        )
        with contextlib.suppress(signals.Interrupted), self.claimed(self.folder):
            run = EvaluatorRun(self.world, self.model_dir, self.folder)
            with contextlib.suppress(RunnerError):  # there was nothing to evaluate
                run.follow(training, clock=lambda: self.world.now, sleep=self.world.sleep)
            self.is_evaluated = True

    def check(self):
        if not (self.is_trained and self.is_evaluated):
            raise ViolationError("a process has not ended")
        steps = [row.step for row in history.History(self.folder / layout.HISTORY).evaluations]
        if len(steps) != len(set(steps)):
            raise ViolationError("a checkpoint was evaluated twice")
        there = set(checkpoint_files.steps(self.model_dir))
        if missed := sorted((self.removed | there) - set(steps)):
            raise ViolationError(f"not evaluated: {', '.join(map(str, missed))}")


def alongside(world):
    return Alongside(world).check
