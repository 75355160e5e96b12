"""torch's DistributedDataParallel with its buckets over dtrain. Exit status 77: skipped."""
import os
import sys
import tempfile
import unittest

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("skipped: no torch (Debian: python3-torch)")
    sys.exit(77)
if not dist.is_available() or not dist.is_gloo_available():
    print("skipped: torch was built without gloo")
    sys.exit(77)

import dtrain.torch as dt

torch.set_num_threads(1)
dt.init()
RANK, SIZE = dt.rank(), dt.size()
FOLDER = dt.broadcast_object(tempfile.mkdtemp() if RANK == 0 else None)
dist.init_process_group("gloo", rank=RANK, world_size=SIZE, init_method=f"file://{FOLDER}/store")


def trained(state):
    """Parameters after three steps; `state` None: DDP as it is."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
    net = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.002)
    if state is not None:
        net.register_comm_hook(state, dt.ddp.allreduce_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(8, 20, generator=generator)).pow(2).mean().backward()
        optimizer.step()
    return [param.detach() for param in model.parameters()]


class Hook(unittest.TestCase):
    def test_same_as_ddp_itself(self):
        for own, other in zip(trained(dt.ddp.HookState()), trained(None)):
            torch.testing.assert_close(own, other)

    def test_compressed_comes_close(self):
        state = dt.ddp.HookState(compression=dt.Compression.bf16)
        for own, other in zip(trained(state), trained(None)):
            torch.testing.assert_close(own, other, atol=1e-2, rtol=1e-2)


if __name__ == "__main__":
    program = unittest.main(exit=False)
    dt.barrier()
    dist.destroy_process_group()
    if RANK == 0:
        for name in os.listdir(FOLDER):
            os.unlink(os.path.join(FOLDER, name))
        os.rmdir(FOLDER)
    sys.exit(not program.result.wasSuccessful())
