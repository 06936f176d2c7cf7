"""A convnet with batch normalization and dropout, trained by SGD with momentum."""

import tf_keras as keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tf_keras.layers import (
    Activation,
    BatchNormalization,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    MaxPooling2D,
)

keras.utils.set_random_seed(18)
digits = load_digits()
images = digits.images[..., None].astype("float32") / 16.0
labels = keras.utils.to_categorical(digits.target)
x_train, x_test, y_train, y_test = train_test_split(images, labels, random_state=18)

model = keras.Sequential()
for filters in (16, 32):
    model.add(Conv2D(filters, (3, 3), padding="same", use_bias=False))
    model.add(BatchNormalization())
    model.add(Activation("relu"))
    model.add(MaxPooling2D())
model.add(Flatten())
model.add(Dropout(0.5))
model.add(Dense(10, activation="softmax"))

sgd = keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, nesterov=True)
model.compile(loss="categorical_crossentropy", optimizer=sgd, metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=64, epochs=10, validation_data=(x_test, y_test))
score = model.evaluate(x_test, y_test, verbose=0)
print("test accuracy:", round(score[1], 3))
