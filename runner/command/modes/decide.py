"""`--mode=decide`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.errors import ConfigError
from runner.runs.call import Call, Outcome


def _fraction(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{{{name}}}: expected a number", **{name: text}) from None


class Options(groups.Options):
    """The two configurations, and how to decide."""

    section = "Options of decide"
    configurations: Sequence[Path] = option(
        (),
        "the baseline and the candidate, each a gin file or the directory of a run. The flag may "
        "be omitted: runner --mode=decide baseline.gin candidate.gin --model_dir=decisions",
        "BASELINE,CANDIDATE",
        parse=options_of.directories,
        without="two files without a flag",
    )
    gin_params: Sequence[str] = option(
        (),
        "a gin binding for both. Repeatable. Short form: --gin.NAME=VALUE",
        "NAME=VALUE",
        repeated=True,
        shell=True,
    )
    seeds: int = option(30, "maximum number of seeds (30 by default)", "N", parse=options_of.number)
    margin: float = option(
        0.0,
        "differences of the metric up to this size do not matter. Without it, every difference "
        "matters",
        "SIZE",
        parse=_fraction,
    )
    level: float = option(
        0.05,
        "probability of any wrong decision in the directory, if there are no differences (0.05 by "
        "default)",
        "LEVEL",
        parse=_fraction,
    )
    jobs: int = option(
        0,
        "number of trials to run in parallel, or auto (the default)",
        "N",
        parse=options_of.jobs,
    )
    dry_run: bool = option(False, "only check both configurations")

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if len(self.configurations) != 2:
            raise ConfigError(
                "decide needs two gin files or runs, but {configurations} is missing or has "
                "another number. Example: runner --mode=decide baseline.gin candidate.gin "
                "--model_dir=decisions",
                configurations=None,
            )
        from runner.studies import sequential

        if self.seeds < sequential.LEAST:
            raise ConfigError(
                f"{{seeds}}: must be {sequential.LEAST} or more", seeds=str(self.seeds)
            )
        if not self.margin >= 0:
            raise ConfigError("{margin}: must be 0 or more", margin=f"{self.margin:g}")
        if not 0 < self.level < 1:
            raise ConfigError("{level}: must be between 0 and 1", level=f"{self.level:g}")

    def check(self, model_dir: str) -> None:
        """Checks that there is a directory."""
        super().check(model_dir)
        if not model_dir:
            raise ConfigError("decide needs --model_dir, the directory of the decisions")


def decide(call: Call, options: Options) -> Outcome:
    """Decides with few seeds whether a candidate is better than a baseline. Exits with 0 if so."""
    given = [str(each) for each in options.configurations]
    if not options.dry_run:
        from runner.studies import warm

        files = [each for each in given if Path(each).is_file()]
        warm.begin({"gin_file": files[-1:], "gin_params": options.gin_params})
    from runner.studies import decision

    rules = decision.Rules(options.seeds, options.margin, options.level, options.jobs)
    results = decision.decide(call, given, options.gin_params, rules, dry_run=options.dry_run)
    return Outcome(results)


MODE = Mode(
    decide,
    Options,
    "Many runs",
    directory="of the decisions",
    positional="configurations",
    dry_run=decide,
)
