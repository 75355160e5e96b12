"""The stand-in for Horovod, where Horovod's own tests do not look: its parameters, worlds of some of
the ranks, process sets at init, the timeline. COMPAT on PYTHONPATH; any number of ranks."""
import inspect
import json
import os
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    print("skipped: no torch (Debian: python3-torch)")
    sys.exit(77)
import horovod.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
hvd.shutdown()
try:
    from mpi4py import MPI
    HAS_MPI4PY = MPI.COMM_WORLD.size == SIZE > 1  # else it is of another MPI, or may be
except ImportError:
    HAS_MPI4PY = False


class Compat(unittest.TestCase):
    def tearDown(self):
        hvd.shutdown()

    def test_parameters_have_horovods_names_order_and_defaults(self):
        hvd.init()
        self.assertEqual(str(inspect.signature(hvd.broadcast_async_))[:25],
                         "(tensor, root_rank, name=")
        self.assertEqual(list(inspect.signature(hvd.grouped_allreduce).parameters),
                         ["tensors", "average", "name", "compression", "op", "prescale_factor",
                          "postscale_factor", "process_set"])
        x = torch.ones(3)
        close = torch.testing.assert_close
        close(hvd.allreduce(tensor=x, name="by name", op=hvd.Sum, prescale_factor=2.0),
              x * 2 * SIZE)
        close(hvd.allreduce(x, False, "by place"), x * SIZE)
        close(hvd.broadcast(x * RANK, SIZE - 1), x * (SIZE - 1))
        close(hvd.reducescatter(torch.ones(SIZE, 2), op=hvd.Sum), torch.full((1, 2), float(SIZE)))
        for wrong in (lambda: hvd.broadcast(x), lambda: hvd.allreduce(x, root_rank=0)):
            with self.assertRaises(TypeError):
                wrong()
        with self.assertRaisesRegex(ValueError, "op alone"):
            hvd.allreduce(x, average=True, op=hvd.Sum)

    def test_sets_given_to_init(self):
        some = hvd.ProcessSet(range(0, SIZE, 2))
        hvd.init(process_sets=[some] if SIZE > 1 else [])
        if SIZE > 1:
            self.assertEqual(some.size(), len(range(0, SIZE, 2)))
            if some.included():
                self.assertEqual(float(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=some)),
                                 some.size())

    @unittest.skipUnless(HAS_MPI4PY, "needs two ranks and mpi4py for the library's MPI")
    def test_world_of_some_ranks(self):
        ranks = list(range(SIZE - 1, -1, -1))[:2]  # in this order
        if RANK not in ranks:
            with self.assertRaisesRegex(ValueError, "is not one of"):
                hvd.init(ranks)
            return
        hvd.init(ranks)
        self.assertEqual((hvd.size(), hvd.rank()), (len(ranks), ranks.index(RANK)))
        self.assertEqual(float(hvd.allreduce(torch.tensor([float(RANK)]), op=hvd.Sum)), sum(ranks))

    def test_timeline_is_json_of_what_was_done_meanwhile(self):
        hvd.init()
        hvd.allreduce(torch.ones(1), name="before")
        hvd.barrier()
        with self.assertRaisesRegex(ValueError, "start_timeline"):
            hvd.stop_timeline()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "timeline.json")
            hvd.start_timeline(path)
            hvd.barrier()
            hvd.allreduce(torch.ones(1), name="meanwhile")
            hvd.stop_timeline()
            self.assertEqual(os.path.exists(path), RANK == 0)
            if RANK == 0:
                with open(path, encoding="utf-8") as file:
                    rows = [event["args"]["name"] for event in json.load(file)["traceEvents"]
                            if event["name"] == "thread_name"]
                self.assertIn("meanwhile", rows)
                self.assertNotIn("before", rows)


if __name__ == "__main__":
    unittest.main()
