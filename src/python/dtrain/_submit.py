"""From buffers to an operation of the library, and the handle that waits for it.

A buffer that was lent is kept alive by the handle until the operation is done; when a handle is
forgotten before that, by `_orphans`; and when the world is gone before, until shutdown, since a
peer may still be writing to it.
"""
from __future__ import annotations

import ctypes
import itertools
import math
import threading
import weakref
from typing import Any, Callable, NamedTuple, Sequence

from dtrain import _abi, errors
from dtrain._library import lib

# A wait returns to Python as often, so that Ctrl-C is heard.
_WAIT_SLICE_MS = 200
# Errors after which the data path of a peer may still be at work.
_WORLD_ENDS = (_abi.ERR_RANK_LOST, _abi.ERR_ABORTED, _abi.ERR_TIMEOUT, _abi.ERR_COMMUNICATION,
               _abi.ERR_INTERNAL)
_TENSOR_SIZE = ctypes.sizeof(_abi.Tensor)
_OPTIONS_SIZE = ctypes.sizeof(_abi.Options)
_CACHE_MAX = 4096

_shapes: dict[tuple[int, ...], Any] = {}
_options: dict[tuple, Any] = {}
_codecs: dict[str, Any] = {}
_counters: dict[str, Any] = {}
_orphans: list[tuple[int, Any]] = []
# By name, what a stream waits for, and the host has not: the name is in use until the GPU is done.
_unfinished: dict[str, Handle] = {}
_kept_until_shutdown: list[Any] = []
_lent: weakref.WeakSet[Held] = weakref.WeakSet()
_lock = threading.Lock()
# Counts shutdowns: numbers of handles may be given out again in the next world.
_world = 0


def name_of(kind: str, name: str | None, blocking: bool = False) -> str:
    """A name for an operation that was given none.

    Operations without a name are matched across ranks by their order. A blocking one has ended
    before the next, so all of a kind share a name, which the ranks then need not agree on again."""
    if name is not None:
        return name
    if blocking:
        return kind + ".unnamed"
    with _lock:
        counter = _counters.setdefault(kind, itertools.count())
        return f"{kind}.unnamed.{next(counter)}"


def timeout_ms(timeout: float | None) -> int:
    """Seconds as the library's milliseconds: None is the configured deadline, math.inf is none."""
    if timeout is None:
        return 0
    if timeout == math.inf:
        return -1
    if not 0 < timeout <= 2_000_000:
        raise ValueError(f"a timeout of {timeout} s: it is more than 0, or None, or math.inf")
    return max(1, int(timeout * 1000))


def options(op: int = 0, prescale: float = 1.0, postscale: float = 1.0, pset: int = 0,
            priority: int = 0, timeout: float | None = None, codec: str | None = None) -> Any:
    """A dtrain_options_t, or None when all of it is default. The library copies it."""
    key = (op, prescale, postscale, pset, priority, timeout, codec)
    found = _options.get(key)
    if found is None:
        if key == (0, 1.0, 1.0, 0, 0, None, None):
            return None
        if prescale == 0 or postscale == 0:
            raise ValueError("a scale of 0, which would be taken for 1")
        if len(_options) >= _CACHE_MAX:
            _options.clear()
        found = ctypes.pointer(_abi.Options(struct_size=_OPTIONS_SIZE, op=op, prescale=prescale,
                                            postscale=postscale, pset=pset, priority=priority,
                                            timeout_ms=timeout_ms(timeout),
                                            codec=_codec(codec)))
        _options[key] = found
    return found


def _codec(name: str | None) -> Any:
    """One of the library's codecs. They are few and small, and kept for ever."""
    if name is None:
        return None
    found = _codecs.get(name)
    if found is None:
        found = ctypes.POINTER(_abi.Codec)()
        errors.check(lib.dtrain_codec_create(name.encode(), found))
        _codecs[name] = found
    return found


def _shape_array(shape: tuple[int, ...]) -> Any:
    found = _shapes.get(shape)
    if found is None:
        if len(_shapes) >= _CACHE_MAX:
            _shapes.clear()
        found = _shapes[shape] = (ctypes.c_int64 * len(shape))(*shape)
    return found


class Buffer(NamedTuple):
    """Dense, row-major memory that the library may be lent."""
    pointer: int
    shape: tuple[int, ...]
    dtype: int  # DTYPE_… of the library
    device: int = _abi.DEVICE_CPU
    stream: int | None = None  # of a GPU, in which it is written to and used; None: not known

    @property
    def nbytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * lib.dtrain_dtype_size(self.dtype)


def tensor(name: str, source: Buffer | None, target: Buffer | None,
           out_bytes: int = 0) -> _abi.Tensor:
    """A dtrain_tensor_t of the shape, type and device of `source`; None is NULL."""
    _, shape, dtype, device, stream = source or target
    if target and target.device != device:
        raise ValueError("of x and out one is in the memory of a GPU, and one is not")
    return _abi.Tensor(_TENSOR_SIZE, len(shape), name.encode(), source and source.pointer,
                       target and target.pointer, _shape_array(shape), dtype, device, stream,
                       out_bytes)


def sparse(name: str, shape: tuple[int, ...], indices: int, values: int, nnz: int,
           dtype: int) -> _abi.Sparse:
    """A dtrain_sparse_t: `shape` is that of the whole tensor, `indices` and `values` addresses."""
    return _abi.Sparse(ctypes.sizeof(_abi.Sparse), len(shape), name.encode(), _shape_array(shape),
                       ctypes.cast(indices, ctypes.POINTER(ctypes.c_int64)), values, nnz, dtype,
                       _abi.DEVICE_CPU)


def sparse_output(handle: Held) -> tuple[int | None, int | None, int]:
    """Addresses of the row numbers (None: all rows) and of the rows, and how many they are."""
    indices, values = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_void_p()
    nnz = ctypes.c_int64()
    errors.check(lib.dtrain_sparse_output(handle, indices, values, nnz))
    return ctypes.cast(indices, ctypes.c_void_p).value, values.value, nnz.value


class Held:
    """The library's number of an operation, for its functions. It is given back when neither a
    Handle nor memory that the library provided for the result needs it any more."""

    __slots__ = ("_as_parameter_", "keep", "_world", "__weakref__")

    def __init__(self, number: int, keep: Any):
        self._as_parameter_ = number
        self.keep = keep  # the buffers that were lent
        self._world = _world

    def is_of_this_world(self) -> bool:
        """Whether the library still knows it."""
        return self._world == _world

    def lend(self) -> Held:
        """Notes that a result is memory of the library's, which it has until the shutdown."""
        _lent.add(self)
        return self

    def __del__(self) -> None:
        if (self._world == _world
                and lib.dtrain_release(self._as_parameter_) == _abi.IN_PROGRESS):
            _orphans.append((self._as_parameter_, self.keep))


class Handle:
    """An operation that was submitted. wait() gives its result; a handle may be waited for more
    than once, by any thread. Buffers must not be touched before it is done."""

    __slots__ = ("name", "_held", "_finish", "_on_gpu", "_stream", "_result", "_error", "_lock")

    def __init__(self, name: str, handle: int, keep: Any, finish: Callable[[Held], Any],
                 described: _abi.Tensor | _abi.Sparse | None):
        self.name = name
        self._held: Held | None = Held(handle, keep)  # None once it is done and that is known here
        self._finish: Callable[[Held], Any] | None = finish  # None once there is a result
        self._on_gpu = described is not None and described.device != _abi.DEVICE_CPU
        self._stream = described.stream if self._on_gpu else None  # None: it is not known
        self._result: Any = None
        self._error: errors.Error | None = None
        self._lock = threading.Lock()

    def done(self) -> bool:
        """Whether the operation is done, well or badly. Does not block."""
        held = self._held
        if held is None or not held.is_of_this_world():
            return True
        done = ctypes.c_int()
        status = lib.dtrain_poll(held, done)
        return status != _abi.OK or done.value != 0

    def wait(self, timeout: float | None = None) -> Any:
        """The result, once the operation is done; raises its error.

        timeout: seconds after which TimeoutError is raised and the operation stays in flight;
                 None waits as long as it takes, which its own deadline ends."""
        held = self._held
        if held is not None:
            self._wait_for_library(held, timeout)
        if self._error is not None:
            raise self._error
        return self._result

    def stream_wait(self, stream: int | None = None) -> Any:
        """The result of an operation on a GPU, for use in a stream: what is put into the stream
        from now on comes after the operation. Waits until all ranks have submitted it, but not
        for the GPU. An error that shows later is told by wait(), or when the name is used again.

        stream: the address of a cudaStream_t, as cupy's stream.ptr or torch's stream.cuda_stream;
                None: the one in which the input came to be, or the default one."""
        held = self._held
        if held is None or not held.is_of_this_world():
            return self.wait()
        status = lib.dtrain_stream_wait(held, self._stream if stream is None else stream)
        if status != _abi.OK:
            error = errors.make(status, self.name)
            if self.done():
                self.wait()  # raises the operation's own error where it has one
            raise error
        with self._lock:
            self._take_result(held)
        with _lock:
            _unfinished[self.name] = self
        return self._result

    def is_on_gpu(self) -> bool:
        """Whether its tensor is in the memory of a GPU."""
        return self._on_gpu

    def complete(self) -> Any:
        """What a blocking call returns: the result, for which the stream waits in which the input
        came to be, where that is known; else the host."""
        return self.wait() if self._stream is None else self.stream_wait()

    def _wait_for_library(self, held: Held, timeout: float | None) -> None:
        left = math.inf if timeout is None else max(0, int(timeout * 1000))
        while True:
            if not held.is_of_this_world():
                raise errors.make(_abi.ERR_NOT_INITIALIZED, self.name,
                                  f"'{self.name}' belongs to a world that was shut down")
            status = lib.dtrain_wait_for(held, int(min(left, _WAIT_SLICE_MS)))
            if status != _abi.IN_PROGRESS:
                break
            left -= _WAIT_SLICE_MS
            if left <= 0:
                raise TimeoutError(f"'{self.name}' was not done within {timeout:g} s")
        with self._lock:
            if self._held is None:  # another thread was here first
                return
            try:
                self._settle(held, status)
            finally:
                self._held, self._finish, held.keep = None, None, None

    def _settle(self, held: Held, status: int) -> None:
        if status < 0:
            self._error, self._result = errors.make(status, self.name), None
            if status in _WORLD_ENDS:
                _kept_until_shutdown.append(held.keep)
            return
        self._take_result(held)

    def _take_result(self, held: Held) -> None:
        if self._finish is not None:
            self._result, self._finish = self._finish(held), None

    def __repr__(self) -> str:
        state = "failed" if self._error else "done" if self.done() else "in flight"
        return f"<dtrain.Handle '{self.name}' {state}>"


class Group:
    """Several handles that are waited for together; wait() gives a list of their results."""

    __slots__ = ("handles",)

    def __init__(self, handles: Sequence[Handle]):
        self.handles = list(handles)

    def done(self) -> bool:
        """Whether all are done. Does not block."""
        return all(handle.done() for handle in self.handles)

    def wait(self, timeout: float | None = None) -> list[Any]:
        """The results in their order; raises the first one's error when any failed, after all are
        done. `timeout` as Handle.wait, for each."""
        first: errors.Error | None = None
        for handle in self.handles:
            try:
                handle.wait(timeout)
            except errors.Error as error:
                first = first or error
        if first is not None:
            raise first
        return [handle.wait() for handle in self.handles]

    def stream_wait(self, stream: int | None = None) -> list[Any]:
        """As Handle.stream_wait, for all of them; the host waits for those in its memory."""
        return [handle.stream_wait(stream) if handle.is_on_gpu() else handle.wait()
                for handle in self.handles]

    def complete(self) -> list[Any]:
        """As Handle.complete, for all of them."""
        if not self.is_on_gpu():
            return self.wait()
        return [handle.complete() for handle in self.handles]

    def is_on_gpu(self) -> bool:
        """As Handle.is_on_gpu, for one of them at least."""
        return any(handle.is_on_gpu() for handle in self.handles)


def submit(call: Callable[..., int], described: _abi.Tensor | None, name: str, opts: Any, keep: Any,
           finish: Callable[[Held], Any], *extra: Any) -> Handle:
    """Calls one of the library's …_async functions: `extra` goes between tensor and options.
    `finish` is called once, when the operation is done or a stream waits for it."""
    _make_room([name])
    handle = ctypes.c_uint64()
    if described is None:
        status = call(*extra, opts, handle)
    else:
        status = call(described, *extra, opts, handle)
    if status != _abi.OK:
        raise errors.make(status, name)
    return Handle(name, handle.value, keep, finish, described)


def submit_group(call: Callable[..., int], tensors: Sequence[_abi.Tensor], names: Sequence[str],
                 opts: Any, keeps: Sequence[Any],
                 finishes: Sequence[Callable[[Held], Any]]) -> Group:
    """The same for one of the grouped functions."""
    _make_room(names)
    n = len(tensors)
    handles = (ctypes.c_uint64 * n)()
    status = call((_abi.Tensor * n)(*tensors), n, opts, handles)
    if status != _abi.OK:
        raise errors.make(status, names[0] if names else None)
    return Group([Handle(*parts) for parts in zip(names, handles, keeps, finishes, tensors)])


def refuse(names: Sequence[str], pset: int, why: str) -> None:
    """Tells the other ranks that this one will not submit the operations, so that theirs fail with
    these words instead of waiting."""
    n = len(names)
    if n:
        lib.dtrain_refuse((ctypes.c_char_p * n)(*[name.encode() for name in names]), n, pset,
                          why.encode("utf-8", "replace"))


def sweep_orphans() -> None:
    """Gives back the handles that were forgotten while in flight and are done by now."""
    with _lock:
        _orphans[:] = [(handle, keep) for handle, keep in _orphans
                       if lib.dtrain_release(handle) == _abi.IN_PROGRESS]


def _make_room(names: Sequence[str]) -> None:
    """Before operations are submitted: gives back what is done, and waits for earlier ones of the
    same names that streams alone have waited for."""
    if _orphans:
        sweep_orphans()
    if not _unfinished:
        return
    with _lock:
        earlier = [_unfinished.pop(name) for name in names if name in _unfinished]
        done = [name for name, handle in _unfinished.items() if handle.done()]
        ended = [_unfinished.pop(name) for name in done]
    del ended  # outside of the lock, since memory of theirs may be given back
    for handle in earlier:
        handle.wait()


def before_shutdown() -> None:
    """Waits for what streams alone have waited for, and gives back what is not in flight: the
    library names the rest in its log."""
    with _lock:
        handles = list(_unfinished.values())
        _unfinished.clear()
    for handle in handles:
        try:
            handle.wait()
        except errors.Error:
            pass  # the library has logged it, and nobody is left to be told
    sweep_orphans()
    for held in list(_lent):
        lib.dtrain_release(held)


def world_number() -> int:
    """How many worlds this process has left: tells memory and handles of one from the next's."""
    return _world


def after_shutdown() -> None:
    """Lets go of all buffers, which the library no longer writes to, and of all handles; the next
    world counts unnamed operations from 0 on every rank."""
    global _world
    with _lock:
        _world += 1
        _orphans.clear()
        _unfinished.clear()
        _kept_until_shutdown.clear()
        _counters.clear()
