"""A program may end with operations in flight in the library's memory, and with results that are it."""
import dtrain
import numpy as np

dtrain.init()
DEVICES = ["cpu"]
try:
    dtrain.cuda_device()
    DEVICES.append("cuda")
except dtrain.Unsupported as why:
    print(f"in host memory alone: {why}")

kept = []
for device in DEVICES:
    x = dtrain.empty((1000, 2), np.float32, device)
    kept += [x, dtrain.allgather(x), dtrain.allreduce(x, op=dtrain.Sum, out=x)]
    dtrain.allreduce_async(x, f"forgotten, {device}", dtrain.Sum)
dtrain.barrier()
