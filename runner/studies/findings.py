"""Describes a summary in sentences: the differences between configurations, and notes.

No TensorFlow.
"""

import collections
import math
from collections.abc import Iterable, Iterator, Sequence

from runner.core import layout
from runner.core.text import counted, some
from runner.run_directory.state import ACTIVE, FINISHED, State
from runner.studies import space, statistics, variance
from runner.studies.statistics import Difference
from runner.studies.summary import At, Configuration, Summary, is_spoilt
from runner.studies.trial import Trial

_MOST = 5


def comparisons(found: Summary) -> list[str]:
    """Compares the chosen configuration with each of the next best ones, in a sentence each."""
    chosen = found.chosen
    if chosen is None or len(found.configurations) == 1:
        return []
    if any(space.FILE in each.parameters for each in found.trials):
        return [f"the decisions about these configurations are in {layout.DECISIONS}"]
    if variance.varies_seeds_only(found.trials):
        return _variance(found)
    if any(each.lineage for each in found.trials):
        return [
            "members of a population copy each other, so their differences cannot be tested. To "
            "test them, run more studies with other values of RunConfig.seed"
        ]
    if chosen.replaced:
        return [f"{chosen.name} has trials that are scored as the worst, so it is not compared"]
    if len(chosen.scores) < 2:
        alone = all(len(each.scores) < 2 for each in found.configurations)
        runs = "one run each" if alone else f"one run of {chosen.name}"
        return [f"with {runs}, differences may be due to chance: run more seeds, such as --seeds=5"]
    lines = [sentence(found, chosen, *each) for each in found.differences[:_MOST]]
    if more := found.differences[_MOST:]:
        apart = sum(gap.is_told_apart for _, gap in more)
        lines.append(f"{apart:,} of the other {len(more):,} can be told apart from {chosen.name}")
    if left_out := [each.name for each in found.configurations if each.replaced]:
        lines.append(
            f"not compared, because some of their trials are scored as the worst: {some(left_out)}"
        )
    return lines


def _variance(found: Summary) -> list[str]:
    """Describes how much each seed contributes to the variance, the largest share first."""
    metric = found.objective.metric
    components = variance.of(found.trials, metric)
    if not components:
        return [
            "the shares of the seeds need a finished trial for each combination of at least two "
            "values"
        ]
    parts = [
        f"{each.seed or 'interactions of the seeds'} {100 * each.share:.0f} % "
        f"(standard deviation {each.std:.2g})"
        for each in sorted(components, key=lambda each: -each.share)
    ]
    return [f"variance of {metric}: {', '.join(parts)}"]


def sentence(found: Summary, ours: Configuration, theirs: Configuration, gap: Difference) -> str:
    """Describes a difference: `0.02 and 0.005 cannot be told apart with 5 seeds: ...`."""
    unit = _unit(found.trials)
    names = f"{ours.name} and {theirs.name}"
    how = _compared(len(ours.scores), len(theirs.scores), gap, unit)
    if gap.n < 2:
        return f"{names} cannot be told apart with {how}: at least 2 are needed, preferably 5"
    if gap.low == gap.high == 0:
        return f"{names} score the same with {how}"
    if gap.is_told_apart:
        better, worse = ours.name, theirs.name
        if found.objective.worse(gap.mean) > 0:
            better, worse = worse, better
        low, high = sorted((abs(gap.low), abs(gap.high)))
        return (
            f"{better} is better than {worse}: {found.objective.metric} differs by "
            f"{abs(gap.mean):.2g} ({low:.2g} to {high:.2g}, {how})"
        )
    if found.race:
        return f"{names} cannot be told apart with {how}: the difference is {_ends(gap)}"
    return f"{names} cannot be told apart with {how}{_needed(gap, unit)}"


def _ends(gap: Difference) -> str:
    """Describes where a difference lies."""
    return f"between {gap.low:.2g} and {gap.high:.2g}"


def _compared(ours: int, theirs: int, gap: Difference, unit: str) -> str:
    """Describes the basis of a comparison: `5 seeds`, `4 and 6 seeds, not paired`."""
    if gap.paired:
        return counted(gap.n, unit if ours == theirs == gap.n else f"shared {unit}")
    if ours == theirs:
        return f"{counted(ours, unit)} each, not paired"
    return f"{ours:,} and {counted(theirs, unit)}, not paired"


def _needed(gap: Difference, unit: str) -> str:
    """Returns how many seeds would be enough, as the end of a sentence."""
    if unit != "seed":  # more folds would be smaller, not more of the same size
        return ""
    if gap.needed is None:
        return f": more than {statistics.MOST:,} would be needed"
    each = "" if gap.paired else " each"
    size = f"{abs(gap.mean):.2g}"
    return f": about {gap.needed:,}{each} would be needed to detect a difference of {size}"


def _unit(trials: Iterable[Trial]) -> str:
    seeds, folds = {each.seed for each in trials}, {each.fold for each in trials}
    if folds <= {None}:
        return "seed"
    return "fold" if len(seeds) == 1 else "run"


def notes(found: Summary) -> list[str]:
    """Returns notes on missing results, replaced values and repeated tests."""
    return [
        *_nothing_chosen(found),
        *_worst(found),
        *_not_counted(found),
        *_limits(found),
        *_budgets(found),
        *_race(found),
        *_population(found),
        *_folds(found),
        *_missing_metrics(found),
        *_doubles(found),
        *_data(found),
        *_tests(found),
    ]


def _nothing_chosen(found: Summary) -> Iterator[str]:
    metric = found.objective.metric
    if not found.trials:
        yield "no trials yet"
    elif not metric:
        yield "no configuration is chosen: TrainerConfig.best_checkpoint_eval_metric is empty"
    elif not any(each.is_finished for each in found.configurations):
        yield "no configuration is chosen yet: no trial has finished"
    elif not any(map(found.is_within, found.configurations)):
        yield "no configuration is chosen: none is within all limits"
    elif found.chosen is None:
        yield f"no configuration is chosen: no finished trial has a finite {metric}"


def _limits(found: Summary) -> Iterator[str]:
    """Reports how many configurations exceed each limit, or have no value for it."""
    ended = [each for each in found.configurations if each.is_finished]
    for limit in found.goals.limits:
        known = [each.means[limit.name] for each in ended if limit.name in each.means]
        beyond = sum(limit.excess(value) > 0 for value in known)
        if beyond:
            yield f"{counted(beyond, 'configuration')} of {len(ended):,} exceed {limit}"
        if missing := len(ended) - len(known):
            yield f"{counted(missing, 'configuration')} without {limit.name}"


def _worst(found: Summary) -> Iterator[str]:
    """Reports trials that are scored as the worst."""
    objective, metric = found.objective, found.objective.metric
    ended = [each for each in found.trials if each.state in (*FINISHED, State.DIVERGED)]
    diverged = [each for each in ended if each.state == State.DIVERGED]
    finished = [each for each in ended if each.state != State.DIVERGED]
    never = [each for each in finished if is_spoilt(each, objective, "best")]
    at_last = [each for each in finished if is_spoilt(each, objective, "last")]
    at_last = [each for each in at_last if each not in never]
    if diverged:
        low, high = (100 * share for share in statistics.share(len(diverged), len(ended)))
        rate = f"95 % interval {low:.0f} to {high:.0f} %"
        of = f"{len(diverged):,} of {counted(len(ended), 'trial')} diverged"
        yield f"{of} ({rate}), {_numbers(diverged)}{_counts_as(found)}"
        if others := [name for name in found.metrics if name != metric]:
            yield f"the means of the other metrics exclude diverged trials: {some(others)}"
    if never:
        yield f"{_numbers(never)} never had a finite {metric}{_counts_as(found)}"
    if at_last:
        yield (
            f"{_numbers(at_last)} had no finite {metric} at the last evaluation: scored there as "
            f"the worst of all trials, {found.worst['last']:.4g}"
        )


def _counts_as(found: Summary) -> str:
    """Returns how a trial without its own result is scored, as the end of a sentence."""
    metric, best, last = found.objective.metric, found.worst["best"], found.worst["last"]
    if not metric:
        return ""
    if math.isnan(best) and math.isnan(last):
        return ": excluded, because no trial has a finite value"
    value = f"{best:.4g}"
    if value != f"{last:.4g}":
        value = f"{best:.4g} at the best evaluation and {last:.4g} at the last"
    return f": scored as the worst {metric} of all trials, {value}"


def _not_counted(found: Summary) -> Iterator[str]:
    """Reports trials that are excluded, or have not finished yet."""
    for state in (State.FAILED, State.REJECTED):
        these = [each for each in found.trials if each.state == state]
        if these:
            reasons = [f"{each.number} ({each.reason})" for each in these]
            yield f"{state} and excluded: trial{'s' * (len(these) > 1)} {some(reasons)}"
    waiting = collections.Counter(
        each.state
        for each in found.trials
        if each.state in (State.PENDING, *ACTIVE, State.PREEMPTED)
    )
    if waiting:
        states = ", ".join(f"{count:,} {state}" for state, count in waiting.items())
        yield f"{counted(waiting.total(), 'trial')} not finished yet: {states}"


def _budgets(found: Summary) -> Iterator[str]:
    """Reports how many trials trained for how many steps, if that differs."""
    steps = collections.Counter(
        (each.step, each.state) for each in found.trials if each.state in (*FINISHED, State.PAUSED)
    )
    if len({step for step, _ in steps}) < 2:
        return
    parts = [
        f"{count:,} {state} at step {step:,}" for (step, state), count in sorted(steps.items())
    ]
    yield (
        f"trials have trained for different numbers of steps: {some(parts[::-1], 8)}; only "
        "finished ones are scored"
    )
    partly = [
        each.name
        for each in found.configurations
        if each.is_finished and any(one.state == State.PAUSED for one in each.trials)
    ]
    if partly:
        yield (
            "some seeds of a configuration continued because they did well early, and others are "
            f"paused, so these means are too optimistic: {some(partly)}"
        )


def _race(found: Summary) -> Iterator[str]:
    """Reports how many configurations and trials a race needed."""
    if found.race is None or not found.race.is_over:
        return
    most = max(len(each.trials) for each in found.configurations)
    yield (
        f"a race: {len(found.race.remaining):,} of "
        f"{counted(len(found.configurations), 'configuration')} may be the best, after "
        f"{counted(len(found.trials), 'trial')} with at most {counted(most, 'seed')}. The results "
        "decided when the seeds ended, so the intervals of the means are only approximate"
    )


def _population(found: Summary) -> Iterator[str]:
    """Reports the number of copies, the total steps, and the lineage of the chosen trial."""
    copies = [each for each in found.trials if each.lineage]
    if not copies:
        return
    steps = sum(each.step - (each.lineage.step if each.lineage else 0) for each in found.trials)
    times = len({each.lineage.generation for each in copies if each.lineage})
    yield (
        f"a population of {len(found.trials) - len(copies):,}: {counted(len(copies), 'time')}, at "
        f"{counted(times, 'pause')}, a copy of one of the best replaced one of the worst; "
        f"{steps:,} steps were trained in total"
    )
    if found.chosen:
        chain = ancestry(found.chosen.trials[0], found.trials)
        yield f"lineage of {found.chosen.name}: {', then '.join(map(_part, chain))}"


def _part(one: Trial) -> str:
    values = {name.rpartition(".")[2]: value for name, value in one.parameters.items()}
    start = f" from step {one.lineage.step:,}" if one.lineage else ""
    return f"trial {one.number}{start} with " + ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )


def ancestry(one: Trial, trials: Sequence[Trial]) -> list[Trial]:
    """Returns the trials that a trial descends from, oldest first, and the trial itself."""
    by_number, chain = {each.number: each for each in trials}, [one]
    while (lineage := chain[0].lineage) and lineage.parent in by_number:
        chain.insert(0, by_number[lineage.parent])
    return chain


def _folds(found: Summary) -> Iterator[str]:
    if len({each.fold for each in found.trials}) > 1:
        yield "folds share training data, so the intervals are widened"


def _missing_metrics(found: Summary) -> Iterator[str]:
    """Reports metrics whose means cover only some of the finished trials."""
    at: At = "best" if found.objective.metric else "last"
    ended = [each for each in found.trials if each.state in FINISHED and each.last]
    for name in found.metrics:
        values = [found.counts_as(each, name, at) for each in ended]
        have = sum(math.isfinite(value) for value in values)
        if 0 < have < len(ended):
            verb = "has" if have == 1 else "have"
            yield (
                f"only {have:,} of {counted(len(ended), 'finished trial')} {verb} a finite {name} "
                f"at the {at} evaluation"
            )


def _doubles(found: Summary) -> Iterator[str]:
    used = {each.number for one in found.configurations for each in one.trials}
    doubles = [each for each in found.trials if each.number not in used]
    if doubles:
        yield (
            "excluded, because other trials have the same values, seed and fold: "
            f"{_numbers(doubles)}"
        )


def _data(found: Summary) -> Iterator[str]:
    """Reports configurations whose data files have changed between their trials."""
    for one in found.configurations:
        trials: dict[tuple[tuple[str, str], ...], list[Trial]] = {}
        for each in one.trials:
            if each.data:
                trials.setdefault(tuple(sorted(each.data.items())), []).append(each)
        if len(trials) > 1:
            yield (
                f"warning: data files have changed between the trials of {one.name}: "
                f"{' and '.join(map(_numbers, trials.values()))} were trained with different files"
            )


def _tests(found: Summary) -> Iterator[str]:
    """Reports how often the test data was used."""
    tested = [one for one in found.configurations if any(each.tests for each in one.trials)]
    others = [one for one in tested if one is not found.to_test]
    if others or any(each.tests > 1 for each in found.trials):
        times = sum(each.tests for one in tested for each in one.trials)
        yield (
            f"warning: the test data were used {times:,} times, for "
            f"{counted(len(tested), 'configuration')}. Only the test of the chosen configuration "
            "is shown. If you choose by test results, they become too optimistic"
        )


def _numbers(trials: Sequence[Trial]) -> str:
    return f"trial{'s' * (len(trials) > 1)} {some([str(each.number) for each in trials], 8)}"
