"""Counts how often `--mode=replay` ranks a mislabeled example first in its batch.

    python -m scripts.bench.planted

Ten runs train on digits that are read by index. In each, ten training images have a wrong label,
each in another batch of the last steps. A replay of these steps sorts the examples of every batch
by loss.
"""

import json
import random
import tempfile
from pathlib import Path

import runner
from runner import config
from runner.data import order

RUNS, EACH = 10, 10
EXAMPLES, BATCH = 1438, 48
STEPS, REPLAYED = 600, 30  # an epoch has 30 steps
GIN = Path(__file__).parents[1] / "indexed_digits.gin"


def planted(seed: int) -> dict[int, int]:
    """Chooses an example of each of some batches, by the step that is trained on it."""
    drawn = order.Shuffle(EXAMPLES, seed)
    chance = random.Random(seed)
    steps = sorted(chance.sample(range(STEPS - REPLAYED + 2, STEPS), EACH))
    return {step: int(chance.choice(drawn.batch(step - 1, BATCH))) for step in steps}


def found(seed: int, folder: Path) -> int:
    """Trains a run, replays its end, and returns how many planted examples came first."""
    chosen = planted(seed)
    values = {
        "IndexedDigitsConfig.kind": "'numpy'",
        "IndexedDigitsConfig.wrong": tuple(chosen.values()),
        "RunConfig.seed": seed,
        "TrainerConfig.train_steps": STEPS,
        "TrainerConfig.validation_interval": STEPS - REPLAYED,
        "TrainerConfig.checkpoint_interval": STEPS - REPLAYED,
    }
    made = config.load([str(GIN)], [f"{name} = {value}" for name, value in values.items()])
    runner.run(made, folder, "train")
    replayed = runner.run(None, folder, "replay", steps=(STEPS - REPLAYED + 1, STEPS))
    rows = Path(replayed["output"], "steps.jsonl").read_text().splitlines()
    first = {row["step"]: row["examples"][0]["index"] for row in map(json.loads, rows)}
    return sum(first[step] == number for step, number in chosen.items())


def main() -> None:
    """Prints the count."""
    count = 0
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(RUNS):
            count += found(seed, Path(scratch, str(seed)))
            print(f"{count} of {EACH * (seed + 1)} mislabeled examples are first", flush=True)


if __name__ == "__main__":
    main()
