"""A communication hook for torch.nn.parallel.DistributedDataParallel: its buckets go over dtrain.

    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(dtrain.torch.ddp.HookState(), dtrain.torch.ddp.allreduce_hook)
"""
import queue
import threading

import torch
from torch.distributed import GradBucket

from dtrain.process_sets import ProcessSet, world
from dtrain.reductions import Average
from dtrain.torch.compression import Compression
from dtrain.torch.plain import allreduce_async_


class HookState:
    """What the hook needs: which ranks take part, how gradients travel, and a thread that tells DDP
    of buckets that are done."""

    def __init__(self, process_set: ProcessSet = world, op: int = Average,
                 compression: type = Compression.none, name: str = "ddp"):
        self.process_set = process_set
        self.op = op
        self.compression = compression
        self.name = name
        self._pending: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=_tell, args=(self._pending,), daemon=True).start()

    def __del__(self) -> None:
        self._pending.put(None)


def _tell(pending: queue.SimpleQueue) -> None:
    while (entry := pending.get()) is not None:
        handle, future, finish = entry
        try:
            future.set_result(finish(handle.wait()))
        except Exception as error:  # goes to whoever waits for the future
            future.set_exception(error)
        del entry, handle, future, finish


# DDP looks at the annotations, so they are the types themselves and not texts.
def allreduce_hook(state: HookState,
                   bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Reduces a bucket of gradients over all ranks."""
    buffer = bucket.buffer()
    compressed, context = state.compression.compress(buffer)
    handle = allreduce_async_(compressed, f"{state.name}.bucket.{bucket.index()}", state.op,
                              process_set=state.process_set)

    def finish(result: torch.Tensor) -> torch.Tensor:
        reduced = state.compression.decompress(result, context)
        return buffer if reduced is buffer else buffer.copy_(reduced)

    # With a device DDP's streams wait for what `finish` puts into the telling thread's.
    devices = [buffer.device] if buffer.is_cuda else None
    future: torch.futures.Future = torch.futures.Future(devices=devices)
    state._pending.put((handle, future, finish))
    return future
