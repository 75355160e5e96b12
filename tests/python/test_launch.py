"""dtrain.run: a function on ranks that a program starts itself."""
import os
import shutil
import subprocess
import sys
import unittest

import numpy as np

import dtrain


# Of a module that the ranks can import, so that plain pickle does.
def weighted(factor, offset=0.0):
    total = dtrain.allreduce(np.full(2, dtrain.rank() * factor), op=dtrain.Sum)
    return dtrain.rank(), (total + offset).tolist()


def fails_on_one():
    if dtrain.rank() == 1:
        raise KeyError("of rank 1")
    dtrain.barrier()


def ends_early():
    if dtrain.rank() == 1:
        os._exit(3)
    dtrain.barrier()


class Run(unittest.TestCase):
    def test_results_come_in_rank_order(self):
        import test_launch
        self.assertEqual(dtrain.run(test_launch.weighted, (2.0,), {"offset": 1.0}, np=2),
                         [(0, [3.0, 3.0]), (1, [3.0, 3.0])])

    def test_one_rank_needs_no_launcher(self):
        import test_launch
        self.assertEqual(dtrain.run(test_launch.weighted, (2.0,), np=1), [(0, [0.0, 0.0])])

    def test_exception_names_its_rank(self):
        import test_launch
        with self.assertRaisesRegex(dtrain.RunError, "KeyError: .of rank 1") as caught:
            dtrain.run(test_launch.fails_on_one, np=2)
        self.assertEqual(caught.exception.rank, 1)

    def test_rank_that_ends_is_an_error(self):
        import test_launch
        with self.assertRaises(dtrain.RunError):
            dtrain.run(test_launch.ends_early, np=2)

    def test_function_of_main_without_cloudpickle_is_told_so_at_once(self):
        program = ("import sys; sys.modules['cloudpickle'] = None; import dtrain\n"
                   "def function(): pass\n"
                   "try:\n    dtrain.run(function, np=2)\n"
                   "except ModuleNotFoundError as error:\n    print(error)\n")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              check=False)
        self.assertIn("pip install cloudpickle", done.stdout, done.stderr)

    def test_function_of_main(self):
        if subprocess.run([sys.executable, "-c", "import cloudpickle"], check=False).returncode:
            self.skipTest("no cloudpickle (Debian: python3-cloudpickle)")
        program = "import dtrain; print(dtrain.run(lambda: dtrain.rank() + dtrain.size(), np=2))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.stdout.strip().splitlines()[-1:], ["[2, 3]"], done.stderr)


if __name__ == "__main__":
    if shutil.which("mpirun") is None:
        print("skipped: no mpirun")
        sys.exit(77)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    unittest.main()
