"""A world that mpi4py's communicator gives. Exit status 77: skipped, without mpi4py, or when it was
built with another MPI than the library."""
import sys
import unittest

try:
    from mpi4py import MPI
except ImportError:
    print("skipped: no mpi4py (Debian: python3-mpi4py)")
    sys.exit(77)
import dtrain

COMM = MPI.COMM_WORLD


class Communicators(unittest.TestCase):
    def setUp(self):
        self.addCleanup(dtrain.shutdown)

    def test_world_is_all_processes(self):
        dtrain.init(COMM)
        self.assertEqual((dtrain.rank(), dtrain.size()), (COMM.rank, COMM.size))
        self.assertEqual(dtrain.allreduce(1, op=dtrain.Sum), COMM.size)

    def test_part_of_the_processes_by_number(self):
        own = COMM.Split(COMM.rank)
        dtrain.init(own.py2f())
        self.assertEqual((dtrain.rank(), dtrain.size()), (0, 1))

    def test_mpi4py_goes_on_beside_it(self):
        dtrain.init(COMM)
        handle = dtrain.allreduce_async(COMM.rank, "beside", dtrain.Sum)
        self.assertEqual(COMM.allreduce(1), COMM.size)
        self.assertEqual(handle.wait(), sum(range(COMM.size)))


if __name__ == "__main__":
    if COMM.size == 1:
        print("skipped: mpi4py sees one process, so it is built with another MPI")
        sys.exit(77)
    unittest.main()
