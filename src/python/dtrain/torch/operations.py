"""Collectives on torch tensors.

They take the arguments of dtrain's functions on numpy arrays, and are matched with them: what a
rank submits as an array another may submit as a tensor. Tensors are dense, contiguous and on the
CPU, or on this rank's GPU. Functions ending in an underscore work in place. Those without _async can
be differentiated; their gradients are collectives as well, so every rank must run the backward pass.

On a GPU an operation begins when what is in torch's current stream is done; a blocking call lets the
current stream wait for it, and not the host.
"""
from __future__ import annotations

from typing import Any

from dtrain._submit import Group, Handle
from dtrain.torch._tensors import complete
from dtrain.torch.differentiable import (allgather, allreduce, alltoall, broadcast,
                                         grouped_allgather, grouped_allreduce,
                                         grouped_reducescatter, reducescatter)
from dtrain.torch.plain import (allgather_async, allreduce_, allreduce_async, allreduce_async_,
                                alltoall_async, broadcast_, broadcast_async, broadcast_async_,
                                grouped_allgather_async, grouped_allreduce_,
                                grouped_allreduce_async, grouped_allreduce_async_,
                                grouped_reducescatter_async, reducescatter_async,
                                sparse_allreduce_async)


def poll(handle: Handle | Group) -> bool:
    """Whether an operation is done. Does not block."""
    return handle.done()


def synchronize(handle: Handle | Group) -> Any:
    """The result of an operation, once it is done; raises its error. On a GPU the current stream
    waits, and not the host; handle.wait() lets the host wait."""
    return complete(handle)
