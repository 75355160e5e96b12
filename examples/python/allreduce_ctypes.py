#!/usr/bin/python3
"""Sums an array over all ranks: mpirun -np 4 allreduce_ctypes.py [libdtrain.so]"""
import ctypes
import ctypes.util
import os
import sys

import numpy as np

BUILT = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                     "../../build/release/lib/libdtrain.so")
PATH = (sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DTRAIN_LIBRARY")
        or (BUILT if os.path.exists(BUILT) else ctypes.util.find_library("dtrain")))
if not PATH:
    sys.exit("libdtrain.so is not found; give its path, or set DTRAIN_LIBRARY")
dtrain = ctypes.CDLL(PATH)
FLOAT32, SUM = 6, 0  # DTRAIN_DTYPE_F32, DTRAIN_OP_SUM
dtrain.dtrain_last_error.restype = ctypes.c_char_p
dtrain.dtrain_init.argtypes = [ctypes.c_void_p]
dtrain.dtrain_allreduce.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p,
                                    ctypes.c_int64, ctypes.c_int, ctypes.c_int]


def check(status):
    if status != 0:
        sys.exit(dtrain.dtrain_last_error().decode())


check(dtrain.dtrain_init(None))
rank, size = dtrain.dtrain_rank(), dtrain.dtrain_size()
data = np.arange(1000, dtype=np.float32) + rank
check(dtrain.dtrain_allreduce(b"data", data.ctypes.data, data.ctypes.data, data.size, FLOAT32, SUM))
right = np.array_equal(data, np.arange(1000) * size + sum(range(size)))
print(f"rank {rank} of {size}: the sum is {'right' if right else 'WRONG'}", flush=True)
check(dtrain.dtrain_shutdown())
sys.exit(0 if right else 1)
