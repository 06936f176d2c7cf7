"""A tf.data pipeline with map, shuffle, batch and prefetch."""

import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_digits

AUTOTUNE = tf.data.AUTOTUNE
keras.utils.set_random_seed(20)
digits = load_digits()


def preprocess(image, label):
    image = tf.cast(image, tf.float32) / 16.0
    return tf.expand_dims(image, -1), tf.one_hot(label, 10)


def augment(image, label):
    return image + tf.random.normal(tf.shape(image), stddev=0.1), label


full = tf.data.Dataset.from_tensor_slices((digits.images, digits.target))
full = full.map(preprocess, num_parallel_calls=AUTOTUNE)
train_ds = full.take(1400).cache().shuffle(1400).map(augment).batch(32).prefetch(AUTOTUNE)
val_ds = full.skip(1400).batch(64).cache().prefetch(AUTOTUNE)

model = keras.Sequential(
    [
        keras.layers.Flatten(input_shape=(8, 8, 1)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
model.fit(train_ds, validation_data=val_ds, epochs=8)
print(f"validation accuracy: {model.evaluate(val_ds, verbose=0)[1]:.3f}")
