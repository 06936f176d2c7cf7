"""Several labels for each example: sigmoid outputs and a multi-label AUC."""

import keras
from sklearn.datasets import make_multilabel_classification
from sklearn.model_selection import train_test_split

keras.utils.set_random_seed(36)
X, Y = make_multilabel_classification(2000, n_features=30, n_classes=6, random_state=36)
X_train, X_test, Y_train, Y_test = train_test_split(X, Y, random_state=36)

model = keras.Sequential(name="multi_label")
model.add(keras.layers.BatchNormalization())
model.add(keras.layers.Dense(64, activation="relu"))
model.add(keras.layers.Dense(Y.shape[1], activation="sigmoid"))
model.compile(
    optimizer="adam",
    loss=keras.losses.BinaryCrossentropy(label_smoothing=0.05),
    metrics=["binary_accuracy", keras.metrics.AUC(multi_label=True, num_labels=6, name="auc")],
)
model.fit(X_train, Y_train, epochs=12, batch_size=50, validation_data=(X_test, Y_test), verbose=2)
scores = model.evaluate(X_test, Y_test, verbose=0, return_dict=True)
print(f"binary accuracy {scores['binary_accuracy']:.3f}, AUC {scores['auc']:.3f}")
