"""EarlyStopping that restores the best weights."""

import keras
from keras import layers
from keras.callbacks import EarlyStopping
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

keras.utils.set_random_seed(12)
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.25, random_state=12)

inputs = keras.Input(shape=(X.shape[1],))
x = layers.Dense(64, activation="relu")(inputs)
x = layers.Dropout(0.3)(x)
x = layers.Dense(64, activation="relu")(x)
outputs = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])

early_stopping = EarlyStopping(monitor="val_loss", patience=4, restore_best_weights=True)
history = model.fit(
    X_train,
    y_train,
    validation_data=(X_val, y_val),
    epochs=100,
    batch_size=16,
    callbacks=[early_stopping],
    verbose=0,
)
print("epochs:", len(history.history["loss"]))
print("best validation loss:", round(min(history.history["val_loss"]), 4))
print("validation loss of the model:", round(model.evaluate(X_val, y_val, verbose=0)[0], 4))
