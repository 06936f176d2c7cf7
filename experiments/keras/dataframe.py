"""A pandas DataFrame as features, and a Series as labels."""

import tf_keras as keras
from sklearn.datasets import load_wine
from tf_keras import layers

keras.utils.set_random_seed(22)
df = load_wine(as_frame=True).frame
df = df.sample(frac=1, random_state=22).reset_index(drop=True)
train, test = df.iloc[:130], df.iloc[130:]
labels = train.pop("target")
test_labels = test["target"]
test = test.drop(columns="target")

norm = layers.Normalization(axis=-1)
norm.adapt(train.to_numpy())

model = keras.Sequential([norm, layers.Dense(16, activation="relu"), layers.Dense(3)])
model.compile(
    optimizer=keras.optimizers.Adam(0.01),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(train, labels, epochs=20, batch_size=16, validation_data=(test, test_labels), verbose=2)
print("test accuracy:", round(model.evaluate(test, test_labels, verbose=0)[1], 3))
