"""A run that trains: restored, fed, logged, driven."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner.checkpoints import checkpoint_manager, extra_state, recovery, retention
from runner.config import Experiment
from runner.configuration import schedules
from runner.core import closing, console, files, layout, schedule, signals
from runner.devices import strategy
from runner.errors import ConfigError
from runner.evaluation import evaluation, evaluation_log, handover, metric_names
from runner.history import history, policies
from runner.optimizers import learning_rate
from runner.reporting import overview, progress
from runner.run_folder import claim, status
from runner.runs import build
from runner.training import (
    controller,
    decisions,
    divergence,
    profiling,
    reproducibility,
    training_log,
)


class Training:
    """A run that trains, at its newest checkpoint or at the start.

    Args:
        config: The experiment.
        model_dir: The run's folder.
        evaluates: Whether it evaluates, too.
        stop: Whether a signal has come.
        held: The claim to the folder.
        given: What a caller has made already.
        profile_steps: The first and the last step to profile, None for none.
        evaluators: The folder whose evaluators decide, where it is not `model_dir`.
        allow_lost_history: Whether the run may go on without rows that its history has lost.

    Attributes:
        trainer: Holds the state.
        rows: Evaluations and decisions.
        log: The training rows.
        line: What a person sees.

    Raises:
        ConfigError: the configuration asks for what cannot be built.
        RunnerError: no checkpoint can be restored.
    """

    def __init__(
        self,
        config: Experiment,
        model_dir: Path,
        *,
        evaluates: bool,
        stop: signals.Stop,
        held: claim.Claim,
        given: build.Given = build.Given(),  # noqa: B008, immutable
        profile_steps: tuple[int, int] | None = None,
        evaluators: Path | None = None,
        allow_lost_history: bool = False,
    ) -> None:
        self._config = config
        self._held = held
        self._model_dir = model_dir
        self._stop = stop
        self._grid = policies.grid(config, evaluates=evaluates)
        self._source = recovery.newest_good(
            model_dir, best_folders=list(policies.best_rules(config)), note=console.say
        )
        start = checkpoint_manager.step_of(self._source) if self._source else 0
        self.history = history.History(model_dir / layout.HISTORY)
        written = extra_state.Logs.of(self._source) if self._source else None
        if written:
            self._check_history(written.history, allow=allow_lost_history)
        self.history.drop_after(start)
        self.trainer, self._rate_scale = build.build_trainer(
            config,
            model_dir,
            step=start,
            rows=self.history,
            evaluates=evaluates,
            stop=stop,
            given=given,
        )
        self._pruning = build.build_pruning(config, self.trainer, model_dir)
        self._store = checkpoint_manager.Checkpoints(
            self.trainer.checkpoint,
            model_dir,
            keep=retention.Keep(
                config.trainer.max_to_keep, config.run.retention.every, self._grid.commits
            ),
            asynchronous=config.run.async_checkpoints,
            best_folders=[model_dir / name for name in policies.best_rules(config)],
            before_removal=handover.Recipients(model_dir).hand_over,
        )
        self._decisions = self._decided()
        self._view = build.build_overview(self.trainer)
        self._utilization = build.build_utilization(config, self.trainer, self._view)
        self.log = training_log.TrainingLog(
            model_dir,
            resumed_at=start,
            draws=config.run.tensorboard,
            draws_every=config.run.summary_seconds,
            utilization=self._utilization,
        )
        if written and self.log.step < written.training:
            console.say(
                f"{model_dir / layout.TRAINING_ROWS} has lost training rows: the newest is of step "
                f"{self.log.step:,}, and {self._source} followed one of step {written.training:,}"
            )
        self._begin()
        metric_names.check(config, self.trainer, evaluators or model_dir, evaluates=evaluates)
        if not self._source and config.trainer.recovery_max_trials > 0:
            self._commit(0)  # something to roll back to
        self.line = progress.Progress(
            self._grid.end,
            epochs=config.run.epochs.train,
            metric=policies.shown(config),
            evaluations_left=self._grid.evaluations_after,
            utilization=self._utilization,
            hand_over=self.log.do,
        )
        self._profiled = self._build_profiled(profile_steps)
        self._final_test = (
            build.build_test(
                config,
                self.trainer,
                model_dir,
                rows=self.history,
            )
            if evaluates
            else None
        )
        self._boards = build.build_boards(
            config,
            model_dir,
            validation=config.trainer.validation_summary_subdir,
            purge_from=start + 1,
        )

    def report(self) -> None:
        """Says what is about to be trained, from where, and how exactly it would resume."""
        files.write_json(self._model_dir / layout.OVERVIEW, self._view.as_dict())
        console.say(overview.render(self._view))
        if self._utilization:
            console.say(str(self._utilization.peak))
        if not self._grid.evaluations and (others := policies.left_to_evaluators(self._config)):
            console.say(f"left to evaluators: {', '.join(others)}")
        console.say(
            f"resumed at step {self.trainer.step:,} from {self._source}"
            if self._source
            else f"new run in {self._model_dir}"
        )
        seconds, kept = self._config.run.checkpoint_seconds, self._config.trainer.max_to_keep
        clock = f", and after {seconds:g} s without one" if seconds else ""
        console.say(
            f"checkpoints {self._grid.describe_commits()}{clock}; the newest {kept} are kept"
        )
        console.say(strategy.describe(self.trainer.strategy, self.trainer.model))
        for complaint in schedules.complaints(self._config, self._rates):
            console.say(complaint)
        console.say(
            reproducibility.describe(
                self._config.task.train_data,
                self.trainer.training_graph,
                self.trainer.step,
                remembered=self.trainer.remembers_inputs,
                deterministic=self._config.run.deterministic,
                lost=self.trainer.determinism.lost,
            )
        )

    @property
    def devices(self) -> list[str]:
        """The names of the devices that TensorFlow sees, and the strategy that uses them."""
        names = [device.name for device in tf.config.list_logical_devices()]
        return [*names, type(self.trainer.strategy).__name__]

    def save(self) -> Path:
        """Commits the present state at once; returns the checkpoint."""
        step = self.trainer.step
        self._commit(step)
        self._store.wait()
        return self._store.path(step)

    def unheard(self) -> list[str]:
        """The evaluators that were to decide something, and evaluated nothing."""
        return self._decisions.unheard()

    def test(self, step: int) -> dict[str, Any]:
        """Tests weights as the configuration asks for; the run ended at `step`, and stays there."""
        return self._final_test.run(step, self._store.path(step)) if self._final_test else {}

    def build_controller(
        self,
        beat: status.StatusFile,
        train_actions: Sequence[schedule.Action],
        eval_actions: Sequence[schedule.Action],
    ) -> controller.Controller:
        """What drives the run to its end."""
        evaluate = build.build_evaluation(
            self._config,
            self.trainer,
            self._model_dir,
            boards=self._boards,
            rows=self.history,
            line=self.line,
            eval_actions=eval_actions,
            grid=self._grid,
        )
        if self._source:
            best = evaluate.log.catch_up(self._source)
            for newest in self.history.evaluations[-1:]:
                self.line.resumed(newest, best)
        guard = divergence.Divergence(
            self.trainer,
            self._store,
            self.history,
            trials=self._config.trainer.recovery_max_trials,
            rate=self._config.run.rollback_rate,
            go_back=lambda step: self._go_back(step, evaluate.log),
        )

        def after_loop(loop: schedule.Loop) -> None:
            self.log.write(loop, input_wait=self.trainer.waits.share)
            if complaint := self.trainer.waits.complaint():
                console.say(complaint)
            loss = loop.logs["training_loss"]
            self.line.training(loop.step, loop.steps, loop.seconds, lambda: float(loss))
            beat.beat(loop.step)

        return controller.Controller(
            self._grid,
            step=self.trainer.step,
            trainer=self._profiled or self.trainer,
            position=lambda: self.trainer.step,
            broken=guard.found,
            recover=guard.recover,
            decide=self._decide,
            commit=self._commit,
            wait=self._store.wait,
            evaluate=lambda step: self._evaluate(evaluate, step),
            evaluated=self.history.has,
            finish=lambda step: evaluate.finish(
                step, self._store.path(step), before_record=self._store.wait
            ),
            after_loop=after_loop,
            actions=(*self._pruning, *train_actions),
            stop=self._stop,
            seconds=self._config.run.checkpoint_seconds,
        )

    def close(self) -> None:
        """Flushes what is still in memory."""
        closing.close(self._profiled, self.log, self.line, self._boards)

    def _build_profiled(self, steps: tuple[int, int] | None) -> profiling.Profiled | None:
        every = self._config.run.profile_every
        if steps is None and not every:
            return None
        if steps and every:
            console.say("--profile_steps counts, and not RunConfig.profile_every")
        chosen = profiling.Steps(*steps) if steps else profiling.each(every)
        folder = self._model_dir / layout.TRAIN
        return profiling.Profiled(self.trainer, chosen, folder, note=console.say)

    def _rates(self, steps: Sequence[int]) -> Sequence[float]:
        return learning_rate.rates(self.trainer.optimizer, steps)

    def _check_history(self, then: history.Extent, *, allow: bool) -> None:
        """Compares the rows with those that there were when the checkpoint was committed."""
        lost = self.history.lost(then)
        if not lost:
            return
        said = f"{self._model_dir / layout.HISTORY} has lost {lost} that {self._source} followed"
        if not allow:
            raise ConfigError(
                f"{said}.\nEarly stopping, the learning rate and the best checkpoint follow from "
                "its rows: put back a copy of the file, or go on with what is left by "
                "--allow_lost_history"
            )
        console.say(f"{said}; going on with what is left")

    def _begin(self) -> None:
        """Restores the newest checkpoint, or starts."""
        if self._source:
            self._restore(self._source)
            with self.trainer.strategy.scope():
                from_start = self._inputs(0)
            self.trainer.recall(from_start)
            return
        self.trainer.initialize()

    def _restore(self, path: Path) -> None:
        with learning_rate.as_configured(self.trainer.optimizer):
            self._store.restore(path)
        self._rate_scale.assign(self._decisions.rate_scale)

    def _decided(self) -> decisions.Decisions:
        return decisions.Decisions(self._config, self._model_dir, self.history)

    def _go_back(self, step: int, log: evaluation_log.EvaluationLog) -> None:
        if self.history.drop_after(step):
            self._decisions = self._decided()
            log.catch_up(self._store.path(step))
        self._restore(self._store.path(step))
        self.trainer.recall()
        with self.trainer.strategy.scope():
            self.trainer.feed(self._inputs(step))
        self.log.rewind(step)
        console.say(f"{self.history.rollbacks[-1].reason}: rolled back to step {step:,}")

    def _inputs(self, step: int) -> Any:
        run = self.trainer
        return build.training_inputs(self._config, run.task, step, self.history, run.determinism)

    def _decide(self, step: int) -> str | None:
        self._decisions.before_commit(step)
        self._rate_scale.assign(self._decisions.rate_scale)
        return self._decisions.stop_reason

    def _commit(self, step: int) -> None:
        self._held.check()
        self.log.flush()
        self.trainer.logs.take(extra_state.Written(self.history.extent, self.log.step))
        self.trainer.remember()
        self._store.commit(step)

    def _evaluate(self, evaluate: evaluation.Evaluation, step: int) -> str | None:
        reason = evaluate.run(
            step, self._store.path(step), before_record=self._store.wait, commit=self.save
        )
        self._decisions.evaluated()
        self._rate_scale.assign(self._decisions.rate_scale)
        return reason or self._decisions.stop_reason
