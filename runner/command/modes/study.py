"""`--mode=study`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import WRITES, Mode
from runner.command.modes.option import option
from runner.errors import ConfigError
from runner.runs.call import Call, Outcome


def _seeds(name: str, text: str) -> list[int]:
    from runner.studies import space

    if re.fullmatch(r"\d{1,9}", text) and 1 <= int(text) <= space.MOST:
        return list(range(int(text)))
    if re.fullmatch(r"\d{1,10}(,\d{1,10})*,?", text) and "," in text:
        return [int(seed) for seed in text.strip(",").split(",")]
    raise ConfigError(
        f"{{{name}}}: expected a number from 1 to {space.MOST:,}, or a list such as 3,7 or 3,",
        **{name: text},
    )


class Options(groups.InDirectory):
    """The search space. `StudyConfig` has the same settings and more."""

    section = "Options of study"
    seeds: Sequence[int] | None = option(
        None,
        "run each configuration with the seeds 0 to N-1, or with a list of seeds such as 3,7",
        "N",
        parse=_seeds,
        sets={"run.study.seeds": None},
    )
    folds: int | None = option(
        None,
        "run each configuration on N cross-validation folds",
        "N",
        parse=options_of.number,
        sets={"run.study.folds": None},
    )
    vary: Sequence[str] = option(
        (),
        "values for a gin parameter: a list, uniform(a, b), log(a, b) or int(a, b). Repeatable",
        "NAME=VALUES",
        repeated=True,
        sets={"run.study.vary": None},
    )
    trials: int | None = option(
        None,
        "number of configurations to try",
        "N",
        parse=options_of.number,
        sets={"run.study.trials": None},
    )
    jobs: int | None = option(
        None,
        "number of trials to run in parallel, or auto (the default)",
        "N",
        parse=options_of.jobs,
        sets={"run.study.jobs": None},
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.vary:
            from runner.studies import space

            space.parse(self.vary)

    def check(self, model_dir: str) -> None:
        """Checks that the flags or the gin files vary a parameter."""
        super().check(model_dir)
        varies = self.seeds or self.folds or self.vary
        may_vary = self.experiment or self.config_file or self.params_override
        if varies or may_vary or not self.gin_file:
            return
        from runner.configuration import gin_parser
        from runner.studies import space

        bindings = [
            statement
            for statement in gin_parser.read(self.gin_file, self.gin_params)
            if isinstance(statement, gin_parser.Binding)
        ]
        if not any(
            binding.parameter == "study" or binding.target.rpartition(".")[2] == "StudyConfig"
            for binding in bindings
        ):
            raise ConfigError(space.NOTHING_VARIES)


def study(call: Call, options: Options) -> Outcome:
    """Runs a resumable sweep over seeds and hyperparameters."""
    from runner.studies import study

    return Outcome(study.study(call, dry_run=options.dry_run))


def _warm_up(flags: Mapping[str, Any]) -> None:
    from runner.studies import warm

    warm.begin(flags)


MODE = Mode(
    study,
    Options,
    "Many runs",
    trains=True,
    evaluates=True,
    dry_run=study,
    begin=_warm_up,
    url=WRITES,
    instead_of_mirror="give --model_dir that URL",
    has_trials=True,
)
