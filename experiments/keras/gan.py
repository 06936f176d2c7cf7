"""A GAN with two optimizers and its own compile and train_step."""

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tf_keras import layers


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    def train_step(self, real):
        n = tf.shape(real)[0]
        with tf.GradientTape() as d_tape, tf.GradientTape() as g_tape:
            fake = self.generator(tf.random.normal((n, self.latent_dim)))
            on_real, on_fake = self.discriminator(real), self.discriminator(fake)
            d_loss = self.loss_fn(tf.ones((n, 1)), on_real) + self.loss_fn(
                tf.zeros((n, 1)), on_fake
            )
            g_loss = self.loss_fn(tf.ones((n, 1)), on_fake)
        d_weights, g_weights = (
            self.discriminator.trainable_weights,
            self.generator.trainable_weights,
        )
        self.d_optimizer.apply_gradients(zip(d_tape.gradient(d_loss, d_weights), d_weights))
        self.g_optimizer.apply_gradients(zip(g_tape.gradient(g_loss, g_weights), g_weights))
        return {"d_loss": d_loss, "g_loss": g_loss}


keras.utils.set_random_seed(21)
angles = np.random.uniform(0, 2 * np.pi, 4096)
circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(circle).shuffle(4096, seed=21).batch(64)

hidden = [layers.Dense(32, activation="relu"), layers.Dense(32, activation="relu")]
generator = keras.Sequential([keras.Input((4,)), *hidden, layers.Dense(2)])
hidden = [layers.Dense(32, activation=layers.LeakyReLU()), layers.Dense(32, activation="relu")]
discriminator = keras.Sequential([keras.Input((2,)), *hidden, layers.Dense(1)])

gan = GAN(discriminator, generator, latent_dim=4)
gan.compile(
    d_optimizer=keras.optimizers.Adam(1e-3, beta_1=0.5),
    g_optimizer=keras.optimizers.Adam(1e-3, beta_1=0.5),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)
gan.fit(dataset, epochs=15, verbose=2)
points = generator.predict(np.random.normal(size=(1000, 4)), verbose=0)
print(f"mean radius of generated points: {np.linalg.norm(points, axis=1).mean():.2f}")
