#!/usr/bin/env python3
"""Fits a linear model on all ranks: mpirun -np 4 linear_numpy.py

Each rank has its own part of every batch, and the ranks' gradients are averaged."""
import numpy as np

import dtrain

SAMPLES, FEATURES, BATCH, EPOCHS, RATE = 4096, 8, 256, 10, 0.1

dtrain.init()
rank, size = dtrain.rank(), dtrain.size()

# The same data on every rank; a real program would read it.
random = np.random.default_rng(1)
truth = random.normal(size=FEATURES).astype(np.float32)
x = random.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
y = x @ truth + 0.01 * random.normal(size=SAMPLES).astype(np.float32)

weights = np.zeros(FEATURES, np.float32)
gradient = dtrain.empty(FEATURES)  # memory of the library: reduced where it lies

for batch in dtrain.Sampler(SAMPLES, BATCH, seed=1):
    if batch.epoch == EPOCHS:
        break
    mine = batch.samples
    error = x[mine] @ weights - y[mine]
    # Parts may differ in length: each rank's sum counts by the size of the whole batch.
    gradient[:] = 2 * error @ x[mine] / batch.global_size
    dtrain.allreduce(gradient, "gradient", dtrain.Sum, out=gradient)
    weights -= RATE * gradient
    if batch.index == batch.count - 1:
        loss = dtrain.allreduce(np.float64((error**2).sum()), "loss", dtrain.Sum)
        if rank == 0:
            print(f"epoch {batch.epoch}: mean squared error {loss / batch.global_size:.6f}")

distance = float(np.abs(weights - truth).max())
if rank == 0:
    print(f"{size} ranks: the weights are within {distance:.4f} of the truth")
gradient = None
dtrain.shutdown()
