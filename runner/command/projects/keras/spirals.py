"""A compiled Keras model that predicts which of two spirals a point is on, and its data."""

import numpy as np
import tf_keras


def load_points(is_training: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the points and their classes. Load your own data here.

    Returns:
        [N, 2] float32 and [N] int32. Evaluation data must not overlap with training data.
    """
    random = np.random.default_rng(0 if is_training else 1)
    classes = np.arange(1000 if is_training else 300, dtype=np.int32) % 2
    along = random.uniform(0.5, 3, len(classes))  # radians from the middle
    angle = along * 3 + classes * np.pi
    points = np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1)
    return (points + random.normal(0, 0.2, points.shape)).astype(np.float32), classes


def train_data() -> tuple[np.ndarray, np.ndarray]:
    """Returns the training data."""
    return load_points(is_training=True)


def validation_data() -> tuple[np.ndarray, np.ndarray]:
    """Returns the validation data."""
    return load_points(is_training=False)


def build_model(units: int = 64) -> tf_keras.Model:
    """Builds the model from points, [batch, 2], to logits, [batch, 2]. Replace it with yours."""
    model = tf_keras.Sequential(
        [
            tf_keras.Input((2,)),
            tf_keras.layers.Dense(units, activation="relu", name="first"),
            tf_keras.layers.Dense(units, activation="relu", name="second"),
            tf_keras.layers.Dense(2, dtype="float32", name="logits"),
        ]
    )
    model.compile(
        optimizer=tf_keras.optimizers.Adam(0.01),
        loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model
