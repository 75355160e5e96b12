#!/usr/bin/env python3
"""idle.py dtrain LIBRARY | horovod - what a rank costs while its program does something else.

After one allreduce the process sleeps for 10 seconds. Every rank prints, as one JSON object, the
processor time that its process took in them, in percent of a core.
"""

import ctypes
import json
import resource
import sys
import time

SECONDS = 10
F32, SUM = 6, 0  # dtrain.h


def start_dtrain(path):
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    library.dtrain_allreduce.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p,
                                         ctypes.c_int64, ctypes.c_int, ctypes.c_int]
    data = (ctypes.c_float * 4)(1, 2, 3, 4)
    if library.dtrain_init(None) or library.dtrain_allreduce(b"idle", data, data, 4, F32, SUM):
        sys.exit("idle.py: libdtrain failed")
    return library.dtrain_rank(), library.dtrain_shutdown


def start_horovod():
    import torch
    import horovod.torch as api
    torch.set_num_threads(1)
    api.init()
    api.allreduce_(torch.ones(4), op=api.Sum, name="idle")
    return api.rank(), api.shutdown


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main():
    if sys.argv[1:2] not in (["dtrain"], ["horovod"]):
        sys.exit(__doc__)
    rank, shutdown = start_dtrain(sys.argv[2]) if sys.argv[1] == "dtrain" else start_horovod()
    time.sleep(0.5)
    before = processor_seconds()
    time.sleep(SECONDS)
    used = processor_seconds() - before
    print(json.dumps({"case": "idle", "rank": rank, "percent": round(100 * used / SECONDS, 3)}),
          flush=True)
    shutdown()


if __name__ == "__main__":
    main()
