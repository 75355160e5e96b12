/* All kinds of collectives on rings, among all ranks and among sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend_world.h"
#include "base/dtype.h"
#include "base/status.h"
#include "comm/loopback/loopback.h"
#include "comm/ring/ring.h"
#include "jitter_p2p.h"
#include "test_random.h"

typedef struct fixture {
    backend_world_t world;
    dt_loopback_t *loopback;
    jitter_report_t reports[BACKEND_WORLD_MAX];
} fixture_t;

static void open_world(fixture_t *f, int size, uint64_t seed, const dt_ring_tuning_t *tuning)
{
    *f = (fixture_t){.world = {.size = size, .seed = seed}};
    f->loopback = dt_loopback_create(size, 1);
    assert_non_null(f->loopback);
    for (int rank = 0; rank < size; rank++) {
        dt_p2p_t *p2p;
        assert_int_equal(dt_loopback_p2p(f->loopback, rank, &p2p), DTRAIN_OK);
        p2p = jitter_p2p_create(p2p, seed + (uint64_t)rank, -1, &f->reports[rank]);
        assert_non_null(p2p);
        assert_int_equal(dt_ring_create(p2p, tuning, &f->world.backends[0][rank]), DTRAIN_OK);
    }
}

static void close_world(fixture_t *f)
{
    for (int rank = 0; rank < f->world.size; rank++)
        f->world.backends[0][rank]->ops->destroy(f->world.backends[0][rank], 1);
    dt_loopback_free(f->loopback);
    for (int rank = 0; rank < f->world.size; rank++) {
        assert_int_equal(f->reports[rank].num_overlaps, 0);
        assert_int_equal(f->reports[rank].num_scribbles, 0);
        assert_int_equal(f->reports[rank].num_left, 0);
        assert_int_equal(f->reports[rank].num_empty, 0);
    }
}

static void run(fixture_t *f, const backend_task_t *tasks, int num_tasks)
{
    if (backend_world_run(&f->world, tasks, num_tasks) != 0)
        fail_msg("%s", f->world.why);
}

static const dt_ring_tuning_t narrow = {.segment_bytes = 256, .direct_bytes = 512};

static void test_ring_collective_of_any_kind_and_size_gives_what_the_model_says(void **state)
{
    static const int64_t sizes[] = {0, 1, 17, 100, 1000, 5003};
    (void)state;
    uint64_t seed = 1;
    for (int size = 1; size <= 8; size++) {
        for (int kind = DT_REDUCE; kind <= DT_EXCHANGE; kind++) {
            for (int i = 0; i < 6; i++, seed++) {
                fixture_t f;
                open_world(&f, size, seed, &narrow);
                backend_task_t task = {.kind = (dt_collective_kind_t)kind, .longest = sizes[i]};
                task.dtype = DTRAIN_DTYPE_F32;
                task.root = (int)(seed % (uint64_t)size);
                run(&f, &task, 1);
                task.in_place = 1;
                run(&f, &task, 1);
                close_world(&f);
            }
        }
    }
}

static void test_ring_reductions_of_any_type_and_op_have_the_canonical_order(void **state)
{
    static const dt_collective_kind_t kinds[] = {DT_REDUCE, DT_REDUCE_SCATTER};
    (void)state;
    uint64_t seed = 1000;
    for (int dtype = 1; dtype < DT_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < DT_OP_COUNT; op++, seed++) {
            dt_reduction_t reduction = {(dtrain_dtype_t)dtype, (dtrain_op_t)op, 1, 1, 1};
            if (dt_dtype_size(reduction.dtype) == 0 || dt_reduction_check(&reduction) != DTRAIN_OK)
                continue;
            fixture_t f;
            open_world(&f, 2 + (int)(seed % 6), seed, &narrow);
            backend_task_t task = {.kind = kinds[seed % 2], .dtype = reduction.dtype};
            task.op = reduction.op;
            task.longest = 700;
            task.in_place = -1;
            task.root = 1;
            task.postscale = dtype == DTRAIN_DTYPE_F16 ? 1.7 : 1;
            run(&f, &task, 1);
            close_world(&f);
        }
    }
}

static void run_many(int has_threads, uint64_t first, int num_seeds, int num_sets)
{
    for (uint64_t seed = first; seed < first + (uint64_t)num_seeds; seed++) {
        uint64_t random = seed;
        fixture_t f;
        backend_task_t tasks[12];
        dt_ring_tuning_t tuning = {.segment_bytes = 64 << test_random(&random) % 6};
        tuning.segments_in_flight = 1 + (int)(test_random(&random) % 5);
        tuning.direct_bytes = test_random(&random) % 2 ? 2048 : -1;
        open_world(&f, 3 + (int)(seed % 5), seed, &tuning);
        const backend_set_t sets[] = {{{2, 0}, 2, 1}, {{1, 2, 0}, 3, 2}, {{1}, 1, 255}};
        f.world.sets = sets;
        f.world.num_sets = num_sets;
        f.world.has_threads = has_threads;
        for (int again = 0; again < 2; again++) {
            for (int i = 0; i < 12; i++)
                tasks[i] = backend_any_task(&f.world, 4000, &random);
            run(&f, tasks, 12);
        }
        close_world(&f);
    }
}

static void test_ring_collectives_in_flight_together_do_not_mix(void **state)
{
    (void)state;
    run_many(0, 2000, 60, 0);
}

static void test_ring_sets_and_the_world_do_not_mix(void **state)
{
    (void)state;
    run_many(0, 3000, 60, 3);
}

static void test_ring_sets_of_ranks_on_threads_do_not_mix(void **state)
{
    (void)state;
    run_many(1, 4000, 30, 3);
}

/* Messages of a set that is given up may land until the world's backend is gone. */
static void test_ring_set_that_is_given_up_is_kept_until_the_world_ends(void **state)
{
    static float values[2][20000];
    static const int ranks[] = {0, 1};
    (void)state;
    for (int num_calls = 0; num_calls < 30; num_calls++) {
        fixture_t f;
        dt_backend_t *sets[2];
        dt_task_t *tasks[2];
        dt_piece_t pieces[2];
        open_world(&f, 2, 5000, &narrow);
        for (int rank = 0; rank < 2; rank++) {
            dt_backend_t *all = f.world.backends[0][rank];
            assert_int_equal(all->ops->subset(all, ranks, 2, 7, &sets[rank]), DTRAIN_OK);
            pieces[rank] = (dt_piece_t){values[rank], values[rank], 20000};
            dt_collective_t collective = {.kind = DT_ALLREDUCE, .pieces = &pieces[rank]};
            collective.reduction = (dt_reduction_t){DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 1, 1, 1};
            collective.num_pieces = 1;
            collective.count = 20000;
            assert_int_equal(sets[rank]->ops->start(sets[rank], &collective, &tasks[rank]),
                             DTRAIN_OK);
        }
        for (int i = 0; i < num_calls; i++)
            sets[i % 2]->ops->progress(sets[i % 2], tasks[i % 2]);
        sets[1]->ops->release(sets[1], tasks[1]);
        sets[1]->ops->destroy(sets[1], 0);
        for (int i = 0; i < 30; i++)
            assert_true(sets[0]->ops->progress(sets[0], tasks[0]) >= 0);
        sets[0]->ops->release(sets[0], tasks[0]);
        sets[0]->ops->destroy(sets[0], 0);
        for (int rank = 0; rank < 2; rank++)
            f.world.backends[0][rank]->ops->destroy(f.world.backends[0][rank], 0);
        dt_loopback_free(f.loopback);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_collective_of_any_kind_and_size_gives_what_the_model_says),
        cmocka_unit_test(test_ring_reductions_of_any_type_and_op_have_the_canonical_order),
        cmocka_unit_test(test_ring_collectives_in_flight_together_do_not_mix),
        cmocka_unit_test(test_ring_sets_and_the_world_do_not_mix),
        cmocka_unit_test(test_ring_sets_of_ranks_on_threads_do_not_mix),
        cmocka_unit_test(test_ring_set_that_is_given_up_is_kept_until_the_world_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
