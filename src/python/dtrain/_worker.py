"""python -m dtrain._worker FOLDER - one rank of dtrain.run: makes the call that is pickled in the
folder, and leaves (time of failure, whether it failed, pickled result or traceback) there."""
import os
import pickle
import sys
import time
import traceback

import dtrain
from dtrain.objects import dumps


def main(folder: str) -> int:
    rank = 0
    try:
        dtrain.init()
        rank = dtrain.rank()
        with open(os.path.join(folder, "call"), "rb") as file:
            function, args, kwargs = pickle.load(file)
        outcome = (0.0, False, dumps(function(*args, **kwargs)))
    except BaseException as error:  # whatever it is, the caller and the other ranks are told
        outcome = (time.time(), True, traceback.format_exc())
        if dtrain.is_initialized():
            dtrain.abort(1, f"{type(error).__name__}: {error}")
    path = os.path.join(folder, f"result.{rank}")
    with open(path + ".part", "wb") as file:
        pickle.dump(outcome, file)
    os.replace(path + ".part", path)
    return 1 if outcome[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
