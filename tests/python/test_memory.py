"""100,000 operations leave no memory behind."""
import gc
import unittest

import numpy as np

import dtrain

dtrain.init()
OPERATIONS = 100_000
# The interpreter's and the allocator's own movements; a leak of 8 bytes an operation is 780 KiB.
ALLOWED_KIB = 512


def resident_kib():
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as file:
        return int(next(line.split()[1] for line in file if line.startswith("VmRSS")))


def some_operations(count):
    x, rows = np.ones(16, np.float32), np.ones((2, 3))
    for i in range(count // 5):
        dtrain.allreduce(x, "in place", out=x)
        dtrain.allreduce(x, "out of place")
        dtrain.allreduce(x)
        dtrain.allgather(rows, "rows")
        handle = dtrain.allreduce_async(x, "forgotten", op=dtrain.Sum, out=x)
        if i % 2:
            handle.wait()
        else:
            del handle
            dtrain.barrier()  # it is done, and its name free
        x[:] = 1


class Memory(unittest.TestCase):
    def test_resident_memory_is_flat(self):
        some_operations(OPERATIONS // 5)
        before = resident_kib()
        some_operations(OPERATIONS)
        grown = resident_kib() - before
        print(f"{OPERATIONS} operations: {grown} KiB more")
        self.assertLess(grown, ALLOWED_KIB)


if __name__ == "__main__":
    unittest.main()
