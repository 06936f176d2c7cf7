"""Trains an LSTM to add two numbers of up to three digits, written as text: 535+61 is 596.

    python train.py --model_dir=runs/addition --seed=0

The network, the data, the batch size and the length are those of "Sequence to sequence learning for
performing number addition" by Smerity and others (keras.io/examples/nlp/addition_rnn). It makes its
data, so nothing is downloaded.
"""

import argparse
import json
import time

import keras
import numpy as np
from keras import layers

import runner

DIGITS = 3
EXAMPLES = 50_000
CHARACTERS = sorted("0123456789+ ")


def main() -> None:
    """Trains, and prints the accuracy per character on held-out sums as one line of JSON."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--model_dir", default="runs/addition")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--epochs", type=int, default=29)
    given = flags.parse_args()

    keras.utils.set_random_seed(given.seed)
    x, y = sums(np.random.default_rng(given.seed))
    split = EXAMPLES - EXAMPLES // 10
    held_out = (x[split:], y[split:])
    model = network()
    start = time.perf_counter()
    runner.fit(
        model,
        x[:split],
        y[:split],
        validation_data=held_out,
        model_dir=given.model_dir,
        batch_size=32,
        epochs=given.epochs,
        gin_params=[f"RunConfig.seed = {given.seed}"],
    )
    seconds = time.perf_counter() - start
    scored = model.evaluate(*held_out, verbose=0, return_dict=True)
    print(json.dumps({"accuracy": scored["accuracy"], "seconds": round(seconds, 1)}))


def sums(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns one-hot questions [n, 7, 12], written backwards, and answers [n, 4, 12].

    No two questions have the same pair of numbers.
    """
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    while len(pairs) < EXAMPLES:
        digits = generator.integers(1, DIGITS + 1, size=2)
        first, second = (int(generator.integers(10**count)) for count in digits)
        pairs.setdefault((min(first, second), max(first, second)), (first, second))
    found = [*pairs.values()]
    order = generator.permutation(EXAMPLES)
    questions = [f"{a}+{b}".ljust(2 * DIGITS + 1)[::-1] for a, b in found]
    answers = [str(a + b).ljust(DIGITS + 1) for a, b in found]
    return _one_hot(questions)[order], _one_hot(answers)[order]


def _one_hot(texts: list[str]) -> np.ndarray:
    indices = [[CHARACTERS.index(each) for each in text] for text in texts]
    return np.eye(len(CHARACTERS), dtype="float32")[np.asarray(indices)]


def network() -> keras.Model:
    """Builds the compiled network."""
    model = keras.Sequential(
        [
            layers.Input((2 * DIGITS + 1, len(CHARACTERS))),
            layers.LSTM(128),
            layers.RepeatVector(DIGITS + 1),
            layers.LSTM(128, return_sequences=True),
            layers.Dense(len(CHARACTERS), activation="softmax"),
        ]
    )
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    return model


if __name__ == "__main__":
    main()
