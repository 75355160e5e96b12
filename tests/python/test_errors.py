"""What goes wrong on one of two ranks is an exception on both, and the next operation works."""
import functools
import unittest

import numpy as np

import dtrain

dtrain.init()
RANK, SIZE = dtrain.rank(), dtrain.size()


def then_works(test):
    @functools.wraps(test)
    def wrapper(self):
        test(self)
        self.assertEqual(dtrain.allreduce(1, "after " + test.__name__, dtrain.Sum), SIZE)
    return wrapper


class Errors(unittest.TestCase):
    @then_works
    def test_shapes_that_differ(self):
        with self.assertRaises(dtrain.Mismatch) as caught:
            dtrain.allreduce(np.ones(3 + RANK), "w", dtrain.Sum)
        error = caught.exception
        self.assertEqual((error.status, error.tensor, error.ranks),
                         (dtrain.Status.MISMATCH, "w", (0, 1)))
        self.assertIn("[3]", str(error))
        self.assertIn("[4]", str(error))
        self.assertIsInstance(error, ValueError)

    @then_works
    def test_types_that_differ(self):
        with self.assertRaisesRegex(dtrain.Mismatch, "float32.*float64|float64.*float32"):
            dtrain.allreduce(np.ones(3, (np.float32, np.float64)[RANK]), "types")

    @then_works
    def test_column_as_output_is_refused_and_never_silently_wrong(self):
        a = np.zeros((4, 4))
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            dtrain.broadcast(a[:, 0], 0, "column", out=a[:, 0])
        np.testing.assert_array_equal(a, 0)

    @then_works
    def test_argument_refused_on_one_rank_reaches_the_other(self):
        a = np.zeros((4, 4))
        if RANK == 1:
            with self.assertRaisesRegex(ValueError, "not contiguous"):
                dtrain.allreduce(a[:, 0], "one column")
        else:
            with self.assertRaises(dtrain.InvalidArgument) as caught:
                dtrain.allreduce(a[0], "one column")
            self.assertEqual(caught.exception.ranks, (1,))
            self.assertIn("rank 1: allreduce 'one column': an array of shape (4,) with strides "
                          "(32,) is not contiguous", str(caught.exception))

    def refused_on_rank_1(self, good, bad, operation, says):
        """`bad` raises on rank 1, and `good` fails on rank 0 with the same words; then `good` works
        on both."""
        if RANK == 1:
            with self.assertRaisesRegex((TypeError, ValueError), says):
                bad()
        else:
            with self.assertRaisesRegex(dtrain.InvalidArgument, f"rank 1: .*{operation}: {says}"):
                good()
        good()

    @then_works
    def test_what_one_rank_refuses_the_others_read(self):
        x, text = np.ones((2, 2)), np.array(["a"])
        for good, bad, operation, says in (
                (lambda: dtrain.broadcast(x, 0, "b"), lambda: dtrain.broadcast(text, 0, "b"),
                 "broadcast 'b'", "arrays of .* cannot be sent"),
                (lambda: dtrain.allgather(x, "g"),
                 lambda: dtrain.allgather(x, "g", out=np.empty(8, np.int8)),
                 "allgather 'g'", "out is int8"),
                (lambda: dtrain.alltoall(x, [1, 1], "a"),
                 lambda: dtrain.alltoall(x, [1.5, 0.5], "a"),
                 "alltoall 'a'", "splits are"),
                (lambda: dtrain.allreduce(x, "t"), lambda: dtrain.allreduce(x, "t", timeout=-1),
                 "allreduce 't'", "a timeout of -1"),
                (lambda: dtrain.allreduce(x, "c"), lambda: dtrain.allreduce(x, "c", codec="zip"),
                 "allreduce 'c'", ".*zip"),
                (lambda: dtrain.reducescatter(x, "r"),
                 lambda: dtrain.reducescatter(x, "r", out=np.empty(7)),
                 "reducescatter 'r'", "out is float64")):
            self.refused_on_rank_1(good, bad, operation, says)

    @then_works
    def test_group_that_one_rank_refuses_fails_as_one(self):
        xs = [np.ones(2), np.ones(3), np.ones(4)]
        bad = xs[:2] + [np.array(["a"])]
        for _ in range(3):
            self.refused_on_rank_1(lambda: dtrain.grouped_allreduce(xs, "gr"),
                                   lambda: dtrain.grouped_allreduce(bad, "gr"),
                                   "grouped_allreduce 'gr'", "arrays of .* cannot be sent")
            self.refused_on_rank_1(lambda: dtrain.grouped_allgather(xs, "gg"),
                                   lambda: dtrain.grouped_allgather(bad, "gg"),
                                   "grouped_allgather 'gg'", "arrays of .* cannot be sent")

    @then_works
    def test_comparison_that_one_rank_cannot_make(self):
        x = np.ones(3)
        if RANK == 1:
            with self.assertRaisesRegex(TypeError, "cannot be sent"):
                dtrain.check_equal({"x": x, "y": np.array(["a"])})
        else:
            with self.assertRaisesRegex(dtrain.InvalidArgument, "rank 1: .*'y' has no element"):
                dtrain.check_equal({"x": x, "y": x})
        dtrain.check_equal([("x", [1, 2])])

    @then_works
    def test_read_only_output_is_refused(self):
        x = np.ones(3)
        x.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            dtrain.allreduce(x, "read-only", out=x)

    @then_works
    def test_output_of_another_shape_is_refused(self):
        with self.assertRaisesRegex(ValueError, "out is float64"):
            dtrain.allreduce(np.ones(3), "out", out=np.ones(4))

    @then_works
    def test_types_that_cannot_be_sent(self):
        for x in (np.ones(2, np.complex64), np.ones(2, ">f4"), np.array(["a"])):
            with self.assertRaisesRegex(TypeError, "cannot be sent"):
                dtrain.allreduce(x, "bad type")
            dtrain.barrier()

    @then_works
    def test_name_in_flight_twice(self):
        first = dtrain.allreduce_async(np.ones(2), "twice", dtrain.Sum) if RANK == 0 else None
        if RANK == 0:
            with self.assertRaises(dtrain.DuplicateName):
                dtrain.allreduce_async(np.ones(2), "twice", dtrain.Sum)
        dtrain.barrier()
        if first is None:
            first = dtrain.allreduce_async(np.ones(2), "twice", dtrain.Sum)
        np.testing.assert_array_equal(first.wait(), SIZE)

    @then_works
    def test_deadline_names_the_rank_that_is_missing(self):
        if RANK == 0:
            with self.assertRaises(TimeoutError) as caught:
                dtrain.allreduce(np.ones(2), "alone", timeout=0.2)
            self.assertIsInstance(caught.exception, dtrain.Timeout)
            self.assertIn(1, caught.exception.ranks)
        dtrain.barrier()

    @then_works
    def test_rank_outside_a_set_is_told_so_with_the_members(self):
        some = dtrain.add_process_set([0])
        if RANK == 1:
            with self.assertRaisesRegex(dtrain.InvalidArgument, "not in process set"):
                dtrain.allreduce(np.ones(2), "foreign", process_set=some)
        dtrain.barrier()
        # Rank 0 may have called before or after: the members' next call works.
        dtrain.remove_process_set(some)

    @then_works
    def test_sets_that_differ(self):
        with self.assertRaises(dtrain.Mismatch):
            dtrain.add_process_set([RANK])

    @then_works
    def test_splits_that_do_not_add_up(self):
        with self.assertRaises(dtrain.InvalidArgument):
            dtrain.alltoall(np.ones(4), [1, 1], "splits")

    @then_works
    def test_group_fails_as_one(self):
        xs = [np.ones(2), np.ones(3 + RANK)]
        handle = dtrain.grouped_allreduce_async(xs, "group", dtrain.Sum)
        with self.assertRaisesRegex(dtrain.Mismatch, "group.1"):
            handle.wait()
        for one in handle.handles:
            with self.assertRaises(dtrain.Error):
                one.wait()

    @then_works
    def test_gradient_sets_that_differ(self):
        with self.assertRaises(dtrain.Mismatch) as caught:
            dtrain.GradientSet({"w": (3 + RANK,)})
        self.assertIn("w", str(caught.exception))

    @then_works
    def test_text_about_ranks_is_read(self):
        from dtrain.errors import ranks_in
        self.assertEqual(ranks_in("rank 0: [3]; ranks 1-2, 5: [4]"), (0, 1, 2, 5))
        self.assertEqual(ranks_in("no number of a rank, 3"), ())


if __name__ == "__main__":
    unittest.main()
