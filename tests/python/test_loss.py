"""test_loss.py abort|exit FILE - rank 1 of two gives up, or is gone; the other one gets an error
that names it. Ranks that saw what they should add a line to FILE (see tests/parallel/survivors.sh)."""
import os
import sys

import numpy as np

import dtrain

HOW, FILE = sys.argv[1:3]
dtrain.init()
try:
    # The news may already come here, before this rank knows that its operation is done.
    dtrain.allreduce(np.ones(2), "together")
    if dtrain.rank() == 1:
        if HOW == "exit":
            os._exit(3)
        dtrain.abort(3, "no more data")
    for _ in range(1000):
        dtrain.allreduce(np.ones(1 << 16), "after", dtrain.Sum)
    sys.exit("nothing happened")
except dtrain.WorldLost as error:
    print(f"rank {dtrain.rank()}: {error}", flush=True)
    assert error.ranks == (1,), error.ranks
    if HOW == "abort":
        assert isinstance(error, dtrain.Aborted) and "no more data" in str(error)
    else:
        assert isinstance(error, dtrain.RankLost)
try:
    dtrain.barrier()
    sys.exit("the world goes on")
except dtrain.WorldLost as error:
    assert error.status in (dtrain.Status.ABORTED, dtrain.Status.RANK_LOST)
with open(FILE, "a", encoding="ascii") as file:
    file.write("survived\n")
