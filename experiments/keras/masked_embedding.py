"""Sequences of different lengths: padding, a masked embedding and a bidirectional LSTM."""

import numpy as np
import tf_keras as keras
from tf_keras.layers import LSTM, Bidirectional, Dense, Embedding
from tf_keras.preprocessing.sequence import pad_sequences

keras.utils.set_random_seed(23)
rng = np.random.default_rng(23)
sequences = [rng.integers(1, 30, rng.integers(5, 20)) for _ in range(1500)]
labels = np.array([int((s < 8).sum() > len(s) / 4) for s in sequences])
x = pad_sequences(sequences, maxlen=20, padding="post")
x_train, x_test = x[:1200], x[1200:]
y_train, y_test = labels[:1200], labels[1200:]

model = keras.Sequential()
model.add(Embedding(input_dim=30, output_dim=8, mask_zero=True))
model.add(Bidirectional(LSTM(16)))
model.add(Dense(1, activation="sigmoid"))
model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=32, epochs=8, validation_data=(x_test, y_test), verbose=2)
loss, acc = model.evaluate(x_test, y_test, verbose=0)
print(f"test accuracy: {acc:.3f}")
