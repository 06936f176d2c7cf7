"""ReduceLROnPlateau on the validation loss."""

import tf_keras as keras
from sklearn.datasets import make_moons
from sklearn.model_selection import train_test_split
from tf_keras.callbacks import ReduceLROnPlateau
from tf_keras.layers import Dense
from tf_keras.models import Sequential

keras.utils.set_random_seed(13)
x, y = make_moons(1500, noise=0.25, random_state=13)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.3, random_state=13)

model = Sequential([Dense(32, activation="relu"), Dense(32, activation="relu"), Dense(1)])
model.compile(
    optimizer=keras.optimizers.Adam(learning_rate=0.05),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)],
)
plateau = ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=2, min_lr=1e-4, verbose=1)
model.fit(x_train, y_train, epochs=25, validation_data=(x_test, y_test), callbacks=[plateau])
print("test accuracy: %.3f" % model.evaluate(x_test, y_test, verbose=0)[1])
