#!/usr/bin/env python3
"""Trains a perceptron with PyTorch: mpirun -np 2 mlp_torch.py --data FOLDER

FOLDER has Fashion-MNIST or MNIST as IDX files, plain or with .gz (Debian: dataset-fashion-mnist)."""
import argparse
import gzip
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

import dtrain
import dtrain.torch as dt


def read_idx(folder, name):
    """The numbers of an IDX file of unsigned bytes, in its shape."""
    path = os.path.join(folder, name)
    path = path if os.path.exists(path) else path + ".gz"
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        data = file.read()
    shape = np.frombuffer(data, ">i4", data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def load(folder, part):
    images = read_idx(folder, part + "-images-idx3-ubyte").astype(np.float32) / 255
    labels = read_idx(folder, part + "-labels-idx1-ubyte").astype(np.int64)
    return torch.from_numpy(images.reshape(len(images), -1)), torch.from_numpy(labels)


def accuracy(model, x, y):
    """Of all ranks' test images, each of which looks at its share."""
    share = slice(dt.rank(), None, dt.size())
    with torch.no_grad():
        right = (model(x[share]).argmax(1) == y[share]).sum()
    return dt.allreduce(right, "accuracy", dt.Sum).item() / len(y)


parser = argparse.ArgumentParser(description="a perceptron on Fashion-MNIST")
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", metavar="FOLDER")
parser.add_argument("--epochs", type=int, default=5, metavar="N")
parser.add_argument("--batch", type=int, default=128, metavar="N", help="images, over all ranks")
parser.add_argument("--hidden", type=int, default=256, metavar="N", help="units of a hidden layer")
parser.add_argument("--rate", type=float, default=0.1, help="learning rate")
parser.add_argument("--images", type=int, metavar="N", help="train on the first N images only")
parser.add_argument("--views", action="store_true", help="gradients in the library's memory")
options = parser.parse_args()

dt.init()
torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // dt.local_size()))
try:
    x, y = load(options.data, "train")
    test_x, test_y = load(options.data, "t10k")
except FileNotFoundError as error:
    sys.exit(f"{error}; --data names the folder")
x, y = x[:options.images], y[:options.images]

torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Linear(x.shape[1], options.hidden), torch.nn.ReLU(),
    torch.nn.Linear(options.hidden, options.hidden), torch.nn.ReLU(),
    torch.nn.Linear(options.hidden, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)
# Sums over parts of a batch, each divided by the size of the whole: parts may differ in length.
optimizer = dt.DistributedOptimizer(optimizer, model.named_parameters(), op=dt.Sum,
                                    gradients_as_views=options.views)
dt.broadcast_parameters(model.state_dict())
dt.broadcast_optimizer_state(optimizer)

start = time.perf_counter()
for batch in dtrain.Sampler(len(x), options.batch, seed=1):
    if batch.epoch == options.epochs:
        break
    samples = torch.from_numpy(batch.samples)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x[samples]), y[samples], reduction="sum") / batch.global_size
    loss.backward()
    optimizer.step()
    if batch.index == batch.count - 1:
        rate = len(x) / (time.perf_counter() - start)
        right = accuracy(model, test_x, test_y)
        mean_loss = dt.allreduce(loss.detach(), "loss", dt.Sum).item()
        if dt.rank() == 0:
            print(f"epoch {batch.epoch}: loss {mean_loss:.4f}, {100 * right:.1f}% of the test "
                  f"images right, {rate:.0f} images/s on {dt.size()} ranks", flush=True)
        start = time.perf_counter()
dt.shutdown()
