#!/usr/bin/env python3
"""Fits a linear model with JAX: mpirun -np 2 linear_jax.py

The whole step is compiled; the reduction in it is a callback, which gets and gives numpy arrays."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import dtrain

SAMPLES, FEATURES, BATCH, EPOCHS, RATE = 4096, 8, 256, 10, 0.1


def averaged(gradient, name):
    """The mean of all ranks' gradients, inside a compiled function. Callbacks are ordered, so that
    ranks come to them in the same order."""
    shape = jax.ShapeDtypeStruct(gradient.shape, gradient.dtype)
    return io_callback(lambda g: dtrain.allreduce(g, name), shape, gradient, ordered=True)


def loss(weights, x, y):
    return jnp.mean((x @ weights - y) ** 2)


@jax.jit
def step(weights, x, y):
    return weights - RATE * averaged(jax.grad(loss)(weights, x, y), "gradient")


dtrain.init()
random = np.random.default_rng(1)
truth = random.normal(size=FEATURES).astype(np.float32)
x = random.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
y = x @ truth + 0.01 * random.normal(size=SAMPLES).astype(np.float32)

weights = jnp.asarray(dtrain.broadcast(np.zeros(FEATURES, np.float32), 0))
batches = dtrain.Sampler(SAMPLES, BATCH * dtrain.size(), seed=1, drop_last=True)
for batch in batches:
    if batch.epoch == EPOCHS:
        break
    weights = step(weights, x[batch.samples], y[batch.samples])
distance = float(np.abs(np.asarray(weights) - truth).max())
if dtrain.rank() == 0:
    print(f"{dtrain.size()} ranks: the weights are within {distance:.4f} of the truth")
dtrain.shutdown()
