"""A variational autoencoder with its own train_step and loss trackers."""

import keras
import tensorflow as tf
from keras import layers, ops
from sklearn.datasets import load_digits


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_var) * noise


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.decoder = decoder
        self.total_loss_tracker = keras.metrics.Mean(name="loss")
        self.reconstruction_loss_tracker = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_loss_tracker = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self):
        return [self.total_loss_tracker, self.reconstruction_loss_tracker, self.kl_loss_tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_var, z = self.encoder(data)
            decoded = self.decoder(z)
            reconstruction = ops.mean(
                ops.sum(
                    keras.losses.binary_crossentropy(data[..., None], decoded[..., None]), axis=-1
                )
            )
            kl = -0.5 * (1 + log_var - ops.square(mean) - ops.exp(log_var))
            kl = ops.mean(ops.sum(kl, axis=1))
            total = reconstruction + kl
        gradients = tape.gradient(total, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.total_loss_tracker.update_state(total)
        self.reconstruction_loss_tracker.update_state(reconstruction)
        self.kl_loss_tracker.update_state(kl)
        return {m.name: m.result() for m in self.metrics}


keras.utils.set_random_seed(9)
images = load_digits().data.astype("float32") / 16

encoder_in = keras.Input((64,))
h = layers.Dense(48, activation="relu")(encoder_in)
z_mean, z_log_var = layers.Dense(2)(h), layers.Dense(2)(h)
encoder = keras.Model(encoder_in, [z_mean, z_log_var, Sampling()([z_mean, z_log_var])])
decoder = keras.Sequential([keras.Input((2,)), layers.Dense(48, activation="relu")])
decoder.add(layers.Dense(64, activation="sigmoid"))

vae = VAE(encoder, decoder)
vae.compile(optimizer=keras.optimizers.Adam(0.002))
vae.fit(images, epochs=30, batch_size=64, verbose=0)

decoded = decoder.predict(encoder.predict(images, verbose=0)[0], verbose=0)
print(f"mean squared error of the reconstruction: {((decoded - images) ** 2).mean():.4f}")
