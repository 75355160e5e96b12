"""torch's tensors on a GPU. Where torch has one, all of a training is tried on it. Where it has none,
what torch would say of a tensor on CUDA is said by an object of this test's, whose memory and streams
are those of the libcudart that is loaded, as of the stand-in for CUDA."""
import ctypes
import sys
import types
import unittest
from unittest import mock

import numpy as np

try:
    import torch
except (ImportError, OSError) as why:  # one that was built for CUDA does not load on the stand-in
    print(f"skipped: no torch: {why}")
    sys.exit(77)

import dtrain
import dtrain.torch as dt
from dtrain.torch import _tensors
from test_gpu import cuda, GpuArray, RANK, SIZE, fetch, needs_two, new_stream, of_rank, total

HAS_GPU = torch.cuda.is_available()
if cuda.cudaGetDeviceCount(ctypes.byref(ctypes.c_int())) != 0:
    # A torch that was built for CUDA brings a runtime, which takes the place of the stand-in's.
    print("skipped: torch's own CUDA runtime finds no GPU")
    sys.exit(77)


class Described:
    """A tensor on a GPU, as far as dtrain.torch asks."""

    layout = torch.strided
    device = torch.device("cuda", 0)

    def __init__(self, values, dtype=None, stream=None):
        self.array = GpuArray(values, stream)
        self.dtype = dtype or getattr(torch, values.dtype.name)
        self.shape = torch.Size(values.shape)
        self.dense = True

    def data_ptr(self):
        return self.array.memory.value

    def is_contiguous(self):
        return self.dense

    def stride(self):
        return (1, 5)

    def dim(self):
        return len(self.shape)

    ndim = property(dim)


@unittest.skipIf(HAS_GPU, "torch has tensors of its own on the GPU")
class DescribedTensors(unittest.TestCase):
    def setUp(self):
        self.stream = new_stream()
        current = types.SimpleNamespace(cuda_stream=self.stream)
        made = mock.patch.object(type(_tensors.TORCH), "new", self.new)
        for patch in (mock.patch("torch.cuda.current_stream", lambda device: current), made):
            patch.start()
            self.addCleanup(patch.stop)

    def new(self, shape, like):
        return Described(np.zeros(tuple(shape), str(like.dtype)[len("torch."):]),
                         stream=self.stream)

    def tensor(self, *args, **how):
        return Described(of_rank(RANK, *args, **how), stream=self.stream)

    def found(self, tensor):
        return fetch(tensor.array, self.stream)

    def test_description(self):
        memory = _tensors.buffer(self.tensor((4, 2), dtype=np.float16))
        self.assertEqual((memory.shape, memory.device, memory.stream), ((4, 2), 1, self.stream))

    def test_default_stream_has_a_number(self):
        with mock.patch("torch.cuda.current_stream",
                        lambda device: types.SimpleNamespace(cuda_stream=0)):
            self.assertEqual(_tensors.buffer(self.tensor()).stream, 1)

    def test_blocking_call_orders_the_current_stream(self):
        for i in range(3):
            x = self.tensor((1000,))
            self.assertIs(dt.allreduce_(x, "x", dt.Sum), x)
            np.testing.assert_array_equal(self.found(x), total(shape=(1000,)))

    def test_new_tensor(self):
        result = dt.synchronize(dt.allreduce_async(self.tensor(), op=dt.Sum))
        np.testing.assert_array_equal(self.found(result), total())

    def test_bfloat16(self):
        x = Described(np.full(9, 0x3f80, np.uint16), torch.bfloat16, self.stream)
        dt.allreduce_(x)
        np.testing.assert_array_equal(self.found(x), np.full(9, 0x3f80, np.uint16))

    def test_group(self):
        xs = [self.tensor((n,)) for n in (1, 100)]
        self.assertEqual(dt.grouped_allreduce_(xs, "group", dt.Sum), xs)
        for x, n in zip(xs, (1, 100)):
            np.testing.assert_array_equal(self.found(x), total(shape=(n,)))

    def test_broadcast_and_its_parameters(self):
        x = self.tensor()
        self.assertIs(dt.broadcast_(x, SIZE - 1), x)
        np.testing.assert_array_equal(self.found(x), of_rank(SIZE - 1))

    def test_allgather_and_alltoall(self):
        shared = mock.patch.object(_tensors, "from_array", lambda array, dtype: (array, dtype))
        with shared:
            rows, dtype = dt.synchronize(dt.allgather_async(self.tensor((RANK + 1, 3))))
            self.assertIs(dtype, torch.float32)
            np.testing.assert_array_equal(
                fetch(rows, self.stream),
                np.concatenate([of_rank(rank, (rank + 1, 3)) for rank in range(SIZE)]))
            (swapped, _), received = dt.synchronize(dt.alltoall_async(self.tensor((SIZE,))))
        expected = [of_rank(rank, (SIZE,))[RANK] for rank in range(SIZE)]
        np.testing.assert_array_equal(fetch(swapped, self.stream), expected)
        self.assertEqual(received.tolist(), [1] * SIZE)

    def test_reducescatter(self):
        mine = dt.synchronize(dt.reducescatter_async(self.tensor((2 * SIZE, 2)), op=dt.Sum))
        np.testing.assert_array_equal(self.found(mine),
                                      total(shape=(2 * SIZE, 2))[2 * RANK:2 * RANK + 2])

    def test_columns_are_refused(self):
        x = self.tensor()
        x.dense = False
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            dt.allreduce_(x, "columns")

    def test_other_devices_are_refused(self):
        x = self.tensor()
        x.device = torch.device("meta")
        with self.assertRaisesRegex(TypeError, "meta"):
            dt.allreduce_(x, "elsewhere")

    @needs_two()
    def test_tensor_in_host_memory_on_one_rank(self):
        x = self.tensor() if RANK == 0 else torch.ones(5, 3)
        with self.assertRaises(dtrain.Mismatch):
            dt.allreduce_(x, "somewhere")


@unittest.skipUnless(HAS_GPU, "torch has no GPU")
class OnGpu(unittest.TestCase):
    def setUp(self):
        torch.cuda.set_device(dtrain.cuda_device())

    def model(self, device):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(),
                                   torch.nn.Linear(16, 3)).to(device)

    def test_operations(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool):
            x = torch.ones(1000, device="cuda").to(dtype)
            op = dt.Max if dtype is torch.bool else dt.Sum
            expected = 1 if dtype is torch.bool else SIZE
            self.assertTrue(bool((dt.allreduce(x, op=op) == expected).all()), dtype)
        rows = dt.allgather(torch.full((RANK + 1, 2), float(RANK), device="cuda"))
        self.assertEqual(rows[:, 0].tolist(), [r for r in range(SIZE) for _ in range(r + 1)])
        self.assertEqual(dt.empty((3,), torch.bfloat16, "cuda").float().tolist(), [0, 0, 0])

    def test_gradients_flow_through_operations(self):
        x = torch.ones(4, device="cuda", requires_grad=True)
        dt.allreduce(x * 2, op=dt.Sum).sum().backward()
        self.assertEqual(x.grad.tolist(), [2.0 * SIZE] * 4)

    def train(self, device, how, stream=None):
        model = self.model(device)
        if how == "library":
            optimizer = dt.Optimizer(model.named_parameters(), "sgd", lr=0.1, momentum=0.9)
            optimizer.broadcast(0)
        else:
            plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            dt.broadcast_parameters(model.state_dict())
            optimizer = dt.DistributedOptimizer(plain, model.named_parameters(),
                                                gradients_as_views=how == "views")
            dt.broadcast_optimizer_state(optimizer)
        x = torch.arange(48.0).reshape(8, 6).add(RANK).sin().to(device)
        for _ in range(5):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return [param.detach().cpu() for param in model.parameters()]

    def test_trainings_are_those_of_the_host(self):
        expected = self.train("cpu", "plain")
        for how in ("plain", "views", "library"):
            with self.subTest(how=how):
                for mine, other in zip(self.train("cuda", how), expected):
                    torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)

    def test_batches_are_normalised_together(self):
        x = torch.arange(24.0).reshape(4, 6).add(RANK)
        layers = [dt.SyncBatchNorm.convert(torch.nn.BatchNorm1d(6)).to(device)
                  for device in ("cpu", "cuda")]
        torch.testing.assert_close(layers[1](x.cuda()).cpu(), layers[0](x))

    def test_sparse_gradient(self):
        x = torch.eye(5, device="cuda").to_sparse(1)
        result = dt.synchronize(dt.sparse_allreduce_async(x, "sparse", dt.Sum))
        self.assertTrue(result.is_cuda)
        torch.testing.assert_close(result.to_dense().cpu(), torch.eye(5) * SIZE)


if __name__ == "__main__":
    unittest.main()
