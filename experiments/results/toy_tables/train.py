"""Cross-validates a small MLP on a toy data set of scikit-learn, against two of its classifiers.

    python train.py --data=wine --model_dir=runs/wine --seed=0

All three are trained and scored on the same ten stratified folds. The columns are scaled to a mean
of 0 and a standard deviation of 1 with the training part of each fold.
"""

import argparse
import json
import time
from pathlib import Path

import keras
import numpy as np
from sklearn import datasets, ensemble, linear_model, model_selection, pipeline, preprocessing

import runner

FOLDS = 10
LOADERS = {
    "digits": datasets.load_digits,
    "breast_cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
}


def main() -> None:
    """Trains, and prints the mean accuracy over the folds, of each classifier, as JSON."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--data", choices=LOADERS, required=True)
    flags.add_argument("--model_dir", default="runs/toy")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--epochs", type=int, default=60)
    given = flags.parse_args()

    x, y = LOADERS[given.data](return_X_y=True)
    folds = model_selection.StratifiedKFold(FOLDS, shuffle=True, random_state=given.seed)
    start = time.perf_counter()
    scores: dict[str, list[float]] = {"accuracy": [], "logistic": [], "boosting": []}
    for fold, (train, test) in enumerate(folds.split(x, y)):
        own = (x[train], y[train], x[test], y[test])
        folder = Path(given.model_dir, str(fold))
        scores["accuracy"].append(mlp_accuracy(*own, folder, given.seed, given.epochs))
        for name, model in others(given.seed).items():
            scores[name].append(model.fit(*own[:2]).score(*own[2:]))
    means = {name: float(np.mean(each)) for name, each in scores.items()}
    seconds = time.perf_counter() - start
    print(json.dumps({**means, "folds": scores, "seconds": round(seconds, 1)}))


def mlp_accuracy(
    x: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    folder: Path,
    seed: int,
    epochs: int,
) -> float:
    """Trains the MLP and returns its accuracy on the test part."""
    scale = preprocessing.StandardScaler().fit(x)
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.layers.Input((x.shape[1],)),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(int(y.max()) + 1, "softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    runner.fit(
        model,
        scale.transform(x).astype("float32"),
        y,
        model_dir=folder,
        batch_size=32,
        epochs=epochs,
        gin_params=[f"RunConfig.seed = {seed}"],
    )
    ours = model.predict(scale.transform(x_test).astype("float32"), verbose=0).argmax(axis=1)
    return float(np.mean(ours == y_test))


def others(seed: int) -> dict[str, pipeline.Pipeline]:
    """Returns scikit-learn's classifiers, with its default values."""
    logistic = linear_model.LogisticRegression(max_iter=5000)
    boosting = ensemble.HistGradientBoostingClassifier(random_state=seed)
    return {
        name: pipeline.make_pipeline(preprocessing.StandardScaler(), model)
        for name, model in (("logistic", logistic), ("boosting", boosting))
    }


if __name__ == "__main__":
    main()
