"""Builds the actions that a configuration names, like Orbit's ConditionalAction."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.config import Experiment
from runner.configuration import functions
from runner.core import schedule
from runner.history import best_evaluation, history
from runner.run_config import ActionConfig


class _Conditional:
    """An action that is called only when it is due."""

    def __init__(self, config: ActionConfig, due: Callable[[], bool] = lambda: True) -> None:
        self._due = due
        self._action = functions.build(config.action)

    def __call__(self, logs: Mapping[str, Any]) -> Any:
        return self._action(logs) if self._due() else None


def after_loops(
    config: Experiment, grid: schedule.Grid, step: Callable[[], int]
) -> list[schedule.Action]:
    """Returns the actions after training loops. `step` returns the last step of the last loop."""

    def conditional(each: ActionConfig) -> schedule.Action:
        return _Conditional(each, lambda: not each.every or grid.due(step(), each.every))

    return [conditional(each) for each in config.run.actions if each.at == "loop"]


def after_evaluations(
    config: Experiment, rule: best_evaluation.BestRule | None, rows: history.History
) -> list[schedule.Action]:
    """Returns the actions after evaluations. The last evaluation is in `rows` by then."""

    def is_best() -> bool:
        return rule is not None and rule.best(rows.evaluations) == rows.evaluations[-1]

    return [
        _Conditional(each, is_best) if each.at == "best" else _Conditional(each)
        for each in config.run.actions
        if each.at in ("best", "evaluation")
    ]


def at_end(config: Experiment) -> list[schedule.Action]:
    """Returns the actions at the end of training."""
    return [_Conditional(each) for each in config.run.actions if each.at == "end"]
