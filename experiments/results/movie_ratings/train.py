"""Predicts the ratings of MovieLens (small) with embeddings of users and movies.

    python train.py --data=ratings.csv --model_dir=runs/movies --seed=0

The network, the split, the batch size, the length and the optimizer are those of "Collaborative
Filtering for Movie Recommendations" by S. Banerjee
(keras.io/examples/structured_data/collaborative_filtering_movielens). It adds the sum of all
products of a batch to each score, as in the original.
"""

import argparse
import json
import time

import keras
import numpy as np
import pandas as pd
from keras import layers, ops

import runner

SIZE = 50
LOWEST, HIGHEST = 0.5, 5.0


def main() -> None:
    """Trains, and prints the loss on held-out ratings as one line of JSON."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--data", required=True, help="ratings.csv of ml-latest-small.zip")
    flags.add_argument("--model_dir", default="runs/movies")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--epochs", type=int, default=5)
    given = flags.parse_args()

    keras.utils.set_random_seed(given.seed)
    pairs, ratings = load(given.data)
    split = int(0.9 * len(pairs))
    held_out = (pairs[split:], ratings[split:])
    users, movies = pairs.max(axis=0) + 1
    model = Network(int(users), int(movies))
    model.compile("adam", "binary_crossentropy")
    start = time.perf_counter()
    runner.fit(
        model,
        pairs[:split],
        ratings[:split],
        validation_data=held_out,
        model_dir=given.model_dir,
        batch_size=64,
        epochs=given.epochs,
        gin_params=[f"RunConfig.seed = {given.seed}"],
    )
    seconds = time.perf_counter() - start
    loss = model.evaluate(*held_out, batch_size=64, verbose=0)
    print(json.dumps({"loss": loss, "seconds": round(seconds, 1)}))


def load(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of users and movies [n, 2], and ratings [n, 1] in 0..1, shuffled."""
    table = pd.read_csv(path).sample(frac=1, random_state=42)
    users, _ = pd.factorize(table["userId"])
    movies, _ = pd.factorize(table["movieId"])
    ratings = (table["rating"].to_numpy("float32") - LOWEST) / (HIGHEST - LOWEST)
    return np.stack([users, movies], axis=1).astype("int32"), ratings[:, None]


@keras.saving.register_keras_serializable()
class Network(keras.Model):
    """Scores pairs of a user and a movie.

    Args:
        users: The number of users.
        movies: The number of movies.
    """

    def __init__(self, users: int, movies: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._sizes = {"users": users, "movies": movies}
        small = keras.regularizers.L2(1e-6)
        self.user = layers.Embedding(users, SIZE, "he_normal", embeddings_regularizer=small)
        self.movie = layers.Embedding(movies, SIZE, "he_normal", embeddings_regularizer=small)
        self.user_bias = layers.Embedding(users, 1)
        self.movie_bias = layers.Embedding(movies, 1)

    def call(self, pairs: keras.KerasTensor) -> keras.KerasTensor:
        """Returns a score in 0..1 for each pair [n, 2]."""
        users, movies = pairs[:, 0], pairs[:, 1]
        match = ops.tensordot(self.user(users), self.movie(movies), 2)
        return ops.sigmoid(match + self.user_bias(users) + self.movie_bias(movies))

    def get_config(self) -> dict[str, object]:
        """Returns the arguments."""
        return {**super().get_config(), **self._sizes}


if __name__ == "__main__":
    main()
