"""Measures the error rates of `--mode=decide` and of races, in simulated studies.

    python -m scripts.decisions --studies=10000 --seed=0

The differences between paired seeds are drawn from a normal distribution. A fixed plan trains the
number of seeds with which a t test detects the planned difference with a probability of 80 %. The
last table has the smallest number of seeds that any test with the same errors needs on average.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from runner.studies import boundaries, race, sequential, series
from runner.studies.sequential import Verdict

_DECIDED = (Verdict.BETTER, Verdict.WORSE)
_LIMITS = (10, 20, 30, 40, 60, 100)
_SIZES = (0.0, 1.0, 1.5)
_SERIES = 20
_UNLIMITED = 6
"""Times the fixed plan: a larger maximum does not change the expected number."""


def studies(count: int, generator: np.random.Generator) -> Iterator[str]:
    """Yields a row for each limit and each true difference."""
    yield "limit  fixed plan  difference / detectable  decided  right  seeds  seeds / fixed plan"
    for limit in _LIMITS:
        test = sequential.Test(limit)
        for size in _SIZES:
            draws = generator.normal(size * test.effect, 1.0, (count, limit)).tolist()
            found = [test.judge(each) for each in draws]
            decided = np.mean([each.verdict in _DECIDED for each in found])
            right = np.mean([each.verdict == Verdict.BETTER for each in found])
            seeds = np.mean([each.n for each in found])
            shown = f"{right:5.3f}" if size else "    -"
            yield (
                f"{limit:5}  {limit // 2:10}  {size:23}  {decided:7.3f}  {shown}  {seeds:5.1f}  "
                f"{seeds / (limit // 2):18.2f}"
            )


def bounds() -> Iterator[str]:
    """Yields the smallest expected number of seeds for each fixed plan, if there is no maximum."""
    yield "fixed plan  fewest seeds / fixed plan  with a maximum of twice the plan"
    for limit in _LIMITS:
        plan, effect = limit // 2, sequential.Test(limit).effect
        fewest, ours = (
            boundaries.fewest(maximum, effect, sequential.LEVEL).expected / plan
            for maximum in (_UNLIMITED * plan, limit)
        )
        yield f"{plan:10}  {fewest:25.3f}  {ours:32.3f}"


def decisions(count: int, generator: np.random.Generator, limit: int = 30) -> float:
    """Returns the share of series without differences in which a candidate was promoted."""
    tests = [
        sequential.Test(limit, series.share(number, sequential.LEVEL))
        for number in range(1, _SERIES + 1)
    ]
    return float(
        np.mean(
            [
                any(
                    test.judge(generator.normal(size=limit).tolist()).verdict == Verdict.BETTER
                    for test in tests
                )
                for _ in range(count)
            ]
        )
    )


def races(count: int, generator: np.random.Generator, limit: int = 30, several: int = 5) -> float:
    """Returns the share of races between equal configurations in which one left."""
    rules = race.Race(limit)
    left = 0
    for _ in range(count):
        scores = generator.normal(size=(several, limit)).tolist()
        left += len(rules.standing(scores).remaining) < several
    return left / count


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    generator = np.random.default_rng(given.seed)
    for row in studies(given.studies, generator):
        print(row, flush=True)
    for row in bounds():
        print(row, flush=True)
    promoted = decisions(given.studies, generator)
    print(f"series of {_SERIES} decisions without a difference: {promoted:.3f} promoted any")
    print(f"races of 5 equal configurations: {races(given.studies, generator):.3f} decided any")


if __name__ == "__main__":
    main()
