"""A transformer block, AdamW with weight decay, and a cosine schedule with warm-up."""

import keras
import numpy as np
from keras import layers, ops


class TransformerBlock(layers.Layer):
    def __init__(self, width, heads, rate=0.1):
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads=heads, key_dim=width // heads)
        self.mlp = keras.Sequential(
            [layers.Dense(2 * width, activation="gelu"), layers.Dense(width)]
        )
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()
        self.dropout = layers.Dropout(rate)

    def call(self, inputs, training=None):
        attended = self.dropout(self.attention(inputs, inputs), training=training)
        x = self.norm1(inputs + attended)
        return self.norm2(x + self.dropout(self.mlp(x), training=training))


class TokenAndPosition(layers.Layer):
    def __init__(self, length, tokens, width):
        super().__init__()
        self.tokens = layers.Embedding(tokens, width)
        self.positions = layers.Embedding(length, width)

    def call(self, x):
        return self.tokens(x) + self.positions(ops.arange(ops.shape(x)[-1]))


keras.utils.set_random_seed(27)
rng = np.random.default_rng(27)
x = rng.integers(0, 12, (2400, 10))
y = (x[:, 0] == x[:, 1:].max(axis=1)) | (x[:, 0] < x[:, -1])

inputs = layers.Input(shape=(10,), dtype="int32")
h = TokenAndPosition(10, 12, 32)(inputs)
h = TransformerBlock(32, 2)(h)
h = layers.GlobalAveragePooling1D()(h)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(h))

epochs, batch = 10, 32
steps = epochs * 2000 // batch
rate = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=3e-3, warmup_steps=60)
optimizer = keras.optimizers.AdamW(learning_rate=rate, weight_decay=1e-3)
model.compile(optimizer=optimizer, loss="binary_crossentropy", metrics=["accuracy"])
model.fit(x[:2000], y[:2000], batch, epochs, validation_data=(x[2000:], y[2000:]), verbose=2)
print("accuracy:", round(model.evaluate(x[2000:], y[2000:], verbose=0)[1], 3))
