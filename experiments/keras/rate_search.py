"""A loop over three learning rates, with a call of fit for each."""

import tf_keras as keras
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from tf_keras import layers, models, optimizers

x, y = load_iris(return_X_y=True)
x_train, x_val, y_train, y_val = train_test_split(x, y, test_size=0.3, random_state=26)


def build_model(rate):
    keras.utils.set_random_seed(26)
    model = models.Sequential([layers.Dense(16, activation="relu"), layers.Dense(3, "softmax")])
    model.compile(optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


results = {}
for rate in [0.1, 0.01, 0.001]:
    model = build_model(rate)
    model.fit(
        x_train,
        y_train,
        epochs=20,
        validation_data=(x_val, y_val),
        verbose=0,  # runner: verbose=0, model_dir=f"runs/rate_search-{rate}",
    )
    results[rate] = model.evaluate(x_val, y_val, verbose=0)[1]
    print(f"rate {rate}: {results[rate]:.3f}")
best = max(results, key=results.get)
print(f"best rate {best}: accuracy {results[best]:.3f}")
