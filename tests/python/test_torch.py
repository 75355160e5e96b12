"""dtrain.torch on any number of ranks. Exit status 77: skipped, without torch."""
import copy
import sys
import unittest
import warnings

try:
    import torch
except ImportError:
    print("skipped: no torch (Debian: python3-torch)")
    sys.exit(77)
import torch.nn.functional as F

import dtrain.torch as dt

torch.set_num_threads(1)
dt.init()
RANK, SIZE = dt.rank(), dt.size()
TYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
         torch.bfloat16, torch.float32, torch.float64]
needs_two = unittest.skipIf(SIZE < 2, "needs two ranks")


def of_rank(rank, shape=(5, 3), dtype=torch.float32):
    count = int(torch.tensor(shape).prod())
    return (torch.arange(count).reshape(shape) % 7 + rank).to(dtype)


def everyone(**how):
    return torch.stack([of_rank(rank, **how) for rank in range(SIZE)])


def close(a, b):
    return torch.testing.assert_close(a, b)


class Operations(unittest.TestCase):
    def test_sum_of_every_type(self):
        for dtype in TYPES:
            with self.subTest(dtype=str(dtype)):
                result = dt.allreduce(of_rank(RANK, dtype=dtype), op=dt.Sum)
                self.assertEqual(result.dtype, dtype)
                close(result.double(), everyone().sum(0).double())

    def test_average_in_place_is_the_default(self):
        x = of_rank(RANK)
        self.assertIs(dt.allreduce_(x), x)
        close(x, everyone().mean(0))

    def test_arrays_and_tensors_meet(self):
        import dtrain
        if RANK == 0:
            result = dtrain.allreduce(of_rank(RANK).numpy(), "meeting", dtrain.Sum)
        else:
            result = dt.allreduce(of_rank(RANK), "meeting", dt.Sum).numpy()
        close(torch.from_numpy(result), everyone().sum(0))

    def test_allgather_of_unequal_rows(self):
        result = dt.allgather(of_rank(RANK, (RANK, 2)))
        close(result, torch.cat([of_rank(rank, (rank, 2)) for rank in range(SIZE)]))

    def test_broadcast(self):
        close(dt.broadcast(of_rank(RANK), SIZE - 1), of_rank(SIZE - 1))

    def test_alltoall(self):
        x = torch.full((sum(range(SIZE)), 2), RANK)
        result, splits = dt.alltoall(x, torch.arange(SIZE))
        self.assertEqual(splits.tolist(), [RANK] * SIZE)
        self.assertEqual(splits.dtype, torch.int64)
        close(result[:, 0], torch.arange(SIZE).repeat_interleave(RANK))

    def test_reducescatter(self):
        close(dt.reducescatter(of_rank(RANK), op=dt.Sum),
              everyone().sum(0).tensor_split(SIZE)[RANK])

    def test_groups(self):
        xs = [of_rank(RANK, (n, 2)) for n in (1, 4, 2)]
        for n, result in zip((1, 4, 2), dt.grouped_allreduce(xs, op=dt.Sum)):
            close(result, everyone(shape=(n, 2)).sum(0))
        for n, result in zip((1, 4, 2), dt.grouped_reducescatter(xs, op=dt.Sum)):
            close(result, everyone(shape=(n, 2)).sum(0).tensor_split(SIZE)[RANK])
        self.assertEqual([len(x) for x in dt.grouped_allgather(xs)], [SIZE, 4 * SIZE, 2 * SIZE])

    def test_sparse_sum_is_the_dense_one(self):
        dense = torch.zeros(6, 2)
        dense[RANK % 6] = RANK + 1.0
        handle = dt.sparse_allreduce_async(dense.to_sparse(1), "sparse", dt.Sum)
        close(handle.wait().to_dense(), dt.allreduce(dense, op=dt.Sum))
        handle = dt.sparse_allreduce_async(dense.to_sparse(), "sparser", dt.Average)
        close(handle.wait().to_dense(), dt.allreduce(dense))

    def test_compression_rounds_once(self):
        x = torch.tensor([40000.0, 1e-3])
        for compression in (dt.Compression.fp16, dt.Compression.bf16):
            expected = compression.compress(x)[0].float()
            close(dt.allreduce(x, compression=compression), expected)

    @needs_two
    def test_group_that_one_rank_refuses_is_refused_on_all(self):
        good = [torch.ones(2), torch.ones(3)]
        bad = [torch.ones(2), torch.ones(3, dtype=torch.complex64)] if RANK == 1 else good
        for function in (dt.grouped_allreduce, dt.grouped_allgather):
            with self.assertRaisesRegex(
                    TypeError if RANK == 1 else RuntimeError,
                    ("" if RANK == 1 else "rank 1: .*") + "tensors of torch.complex64"):
                function(bad, "refused")
            close(function(good, "refused")[0][:2], good[0])

    def test_tensor_that_is_not_contiguous_is_refused(self):
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            dt.allreduce(torch.ones(3, 3).t(), "transposed")
        dt.barrier()

    def test_library_memory(self):
        x = dt.empty((100, 3), torch.bfloat16)
        x.fill_(RANK)
        dt.allreduce_(x, op=dt.Sum)
        close(x.float(), torch.full((100, 3), float(sum(range(SIZE)))))


class Gradients(unittest.TestCase):
    """Each operation's gradient, for a loss that weighs results by rank."""

    def run_backward(self, operation, shape=(4, 2)):
        x = of_rank(RANK, shape, torch.float64).requires_grad_()
        y = operation(x)
        (y * (RANK + 1)).sum().backward()
        return x.grad

    def test_allreduce(self):
        total = float(sum(range(1, SIZE + 1)))
        close(self.run_backward(lambda x: dt.allreduce(x, op=dt.Sum)),
              torch.full((4, 2), total).double())
        close(self.run_backward(dt.allreduce), torch.full((4, 2), total / SIZE).double())

    def test_allgather_gives_the_average_of_own_rows(self):
        expected = torch.full((4, 2), sum(range(1, SIZE + 1)) / SIZE).double()
        close(self.run_backward(dt.allgather), expected)
        close(self.run_backward(lambda x: dt.grouped_allgather([x, x.detach()])[0]), expected)

    def test_broadcast_gives_the_root_alone(self):
        factor = sum(range(1, SIZE + 1)) / SIZE if RANK == 0 else 0
        close(self.run_backward(lambda x: dt.broadcast(x, 0)),
              torch.full((4, 2), float(factor)).double())

    def test_alltoall_sends_them_back(self):
        grad = self.run_backward(lambda x: dt.alltoall(x)[0], (SIZE, 2))
        close(grad[:, 0], torch.arange(1, SIZE + 1).double())

    def test_reducescatter_gathers(self):
        grad = self.run_backward(lambda x: dt.reducescatter(x, op=dt.Average), (SIZE, 2))
        close(grad[:, 0], torch.arange(1, SIZE + 1).double())
        grads = self.run_backward(lambda x: dt.grouped_reducescatter([x], op=dt.Sum)[0], (SIZE, 2))
        close(grads[:, 0], torch.arange(1, SIZE + 1).double() * SIZE)


def make_model(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def batch(rank, step=0, n=4):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(n, 6, generator=generator), torch.randn(n, 3, generator=generator)


def train(model, optimizer, steps=4, passes=1):
    for step in range(steps):
        optimizer.zero_grad()
        for i in range(passes):
            x, y = batch(RANK, step * passes + i)
            F.mse_loss(model(x), y).backward()
        optimizer.step()


def train_alone(steps=4, passes=1, lr=0.1, average=True, **options):
    """The same training in one process on all ranks' batches."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(SIZE):
            for i in range(passes):
                x, y = batch(rank, step * passes + i)
                (F.mse_loss(model(x), y) / (SIZE if average else 1)).backward()
        optimizer.step()
    return model


class Optimizers(unittest.TestCase):
    def check(self, passes=1, **options):
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer = dt.DistributedOptimizer(optimizer, model.named_parameters(),
                                            backward_passes_per_step=passes, **options)
        train(model, optimizer, passes=passes)
        for own, other in zip(model.parameters(), train_alone(passes=passes).parameters()):
            close(own, other)
        return model, optimizer

    def test_same_as_one_process_on_all_batches(self):
        model, optimizer = self.check()
        self.assertIsInstance(optimizer, torch.optim.SGD)
        whole = dt.allgather(torch.cat([p.detach().flatten() for p in model.parameters()])[None])
        for row in whole:
            self.assertTrue(torch.equal(row, whole[0]))

    def test_accumulation(self):
        self.check(passes=3)

    def test_groups(self):
        self.check(groups=2)

    def test_views_of_library_memory(self):
        model, optimizer = self.check(gradients_as_views=True)
        self.check(passes=2, gradients_as_views=True)
        if SIZE > 1:  # where the library's gradients are aligned so
            self.assertTrue(all(p.grad.data_ptr() % 128 == 0 for p in model.parameters()))
        optimizer.zero_grad()
        self.assertTrue(all((param.grad == 0).all() for param in model.parameters()))
        with self.assertRaisesRegex(ValueError, "groups"):
            self.check(groups=2, gradients_as_views=True)

    def test_views_outlive_the_world(self):
        model, optimizer = self.check(gradients_as_views=True)
        before = [p.grad.clone() for p in model.parameters()]
        dt.shutdown()
        dt.init()
        for param, grad in zip(model.parameters(), before):
            close(param.grad, grad)
        train(model, optimizer, steps=2)  # in the new one
        whole = dt.allgather(model[0].weight.detach().flatten()[None])
        self.assertTrue(torch.equal(whole[0], whole[-1]))

    def check_library_optimizer(self, rule, like, lr=0.1, **options):
        """The library's optimizer against torch's `like`, on all ranks' batches in one process."""
        model, alone = make_model(seed=1 + RANK), make_model()
        optimizer = dt.Optimizer(model.named_parameters(), rule, lr=lr, **options)
        optimizer.broadcast(0)
        whole = like(alone.parameters())
        train(model, optimizer)
        for step in range(4):
            whole.zero_grad()
            for rank in range(SIZE):
                x, y = batch(rank, step)
                (F.mse_loss(alone(x), y) / SIZE).backward()
            whole.step()
        for own, other in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)
        return model, optimizer

    def test_library_optimizers_are_as_torchs(self):
        for sharded in (False, True):
            self.check_library_optimizer(
                "sgd", lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
                momentum=0.9, nesterov=True, sharded=sharded)
            self.check_library_optimizer(
                "adamw", lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1),
                lr=0.01, weight_decay=0.1, sharded=sharded)
            self.check_library_optimizer(
                "adam", lambda params: torch.optim.Adam(params, lr=0.01, betas=(0.8, 0.9)),
                lr=0.01, betas=(0.8, 0.9), sharded=sharded)

    def test_library_optimizer_in_a_training_loop(self):
        model, optimizer = self.check_library_optimizer(
            "sgd", lambda params: torch.optim.SGD(params, lr=0.1))
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
        x, y = batch(RANK)
        F.mse_loss(model(x), y).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        before = model[0].weight.detach().clone()
        optimizer.step()
        schedule.step()
        self.assertLess((model[0].weight - before).abs().max(), 1e-3)
        self.assertEqual(optimizer.last_step.step, 5)
        self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.01)
        optimizer.zero_grad()
        self.assertTrue(all((param.grad == 0).all() for param in model.parameters()))
        with self.assertRaisesRegex(NotImplementedError, "save"):
            optimizer.state_dict()
        with self.assertRaisesRegex(ValueError, "one group"):
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})

    def test_library_optimizer_ends_with_the_world(self):
        model, optimizer = self.check_library_optimizer(
            "sgd", lambda params: torch.optim.SGD(params, lr=0.1), sharded=True)
        before = [param.detach().clone() for param in model.parameters()]
        dt.shutdown()
        dt.init()
        for param, old in zip(model.parameters(), before):
            self.assertTrue(torch.equal(param, old))
        with self.assertRaisesRegex(RuntimeError, "was shut down"):
            optimizer.step()

    def test_predivide_factor(self):
        self.check(gradient_predivide_factor=float(SIZE))
        self.check(gradient_predivide_factor=float(SIZE), gradients_as_views=True)

    def test_compression_comes_close(self):
        model = make_model()
        optimizer = dt.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(),
            compression=dt.Compression.fp16)
        train(model, optimizer)
        for own, other in zip(model.parameters(), train_alone().parameters()):
            torch.testing.assert_close(own, other, atol=2e-2, rtol=2e-2)

    def test_scheduler_and_state_of_the_wrapped_optimizer_are_kept(self):
        model = make_model()
        plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        train_locally = batch(0)
        F.mse_loss(model(train_locally[0]), train_locally[1]).backward()
        plain.step()
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
        optimizer = dt.DistributedOptimizer(plain, model.named_parameters())
        self.assertEqual(len(optimizer.state), 4)
        train(model, optimizer, steps=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scheduler.step()
        self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.05)

    @needs_two
    def test_parameter_without_gradient_on_one_rank_counts_as_zeros(self):
        for views in (False, True):
            self.lack(views)

    def lack(self, views):
        first, second = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
        params = list(first.parameters()) + list(second.parameters())
        for param in params:
            torch.nn.init.ones_(param)
        optimizer = dt.DistributedOptimizer(torch.optim.SGD(params, lr=1.0),
                                            gradients_as_views=views)
        with self.assertLogs("dtrain") if RANK else _no_logs(self) as logs:
            for _ in range(2):
                optimizer.zero_grad()
                y = first(torch.ones(1, 2))
                if RANK == 0:
                    y = second(y)
                y.sum().backward()
                optimizer.step()
        if RANK:
            self.assertEqual(len(logs.output), 1)  # said once
            self.assertIn("gradient.1", logs.output[0])
        self.assertTrue((params[1] < 1).all())
        everywhere = dt.allgather(params[1].detach().flatten()[None])
        self.assertTrue(torch.equal(everywhere[0], everywhere[-1]))

    @needs_two
    def test_clipping_between_synchronize_and_step_reduces_once(self):
        for views in (False, True):
            self.clip(views)

    def clip(self, views):
        model = make_model()
        optimizer = dt.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                            model.named_parameters(), op=dt.Sum,
                                            gradients_as_views=views)
        x, y = batch(RANK)
        F.mse_loss(model(x), y).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        clipped = [param.grad.clone() for param in model.parameters()]
        with optimizer.skip_synchronize():
            optimizer.step()
        for param, grad in zip(model.parameters(), clipped):
            close(param.grad, grad)
        F.mse_loss(model(x), y).backward()
        optimizer.synchronize()
        with self.assertWarnsRegex(UserWarning, "reduced twice"):
            optimizer.step()

    @needs_two
    def test_misuse_is_an_error(self):
        for views in (False, True):
            self.misuse(views)

    def misuse(self, views):
        model = make_model()
        optimizer = dt.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                            model.named_parameters(), gradients_as_views=views)
        x, y = batch(RANK)
        F.mse_loss(model(x), y).backward()
        with self.assertRaisesRegex(AssertionError, "zero_grad"):
            optimizer.zero_grad()
        with self.assertRaisesRegex(AssertionError, "backward_passes_per_step"):
            F.mse_loss(model(x), y).backward()
        optimizer.step()

    def test_names_are_checked(self):
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        pairs = list(model.named_parameters())
        for bad, text in ((pairs[:1], "no name"), ([("a", p) for _, p in pairs], "several"),
                          ([p for _, p in pairs], "pairs")):
            with self.assertRaisesRegex(ValueError, text):
                dt.DistributedOptimizer(optimizer, bad)

    def test_sparse_gradients(self):
        for as_dense in (False, True):
            embedding = torch.nn.Embedding(10, 3, sparse=True)
            torch.nn.init.zeros_(embedding.weight)
            optimizer = dt.DistributedOptimizer(
                torch.optim.SGD(embedding.parameters(), lr=1.0), op=dt.Sum,
                sparse_as_dense=as_dense)
            embedding(torch.tensor([RANK, 9])).sum().backward()
            optimizer.step()
            expected = torch.zeros(10, 3)
            expected[:SIZE] = -1
            expected[9] = -float(SIZE)
            close(embedding.weight.detach(), expected)

    @needs_two
    def test_sparse_gradient_that_one_rank_lacks(self):
        embedding = torch.nn.Embedding(10, 3, sparse=True)
        torch.nn.init.zeros_(embedding.weight)
        optimizer = dt.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0),
                                            op=dt.Sum)
        for step in range(2):
            optimizer.zero_grad(set_to_none=True)
            if step == 0 or RANK == 0:
                embedding(torch.tensor([step])).sum().backward()
            optimizer.step()
        close(embedding.weight[:2].detach(), torch.tensor([[-SIZE] * 3, [-1] * 3]).float())

    def test_codec_with_feedback_learns(self):
        model = make_model()
        optimizer = dt.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(),
            codec="int8")
        train(model, optimizer)
        for own, other in zip(model.parameters(), train_alone().parameters()):
            torch.testing.assert_close(own, other, atol=2e-2, rtol=2e-2)

    def test_adasum_of_equal_steps_is_one_step(self):
        model, reference = make_model(), make_model()
        x, y = batch(0)
        for net, optimizer in (
                (reference, torch.optim.Adam(reference.parameters(), lr=0.01)),
                (model, dt.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01),
                                                model.named_parameters(), op=dt.Adasum))):
            for _ in range(3):
                optimizer.zero_grad()
                F.mse_loss(net(x), y).backward()
                optimizer.step()
        for own, other in zip(model.parameters(), reference.parameters()):
            close(own, other)

    @needs_two
    def test_process_set_trains_alone(self):
        some = dt.add_process_set([0])
        model = make_model()
        optimizer = dt.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                            model.named_parameters(), process_set=some)
        x, y = batch(RANK)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        dt.remove_process_set(some)


class _no_logs:
    """Where nothing is logged, for a `with` that asks on other ranks that something is."""

    def __init__(self, test):
        self.test = test

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class States(unittest.TestCase):
    def test_parameters(self):
        model = make_model(seed=RANK)
        dt.broadcast_parameters(model.state_dict(), 0)
        for own, other in zip(model.parameters(), make_model(seed=0).parameters()):
            close(own, other)
        dt.broadcast_parameters(model.named_parameters(), SIZE - 1)
        dt.broadcast_parameters([torch.ones(2)], 0)
        with self.assertRaises(ValueError):
            dt.broadcast_parameters("parameters", 0)

    def test_parameters_that_differ_are_named(self):
        model = make_model()
        dt.check_equal(model.state_dict())
        with torch.no_grad():
            model[2].bias[1] += RANK
        if SIZE > 1:
            with self.assertRaisesRegex(ValueError, "2.bias"):
                dt.check_equal(model.named_parameters())

    def test_state_that_the_root_alone_has_loaded(self):
        for make in (lambda p: torch.optim.SGD(p, lr=0.1 + RANK, momentum=0.9),
                     lambda p: torch.optim.Adam(p, lr=0.1 + RANK),
                     lambda p: torch.optim.SGD(p, lr=0.1 + RANK)):
            model = make_model()
            optimizer = make(model.parameters())
            if RANK == 0:
                x, y = batch(0)
                F.mse_loss(model(x), y).backward()
                optimizer.step()
            dt.broadcast_optimizer_state(optimizer, 0)
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.1)
            state = optimizer.state_dict()["state"]
            theirs = dt.broadcast_object(state, 0)
            self.assertEqual(list(state), list(theirs))
            for key in state:
                for name, value in theirs[key].items():
                    if torch.is_tensor(value):
                        close(state[key][name], value)
                    else:
                        self.assertEqual(state[key][name], value)
            x, y = batch(0)
            F.mse_loss(model(x), y).backward()
            optimizer.step()

    def test_lbfgs_is_refused(self):
        with self.assertRaisesRegex(ValueError, "LBFGS"):
            dt.broadcast_optimizer_state(torch.optim.LBFGS(make_model().parameters()), 0)

    def test_elastic_state_goes_back_to_its_commit(self):
        model = make_model(seed=RANK)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        sampler = dt.ElasticSampler(range(10))
        state = dt.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=RANK)
        calls = []
        state.register_reset_callbacks([lambda: calls.append("reset")])

        @dt.elastic.run
        def training(state):
            calls.append(state.epoch)
            if len(calls) == 1:
                committed = copy.deepcopy(model.state_dict())
                state.epoch = 7
                state.commit()
                state.epoch = 8
                with torch.no_grad():
                    model[0].weight.add_(1)
                self.committed = committed
                dt.allreduce(torch.ones(1 + RANK), "differs") if SIZE > 1 else None
                return "alone"
            for name, value in model.state_dict().items():
                close(value, self.committed[name])
            return "done"

        result = training(state)
        if SIZE > 1:
            self.assertEqual((result, calls), ("done", [0, "reset", 7]))
        else:
            self.assertEqual((result, calls), ("alone", [0]))


class Samplers(unittest.TestCase):
    def test_every_sample_is_dealt_out_once(self):
        sampler = dt.ElasticSampler(range(10 * SIZE))
        mine = list(sampler)
        self.assertEqual(len(mine), len(sampler))
        everyones = sum(dt.allgather_object(mine), [])
        self.assertEqual(sorted(everyones), list(range(10 * SIZE)))
        sampler.set_epoch(1)
        self.assertNotEqual(list(sampler), mine)

    def test_processed_samples_do_not_come_again(self):
        sampler = dt.ElasticSampler(range(10 * SIZE))
        seen = sum(dt.allgather_object(list(sampler)[:4]), [])
        sampler.record_batch(0, 4)
        other = dt.ElasticSampler(range(10 * SIZE))
        other.load_state_dict(sampler.state_dict())
        left = sum(dt.allgather_object(list(other)), [])
        self.assertEqual(sorted(seen + left), list(range(10 * SIZE)))

    def test_uneven_rest_is_padded(self):
        sampler = dt.ElasticSampler(range(SIZE + 1), shuffle=False)
        self.assertEqual(len(list(sampler)), 2 if SIZE > 1 else 2)
        everyones = sum(dt.allgather_object(list(sampler)), [])
        self.assertEqual(set(everyones), set(range(SIZE + 1)))


class BatchNorm(unittest.TestCase):
    def test_same_as_one_process_on_all_batches(self):
        torch.manual_seed(3)
        whole = torch.randn(3 * SIZE, 4, 5, dtype=torch.float64)
        weights = torch.randn(3 * SIZE, 4, 5, dtype=torch.float64)
        plain = torch.nn.BatchNorm1d(4).double()
        mine = dt.SyncBatchNorm.convert(copy.deepcopy(plain))
        rows = slice(3 * RANK, 3 * RANK + 3)
        x, part = whole.clone().requires_grad_(), whole[rows].clone().requires_grad_()
        expected, result = plain(x), mine(part)
        close(result, expected[rows])
        close(mine.running_mean, plain.running_mean)
        close(mine.running_var, plain.running_var)
        (expected * weights).sum().backward()
        (result * weights[rows]).sum().backward()
        close(part.grad, x.grad[rows])
        close(dt.allreduce(mine.weight.grad, op=dt.Sum), plain.weight.grad)
        close(dt.allreduce(mine.bias.grad, op=dt.Sum), plain.bias.grad)
        close(mine.eval()(part), plain.eval()(whole[rows]))

    def test_modules_inside_are_converted(self):
        net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
        self.assertIsInstance(dt.SyncBatchNorm.convert(net)[1], dt.SyncBatchNorm)


if __name__ == "__main__":
    unittest.main()
