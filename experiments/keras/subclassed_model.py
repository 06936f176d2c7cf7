"""A subclass of Model with only a call method."""

import keras
from keras import layers
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split


class IrisNet(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense1 = layers.Dense(32, activation="relu")
        self.dropout = layers.Dropout(0.2)
        self.dense2 = layers.Dense(3)

    def call(self, inputs, training=False):
        x = self.dense1(inputs)
        x = self.dropout(x, training=training)
        return self.dense2(x)


keras.utils.set_random_seed(42)
x, y = load_iris(return_X_y=True)
x_train, x_val, y_train, y_val = train_test_split(x, y, test_size=0.3, random_state=42, stratify=y)

model = IrisNet()
model.compile(
    optimizer=keras.optimizers.RMSprop(learning_rate=0.005),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
)
history = model.fit(x_train, y_train, epochs=40, validation_data=(x_val, y_val), verbose=0)
print("training accuracy:", round(history.history["acc"][-1], 3))
print("validation accuracy:", round(history.history["val_acc"][-1], 3))
