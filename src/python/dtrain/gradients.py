"""Gradient sets: a model's gradients, declared once and marked as ready by number."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Sequence

import numpy as np

from dtrain import _abi, _arrays, _submit, errors
from dtrain._library import lib
from dtrain.device import DeviceArray
from dtrain.memory import device_number
from dtrain.reductions import Average
from dtrain.process_sets import ProcessSet, world


class Stats(NamedTuple):
    """What a gradient set has come to."""
    buckets: int        # in which gradients travel
    is_frozen: bool     # the buckets stay as they are
    nbytes: int         # of all gradients
    steps: int          # that were ended
    missing: int        # gradients in whose place zeros took part, over all steps
    waited_s: float     # in waits, over all steps
    copied_bytes: int   # into the library's memory and out of it, over all steps


class SetOwner:
    """A dtrain_gradset_t, destroyed when neither the set nor one of its arrays is used any more."""

    def __init__(self, desc: _abi.GradsetDesc, params: Any, n: int):
        self.on_gpu = desc.device == _abi.DEVICE_CUDA
        self.pointer = ctypes.c_void_p()
        errors.check(lib.dtrain_gradset_create(desc, params, n, self.pointer))

    def address(self, index: int) -> int:
        """Where a gradient lies."""
        buffer = ctypes.c_void_p()
        errors.check(lib.dtrain_gradset_buffer(self.pointer, index, buffer))
        return buffer.value or 0

    def __del__(self) -> None:
        if getattr(self, "pointer", None) and lib is not None:  # None when the interpreter ends
            lib.dtrain_gradset_destroy(self.pointer)


def create(names: Sequence[str], shapes: Sequence[tuple[int, ...]], dtypes: Sequence[int], *,
           op: int = Average, prescale: float = 1.0, postscale: float = 1.0,
           process_set: ProcessSet = world, timeout: float | None = None,
           first_bucket_bytes: int = 0, bucket_bytes: int = 0,
           order: Sequence[int] | None = None, fixed_order: bool = False,
           name: str = "gradients", device: str = "cpu") -> SetOwner:
    """A set of gradients with these names, shapes and library types, in the library's memory."""
    n = len(names)
    params = (_abi.Param * max(n, 1))()
    extents = [(ctypes.c_int64 * max(len(shape), 1))(*shape) for shape in shapes]
    for param, own_name, shape, extent, dtype in zip(params, names, shapes, extents, dtypes):
        param.struct_size = ctypes.sizeof(_abi.Param)
        param.name, param.ndim, param.shape, param.dtype = own_name.encode(), len(shape), extent, \
            dtype
    desc = _abi.GradsetDesc(
        struct_size=ctypes.sizeof(_abi.GradsetDesc), op=op, name=name.encode(), prescale=prescale,
        postscale=postscale, pset=process_set.id, timeout_ms=_submit.timeout_ms(timeout),
        first_bucket_bytes=first_bucket_bytes, bucket_bytes=bucket_bytes,
        fixed_order=int(fixed_order), device=device_number(device))
    if order is not None:
        if sorted(order) != list(range(n)):
            raise ValueError(f"order is not the numbers 0 to {n - 1} in some order")
        desc.order = (ctypes.c_int32 * max(n, 1))(*order)
    return SetOwner(desc, params, n)


def array_at(owner: Any, index: int, shape: tuple[int, ...],
             dtype: np.dtype) -> np.ndarray | DeviceArray:
    """The array at `owner.address(index)`; as long as it lives so does the owner."""
    if owner.on_gpu:
        return DeviceArray(owner.address(index), shape, dtype, owner)
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(owner.address(index))
    memory._owner = owner
    return np.frombuffer(memory, dtype, count).reshape(shape)


class GradientSet:
    """The gradients of a model. In each step the program writes all of them and marks each as
    ready; the library reduces them in buckets while the program goes on, and wait() ends the step.
    No names and no negotiation in a step, and nothing is copied.

        gradients = dtrain.GradientSet({"weight": (4, 2), "bias": (2,)})
        weight, bias = gradients.arrays
        ...
        gradients.ready(1); gradients.ready(0); gradients.wait()

    params: names and shapes, the same in the same order on all ranks; or names and (shape, dtype).
    op:     Average or Sum.
    order:  numbers of all parameters as they are expected to become ready; None: the last first.
    fixed_order: keep that order; else the one observed in the first step is taken.
    first_bucket_bytes, bucket_bytes: sizes of buckets; 0: the library's.
    device: "cuda": the gradients are DeviceArrays in the memory of this rank's GPU.

    On a GPU `stream` (the address of a cudaStream_t; None: the default one) is that in which a
    gradient is computed, or reduced ones are used; the host waits for neither.

    All ranks of the process set make the same steps. The arrays must not be touched after
    dtrain.shutdown().
    """

    def __init__(self, params: dict[str, Any], op: int = Average, **options: Any):
        self.names = list(params)
        specs = [_spec(value) for value in params.values()]
        self._owner = create(self.names, [shape for shape, _ in specs],
                             [_arrays.dtype_number(dtype) for _, dtype in specs], op=op,
                             **options)
        self._pointer = self._owner.pointer
        #: The gradients, in the library's memory and zero at first, in the order of `params`.
        self.arrays = [array_at(self._owner, i, *spec) for i, spec in enumerate(specs)]

    def ready(self, index: int, stream: int | None = None) -> None:
        """Marks a gradient as written: it must not be touched until the step's wait."""
        status = lib.dtrain_gradset_ready(self._pointer, index, stream)
        if status != _abi.OK:
            raise errors.make(status)

    def ready_all(self, indices: Sequence[int], stream: int | None = None) -> None:
        """Marks several, in this order."""
        n = len(indices)
        errors.check(lib.dtrain_gradset_ready_n(self._pointer, (ctypes.c_int * n)(*indices), n,
                                                stream))

    def unused(self, index: int) -> None:
        """Says that this step has no such gradient: zeros take its place."""
        errors.check(lib.dtrain_gradset_unused(self._pointer, index))

    def wait(self) -> None:
        """Ends the step: waits until all gradients are reduced. Those that were not marked take
        part with zeros."""
        errors.check(lib.dtrain_gradset_wait(self._pointer))

    def stream_wait(self, stream: int | None = None) -> None:
        """The same on a GPU: what is put into the stream from now on finds the gradients reduced.
        Waits until all ranks have marked theirs, but not for the GPU."""
        errors.check(lib.dtrain_gradset_stream_wait(self._pointer, stream))

    def wait_one(self, index: int) -> bool:
        """Waits until a gradient is reduced, without ending the step. False, at once, when one of
        its bucket was not marked yet."""
        status = lib.dtrain_gradset_wait_one(self._pointer, index)
        errors.check(status)
        return status == _abi.OK

    def clip(self, max_norm: float) -> float:
        """After wait(): scales all gradients down to a global norm of `max_norm` where it is
        larger, and returns what it was; NaN, with nothing changed, when one is not finite.
        Collective. An optimizer's max_norm costs less."""
        norm = ctypes.c_double()
        errors.check(lib.dtrain_gradset_clip(self._pointer, max_norm, norm))
        return norm.value

    def set_accumulation(self, passes: int) -> None:
        """From now on a gradient is ready when it was marked `passes` times; the program adds the
        passes up."""
        errors.check(lib.dtrain_gradset_set_accumulation(self._pointer, passes))

    def enable_sync(self, on: bool) -> None:
        """False: marks and waits do nothing from now on, so that gradients are this rank's own."""
        errors.check(lib.dtrain_gradset_sync_enable(self._pointer, int(on)))

    def stats(self) -> Stats:
        """What the set has come to."""
        stats = _abi.GradsetStats(struct_size=ctypes.sizeof(_abi.GradsetStats))
        errors.check(lib.dtrain_gradset_get_stats(self._pointer, stats))
        return Stats(stats.num_buckets, bool(stats.is_frozen), stats.bytes, stats.steps,
                     stats.num_missing, stats.waited_ns * 1e-9, stats.copied_bytes)

    def __len__(self) -> int:
        return len(self.arrays)


def _spec(value: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a parameter that was given as a shape or as (shape, dtype)."""
    if len(value) == 2 and not isinstance(value[0], (int, np.integer)):
        return tuple(value[0]), np.dtype(value[1])
    return tuple(value), np.dtype(np.float32)
