"""Operations on arrays in the memory of a GPU, on any number of ranks. Where there is no GPU it runs
on the stand-in for CUDA, of which this says nothing: memory and streams come from libcudart."""
import ctypes
import functools
import unittest

import numpy as np

import dtrain

cuda = ctypes.CDLL("libcudart.so.13")
TO_DEVICE, TO_HOST = 1, 2

dtrain.init()
RANK, SIZE = dtrain.rank(), dtrain.size()
needs_two = functools.partial(unittest.skipIf, SIZE < 2, "needs two ranks")


def check(status):
    if status != 0:
        raise RuntimeError(f"CUDA's error {status}")


def new_stream():
    stream = ctypes.c_void_p()
    check(cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))  # apart from the default stream
    return stream.value


class GpuArray:
    """What cupy's and numba's arrays are to others: memory of CUDA's own, an interface, a stream."""

    def __init__(self, values, stream=None, typestr=None):
        values = np.ascontiguousarray(values)
        self.shape, self.dtype = values.shape, values.dtype
        self.stream = stream
        self.memory = ctypes.c_void_p()
        check(cuda.cudaMalloc(ctypes.byref(self.memory), ctypes.c_size_t(max(values.nbytes, 1))))
        self.said = {"version": 3, "shape": values.shape, "typestr": typestr or values.dtype.str,
                     "data": (self.memory.value, False), "strides": None}
        if stream is not None:
            self.said["stream"] = stream
        put(self, values, stream)

    @property
    def __cuda_array_interface__(self):
        return self.said

    def __del__(self):
        check(cuda.cudaFree(self.memory))


def put(array, values, stream=None):
    """Writes to an array on the GPU, in a stream."""
    values = np.ascontiguousarray(values)
    # Pageable memory: what is copied is read before the call returns.
    check(cuda.cudaMemcpyAsync(ctypes.c_void_p(array.__cuda_array_interface__["data"][0]),
                               ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes),
                               TO_DEVICE, ctypes.c_void_p(stream or 0)))


def fetch(array, stream=None):
    """The elements of an array on the GPU, as the stream finds them."""
    said = array.__cuda_array_interface__
    values = np.empty(said["shape"], said["typestr"])
    check(cuda.cudaMemcpyAsync(ctypes.c_void_p(values.ctypes.data),
                               ctypes.c_void_p(said["data"][0]), ctypes.c_size_t(values.nbytes),
                               TO_HOST, ctypes.c_void_p(stream or 0)))
    check(cuda.cudaStreamSynchronize(ctypes.c_void_p(stream or 0)))
    return values


def of_rank(rank, shape=(5, 3), dtype=np.float32):
    """Small integers, so that every order of addition is exact."""
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + rank).astype(dtype)


def total(**how):
    return sum(of_rank(rank, **how) for rank in range(SIZE))


class Reductions(unittest.TestCase):
    def test_result_is_an_array_on_the_gpu(self):
        result = dtrain.allreduce(GpuArray(of_rank(RANK)), op=dtrain.Sum)
        self.assertIsInstance(result, dtrain.DeviceArray)
        self.assertEqual((result.shape, result.dtype, result.ndim), ((5, 3), np.float32, 2))
        np.testing.assert_array_equal(fetch(result), total())

    def test_every_type(self):
        for dtype in (np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64, np.float16,
                      np.float32, np.float64):
            with self.subTest(dtype=dtype.__name__):
                x = GpuArray(of_rank(RANK, dtype=dtype))
                self.assertIs(dtrain.allreduce(x, op=dtrain.Sum, out=x), x)
                np.testing.assert_array_equal(fetch(x), total(dtype=dtype))

    def test_bfloat16_is_two_bytes_without_a_meaning(self):
        x = GpuArray(np.full(9, 0x3f80 if RANK == 0 else 0x4000, np.uint16), typestr="<V2")
        dtrain.allreduce(x, op=dtrain.Max, out=x)
        expected = np.full(9, 0x4000 if SIZE > 1 else 0x3f80, np.uint16)
        np.testing.assert_array_equal(fetch(x).view(np.uint16), expected)

    def test_average_scales_and_reductions(self):
        x = GpuArray(of_rank(RANK, dtype=np.float64))
        everyone = np.stack([of_rank(rank, dtype=np.float64) for rank in range(SIZE)])
        for op, expected in ((dtrain.Average, np.mean), (dtrain.Min, np.min), (dtrain.Max, np.max),
                             (dtrain.Product, np.prod)):
            with self.subTest(op=op.name):
                np.testing.assert_allclose(fetch(dtrain.allreduce(x, op=op)),
                                           expected(everyone, axis=0))
        scaled = dtrain.allreduce(x, op=dtrain.Sum, prescale=2, postscale=0.5)
        np.testing.assert_array_equal(fetch(scaled), everyone.sum(0))

    def test_what_only_the_host_can_do(self):
        stream = new_stream()
        x = GpuArray(of_rank(RANK, (1000,)), stream)
        dtrain.allreduce(x, "fp16", dtrain.Sum, out=x, codec="fp16")
        np.testing.assert_array_equal(fetch(x, stream), total(shape=(1000,)))
        dtrain.check_equal({"x": x})
        same = GpuArray(of_rank(0), stream)
        dtrain.allreduce(same, "adasum", dtrain.Adasum, out=same)  # of equals: their average
        np.testing.assert_allclose(fetch(same, stream), of_rank(0), rtol=1e-6)

    @needs_two()
    def test_difference_is_told_of(self):
        with self.assertRaisesRegex(dtrain.Mismatch, "'x'"):
            dtrain.check_equal({"x": GpuArray(of_rank(RANK))})

    def test_group(self):
        xs = [GpuArray(of_rank(RANK, (n,))) for n in (1, 10, 1000)]
        results = dtrain.grouped_allreduce(xs, "group", dtrain.Sum, outs=xs)
        for x, result, n in zip(xs, results, (1, 10, 1000)):
            self.assertIs(result, x)
            np.testing.assert_array_equal(fetch(x), total(shape=(n,)))

    def test_reduce_and_reducescatter(self):
        x = GpuArray(of_rank(RANK, (2 * SIZE, 3)))
        found = dtrain.reduce(x, SIZE - 1, op=dtrain.Sum)
        if RANK == SIZE - 1:
            np.testing.assert_array_equal(fetch(found), total(shape=(2 * SIZE, 3)))
        else:
            self.assertIsNone(found)
        mine = dtrain.reducescatter(x, op=dtrain.Sum)
        np.testing.assert_array_equal(fetch(mine),
                                      total(shape=(2 * SIZE, 3))[2 * RANK:2 * RANK + 2])

    def test_result_may_lie_elsewhere(self):
        x, out = GpuArray(of_rank(RANK)), dtrain.empty((5, 3), device="cuda")
        self.assertIs(dtrain.allreduce(x, op=dtrain.Sum, out=out), out)
        np.testing.assert_array_equal(fetch(out), total())
        np.testing.assert_array_equal(fetch(x), of_rank(RANK))


class Exchanges(unittest.TestCase):
    def test_broadcast(self):
        x = GpuArray(of_rank(RANK, dtype=np.int64))
        np.testing.assert_array_equal(fetch(dtrain.broadcast(x, SIZE - 1)),
                                      of_rank(SIZE - 1, dtype=np.int64))
        dtrain.broadcast_parameters({"x": x})
        np.testing.assert_array_equal(fetch(x), of_rank(0, dtype=np.int64))

    def test_allgather_and_gather_of_uneven_rows(self):
        x = GpuArray(np.full((RANK + 1, 2), RANK, np.float32))
        rows = sum(range(SIZE + 1))
        out = dtrain.empty((rows + 2, 2), device="cuda")
        expected = np.concatenate([np.full((rank + 1, 2), rank) for rank in range(SIZE)])
        for place in (out, None):
            result = dtrain.allgather(x, out=place)
            self.assertEqual(result.shape, (rows, 2))
            np.testing.assert_array_equal(fetch(result), expected)
            gathered = dtrain.gather(x, 0, out=place)
            if RANK == 0:
                np.testing.assert_array_equal(fetch(gathered), expected)

    def test_memory_that_the_library_provides_lives_with_its_array(self):
        stream = new_stream()
        xs = [GpuArray(np.full((RANK + 1, 2), RANK + i, np.float32), stream) for i in range(8)]
        results = [dtrain.allgather(x) for x in xs]
        del results[::2], xs
        dtrain.barrier()
        for i, result in enumerate(results):
            expected = np.concatenate([np.full((rank + 1, 2), rank + 2 * i + 1)
                                       for rank in range(SIZE)])
            np.testing.assert_array_equal(fetch(result, stream), expected)

    def test_nothing_is_gathered(self):
        for place in (None, dtrain.empty((0, 2), device="cuda")):
            result = dtrain.allgather(GpuArray(np.ones((0, 2), np.float32)), out=place)
            self.assertEqual((result.shape, result.size), ((0, 2), 0))

    def test_scatter(self):
        whole = np.arange(4 * SIZE, dtype=np.int32).reshape(2 * SIZE, 2)
        mine = dtrain.scatter(GpuArray(whole if RANK == 0 else 0 * whole), 0)
        np.testing.assert_array_equal(fetch(mine), whole[2 * RANK:2 * RANK + 2])

    def test_alltoall(self):
        x = GpuArray(np.arange(SIZE, dtype=np.float64) + 100 * RANK)
        for place in (None, dtrain.empty(SIZE, np.float64, device="cuda")):
            result, received = dtrain.alltoall(x, out=place)
            np.testing.assert_array_equal(fetch(result), np.arange(SIZE) * 100 + RANK)
            self.assertEqual(received, [1] * SIZE)

    def test_alltoall_with_splits_in_a_stream(self):
        stream = new_stream()
        x = GpuArray(np.full(SIZE * (SIZE + 1) // 2, RANK, np.int32), stream)
        handle = dtrain.alltoall_async(x, [rank + 1 for rank in range(SIZE)])
        result, received = handle.stream_wait()
        self.assertEqual(received, [RANK + 1] * SIZE)
        np.testing.assert_array_equal(fetch(result, stream), np.repeat(np.arange(SIZE), RANK + 1))
        self.assertIs(handle.wait()[0], result)

    @needs_two()
    def test_send_and_recv(self):
        if RANK == 0:
            dtrain.send(GpuArray(of_rank(0)), 1, "to 1")
        elif RANK == 1:
            x = GpuArray(of_rank(1))
            self.assertIs(dtrain.recv(x, 0, "to 1"), x)
            np.testing.assert_array_equal(fetch(x), of_rank(0))


class Streams(unittest.TestCase):
    def test_operation_comes_between_what_is_in_the_stream(self):
        stream = new_stream()
        for i in range(5):
            x = GpuArray(of_rank(RANK + i, (1000,)), stream)
            dtrain.allreduce(x, "x", dtrain.Sum, out=x)  # the same name: waits for the one before
            np.testing.assert_array_equal(fetch(x, stream), total(shape=(1000,)) + SIZE * i)

    def test_another_stream_waits(self):
        made_in, used_in = new_stream(), new_stream()
        x = GpuArray(of_rank(RANK, (1000,)), made_in)
        handle = dtrain.allreduce_async(x, "x", dtrain.Sum, out=x)
        self.assertIs(handle.stream_wait(used_in), x)
        np.testing.assert_array_equal(fetch(x, used_in), total(shape=(1000,)))
        self.assertIs(handle.wait(), x)
        self.assertIs(handle.stream_wait(used_in), x)  # done long since

    def test_host_waits_for_the_gpu(self):
        x = GpuArray(of_rank(RANK, (1000,)), new_stream())
        handle = dtrain.allreduce_async(x, "x", dtrain.Sum, out=x)
        handle.wait()
        self.assertTrue(handle.done())
        np.testing.assert_array_equal(fetch(x, new_stream()), total(shape=(1000,)))

    def test_group_waits_for_all(self):
        stream = new_stream()
        xs = [GpuArray(of_rank(RANK, (n,)), stream) for n in (10, 1000)]
        group = dtrain.grouped_allreduce_async(xs, "group", dtrain.Sum, outs=xs)
        self.assertEqual(group.stream_wait(), xs)
        for x, n in zip(xs, (10, 1000)):
            np.testing.assert_array_equal(fetch(x, stream), total(shape=(n,)))

    def test_group_in_both_kinds_of_memory(self):
        stream = new_stream()
        xs = [GpuArray(of_rank(RANK, (10,)), stream), of_rank(RANK, (7,))]
        for results in (dtrain.grouped_allreduce(xs, "mixed", dtrain.Sum, outs=xs),
                        dtrain.grouped_allreduce_async(xs, "mixed", dtrain.Max).stream_wait()):
            self.assertEqual(len(results), 2)
        np.testing.assert_array_equal(fetch(xs[0], stream), total(shape=(10,)))
        np.testing.assert_array_equal(xs[1], total(shape=(7,)))

    def test_buffers_of_a_forgotten_operation_live_on(self):
        stream = new_stream()
        for _ in range(20):
            dtrain.allreduce(GpuArray(of_rank(RANK, (1000,)), stream), op=dtrain.Sum)
        dtrain.barrier()

    def test_tensor_of_the_host_has_no_stream(self):
        handle = dtrain.allreduce_async(np.ones(3), "host", dtrain.Sum)
        with self.assertRaisesRegex(dtrain.InvalidArgument, "not on a GPU"):
            handle.stream_wait(new_stream())
        self.assertEqual(handle.wait()[0], SIZE)


class Training(unittest.TestCase):
    SHAPES = {"weight": (40, 3), "bias": (3,)}

    def train(self, device, rule, stream, steps=4, **options):
        """Parameters after some steps, and what the last one did."""
        gradients = dtrain.GradientSet(self.SHAPES, device=device)
        optimizer = dtrain.Optimizer(gradients, rule, **options)
        for step in range(steps):
            for i in (1, 0):
                values = of_rank(RANK + step, self.SHAPES[list(self.SHAPES)[i]]) / 8
                if device == "cpu":
                    gradients.arrays[i][...] = values
                    gradients.ready(i)
                else:
                    put(gradients.arrays[i], values, stream)
                    gradients.ready(i, stream)
            last = optimizer.step(0.1) if device == "cpu" else optimizer.stream_step(0.1, stream)
        if device == "cpu":
            return [array.copy() for array in optimizer.arrays], last
        self.assertIsInstance(optimizer.arrays[0], dtrain.DeviceArray)
        return [fetch(array, stream) for array in optimizer.arrays], last

    def test_optimizers_do_what_they_do_in_host_memory(self):
        stream = new_stream()
        for rule, options in (("sgd", {"momentum": 0.9}), ("adamw", {"sharded": True}),
                              ("adam", {"max_norm": 0.5})):
            with self.subTest(rule=rule):
                mine, step = self.train("cuda", rule, stream, **options)
                expected, host_step = self.train("cpu", rule, None, **options)
                self.assertEqual((step.step, step.skipped), (host_step.step, False))
                for array, other in zip(mine, expected):
                    np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-7)

    def test_stream_finds_gradients_reduced(self):
        stream = new_stream()
        gradients = dtrain.GradientSet(self.SHAPES, dtrain.Sum, device="cuda")
        for _ in range(3):
            for array in gradients.arrays:
                put(array, of_rank(RANK, array.shape), stream)
            gradients.ready_all([1, 0], stream)
            gradients.stream_wait(stream)
            for array in gradients.arrays:
                np.testing.assert_array_equal(fetch(array, stream), total(shape=array.shape))

    def test_calls_for_streams_are_refused_in_host_memory(self):
        gradients = dtrain.GradientSet(self.SHAPES)
        optimizer = dtrain.Optimizer(gradients, "sgd")
        for call in (gradients.stream_wait, functools.partial(optimizer.stream_step, 0.1)):
            with self.assertRaises(dtrain.InvalidArgument):
                call(None)


class Memory(unittest.TestCase):
    def test_memory_of_the_library_is_zero(self):
        x = dtrain.empty((3, 2), np.int32, device="cuda")
        self.assertEqual((x.shape, x.size, x.nbytes, len(x)), ((3, 2), 6, 24, 3))
        np.testing.assert_array_equal(fetch(x), np.zeros((3, 2)))
        self.assertEqual(dtrain.cuda_device(), 0)

    def test_unknown_device(self):
        with self.assertRaisesRegex(ValueError, "cpu, cuda"):
            dtrain.empty(3, device="tpu")


class Refused(unittest.TestCase):
    def refused(self, error, text, **said):
        x = GpuArray(of_rank(RANK))
        x.said.update(said)
        with self.assertRaisesRegex(error, text):
            dtrain.allreduce(x, "refused", dtrain.Sum, out=x)
        y = GpuArray(of_rank(RANK))  # and the next one works
        np.testing.assert_array_equal(fetch(dtrain.allreduce(y, op=dtrain.Sum)), total())

    def test_columns(self):
        self.refused(ValueError, "not contiguous", strides=(4, 20))

    def test_mask(self):
        self.refused(TypeError, "mask", mask=GpuArray(of_rank(0)))

    def test_stream_zero(self):
        self.refused(ValueError, "stream 0", stream=0)

    def test_type(self):
        self.refused(TypeError, "complex64", typestr="<c8")

    def test_read_only_output(self):
        self.refused(ValueError, "read-only",
                     data=(GpuArray(of_rank(0)).memory.value, True))

    def test_dense_strides_are_taken(self):
        x = GpuArray(of_rank(RANK, (5, 1, 3)))
        x.said["strides"] = (12, 999, 4)
        np.testing.assert_array_equal(fetch(dtrain.allreduce(x, op=dtrain.Sum)),
                                      total(shape=(5, 1, 3)))

    def test_output_in_the_other_kind_of_memory(self):
        for x, out in ((GpuArray(of_rank(RANK)), np.empty((5, 3), np.float32)),
                       (of_rank(RANK), GpuArray(of_rank(RANK)))):
            with self.assertRaisesRegex(ValueError, "memory of a GPU, and one is not"):
                dtrain.allreduce(x, "kinds", out=out)

    @needs_two()
    def test_one_rank_in_host_memory(self):
        x = GpuArray(of_rank(RANK)) if RANK == 0 else of_rank(RANK)
        with self.assertRaises(dtrain.Mismatch):
            dtrain.allreduce(x, "somewhere", dtrain.Sum)

    def test_rows_of_a_sparse_tensor(self):
        with self.assertRaisesRegex(TypeError, "copy them to the host"):
            dtrain.sparse_allreduce(np.arange(5), GpuArray(of_rank(RANK)), 9)


if __name__ == "__main__":
    unittest.main()
