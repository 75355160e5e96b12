#!/usr/bin/env python3
"""python_layer.py - what the Python layer adds to a blocking allreduce of 4 bytes.

Started on two ranks by mpirun, with dtrain on PYTHONPATH. Blocks of calls alternate between the C
function, called through ctypes with nothing around it, and dtrain.allreduce on numpy and torch; a
call of a C function that does nothing shows what ctypes itself costs. Medians in microseconds."""
import os
import statistics
import time

import numpy as np

import dtrain
from dtrain._library import lib

os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(
    os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")) % len(os.sched_getaffinity(0))]})
dtrain.init()
x = np.zeros(1, np.float32)
pointer = x.ctypes.data
ways = {
    "an empty C function by ctypes": lib.dtrain_version,
    "C by ctypes": lambda: lib.dtrain_allreduce(b"c", pointer, pointer, 1, 6, 0),
    "dtrain.allreduce, in place": lambda: dtrain.allreduce(x, "numpy", dtrain.Sum, out=x),
    "dtrain.allreduce, new array": lambda: dtrain.allreduce(x, "new", dtrain.Sum),
}
try:
    import torch
    import dtrain.torch as dt
    tensor = torch.zeros(1)
    ways["dtrain.torch.allreduce_"] = lambda: dt.allreduce_(tensor, "torch", dt.Sum)
except ImportError:
    print("torch: skipped, it is not installed")
times = {way: [] for way in ways}
for _ in range(30):
    for way, call in ways.items():
        for i in range(120):
            start = time.perf_counter()
            call()
            if i >= 20:
                times[way].append(1e6 * (time.perf_counter() - start))
if dtrain.rank() == 0:
    for way, values in times.items():
        print(f"{way:32} {statistics.median(values):7.2f} us")
