"""validation_split, and a plot of the history."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import tf_keras as keras
from sklearn.datasets import make_circles
from tf_keras.layers import Dense, Input

keras.utils.set_random_seed(19)
x, y = make_circles(1000, noise=0.1, factor=0.5, random_state=19)

model = keras.Sequential([Input((2,)), Dense(16, activation="relu"), Dense(1, "sigmoid")])
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="bce", metrics=["acc"])
history = model.fit(x, y, validation_split=0.3, epochs=20, batch_size=20, verbose=0)

for name in ("acc", "val_acc"):
    plt.plot(history.epoch, history.history[name], label=name)
plt.legend()
plt.savefig("curve.png")
print("keys:", sorted(history.history))
print("val_loss:", [round(value, 3) for value in history.history["val_loss"]][-1])
