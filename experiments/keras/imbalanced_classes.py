"""Binary classification with class_weight, and the metrics AUC, precision, recall and F1."""

import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from tf_keras import layers, metrics, models, utils

utils.set_random_seed(7)
X, y = make_classification(3000, 12, n_informative=6, weights=[0.93], random_state=7)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=7)
scaler = StandardScaler()
X_train = scaler.fit_transform(X_train)
X_test = scaler.transform(X_test)
y_train = y_train.reshape(-1, 1).astype("float32")
y_test = y_test.reshape(-1, 1).astype("float32")

positives = y_train.mean()
class_weight = {0: 0.5 / (1 - positives), 1: 0.5 / positives}
print("class weights:", class_weight)

model = models.Sequential(
    [
        layers.Dense(32, activation="relu", input_shape=(12,)),
        layers.Dropout(0.2),
        layers.Dense(1, activation="sigmoid"),
    ]
)
scores = [
    metrics.AUC(name="auc"),
    metrics.Precision(name="precision"),
    metrics.Recall(name="recall"),
    metrics.F1Score(threshold=0.5, name="f1"),
]
model.compile("adam", loss="binary_crossentropy", metrics=scores)
model.fit(X_train, y_train, batch_size=64, epochs=15, class_weight=class_weight, verbose=2)

for name, value in model.evaluate(X_test, y_test, verbose=0, return_dict=True).items():
    print(f"{name}: {float(np.squeeze(value)):.3f}")
