"""Every operation on numpy arrays, on any number of ranks."""
import ctypes
import functools
import gc
import json
import os
import shutil
import tempfile
import threading
import time
import unittest

import numpy as np

import dtrain

dtrain.init()
RANK, SIZE = dtrain.rank(), dtrain.size()
TYPES = [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64, np.float16, np.float32,
         np.float64]
needs_two = functools.partial(unittest.skipIf, SIZE < 2, "needs two ranks")


def of_rank(rank, shape=(5, 3), dtype=np.float32):
    """What rank `rank` brings: small integers, so that every order of addition is exact."""
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + rank).astype(dtype)


def everyone(**how):
    return [of_rank(rank, **how) for rank in range(SIZE)]


class Topology(unittest.TestCase):
    def test_ranks_of_one_node(self):
        self.assertTrue(0 <= RANK < SIZE)
        self.assertEqual((dtrain.local_rank(), dtrain.local_size()), (RANK, SIZE))
        self.assertEqual((dtrain.cross_rank(), dtrain.cross_size()), (0, 1))
        self.assertTrue(dtrain.is_homogeneous())

    def test_init_twice_is_one_world(self):
        dtrain.init()
        self.assertEqual(dtrain.size(), SIZE)


class Reductions(unittest.TestCase):
    def test_sum_of_every_type(self):
        for dtype in TYPES:
            with self.subTest(dtype=dtype.__name__):
                result = dtrain.allreduce(of_rank(RANK, dtype=dtype), op=dtrain.Sum)
                self.assertEqual(result.dtype, dtype)
                np.testing.assert_array_equal(result, sum(everyone(dtype=dtype)))

    def test_every_reduction(self):
        for op, expected in ((dtrain.Sum, np.sum), (dtrain.Average, np.mean), (dtrain.Min, np.min),
                             (dtrain.Max, np.max), (dtrain.Product, np.prod)):
            with self.subTest(op=op.name):
                result = dtrain.allreduce(of_rank(RANK, dtype=np.float64), op=op)
                np.testing.assert_allclose(result, expected(everyone(dtype=np.float64), axis=0))

    def test_average_is_the_default(self):
        np.testing.assert_allclose(dtrain.allreduce(np.full(3, RANK, np.float64)), (SIZE - 1) / 2)

    def test_bool_sum_is_or(self):
        result = dtrain.allreduce(np.array([RANK == 0, False]), op=dtrain.Sum)
        np.testing.assert_array_equal(result, [True, False])

    def test_scales_are_applied(self):
        result = dtrain.allreduce(np.ones(2), op=dtrain.Sum, prescale=2.0, postscale=0.5)
        np.testing.assert_allclose(result, SIZE)

    def test_parameters_become_the_roots(self):
        arrays = {"a": np.full(3, float(RANK)), "b": np.full((2, 2), RANK, np.int32)}
        dtrain.broadcast_parameters(arrays, SIZE - 1)
        for array in arrays.values():
            np.testing.assert_array_equal(array, SIZE - 1)

    def test_scale_of_zero_is_refused(self):
        with self.assertRaisesRegex(ValueError, "scale of 0"):
            dtrain.allreduce(np.ones(2), "zero scale", prescale=0.0)

    def test_in_place_leaves_the_result_in_the_input(self):
        x = of_rank(RANK)
        self.assertIs(dtrain.allreduce(x, op=dtrain.Sum, out=x), x)
        np.testing.assert_array_equal(x, sum(everyone()))

    def test_out_of_place_leaves_the_input(self):
        x, out = of_rank(RANK), np.empty((5, 3), np.float32)
        self.assertIs(dtrain.allreduce(x, op=dtrain.Sum, out=out), out)
        np.testing.assert_array_equal(x, of_rank(RANK))
        np.testing.assert_array_equal(out, sum(everyone()))

    def test_scalars_and_lists_become_arrays(self):
        self.assertEqual(dtrain.allreduce(2.5), 2.5)
        np.testing.assert_array_equal(dtrain.allreduce([1, 2], op=dtrain.Max), [1, 2])

    def test_empty_array(self):
        self.assertEqual(dtrain.allreduce(np.empty((0, 4))).shape, (0, 4))

    def test_dlpack_tensor_is_read(self):
        class Tensor:  # numpy's own DLPack, without anything else that numpy knows
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, stream=None):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        np.testing.assert_array_equal(dtrain.allreduce(Tensor(np.arange(4.0)), op=dtrain.Max),
                                      np.arange(4.0))

    def test_reduce_gives_the_root_alone(self):
        result = dtrain.reduce(of_rank(RANK), SIZE - 1, op=dtrain.Sum)
        if RANK == SIZE - 1:
            np.testing.assert_array_equal(result, sum(everyone()))
        else:
            self.assertIsNone(result)

    def test_reducescatter_shares_rows_out(self):
        result = dtrain.reducescatter(of_rank(RANK), op=dtrain.Sum)
        np.testing.assert_array_equal(result, np.array_split(sum(everyone()), SIZE)[RANK])

    def test_group_keeps_its_order(self):
        xs = [of_rank(RANK, (n, 2)) for n in (1, 4, 2)]
        for n, result in zip((1, 4, 2), dtrain.grouped_allreduce(xs, op=dtrain.Sum)):
            np.testing.assert_array_equal(result, sum(everyone(shape=(n, 2))))
        for n, result in zip((1, 4, 2), dtrain.grouped_reducescatter(xs, op=dtrain.Sum)):
            np.testing.assert_array_equal(
                result, np.array_split(sum(everyone(shape=(n, 2))), SIZE)[RANK])

    def test_adasum_of_equal_gradients_is_their_average(self):
        np.testing.assert_allclose(dtrain.allreduce(np.ones(3), op=dtrain.Adasum), np.ones(3))

    def test_codecs_come_close(self):
        x = np.linspace(-1, 1, 512, dtype=np.float32) * (RANK + 1)
        exact = np.linspace(-1, 1, 512) * sum(range(1, SIZE + 1))
        for codec, error in (("fp16", 1e-2), ("bf16", 5e-2), ("int8", 1e-1)):
            result = dtrain.allreduce(x, "coded " + codec, dtrain.Sum, codec=codec)
            np.testing.assert_allclose(result, exact, atol=error)
        with self.assertRaisesRegex(ValueError, "mp3"):
            dtrain.allreduce(x, "coded mp3", codec="mp3")

    def test_sparse_rows(self):
        indices, rows = dtrain.sparse_allreduce([RANK, 7], np.full((2, 3), 2.0), 9, op=dtrain.Sum)
        self.assertEqual(indices.tolist(), [*range(SIZE), 7])
        np.testing.assert_array_equal(rows[:-1], 2)
        np.testing.assert_array_equal(rows[-1], 2 * SIZE)
        indices, rows = dtrain.sparse_allreduce([], np.empty((0, 3)), 9)
        self.assertEqual((indices.shape, rows.shape), ((0,), (0, 3)))

    def test_library_memory_is_reduced(self):
        x = dtrain.empty((1000, 3))
        x[:] = RANK
        part = x[100:200]
        dtrain.allreduce(part, op=dtrain.Sum, out=part)
        np.testing.assert_array_equal(x[100:200], sum(range(SIZE)))
        np.testing.assert_array_equal(x[200:], RANK)


class Movements(unittest.TestCase):
    def test_broadcast_from_every_root(self):
        for root in range(SIZE):
            np.testing.assert_array_equal(dtrain.broadcast(of_rank(RANK), root), of_rank(root))

    def test_broadcast_in_place(self):
        x = of_rank(RANK)
        dtrain.broadcast(x, 0, out=x)
        np.testing.assert_array_equal(x, of_rank(0))

    def test_allgather_of_unequal_rows(self):
        result = dtrain.allgather(of_rank(RANK, (RANK, 2)))  # none from rank 0
        np.testing.assert_array_equal(
            result, np.concatenate([of_rank(rank, (rank, 2)) for rank in range(SIZE)]))

    def test_allgather_into_room_of_the_caller(self):
        out = np.empty((SIZE + 2, 2), np.float32)
        result = dtrain.allgather(of_rank(RANK, (1, 2)), out=out)
        self.assertEqual(result.shape, (SIZE, 2))
        self.assertTrue(np.shares_memory(result, out))

    def test_grouped_allgather(self):
        results = dtrain.grouped_allgather([of_rank(RANK, (RANK + 1, 2)), of_rank(RANK, (2,))])
        self.assertEqual([x.shape for x in results], [(SIZE * (SIZE + 1) // 2, 2), (2 * SIZE,)])

    def test_gather_gives_the_root_alone(self):
        result = dtrain.gather(of_rank(RANK, (RANK + 1, 2)), 0)
        if RANK == 0:
            np.testing.assert_array_equal(
                result, np.concatenate([of_rank(rank, (rank + 1, 2)) for rank in range(SIZE)]))
        else:
            self.assertIsNone(result)

    def test_scatter_shares_rows_out(self):
        np.testing.assert_array_equal(dtrain.scatter(of_rank(RANK), SIZE - 1),
                                      np.array_split(of_rank(SIZE - 1), SIZE)[RANK])

    def test_alltoall_with_splits(self):
        x = np.full((sum(range(SIZE)), 2), RANK, np.int32)  # r rows for rank r
        result, splits = dtrain.alltoall(x, splits=range(SIZE))
        self.assertEqual(splits, [RANK] * SIZE)
        np.testing.assert_array_equal(result[:, 0], np.repeat(np.arange(SIZE), RANK))

    def test_alltoall_without_splits(self):
        result, splits = dtrain.alltoall(np.arange(2 * SIZE) + 100 * RANK)
        self.assertEqual(splits, [2] * SIZE)
        np.testing.assert_array_equal(result, np.concatenate(
            [np.arange(2 * RANK, 2 * RANK + 2) + 100 * rank for rank in range(SIZE)]))

    @needs_two()
    def test_send_and_receive(self):
        if RANK == 0:
            dtrain.send(np.arange(4.0), 1, "transfer")
        elif RANK == 1:
            np.testing.assert_array_equal(dtrain.recv(np.empty(4), 0, "transfer"), np.arange(4.0))

    def test_objects(self):
        self.assertEqual(dtrain.broadcast_object({"rank": RANK}, SIZE - 1), {"rank": SIZE - 1})
        self.assertEqual(dtrain.allgather_object("x" * RANK), ["x" * r for r in range(SIZE)])


class Handles(unittest.TestCase):
    def test_many_in_flight(self):
        handles = [dtrain.allreduce_async(np.full(9, RANK + i), f"many {i}", dtrain.Sum)
                   for i in range(50)]
        for i, handle in reversed(list(enumerate(handles))):
            np.testing.assert_array_equal(handle.wait(), sum(range(SIZE)) + i * SIZE)
            self.assertTrue(handle.done())
            self.assertIs(handle.wait(), handle.wait())

    @needs_two()
    def test_wait_that_times_out_leaves_the_operation(self):
        if RANK == 0:
            handle = dtrain.allreduce_async(np.ones(2), "late", dtrain.Sum)
            with self.assertRaisesRegex(TimeoutError, "late"):
                handle.wait(timeout=0.05)
            self.assertFalse(handle.done())
            dtrain.barrier()
            np.testing.assert_array_equal(handle.wait(), SIZE)
        else:
            dtrain.barrier()
            dtrain.allreduce(np.ones(2), "late", dtrain.Sum)

    @needs_two()
    def test_handle_that_is_forgotten_keeps_its_buffers(self):
        if RANK == 0:
            dtrain.allreduce_async(np.full(1 << 16, 1.0), "forgotten", dtrain.Sum)
            gc.collect()
            [np.full(1 << 16, 7.0) for _ in range(8)]
            dtrain.barrier()
        else:
            dtrain.barrier()
            np.testing.assert_array_equal(
                dtrain.allreduce(np.full(1 << 16, 1.0), "forgotten", dtrain.Sum), SIZE)

    def test_threads_wait_for_one_handle(self):
        handle = dtrain.allreduce_async(np.ones(1 << 16), "shared", dtrain.Sum)
        results = []
        threads = [threading.Thread(target=lambda: results.append(handle.wait()[0]))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [SIZE] * 4)

    @needs_two()
    def test_other_threads_run_during_a_wait(self):
        # Rank 0 waits; only its other thread lets rank 1 come. With the GIL held this would end
        # in the operation's deadline.
        if RANK == 0:
            handle = dtrain.allreduce_async(np.ones(1), "gil", dtrain.Sum, timeout=20)
            thread = threading.Thread(target=lambda: dtrain.send(np.ones(1), 1, "go"))
            thread.start()
            handle.wait()
            thread.join()
        else:
            if RANK == 1:
                dtrain.recv(np.empty(1), 0, "go")
            dtrain.allreduce(np.ones(1), "gil", dtrain.Sum, timeout=20)


class ProcessSets(unittest.TestCase):
    def test_world_has_all_ranks(self):
        self.assertEqual(dtrain.world.ranks, list(range(SIZE)))
        self.assertEqual((dtrain.world.rank(), dtrain.world.size()), (RANK, SIZE))

    def test_operations_on_a_set(self):
        ranks = [SIZE - 1] + list(range(SIZE - 1))[:1]  # the last first: numbers follow the list
        some = dtrain.add_process_set(ranks)
        self.assertEqual((some.ranks, some.size()), (ranks, len(ranks)))
        self.assertEqual(some.included(), RANK in ranks)
        if RANK in ranks:
            self.assertEqual(some.rank(), ranks.index(RANK))
            self.assertEqual(dtrain.allreduce(RANK, op=dtrain.Sum, process_set=some), sum(ranks))
            np.testing.assert_array_equal(
                dtrain.allgather(np.array([RANK]), process_set=some), ranks)
            _, splits = dtrain.alltoall(np.zeros(len(ranks)), process_set=some)
            self.assertEqual(splits, [1] * len(ranks))
            dtrain.barrier(process_set=some)
        else:
            self.assertEqual(some.rank(), -1)
        dtrain.remove_process_set(some)


class Agreeing(unittest.TestCase):
    def test_all_stop_when_one_wants_to(self):
        self.assertFalse(dtrain.agree_stop(False))
        self.assertTrue(dtrain.agree_stop(RANK == SIZE - 1))

    def test_equal_values(self):
        dtrain.check_equal({"a": np.arange(5.0), "b": np.ones(2, np.int32)})
        values = np.arange(5.0)
        values[3] += RANK == 1
        if SIZE > 1:
            with self.assertRaisesRegex(dtrain.Mismatch, "b") as caught:
                dtrain.check_equal({"a": np.ones(2), "b": values})
            self.assertIn(1, caught.exception.ranks)


class Joins(unittest.TestCase):
    def test_others_go_on_without_a_rank_that_joined(self):
        for step in range(RANK):
            result = dtrain.allreduce(np.ones(3), f"step {step}", dtrain.Sum)
            np.testing.assert_array_equal(result, SIZE - 1 - step)
        self.assertEqual(dtrain.join(), SIZE - 1 if SIZE > 1 else 0)


class GradientSets(unittest.TestCase):
    PARAMS = {"weight": (4, 2), "bias": ((2,), np.float64), "scale": ()}

    def test_steps_reduce_all_gradients(self):
        gradients = dtrain.GradientSet(self.PARAMS, dtrain.Sum)
        self.assertEqual([(x.shape, x.dtype) for x in gradients.arrays],
                         [((4, 2), np.float32), ((2,), np.float64), ((), np.float32)])
        for step in range(4):
            for i, array in reversed(list(enumerate(gradients.arrays))):
                array[...] = RANK + step + i
                gradients.ready(i)
            gradients.wait()
            for i, array in enumerate(gradients.arrays):
                np.testing.assert_array_equal(array, sum(range(SIZE)) + SIZE * (step + i))
        stats = gradients.stats()
        self.assertEqual((stats.steps, stats.missing, stats.copied_bytes), (4, 0, 0))

    def test_passes_and_gradients_that_are_missing(self):
        gradients = dtrain.GradientSet(self.PARAMS, dtrain.Sum, order=[0, 1, 2], fixed_order=True)
        gradients.set_accumulation(2)
        for _ in range(2):
            gradients.arrays[0][...] += 1
            gradients.ready(0)
            gradients.unused(1)
            gradients.unused(2)
        gradients.wait()
        np.testing.assert_array_equal(gradients.arrays[0], 2 * SIZE)
        np.testing.assert_array_equal(gradients.arrays[1], 0)

    def test_several_marked_at_once_and_clipped(self):
        gradients = dtrain.GradientSet({"a": (3,), "b": (1,)}, dtrain.Sum)
        gradients.arrays[0][...] = 0
        gradients.arrays[1][...] = 4
        gradients.ready_all([1, 0])
        gradients.wait()
        self.assertEqual(gradients.clip(1.0), 4 * SIZE)
        np.testing.assert_allclose(gradients.arrays[1], 1, rtol=1e-5)

    def test_array_outlives_the_set(self):
        weight = dtrain.GradientSet(self.PARAMS).arrays[0]
        gc.collect()
        weight[...] = 3
        np.testing.assert_array_equal(weight, 3)

    def test_bad_order_is_refused(self):
        with self.assertRaisesRegex(ValueError, "order"):
            dtrain.GradientSet(self.PARAMS, order=[0, 0, 1])


class Optimizers(unittest.TestCase):
    PARAMS = {"weight": (200, 100), "bias": (3,)}

    def train(self, rule, steps=3, **options):
        """An optimizer after some steps of gradients that depend on rank and step."""
        gradients = dtrain.GradientSet(self.PARAMS)
        optimizer = dtrain.Optimizer(gradients, rule, **options)
        for i, array in enumerate(optimizer.arrays):
            array[...] = i + 1 + RANK
        optimizer.broadcast(0)
        last = None
        for step in range(steps):
            for i, array in enumerate(gradients.arrays):
                array[...] = (RANK + 1) * (step + 1) / (i + 2)
            gradients.ready_all([1, 0])
            last = optimizer.step(0.1)
        return optimizer, last

    def test_sgd_is_as_by_hand(self):
        optimizer, last = self.train("sgd", momentum=0.5)
        mean, velocity, value = (SIZE + 1) / 2, 0, 1
        for step in range(3):
            velocity = 0.5 * velocity + mean * (step + 1) / 2
            value -= 0.1 * velocity
        np.testing.assert_allclose(optimizer.arrays[0], value, rtol=1e-5)
        self.assertEqual((last.step, last.skipped), (3, False))

    def test_sharded_or_not_the_bits_are_the_same(self):
        whole, _ = self.train("adamw", weight_decay=0.01, max_norm=1.0)
        shared, last = self.train("adamw", weight_decay=0.01, max_norm=1.0, sharded=True)
        for one, other in zip(whole.arrays, shared.arrays):
            np.testing.assert_array_equal(one, other)
        self.assertGreater(last.norm, 1)
        self.assertLess(last.clip, 1)
        if SIZE > 1:
            self.assertLess(shared.stats().state_bytes, whole.stats().state_bytes)

    def test_saved_state_goes_on_elsewhere(self):
        folder = dtrain.broadcast_object(tempfile.mkdtemp() if RANK == 0 else None)
        path = os.path.join(folder, "state")
        for in_shards, root in ((False, None), (True, None), (False, 0)):
            first, _ = self.train("adam", sharded=True)
            first.save(path, in_shards)
            other, _ = self.train("adam", steps=0)
            other.load(path, root)
            for one, two in zip(first.arrays, other.arrays):
                np.testing.assert_array_equal(one, two)
        dtrain.barrier()
        if RANK == 0:
            shutil.rmtree(folder)

    def test_what_is_no_optimizer_is_refused(self):
        with self.assertRaisesRegex(ValueError, "'adagrad' is no optimizer"):
            dtrain.Optimizer(dtrain.GradientSet(self.PARAMS), "adagrad")

    def test_parameters_outlive_the_optimizer(self):
        weight = self.train("sgd")[0].arrays[0]
        gc.collect()
        weight[...] = 3
        np.testing.assert_array_equal(weight, 3)


class Flight(unittest.TestCase):
    def test_timeline_has_the_operations_of_all_ranks(self):
        since = time.time_ns()
        dtrain.barrier()  # no rank goes on before all have looked at the clock
        dtrain.allreduce(np.ones(4, np.float32), "seen", dtrain.Sum)
        dtrain.barrier()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "timeline.json")
            self.assertGreaterEqual(dtrain.write_timeline(path, since), SIZE)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
            rows = {(event["pid"], event["tid"]) for event in events
                    if event["name"] == "thread_name" and event["args"]["name"] == "seen"}
            self.assertEqual({rank for rank, _ in rows}, set(range(SIZE)))
            mine = [event for event in events
                    if event["ph"] == "X" and (event["pid"], event["tid"]) in rows]
            self.assertEqual({event["name"] for event in mine},
                             {"negotiate allreduce", "queue allreduce", "allreduce"})
            self.assertTrue(all(event["dur"] >= 0 and event["args"]["count"] == 4
                                for event in mine))
            self.assertEqual(dtrain.write_timeline(path, time.time_ns() + 10**12), 0)
            with self.assertRaises(dtrain.Error):
                dtrain.flight_dump(folder)


class Samplers(unittest.TestCase):
    def test_batches_are_cut_into_parts_of_ranks(self):
        parts = dtrain.allgather_object(next(dtrain.Sampler(100, 10, seed=5)))
        whole = next(dtrain.Sampler(100, 10, seed=5, rank=0, size=1))
        np.testing.assert_array_equal(np.concatenate([part.samples for part in parts]),
                                      whole.samples)
        self.assertEqual((whole.epoch, whole.index, whole.count, whole.global_size), (0, 0, 10, 10))

    def test_state_goes_on_at_another_number_of_ranks(self):
        sampler = dtrain.Sampler(25, 10, shuffle=False)
        next(sampler)
        other = dtrain.Sampler(25, 10, shuffle=False, rank=0, size=1)
        other.restore(sampler.state())
        self.assertEqual(next(other).samples.tolist(), list(range(10, 20)))
        self.assertEqual(next(other).samples.tolist(), list(range(20, 25)))
        self.assertEqual(next(other).epoch, 1)
        with self.assertRaisesRegex(ValueError, "num_samples"):
            dtrain.Sampler(26, 10, rank=0, size=1).restore(other.state())


class Lifecycle(unittest.TestCase):
    def test_init_again_after_shutdown(self):
        handle = dtrain.allreduce_async(np.ones(2), "before", dtrain.Sum)
        handle.wait()
        forgotten = dtrain.barrier_async()
        dtrain.barrier()
        dtrain.shutdown()
        self.assertFalse(dtrain.is_initialized())
        with self.assertRaises(dtrain.NotInitialized):
            dtrain.rank()
        with self.assertRaises(dtrain.NotInitialized):
            dtrain.allreduce(np.ones(2))
        dtrain.init()
        self.assertEqual(dtrain.size(), SIZE)
        with self.assertRaisesRegex(dtrain.NotInitialized, "world that was shut down"):
            forgotten.wait()
        np.testing.assert_array_equal(dtrain.allreduce(np.ones(2), op=dtrain.Sum), SIZE)

    def test_settings_are_checked(self):
        dtrain.shutdown()
        try:
            with self.assertRaisesRegex(dtrain.ConfigError, "fusion_threshold"):
                dtrain.init(fusion_treshold="1MB")
        finally:
            dtrain.init(fusion_threshold="1MB", timeout_ms=30000)

    def test_forked_child_gets_an_error(self):
        pid = os.fork()
        if pid == 0:
            try:
                dtrain.allreduce(np.ones(1), "child")
            except dtrain.Forked:
                os._exit(0)
            except BaseException:
                os._exit(1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertEqual(dtrain.allreduce(1.0, op=dtrain.Sum), SIZE)

    def test_log_lines_come_to_the_function(self):
        lines = []
        dtrain.set_log(lambda level, line: lines.append(line))
        try:
            from dtrain._library import lib
            forgotten = ctypes.c_uint64()
            self.assertEqual(lib.dtrain_barrier_async(None, forgotten), 0)
            dtrain.barrier()
            dtrain.shutdown()  # which reports the handle that was never released
        finally:
            dtrain.set_log(None)
            dtrain.init()
        self.assertTrue(any("not released" in line for line in lines), lines)


if __name__ == "__main__":
    unittest.main()
