"""Plans a study's trials, with pure functions of its configuration and of the existing trials."""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.core import schedule, spelling
from runner.errors import ConfigError
from runner.run_directory.state import FINISHED, State
from runner.studies import goals, race, rungs, sequential, space, suggest, trial
from runner.studies.goals import Goals
from runner.studies.population import Population
from runner.studies.race import Race
from runner.studies.rungs import Rungs
from runner.studies.trial import Trial

if TYPE_CHECKING:
    from runner import config, run_config

_RANDOM = ("random", "quasi_random")
_DRAWS = 100  # of a random choice, until it is a new one
_LEARNING = ("tpe", "cma_es", "nsga2")  # strategies that choose from results

CHOICE = "choice"
"""In trial.json: the number of the strategy's choice that the trial belongs to."""


@dataclasses.dataclass
class Plan:
    """The plan of a study.

    Attributes:
        options: The study's config class.
        parameters: The parameters that vary.
        seeds: The seeds of each configuration.
        folds: The folds of each configuration, or (None,) without folds.
        objective: Decides which trial is better.
        goals: All objectives and limits.
        rungs: The steps at which trials pause, or None if they do not pause.
        race: Adds seeds until the best configuration is decided, or None to train all seeds.
        configurations: The text of config.gin by its name, for trials with the parameter
            `space.FILE`.
        is_tested: Whether the chosen configuration is tested at the end, if there are test data.
    """

    options: "run_config.StudyConfig"
    parameters: Sequence[space.Parameter]
    seeds: Sequence[int]
    folds: Sequence[int | None]
    objective: trial.Objective
    goals: Goals = Goals()  # noqa: RUF009, immutable
    rungs: Rungs | Population | None = None
    race: Race | None = None
    configurations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_tested: bool = True

    def __post_init__(self) -> None:
        self._chosen: dict[int, Mapping[str, Any]] = {}
        self._before: dict[int, Trial] = {}

    def begin(self, there: Sequence[Trial]) -> None:
        """Starts to count failures. Earlier ones may have a resolved cause, such as a full disk."""
        self._before = {each.number: each for each in there}

    def is_final(self, one: Trial) -> bool:
        """Returns whether a trial will not be retried."""
        if one.state in (*FINISHED, State.DIVERGED, State.REJECTED):
            return True
        before = self._before.get(one.number)
        failures = one.failures - (before.failures if before else 0)
        kills = one.kills - (before.kills if before else 0)
        has_given_up = failures >= self.options.tries or kills >= trial.MOST_KILLS
        return one.state in (State.FAILED, State.PREEMPTED) and has_given_up

    def lacks_measures(self, one: Trial) -> bool:
        """Returns whether a trial's model must be exported, because its file is measured."""
        if one.state not in FINISHED or not one.best:
            return False
        return any(name not in one.best for name in self.goals.measures)

    def gin(self, facts: Mapping[str, Any]) -> str | None:
        """Returns the text of a trial's own config.gin, or None if it has none."""
        return self.configurations.get(facts["parameters"].get(space.FILE))

    def includes(self, one: Trial) -> bool:
        """Returns whether a trial is part of the plan, and not of another decision."""
        return not self.configurations or one.parameters.get(space.FILE) in self.configurations

    @property
    def is_grid(self) -> bool:
        """Whether the values alone determine the configurations."""
        return self.options.strategy == "grid"

    @property
    def size(self) -> int:
        """The maximum number of trials."""
        again = min(self.options.best, self._choices) * len(self._further)
        return (self._choices * len(self.seeds) + again) * len(self.folds)

    @property
    def _further(self) -> Sequence[int]:
        """The additional seeds for the best configurations."""
        return [int(each) for each in self.options.seeds_of_best if each not in self.seeds]

    @property
    def _choices(self) -> int:
        count = len(space.grid(self.parameters)) if self.is_grid else self.options.trials
        return min(count, self.options.trials or count)

    def wanted(self, there: Sequence[Trial]) -> Iterator[dict[str, Any]]:
        """Yields the facts of the trials to create, as far as they can be known now."""
        chosen = [*self._configurations(there)]
        if self.race:
            standing = self.race.standing(self.scores(chosen, there))
            ahead = self.options.jobs // max(len(standing.remaining), 1) - 1
            seeds = 0 if standing.is_over else standing.seeds + max(ahead, 0)
            for number in standing.remaining:
                yield from self._trials(number, chosen[number], self.seeds[:seeds])
            return
        for number, each in enumerate(chosen):
            yield from self._trials(number, each, self.seeds)
        if isinstance(self.rungs, Population):
            yield from self.rungs.copies(there)
        if self.options.best and len(chosen) == self._choices:
            for number in self._best(chosen, there):
                yield from self._trials(number, chosen[number], self._further)

    def _trials(
        self, number: int, chosen: Mapping[str, Any], seeds: Sequence[int]
    ) -> Iterator[dict[str, Any]]:
        for fold in self.folds:
            for seed in seeds:
                facts = {"parameters": dict(chosen), "seed": seed, "fold": fold}
                facts |= {} if self.is_grid else {CHOICE: number}
                yield facts | self.goals.facts | (self.race.facts if self.race else {})

    def scores(
        self, chosen: Sequence[Mapping[str, Any]], there: Sequence[Trial]
    ) -> list[list[float]]:
        """Returns the scores of each configuration, as for `Race.standing`."""
        trials = self._by_configuration(there)
        return [
            race.scores(trials.get(trial.configuration(each), ()), self.seeds, self.is_final)
            for each in chosen
        ]

    def _best(self, chosen: Sequence[Mapping[str, Any]], there: Sequence[Trial]) -> list[int]:
        """Returns the numbers of the best configurations, or none while results may change."""
        trials = self._by_configuration(there)
        values = []
        first = {
            trial.configuration(each): number for number, each in reversed([*enumerate(chosen)])
        }
        for number in sorted(first.values()):  # a strategy may choose a configuration twice
            each = chosen[number]
            own = trials.get(trial.configuration(each), ())
            if not self._has_ended(own):
                return []
            within = not any((excess or 0) > 0 for excess in self._result(each, own).excess)
            if within and (value := self._value(own)) is not None and math.isfinite(value):
                values.append((value, number))
        return [number for _, number in sorted(values)[: self.options.best]]

    def _configurations(self, there: Sequence[Trial]) -> Iterator[Mapping[str, Any]]:
        if self.is_grid:
            yield from space.grid(self.parameters)[: self._choices]
            return
        for each in there:
            if CHOICE in each.more:
                self._chosen.setdefault(each.more[CHOICE], each.parameters)
        by_configuration = self._by_configuration(there)
        results: list[suggest.Result] = []
        for number in range(self._choices):
            if number not in self._chosen:
                known = self._results(number, results, by_configuration)
                if known is None:
                    return
                self._chosen[number] = self._choose(number, known)
            yield self._chosen[number]

    def _choose(self, number: int, known: Sequence[suggest.Result]) -> Mapping[str, Any]:
        """Makes choice `number`. Random strategies draw again if it repeats an earlier one."""
        earlier = {trial.configuration(self._chosen[each]) for each in range(number)}
        is_random = self.options.strategy in _RANDOM
        for draw in range(_DRAWS if is_random else 1):
            made = suggest.choose(
                self.options.strategy,
                self.parameters,
                number + draw * space.MOST,
                known,
                seed=self.options.seed,
                lag=self.options.lag,
                goals=self.goals,
            )
            if trial.configuration(made) not in earlier:
                break
        return made

    @property
    def repeated(self) -> int:
        """The number of choices so far that repeat an earlier one."""
        return len(self._chosen) - len({*map(trial.configuration, self._chosen.values())})

    def _results(
        self,
        number: int,
        results: list[suggest.Result],
        by_configuration: Mapping[str, Sequence[Trial]],
    ) -> Sequence[suggest.Result] | None:
        """Returns the results that choice `number` may use, or None while they are missing.

        Extends `results`.
        """
        if self.options.strategy in _RANDOM:
            return ()
        needed = max(number - self.options.lag + 1, 0)
        while len(results) < needed:
            chosen = self._chosen[len(results)]
            trials = by_configuration.get(trial.configuration(chosen), ())
            if not self._has_ended(trials):
                return None
            results.append(self._result(chosen, trials))
        return results[:needed]

    def _by_configuration(self, there: Sequence[Trial]) -> Mapping[str, Sequence[Trial]]:
        """Returns the trials that each configuration is judged by."""
        found = collections.defaultdict(list)
        for each in there:
            if each.seed in self.seeds and each.fold in self.folds:
                found[each.configuration].append(each)
        return found

    def _has_ended(self, trials: Sequence[Trial]) -> bool:
        """Returns whether these are all trials of a configuration and none will be retried."""
        ended = sum(self.is_final(each) and not self.lacks_measures(each) for each in trials)
        return ended == len(trials) >= len(self.seeds) * len(self.folds)

    def _value(self, trials: Sequence[Trial]) -> float | None:
        """Returns the mean over seeds and folds. Lower is better, and diverged trials are worst."""
        values = [trial.worth(each) for each in trials]
        known = [each for each in values if each is not None]
        return sum(known) / len(known) if known else None

    def _result(self, chosen: Mapping[str, Any], trials: Sequence[Trial]) -> suggest.Result:
        """Returns all scores of a configuration, for a strategy."""
        trials = [each for each in trials if not trial.has_failed(each)]
        further, limits = self.goals.objectives[1:], self.goals.limits
        others = (_mean(trials, each.name) for each in further)
        bounded = (_mean(trials, each.name) for each in limits)
        return suggest.Result(
            chosen,
            self._value(trials),
            tuple(
                None if value is None else each.worse(value)
                for each, value in zip(further, others, strict=True)
            ),
            tuple(
                None if value is None else each.excess(value)
                for each, value in zip(limits, bounded, strict=True)
            ),
        )


def _mean(trials: Sequence[Trial], name: str) -> float | None:
    """Returns the mean over seeds and folds at the best evaluations, or None if one is unknown."""
    values = [each.best.get(name, math.nan) for each in trials]
    mean = sum(values) / len(values) if values else math.nan
    return mean if math.isfinite(mean) else None


def of(experiment: "config.Experiment") -> Plan:
    """Returns the plan of an experiment's study.

    Raises:
        ConfigError: no parameter varies, or a parameter is not valid.
    """
    options, trainer = experiment.run.study, experiment.trainer
    if options is None or not (options.vary or options.seeds or options.folds):
        raise ConfigError(space.NOTHING_VARIES)
    seeds = [int(each) for each in options.seeds] or [experiment.run.seed]
    _check_seeds("seeds", seeds)
    parameters = space.parse(options.vary)
    if any(each.name in ("RunConfig.seed", "run_config.RunConfig.seed") for each in parameters):
        raise ConfigError("--vary=RunConfig.seed: use --seeds, which averages over the seeds")
    suggest.check(options.strategy, parameters)
    if options.strategy != "grid" and not options.trials:
        raise ConfigError(
            f"StudyConfig.strategy = {options.strategy!r} needs {{trials}}", trials=None
        )
    metric = spelling.metric_name(trainer.best_checkpoint_eval_metric or "")
    if options.strategy in _LEARNING and not metric:
        raise ConfigError(
            f"StudyConfig.strategy = {options.strategy!r} needs "
            "TrainerConfig.best_checkpoint_eval_metric, the metric to optimize"
        )
    _check_best(options, metric)
    _check_across(options, [each.name for each in parameters], metric)
    objective = trial.Objective(metric, trainer.best_checkpoint_metric_comp == "higher")
    folds: Sequence[int | None] = range(options.folds) if options.folds else (None,)
    made = Plan(options, parameters, seeds, folds, objective, _goals(options, objective))
    made.rungs = _rungs(experiment, made)
    made.race = _race(made)
    if made.size > space.MOST:
        raise ConfigError(f"the study has {made.size:,} trials; the maximum is {space.MOST:,}")
    if isinstance(made.rungs, Population) and made.size < 2:
        raise ConfigError("StudyConfig.stopping = 'pbt' needs at least two members")
    return made


def _goals(options: "run_config.StudyConfig", objective: trial.Objective) -> Goals:
    """Returns the objectives and limits.

    Raises:
        ConfigError: they are not valid, or cannot be combined with other options.
    """
    main = goals.Goal(*objective) if objective.metric else None
    made = goals.parse(options.objectives, options.limits, main)
    given = "objectives" if options.objectives else "limits"
    if options.strategy == "nsga2" and not made.are_several:
        raise ConfigError(
            "StudyConfig.strategy = 'nsga2' is for several objectives: set StudyConfig.objectives"
        )
    if not made.facts:
        return made
    if options.stopping:
        raise ConfigError(
            f"StudyConfig.{given} cannot be combined with stopping = {options.stopping!r}, which "
            "compares trials by one metric"
        )
    if options.across:
        raise ConfigError(
            f"StudyConfig.{given} cannot be combined with across, which compares one metric"
        )
    if options.strategy == "cma_es":
        raise ConfigError(f"StudyConfig.strategy = 'cma_es' has no {given}: use 'tpe' or 'nsga2'")
    return made


def _check_seeds(name: str, seeds: Sequence[int]) -> None:
    twice = [seed for seed, count in collections.Counter(seeds).items() if count > 1]
    if twice:
        raise ConfigError(f"StudyConfig.{name} lists {', '.join(map(str, twice))} more than once")
    if wrong := [seed for seed in seeds if not 0 <= seed < 2**32]:
        raise ConfigError(f"StudyConfig.{name}: {wrong[0]} must be at least 0 and below 2**32")


def _check_best(options: "run_config.StudyConfig", metric: str) -> None:
    """Raises ConfigError if the best configurations cannot be trained again."""
    _check_seeds("seeds_of_best", [int(each) for each in options.seeds_of_best])
    if bool(options.best) != bool(options.seeds_of_best):
        raise ConfigError("StudyConfig.best and StudyConfig.seeds_of_best: set both or neither")
    if options.best and not metric:
        raise ConfigError(
            "StudyConfig.best needs TrainerConfig.best_checkpoint_eval_metric, the metric to rank "
            "configurations by"
        )
    if options.best and options.stopping:
        raise ConfigError(
            f"StudyConfig.best cannot be combined with stopping = {options.stopping!r}, because "
            "paused trials may become the best later"
        )


def _check_across(options: "run_config.StudyConfig", varying: Sequence[str], metric: str) -> None:
    """Raises ConfigError if there are no data sets to compare configurations over."""
    if options.across and options.across not in varying:
        meant = spelling.did_you_mean(options.across, varying)
        raise ConfigError(
            f"StudyConfig.across = {options.across!r}: this parameter does not vary{meant}"
        )
    if options.across and not metric:
        raise ConfigError(
            "StudyConfig.across needs TrainerConfig.best_checkpoint_eval_metric, the metric to "
            "compare"
        )


def _rungs(experiment: "config.Experiment", made: Plan) -> Rungs | Population | None:
    """Returns the steps at which trials pause.

    Raises:
        ConfigError: they cannot pause there.
    """
    options, trainer = experiment.run.study, experiment.trainer
    if options is None or options.stopping in ("", "race"):
        return None
    rule = f"StudyConfig.stopping = {options.stopping!r}"
    if options.strategy in _LEARNING:
        raise ConfigError(
            f"{rule} cannot be combined with StudyConfig.strategy = {options.strategy!r}, because "
            "the result of a paused trial may still change, and choices would not be reproducible"
        )
    if not made.objective.metric:
        raise ConfigError(f"{rule} needs TrainerConfig.best_checkpoint_eval_metric")
    from runner.configuration import epochs  # loads TensorFlow

    first = options.first_rung or trainer.validation_interval
    every = epochs.interval(experiment, "trainer.validation_interval")
    if every <= 0 or schedule.multiple(schedule.passed(first, every), every) != first:
        raise ConfigError(
            f"StudyConfig.first_rung = {first}: must be a multiple of "
            f"TrainerConfig.validation_interval = {trainer.validation_interval}, because trials "
            "pause at evaluations"
        )
    if first >= trainer.train_steps:
        raise ConfigError(
            f"StudyConfig.first_rung = {first}: must be below TrainerConfig.train_steps = "
            f"{trainer.train_steps}"
        )
    where = rungs.steps(
        first, options.factor, trainer.train_steps, rule=options.stopping, every=every
    )
    if options.stopping == "pbt":
        _check_population(options, made.parameters)
        return Population(made.parameters, where, options, made.is_final)
    return Rungs(options.stopping, where, options.factor)


def _race(made: Plan) -> Race | None:
    """Returns the rules by which seeds are added.

    Raises:
        ConfigError: the configurations cannot be compared in this way.
    """
    options = made.options
    if options.stopping != "race":
        return None
    rule = "StudyConfig.stopping = 'race'"
    if not made.objective.metric:
        raise ConfigError(f"{rule} needs TrainerConfig.best_checkpoint_eval_metric")
    if options.folds:
        raise ConfigError(f"{rule} cannot be combined with folds, which are not independent")
    if options.strategy in _LEARNING:
        raise ConfigError(
            f"{rule} cannot be combined with StudyConfig.strategy = {options.strategy!r}, which "
            "needs all seeds of a configuration to choose the next one"
        )
    if len(made.seeds) < sequential.LEAST:
        raise ConfigError(
            f"{rule} needs at least {sequential.LEAST} seeds in {{seeds}}, the maximum for each "
            "configuration",
            seeds=None,
        )
    if made.size < 2 * len(made.seeds):
        raise ConfigError(f"{rule} needs at least two configurations")
    return Race(len(made.seeds), options.level, options.margin)


def _check_population(
    options: "run_config.StudyConfig", parameters: Sequence[space.Parameter]
) -> None:
    """Raises ConfigError if the configurations cannot be the members of a population."""
    rule = "StudyConfig.stopping = 'pbt'"
    if not parameters:
        raise ConfigError(f"{rule} changes values during training: pass --vary")
    if options.folds or len(options.seeds) > 1:
        raise ConfigError(
            f"{rule} supports one seed and no folds, because members copy weights that were "
            "trained on the data of other members. For several populations, run several studies"
        )
    for each in parameters:
        if each.when:
            raise ConfigError(f"--vary={each.text}: {rule} does not support conditions")
