"""Rules, applied to evaluations, that end a training run early or lower its learning rate.

A decision from the run's own evaluations is a fold over their rows, taken at once. A resumed run
folds the same rows. Another evaluator's evaluations arrive at any time. A decision from them is
taken only just before a checkpoint is saved, and is first written to the run's history. A resumed
run repeats it at that step.
"""

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path

from runner import config
from runner.configuration import functions
from runner.core import console, layout
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError
from runner.history import early_stopping, history, improvement, learning_rate_drops, records


class Decisions:
    """The decisions of one run, up to date with the rows of its history.

    Args:
        experiment: The experiment to train.
        model_dir: The run's directory, which contains those of its evaluators.
        rows: The run's history.
        due: Selects the part of one of the run's own evaluations that was scheduled at its step.
            The rest may exist because an earlier attempt ended there, at a step where a run of this
            length has no evaluation.
        scheduled: The scheduled learning rate at a step.
    """

    def __init__(
        self,
        experiment: config.Experiment,
        model_dir: Path,
        rows: history.History,
        *,
        due: Callable[[records.Evaluation], records.Evaluation] = lambda row: row,
        scheduled: Callable[[int], float] = lambda _: math.inf,
    ) -> None:
        self.again = lambda: Decisions(experiment, model_dir, rows, due=due, scheduled=scheduled)
        self._rows = rows
        self._due = due
        self._scheduled = scheduled
        self._stopping = early_stopping.StoppingRule.of(experiment.run.early_stopping)
        self._plateau = learning_rate_drops.PlateauRule.of(experiment.run.plateau)
        self._floor = experiment.run.plateau.floor
        self._for_stopping = _Fold(self._stopping, model_dir, rows, due)
        self._for_plateau = _Fold(self._plateau, model_dir, rows, due)
        named = experiment.run.stopping_rules
        self._asked = [(rule.name, functions.build(rule)) for rule in named]
        self._expect(model_dir)
        self._end = experiment.trainer.train_steps
        self._stopped_for_good = self._was_stopped_for_good()
        self._stopped = self._has_stopped() or self._ask()
        self._scale = self._has_dropped()

    @property
    def stop_reason(self) -> str | None:
        """Why the run ends, or None if it continues."""
        return self._stopped or self._stopped_for_good

    @property
    def rate_scale(self) -> float:
        """The factor on the scheduled learning rate."""
        return learning_rate_drops.rollback_scale(self._rows.rollbacks) * self._scale

    def unheard(self) -> list[str]:
        """The evaluators that a rule names but that have produced no evaluation."""
        rules_of = ((self._stopping, self._for_stopping), (self._plateau, self._for_plateau))
        return sorted({rule.source for rule, fold in rules_of if rule.source and fold.is_empty})

    def stop_for_good(self, step: int, reason: str) -> None:
        """Records that a callback stops the run, so that a later attempt does not continue it."""
        if not self.stop_reason and step < self._end:
            self._rows.append(records.Stop(step, "", reason, time.time(), self._end))
            self._stopped_for_good = reason

    def evaluated(self) -> None:
        """Processes the run's own evaluations."""
        if not self._stopping.source:
            self._stopped = self._stopping.reason(self._for_stopping.after())
        self._stopped = self._stopped or self._ask()
        if not self._plateau.source:
            self._drop_to(self._plateau.scale(self._for_plateau.after()), self._rows.furthest)

    def before_commit(self, step: int) -> None:
        """Processes the evaluators' evaluations up to `step`, which is about to be saved."""
        if self._stopping.source and not self._stopped:
            self._stopped = self._stopping.reason(self._for_stopping.after(step))
            if self._stopped:
                source = self._stopping.source
                self._rows.append(records.Stop(step, source, self._stopped, time.time()))
        if self._plateau.source and not self._stopped:
            scale = self._plateau.scale(self._for_plateau.after(step))
            if scale < self._scale:
                self._rows.append(records.Drop(step, self._plateau.source, scale, time.time()))
                self._drop_to(scale, step)

    def _ask(self) -> str | None:
        """Applies the user's rules to all evaluations. Returns the first reason to stop, if any."""
        rows = map(self._due, self._rows.evaluations if self._asked else ())
        evaluations = [(row.step, dict(row.metrics)) for row in rows if row.metrics]
        for name, rule in self._asked if evaluations else ():
            reason = rule(evaluations)
            if reason is not None and not isinstance(reason, str):
                raise ConfigError(
                    f"RunConfig.stopping_rules: {name} returned {reason!r}; return the reason to "
                    "stop, a string, or None"
                )
            if reason:
                return reason
        return None

    def _drop_to(self, scale: float, step: int) -> None:
        """Lowers the scale, and reports it unless the learning rate at `step` is at its floor."""
        if scale == self._scale:
            return
        before, self._scale = self._scale, scale
        if self._stopped:
            return
        names, scheduled = " or ".join(self._plateau.watched.names), self._scheduled(step)
        rate = f"the learning rate is now {scale:.4g} times the scheduled one"
        if scale * scheduled >= self._floor:
            console.say(f"{names} did not improve: {rate}")
        elif before * scheduled > self._floor:
            console.say(
                f"{names} did not improve: the learning rate is now at its minimum, "
                f"PlateauConfig.floor = {self._floor:g}"
            )

    def _expect(self, model_dir: Path) -> None:
        """Reports the evaluators that rules name and that have not started."""
        there = [layout.evaluator_name(path) for path in layout.evaluators(model_dir)]
        for source in {self._stopping.source, self._plateau.source} - {"", *there}:
            others = f"; evaluators here: {', '.join(there)}" if there else ""
            console.say(
                f"decisions need evaluator {source!r}, which has not started yet{others}"
                f"{did_you_mean(source, there)}"
            )

    def _was_stopped_for_good(self) -> str | None:
        """Why a callback stopped an earlier attempt. A run that is longer now continues."""
        for stop in self._rows.of(records.Stop):
            if not stop.source and self._end > stop.end:
                console.say(
                    f"the run stopped at step {stop.step:,} ({stop.reason}), but is longer now, so "
                    "it continues"
                )
                self._rows.drop(stop)
            elif not stop.source:
                return stop.reason
        return None

    def _has_stopped(self) -> str | None:
        """Why the run has already ended. If the rule has changed since then, it decides again."""
        if not self._stopping.source:
            return self._stopping.reason(self._for_stopping.after())
        for stop in self._rows.of(records.Stop):
            if not stop.source:
                continue
            trend = self._for_stopping.after(stop.step)
            same = stop.source == self._stopping.source
            if same and (self._stopping.reason(trend) or self._for_stopping.is_empty):
                return stop.reason
            console.say(
                f"the rule that stopped the run has changed, so the run continues: {stop.reason}"
            )
            self._rows.drop(stop)
        return None

    def _has_dropped(self) -> float:
        """The current scale."""
        source = self._plateau.source
        if not source:
            return self._plateau.scale(self._for_plateau.after())
        drops = [drop.scale for drop in self._rows.of(records.Drop) if drop.source == source]
        return min(drops, default=1.0)


class _Fold:
    """A rule applied to the rows of its source, once to each."""

    def __init__(
        self,
        rule: early_stopping.StoppingRule | learning_rate_drops.PlateauRule,
        model_dir: Path,
        rows: history.History,
        due: Callable[[records.Evaluation], records.Evaluation],
    ) -> None:
        self._rule = rule
        self._due = due
        self._own = rows
        self._theirs = history.Tail(layout.evaluator(model_dir, rule.source) / layout.HISTORY)
        self._trend = improvement.Trend()
        self._taken = 0

    @property
    def is_empty(self) -> bool:
        """Whether there has been no row yet."""
        return not self._taken

    def after(self, step: int | None = None) -> improvement.Trend:
        """The rule's state after the rows up to `step`, or after all of the run's own rows."""
        new = self._theirs.take(step) if self._rule.source else self._own.evaluations[self._taken :]
        due = new if self._rule.source else map(self._due, new)
        self._trend = functools.reduce(self._rule.step, due, self._trend)
        self._taken += len(new)
        return self._trend
