"""A process that only evaluates, and writes only to its own directory."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner import errors
from runner.checkpoints import checkpoint_files, integrity, restore
from runner.configuration import limits
from runner.core import closing, console, files, layout, secrets, user_code
from runner.data import determinism, windows
from runner.devices import team
from runner.errors import ConfigError, RunnerError
from runner.evaluation import (
    checkpoint_queue,
    evaluation_log,
    final_test,
    handover,
    metric_names,
    weight_mean,
)
from runner.history import history, policies, records
from runner.reporting import progress, writers
from runner.run_directory import watch
from runner.run_directory.run import run_in
from runner.runs import build, evaluations
from runner.runs.call import Call
from runner.storage import display_names

_POLL_SECONDS = 0.2
_NAMED = 8  # the name of a mean's directory lists up to this many steps


class EvaluatorRun:
    """Evaluates checkpoints of a training run, and records the results in its own directory.

    Args:
        call: The user's request. The training run need not exist yet.
        plan: Decides which evaluations are the best.
        folder: The evaluator's own directory.
        keeps_best: Whether the best checkpoints are kept in `folder`.

    Attributes:
        evaluator: Holds the weights.
        history: The evaluations, and the checkpoints that could not be evaluated.
    """

    def __init__(
        self, call: Call, plan: policies.Policies, folder: Path, *, keeps_best: bool = True
    ) -> None:
        config, self._model_dir = call.config, call.model_dir
        self._config = config
        self._options = config.run.evaluator
        self._folder = folder
        self._secrets = list(secrets.held(config.as_dict()))
        team.current().open()
        self.evaluator = build.build_evaluator(call, folder)
        name = layout.evaluator_name(folder)
        self._metrics = metric_names.check(
            config, self.evaluator, self._model_dir, evaluates=True, evaluator=name
        )
        self.history = history.History(folder / layout.HISTORY)
        if keeps_best:
            self._check_limit(config.run.limit_evaluation)
        for line in limits.describe(config, trains=False, evaluates=True):
            console.say(line)
        self._line = progress.Progress()
        self._boards = evaluations.build_boards(
            config, folder, writers.Writers(config.run.writers), tags=call.given.tags
        )
        self._failures = 0  # consecutive
        self._evaluation = evaluations.build_evaluation(
            config,
            self.evaluator,
            plan,
            evaluations.Outputs(folder, self.history, self._boards, self._line),
            actions=call.eval_actions,
            keeps_best=keeps_best,
        )
        own = folder if keeps_best else self._model_dir
        best = [own / name for name in plan.best_folders]
        self._final_test = final_test.build(
            config, self.evaluator, folder, best_folders=best, rows=self.history
        )
        team.current().lead()

    def evaluate(self, path: Path) -> None:
        """Restores a checkpoint, evaluates it and records the result.

        Raises:
            DamagedError: it is damaged or missing.
            ConfigError: it was written for another model.
        """
        self.evaluator.restore(path)
        self._evaluation.run(restore.step_of(path), path)

    def attempt(self, path: Path) -> str | None:
        """Like `evaluate`, but records a checkpoint that cannot be evaluated, and continues.

        It also continues after an exception in an evaluation or an action, because the next one may
        succeed.

        Returns:
            The reason to stop that an action gave, or None.

        Raises:
            ConfigError: the configuration does not fit the checkpoint, or has another mistake.
            RunnerError: too many failures in a row.
        """
        step = checkpoint_files.step_in(path.name) or 0
        try:
            self.evaluator.restore(path)
            scores = self._evaluation.score(step)
        except restore.DamagedError as error:
            self._leave_out(path, records.Damaged, error.reason)
            return None
        except Exception as error:
            self._fail(path, "the evaluation", error)
            return None
        self._evaluation.record(step, path, scores)
        try:
            reason = self._evaluation.act(scores)
        except Exception as error:
            self._fail(path, "an action after the evaluation", error)
            return None
        self._failures = 0
        return reason

    def evaluate_mean(self, paths: Sequence[Path]) -> None:
        """Evaluates the mean of several checkpoints' weights, and keeps it in its own directory.

        Raises:
            ConfigError: the checkpoints do not hold the same weights.
            RunnerError: the training data ended before the statistics of batch normalization were
                computed.
        """
        steps = [restore.step_of(path) for path in paths]
        some = steps if len(steps) <= _NAMED else (steps[0], "to", steps[-1], len(steps))
        name = "-".join(map(str, ("mean", *some)))
        target = self._folder / name / checkpoint_files.name_of(steps[-1])
        run = run_in(self._model_dir)
        reading = run.reading if run else windows.Reading()
        weight_mean.write(
            self.evaluator,
            paths,
            target,
            inputs=lambda: (
                build.training_inputs(
                    self._config, self.evaluator.task, 0, reading, determinism.Determinism()
                ).dataset
            ),
            batches=self._config.run.weight_mean.batches,
        )
        checkpoint_files.list_committed(target.parent, [target.name])
        self._evaluation.run(steps[-1], target)
        listed, where = ", ".join(f"{n:,}" for n in steps), display_names.of(target.parent)
        console.say(f"the mean of the weights at steps {listed} is in {where}")

    def evaluate_initial(self, path: Path) -> None:
        """Evaluates the task's `init_checkpoint` and records the result as that of step 0.

        Raises:
            ConfigError: it does not cover all weights.
        """
        try:
            with team.current().together("initialize"):
                self.evaluator.initialize(whole=True)
        except ConfigError as error:
            none = f"there is no checkpoint to evaluate in {self._model_dir}, and"
            raise ConfigError(f"{none} init_checkpoint cannot be evaluated: {error}") from error
        self._evaluation.run(0, path)

    def follow(
        self,
        training: watch.Watch,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> str | None:
        """Evaluates checkpoints while training writes them, and the last one after it has ended.

        Args:
            training: The state of the run.
            clock: Returns seconds. Tests can replace it.
            sleep: Waits for a number of seconds. Tests can replace it.

        Returns:
            The reason to stop that an action gave, or None.

        Raises:
            RunnerError: no heartbeat for too long, too many failures, or training ended before
                there was a checkpoint to evaluate.
            ConfigError: a checkpoint was written for another model.
        """
        self._catch_up()
        kept = checkpoint_queue.CheckpointQueue(
            self._model_dir, self._folder, self.history, self._options
        )
        with closing.closing(kept) as todo:
            try:
                with handover.registered(
                    self._folder, policy=self._options.policy, metrics=self._metrics or ()
                ):
                    reason = self._follow(training, todo, clock, sleep)
            except ConfigError:
                todo.clear()
                raise
            todo.clear()
        if reason:
            console.say(f"stopped: {reason}")
        elif not self.history.steps:
            raise RunnerError(self._why_nothing(training))
        return reason

    def test(self) -> dict[str, Any]:
        """Tests the configured weights, once training has ended."""
        last = checkpoint_files.latest(self._model_dir)
        if self._final_test is None or last is None:
            return {}
        return self._final_test.run(restore.step_of(last), last)

    def close(self) -> None:
        """Flushes buffered data."""
        closing.close(self._line, self._boards)

    def _follow(
        self,
        training: watch.Watch,
        todo: checkpoint_queue.CheckpointQueue,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> str | None:
        earliest = clock()
        while not self._enough():
            files.check(self._folder)  # otherwise a waiting evaluator would not notice a move
            state = training.look()  # first, so that the last checkpoint of an ended run is on disk
            waits = state == "running" and clock() < earliest
            path = None if waits else todo.next()
            if path:
                earliest = clock() + self._options.min_seconds
                if reason := self.attempt(path):
                    return reason
            elif state in watch.ENDED:
                break
            elif reason := training.wait():
                return reason
            else:
                sleep(_POLL_SECONDS)
        return None

    def _check_limit(self, limit: int) -> None:
        """Raises ConfigError if earlier evaluations had another limit and are not comparable."""
        if before := {row.limited for row in self.history.evaluations} - {limit}:
            was = ", ".join(map(str, sorted(before)))
            raise ConfigError(
                f"RunConfig.limit_evaluation = {limit}: evaluations in {self._folder} had {was}, "
                "and are not comparable. Set another EvaluatorConfig.name"
            )

    def _why_nothing(self, training: watch.Watch) -> str:
        """Explains why there is no evaluation, although training has ended."""
        if failed := self.history.left_out:
            last = f"the last: {failed[-1].checkpoint}: {failed[-1].reason}"
            return f"not one of {len(failed)} checkpoints could be evaluated; {last}"
        ended = f"nothing was evaluated: training in {self._model_dir} is {training.state}"
        newest = checkpoint_files.latest(self._model_dir)
        if newest is None:
            return f"{ended}, and left no checkpoint"
        first = f"EvaluatorConfig.from_step = {self._options.from_step}"
        return f"{ended} at step {restore.step_of(newest):,}, before {first}"

    def _catch_up(self) -> None:
        """Updates best/ with the newest evaluation, in case a kill came before that."""
        for row in [row for row in self.history.evaluations if row.is_own][-1:]:
            for folder in (self._folder, self._folder / layout.QUEUE, self._model_dir):
                path = folder / row.checkpoint
                if checkpoint_files.exists(path):
                    if integrity.damage(path) is None:
                        self._evaluation.log.catch_up(path)
                    return

    def _fail(self, path: Path, what: str, error: Exception) -> None:
        """Records that `error` ended the evaluation of a checkpoint, or gives up."""
        error = errors.from_graph(error) or error
        if isinstance(error, ConfigError):
            raise error
        reason = secrets.masked(f"{what} failed: {user_code.summary(error)}", self._secrets)
        self._leave_out(path, records.Failed, reason)
        user_code.keep(error, self._folder / layout.TRACEBACK, self._secrets)
        self._failures += 1
        most = self._options.max_failures
        if 0 < most <= self._failures:
            raise RunnerError(
                f"giving up after {most} failures in a row (EvaluatorConfig.max_failures); "
                f"the last: {path.name}: {reason}"
            ) from error

    def _leave_out(self, path: Path, kind: type[records.LeftOut], reason: str) -> None:
        step = checkpoint_files.step_in(path.name) or 0
        name = evaluation_log.checkpoint_name(path, self._model_dir)
        self.history.append(kind(step, name, reason, time.time()))
        console.say(f"skipping {name}: {reason}")

    def _enough(self) -> bool:
        most = self._options.max_evaluations
        return 0 < most <= len(self.history.steps)
