#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "reduce/reduce.h"
#include "ring_world.h"
#include "samples.h"
#include "test_random.h"

static const int64_t counts[] = {0, 1, 15, 16, 17, 1000, 4099};
#define NUM_COUNTS (int)(sizeof counts / sizeof counts[0])

static void run(ring_world_t *world, const ring_task_t *tasks, int num_tasks)
{
    if (ring_world_run(world, tasks, num_tasks) != 0)
        fail_msg("%s", world->why);
}

static ring_buffers_t buffers_of(uint64_t seed)
{
    return seed % 2 ? RING_IN_PLACE : RING_SEPARATE;
}

/* ---- Allreduce ----------------------------------------------------------------------- */

static void test_ring_allreduce_of_any_size_equals_the_reduction(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int n = 1; n <= 8; n++) {
        for (int i = 0; i < NUM_COUNTS; i++) {
            for (int direct = 0; direct < 2; direct++, seed++) {
                ring_world_t world = {.size = n, .seed = seed};
                world.tuning.segment_bytes = 256;
                world.tuning.direct_bytes = direct ? 1 << 20 : -1;
                ring_task_t task = {.count = counts[i], .dtype = DTRAIN_DTYPE_F32};
                run(&world, &task, 1);
                task.buffers = RING_IN_PLACE;
                run(&world, &task, 1);
            }
        }
    }
}

static void test_ring_allreduce_of_any_type_and_op_equals_the_reduction(void **state)
{
    dt_reduction_t reductions[SAMPLE_REDUCTIONS_MAX];
    int num_reductions = sample_reductions(reductions);
    (void)state;
    uint64_t seed = 1000;
    for (int k = 0; k < num_reductions; k++) {
        for (int n = 2; n <= 7; n += 5, seed++) {
            ring_world_t world = {.size = n, .seed = seed};
            world.tuning.segment_bytes = 512;
            world.tuning.direct_bytes = seed % 3 == 0 ? 1 << 20 : -1;
            ring_task_t task = {.count = 1009, .dtype = reductions[k].dtype};
            task.op = reductions[k].op;
            task.buffers = buffers_of(seed / 2);
            run(&world, &task, 1);
        }
    }
}

static void test_ring_allreduce_with_scales_equals_the_reduction(void **state)
{
    static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F16, DTRAIN_DTYPE_I32};
    (void)state;
    for (uint64_t seed = 2000; seed < 2012; seed++) {
        ring_world_t world = {.size = 1 + (int)(seed % 6), .seed = seed};
        world.tuning.segment_bytes = 1024;
        world.tuning.direct_bytes = seed % 2 ? 1 << 20 : -1;
        ring_task_t task = {.count = 3001, .dtype = dtypes[seed % 3], .op = DTRAIN_OP_AVERAGE};
        task.prescale = 0.375;
        task.postscale = 1.7;
        task.buffers = buffers_of(seed / 4);
        run(&world, &task, 1);
    }
}

/* The seed decides the inputs too, so equal results mean equal bits under every cut. */
static void test_ring_allreduce_cut_in_any_way_gives_the_same_bits(void **state)
{
    static const ring_world_t cuts[] = {
        {.tuning = {.segment_bytes = 0}},
        {.tuning = {.segment_bytes = 64, .segments_in_flight = 1, .direct_bytes = -1}},
        {.tuning = {.segment_bytes = 64, .segments_in_flight = 16, .direct_bytes = -1}},
        {.tuning = {.segment_bytes = 1000, .segments_in_flight = 2, .direct_bytes = -1}},
        {.tuning = {.segment_bytes = 4096, .segments_in_flight = 3, .direct_bytes = -1}},
        {.tuning = {.segment_bytes = 1 << 16, .segments_in_flight = 4, .direct_bytes = -1}},
        {.tuning = {.segment_bytes = 1 << 20, .segments_in_flight = 4, .direct_bytes = -1}},
        {.tuning = {.direct_bytes = 1 << 20}},
    };
    (void)state;
    for (int n = 2; n <= 8; n += 3) {
        for (int i = 0; i < 8; i++) {
            ring_world_t world = cuts[i];
            world.size = n;
            world.seed = 3000;
            ring_task_t task = {.count = 9973, .dtype = DTRAIN_DTYPE_F32};
            task.buffers = buffers_of((uint64_t)i);
            run(&world, &task, 1);
        }
    }
}

static void test_ring_allreduce_of_a_large_vector_equals_the_reduction(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++) {
        ring_world_t world = {.size = n, .seed = 4000 + (uint64_t)n};
        world.tuning.segment_bytes = 8192;
        ring_task_t task = {.count = 100003, .dtype = DTRAIN_DTYPE_F32};
        task.buffers = buffers_of((uint64_t)n);
        run(&world, &task, 1);
    }
}

static void test_ring_allreduce_sends_segments_no_longer_than_told(void **state)
{
    (void)state;
    ring_world_t world = {.size = 3, .seed = 5000};
    world.tuning.segment_bytes = 4096;
    world.tuning.direct_bytes = -1;
    ring_task_t task = {.count = 50000, .dtype = DTRAIN_DTYPE_F64};
    run(&world, &task, 1);
    for (int rank = 0; rank < 3; rank++)
        assert_in_range(world.reports[rank].longest, 1, 4096);
}

static void test_ring_allreduce_of_a_short_vector_takes_one_message_a_peer(void **state)
{
    (void)state;
    ring_world_t world = {.size = 4, .seed = 5001};
    ring_task_t task = {.count = 1, .dtype = DTRAIN_DTYPE_F32};
    run(&world, &task, 1);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(world.reports[rank].num_messages, 3 + 3);
}

static void test_ring_allreduce_of_nothing_sends_nothing(void **state)
{
    (void)state;
    ring_world_t world = {.size = 4, .seed = 5002};
    ring_task_t task = {.count = 0, .dtype = DTRAIN_DTYPE_F32};
    run(&world, &task, 1);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(world.reports[rank].num_messages, 0);
}

/* From 34 ranks on there are more peers than a queue holds messages. */
static void test_ring_allreduce_on_many_ranks_equals_the_reduction(void **state)
{
    static const int sizes[] = {9, 33, 34, 40};
    (void)state;
    for (int i = 0; i < 8; i++) {
        ring_world_t world = {.size = sizes[i / 2], .seed = 6000 + (uint64_t)i};
        world.tuning.segment_bytes = 64;
        world.tuning.direct_bytes = i % 2 ? -1 : 1 << 20;
        ring_task_t task = {.count = 70 * world.size, .dtype = DTRAIN_DTYPE_BF16};
        task.buffers = buffers_of((uint64_t)i / 2);
        run(&world, &task, 1);
    }
}

/* ---- Broadcast ------------------------------------------------------------------------- */

static void test_ring_broadcast_from_every_root_reaches_every_rank(void **state)
{
    (void)state;
    uint64_t seed = 7000;
    for (int n = 1; n <= 8; n++) {
        for (int root = 0; root < n; root++, seed++) {
            ring_world_t world = {.size = n, .seed = seed};
            world.tuning.segment_bytes = 4096;
            ring_task_t task = {.kind = DT_BROADCAST, .dtype = DTRAIN_DTYPE_U16, .root = root};
            task.buffers = (ring_buffers_t)(seed % 3);
            task.count = counts[seed % NUM_COUNTS];
            run(&world, &task, 1);
            task.count = 40009;
            run(&world, &task, 1);
        }
    }
}

static void test_ring_broadcast_of_megabytes_reaches_every_rank(void **state)
{
    (void)state;
    for (int buffers = 0; buffers < 3; buffers++) {
        ring_world_t world = {.size = 3, .seed = 7500};
        ring_task_t task = {.kind = DT_BROADCAST, .dtype = DTRAIN_DTYPE_F64, .root = 1};
        task.buffers = (ring_buffers_t)buffers;
        task.count = 300000;
        run(&world, &task, 1);
    }
}

/* ---- Several at once -------------------------------------------------------------------- */

static ring_task_t random_task(uint64_t *random, int n)
{
    static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F16, DTRAIN_DTYPE_U8,
                                            DTRAIN_DTYPE_I64};
    ring_task_t task = {0};
    task.kind = test_random(random) % 4 == 0 ? DT_BROADCAST : DT_ALLREDUCE;
    task.count = (int64_t)(test_random(random) % (test_random(random) % 2 ? 20 : 5000));
    task.dtype = dtypes[test_random(random) % 4];
    task.op = (dtrain_op_t)(test_random(random) % 4);
    task.root = (int)(test_random(random) % (uint64_t)n);
    task.buffers = buffers_of(test_random(random));
    return task;
}

static void run_many(ring_driver_t driver, uint64_t first_seed, int num_seeds)
{
    for (uint64_t seed = first_seed; seed < first_seed + (uint64_t)num_seeds; seed++) {
        uint64_t random = seed;
        ring_task_t tasks[RING_WORLD_TASKS_MAX];
        ring_world_t world = {.size = 2 + (int)(seed % 6), .seed = seed, .driver = driver};
        world.tuning.segment_bytes = 64 << test_random(&random) % 6;
        world.tuning.segments_in_flight = 1 + (int)(test_random(&random) % 5);
        world.tuning.direct_bytes = test_random(&random) % 2 ? 2048 : -1;
        for (int i = 0; i < RING_WORLD_TASKS_MAX; i++)
            tasks[i] = random_task(&random, world.size);
        run(&world, tasks, RING_WORLD_TASKS_MAX);
    }
}

static void test_ring_tasks_in_flight_together_do_not_mix(void **state)
{
    (void)state;
    run_many(RING_INTERLEAVED, 8000, 60);
}

static void test_ring_ranks_on_threads_get_the_same_results(void **state)
{
    (void)state;
    run_many(RING_THREADS, 9000, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_allreduce_of_any_size_equals_the_reduction),
        cmocka_unit_test(test_ring_allreduce_of_any_type_and_op_equals_the_reduction),
        cmocka_unit_test(test_ring_allreduce_with_scales_equals_the_reduction),
        cmocka_unit_test(test_ring_allreduce_cut_in_any_way_gives_the_same_bits),
        cmocka_unit_test(test_ring_allreduce_of_a_large_vector_equals_the_reduction),
        cmocka_unit_test(test_ring_allreduce_sends_segments_no_longer_than_told),
        cmocka_unit_test(test_ring_allreduce_of_a_short_vector_takes_one_message_a_peer),
        cmocka_unit_test(test_ring_allreduce_of_nothing_sends_nothing),
        cmocka_unit_test(test_ring_allreduce_on_many_ranks_equals_the_reduction),
        cmocka_unit_test(test_ring_broadcast_from_every_root_reaches_every_rank),
        cmocka_unit_test(test_ring_broadcast_of_megabytes_reaches_every_rank),
        cmocka_unit_test(test_ring_tasks_in_flight_together_do_not_mix),
        cmocka_unit_test(test_ring_ranks_on_threads_get_the_same_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
