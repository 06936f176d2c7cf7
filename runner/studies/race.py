"""A race between configurations: seeds are added until it is decided which one is best.

After each seed, every two remaining configurations are compared by the sequential t test, on the
seeds that both have been trained with. One that is worse than another leaves the race. After the
idea of Maron and Moore, Hoeffding Races, 1994, and Birattari et al., A Racing Algorithm for
Configuring Metaheuristics, 2002.

No TensorFlow.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from runner.studies import sequential, trial
from runner.studies.sequential import Judgement, Verdict
from runner.studies.trial import Trial

KEY = "race"
"""In trial.json: the rules of the race."""


@dataclasses.dataclass(frozen=True)
class Standing:
    """The state of a race.

    Attributes:
        remaining: The indices of the configurations that may be the best.
        seeds: How many seeds they need now.
        judged: The comparison of two configurations by their indices. It is better if the second
            one is better.
        is_over: Whether no more seeds are needed.
    """

    remaining: Sequence[int]
    seeds: int
    judged: Mapping[tuple[int, int], Judgement]
    is_over: bool


@dataclasses.dataclass(frozen=True)
class Race:
    """The rules of a race.

    Attributes:
        limit: The maximum number of seeds.
        level: The probability of any wrong decision, if all configurations are equally good.
        margin: As for `sequential.Test`.
    """

    limit: int
    level: float = sequential.LEVEL
    margin: float = 0.0

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self | None:
        """Returns the race that a trial belongs to, or None."""
        return cls(**facts[KEY]) if facts.get(KEY) else None

    @property
    def facts(self) -> dict[str, Any]:
        """The entry in trial.json."""
        return {KEY: dataclasses.asdict(self)}

    def standing(self, scores: Sequence[Sequence[float]]) -> Standing:
        """Returns the state of the race, which does not depend on the order in which seeds end.

        Args:
            scores: The scores of each configuration in the order of the seeds, up to the first
                unknown one. Higher is better. A score that is not finite ends its race.
        """
        pairs = math.comb(len(scores), 2)
        test = sequential.Test(self.limit, self.level / max(pairs, 1), self.margin)
        remaining: Sequence[int] = range(len(scores))
        judged: dict[tuple[int, int], Judgement] = {}
        for count in range(sequential.FIRST, self.limit + 1):
            remaining = [each for each in remaining if all(map(math.isfinite, scores[each]))]
            if len(remaining) < 2:
                break
            if any(len(scores[each]) < count for each in remaining):
                return Standing(remaining, count, judged, is_over=False)
            for first, second in itertools.combinations(remaining, 2):
                before = judged.get((first, second))
                if before is None or before.verdict is None:
                    both = zip(scores[first][:count], scores[second][:count], strict=True)
                    judged[first, second] = test.after([b - a for a, b in both])
            remaining = [each for each in remaining if not _is_beaten(each, judged)]
            left = itertools.combinations(remaining, 2)
            if all(judged[pair].verdict for pair in left):
                break
        return Standing(remaining, 0, judged, is_over=True)


def _is_beaten(each: int, judged: Mapping[tuple[int, int], Judgement]) -> bool:
    return any(
        (found.verdict == Verdict.BETTER and each == first)
        or (found.verdict == Verdict.WORSE and each == second)
        for (first, second), found in judged.items()
    )


def scores(
    trials: Sequence[Trial], seeds: Sequence[int], is_final: Callable[[Trial], bool]
) -> list[float]:
    """Returns the scores of a configuration in the order of the seeds, up to the first unknown one.

    Higher is better. A trial without a result scores minus infinity.
    """
    by_seed = {each.seed: each for each in trials}
    found = []
    for seed in seeds:
        if seed not in by_seed or not is_final(by_seed[seed]):
            break
        value = trial.worth(by_seed[seed])
        found.append(-math.inf if value is None else -value)
    return found
