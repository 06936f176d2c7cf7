"""A custom callback class that uses logs and stops training."""

import keras
from sklearn.datasets import load_digits


class StopAtAccuracy(keras.callbacks.Callback):
    def __init__(self, target):
        super().__init__()
        self.target = target

    def on_train_begin(self, logs=None):
        self.reached = None
        print("optimizer:", self.model.optimizer.name)

    def on_epoch_end(self, epoch, logs=None):
        accuracy = logs["val_accuracy"]
        print(f"epoch {epoch + 1}: loss {logs['loss']:.3f}, validation accuracy {accuracy:.3f}")
        if accuracy >= self.target:
            self.reached = epoch + 1
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        print("end of training")


keras.utils.set_random_seed(6)
x, y = load_digits(return_X_y=True)
x = x / 16.0

model = keras.Sequential(
    [
        keras.Input(shape=(64,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
stop = StopAtAccuracy(0.9)
model.fit(x, y, epochs=30, validation_split=0.2, callbacks=[stop], verbose=0)
print("reached 90% in epoch", stop.reached)
