/* What the shm backend computes, whatever the sizes, the memory and the order of calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "samples.h"
#include "shm_world.h"
#include "test_random.h"

/* Sizes at which a path ends, small enough for many runs: one header less, one chunk more. */
static const dt_shm_tuning_t narrow = {
    .tiny_bytes = 64, .small_bytes = 256, .chunk_bytes = 512, .slots = 3, .pull_bytes = 400};

static void run(shm_world_t *world, const shm_task_t *tasks, int num_tasks)
{
    if (shm_world_run(world, tasks, num_tasks) != 0)
        fail_msg("%s", world->why);
}

static shm_world_t world_of(int size, uint64_t seed)
{
    return (shm_world_t){.size = size, .seed = seed, .tuning = narrow};
}

static void test_shm_allreduce_of_any_size_equals_the_reduction(void **state)
{
    static const int64_t counts[] = {0,   1,   15,  16,  17,  63,   64,   65,  128,
                                     129, 255, 256, 257, 640, 1000, 4099, 9973};
    (void)state;
    uint64_t seed = 1;
    for (int size = 1; size <= 5; size++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            for (int place = SHM_PRIVATE; place <= SHM_ONE_PRIVATE; place++, seed++) {
                shm_world_t world = world_of(size, seed);
                shm_task_t task = {.count = counts[i], .dtype = DTRAIN_DTYPE_F32};
                task.place = (shm_place_t)place;
                run(&world, &task, 1);
                task.buffers = SHM_IN_PLACE;
                run(&world, &task, 1);
            }
        }
    }
}

static void test_shm_allreduce_of_any_type_and_op_equals_the_reduction(void **state)
{
    dt_reduction_t reductions[SAMPLE_REDUCTIONS_MAX];
    int num_reductions = sample_reductions(reductions);
    (void)state;
    uint64_t seed = 1000;
    for (int k = 0; k < num_reductions; k++) {
        for (int place = SHM_PRIVATE; place <= SHM_LIBRARY; place++, seed++) {
            shm_world_t world = world_of(2 + (int)(seed % 4), seed);
            shm_task_t task = {.count = 1009, .num_pieces = 3, .op = reductions[k].op};
            task.dtype = reductions[k].dtype;
            task.place = (shm_place_t)place;
            task.buffers = SHM_ANY_BUFFERS;
            run(&world, &task, 1);
        }
    }
}

static void test_shm_allreduce_with_scales_equals_the_reduction(void **state)
{
    static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F16, DTRAIN_DTYPE_I32};
    (void)state;
    for (uint64_t seed = 2000; seed < 2024; seed++) {
        shm_world_t world = world_of(1 + (int)(seed % 5), seed);
        shm_task_t task = {.count = 3001, .num_pieces = 4, .op = DTRAIN_OP_AVERAGE};
        task.dtype = dtypes[seed % 3];
        task.prescale = 0.375;
        task.postscale = 1.7;
        task.place = (shm_place_t)(seed % 4);
        run(&world, &task, 1);
    }
}

static void test_shm_allreduce_of_many_pieces_equals_the_reduction(void **state)
{
    (void)state;
    uint64_t seed = 3000;
    for (int size = 1; size <= 5; size++) {
        for (int place = SHM_PRIVATE; place <= SHM_ANY_PLACE; place++, seed++) {
            shm_world_t world = world_of(size, seed);
            shm_task_t task = {.count = 20011, .num_pieces = 300, .dtype = DTRAIN_DTYPE_F32};
            task.place = (shm_place_t)place;
            task.buffers = SHM_ANY_BUFFERS;
            run(&world, &task, 1);
        }
    }
}

/* The first is treated as private; the third has to wait for the second's descriptors. */
static void test_shm_allreduce_of_more_pieces_than_can_be_posted_equals_the_reduction(void **state)
{
    (void)state;
    shm_world_t world = world_of(2, 3500);
    shm_task_t tasks[3] = {{.count = 9000, .num_pieces = 8200, .dtype = DTRAIN_DTYPE_U8},
                           {.count = 5000, .num_pieces = 4500, .dtype = DTRAIN_DTYPE_U8},
                           {.count = 5001, .num_pieces = 4501, .dtype = DTRAIN_DTYPE_U8}};
    world.heap_bytes = INT64_C(128) << 20; /* a piece takes a page of it */
    for (int i = 0; i < 3; i++) {
        tasks[i].place = SHM_LIBRARY;
        tasks[i].buffers = SHM_IN_PLACE;
    }
    run(&world, tasks, 3);
}

/* The seed decides the inputs too, so equal results mean equal bits under every cut. */
static void test_shm_allreduce_cut_in_any_way_gives_the_same_bits(void **state)
{
    static const dt_shm_tuning_t cuts[] = {
        {.slots = 0},
        {.tiny_bytes = -1, .small_bytes = -1, .chunk_bytes = 128, .slots = 1},
        {.tiny_bytes = -1, .small_bytes = -1, .chunk_bytes = 128, .slots = 2},
        {.tiny_bytes = -1, .small_bytes = -1, .chunk_bytes = 4096, .slots = 64},
        {.tiny_bytes = -1, .small_bytes = -1, .chunk_bytes = 1000, .slots = 5},
        {.tiny_bytes = 1 << 20, .small_bytes = 1 << 20},
        {.tiny_bytes = 1, .small_bytes = 1 << 20, .slots = 2},
        {.chunk_bytes = 1 << 20, .slots = 3},
    };
    (void)state;
    for (int size = 2; size <= 5; size++) {
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            for (int place = SHM_PRIVATE; place <= SHM_LIBRARY; place++) {
                shm_world_t world = {.size = size, .seed = 4000, .tuning = cuts[i]};
                shm_task_t task = {.count = 9973, .dtype = DTRAIN_DTYPE_F32};
                task.place = (shm_place_t)place;
                run(&world, &task, 1);
            }
        }
    }
}

static void test_shm_allreduce_longer_than_a_step_equals_the_reduction(void **state)
{
    (void)state;
    for (int place = SHM_PRIVATE; place <= SHM_LIBRARY; place++) {
        for (int size = 1; size <= 4; size++) {
            shm_world_t world = {.size = size, .seed = 5000 + (uint64_t)size};
            shm_task_t task = {.count = 500009, .num_pieces = 7, .dtype = DTRAIN_DTYPE_F32};
            task.place = (shm_place_t)place;
            task.buffers = SHM_IN_PLACE;
            run(&world, &task, 1);
        }
    }
}

static void test_shm_broadcast_from_any_root_arrives_everywhere(void **state)
{
    static const int64_t counts[] = {0, 1, 16, 17, 700, 5003};
    (void)state;
    uint64_t seed = 6000;
    for (int size = 1; size <= 5; size++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            for (int place = SHM_PRIVATE; place <= SHM_ANY_PLACE; place++, seed++) {
                shm_world_t world = world_of(size, seed);
                shm_task_t tasks[5];
                for (int root = 0; root < size; root++) {
                    tasks[root] = (shm_task_t){.kind = DT_BROADCAST, .count = counts[i]};
                    tasks[root].dtype = DTRAIN_DTYPE_F32;
                    tasks[root].root = root;
                    tasks[root].place = (shm_place_t)place;
                    tasks[root].num_pieces = 1 + (int)(seed % 3);
                    tasks[root].buffers = (shm_buffers_t)((seed + (uint64_t)root) % 4);
                }
                run(&world, tasks, size);
            }
        }
    }
}

static void test_shm_broadcast_longer_than_a_step_arrives_everywhere(void **state)
{
    (void)state;
    for (int place = SHM_PRIVATE; place <= SHM_LIBRARY; place++) {
        shm_world_t world = {.size = 3, .seed = 6500};
        shm_task_t task = {.kind = DT_BROADCAST, .count = 500009, .dtype = DTRAIN_DTYPE_I32};
        task.root = 1;
        task.place = (shm_place_t)place;
        run(&world, &task, 1);
    }
}

static shm_task_t any_task(int size, uint64_t *random)
{
    static const int64_t limits[] = {20, 70, 300, 3000, 12000};
    uint64_t choice = test_random(random);
    shm_task_t task = {.dtype = DTRAIN_DTYPE_F32};
    task.count = (int64_t)(test_random(random) % (uint64_t)limits[choice % 5]);
    task.num_pieces = 1 + (int)(choice >> 8) % 4;
    task.place = (shm_place_t)((choice >> 16) % 4);
    task.buffers = (shm_buffers_t)((choice >> 24) % 3);
    if ((choice >> 32) % 4 == 0) {
        task.kind = DT_BROADCAST;
        task.root = (int)((choice >> 40) % (uint64_t)size);
    }
    return task;
}

/* More than headers and slots, so that they are used again while others wait for them. */
static void test_shm_tasks_in_flight_in_any_order_of_calls_are_all_right(void **state)
{
    (void)state;
    for (uint64_t seed = 7000; seed < 7060; seed++) {
        shm_task_t tasks[SHM_WORLD_TASKS_MAX];
        shm_world_t world = world_of(1 + (int)(seed % 5), seed);
        uint64_t random = seed;
        world.tuning.slots = 1 + (int)(seed % 4);
        for (int i = 0; i < SHM_WORLD_TASKS_MAX; i++)
            tasks[i] = any_task(world.size, &random);
        run(&world, tasks, SHM_WORLD_TASKS_MAX);
    }
}

static void test_shm_start_of_what_is_no_collective_is_refused(void **state)
{
    (void)state;
    dt_shm_node_t *node;
    dt_backend_t *backend;
    dt_task_t *task = NULL;
    float value = 1;
    dt_piece_t piece = {&value, &value, 1};
    dt_collective_t good = {.kind = DT_ALLREDUCE, .pieces = &piece, .num_pieces = 1, .count = 1};
    good.reduction = (dt_reduction_t){DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 1, 1, 1};
    assert_int_equal(dt_shm_local_group(1, SHM_WORLD_HEAP, &node), DTRAIN_OK);
    assert_int_equal(dt_shm_create(node, NULL, &backend), DTRAIN_OK);
    dt_collective_t bad[5] = {good, good, good, good, good};
    bad[0].kind = (dt_collective_kind_t)7;
    bad[1].kind = DT_BROADCAST;
    bad[1].root = 1;
    bad[2].reduction.dtype = (dtrain_dtype_t)99;
    bad[3].num_pieces = 0;
    bad[4].count = 2;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(backend->ops->start(backend, &bad[i], &task), DTRAIN_ERR_INTERNAL);
        assert_null(task);
    }
    assert_int_equal(backend->ops->start(backend, &good, &task), DTRAIN_OK);
    assert_int_equal(backend->ops->progress(backend, task), DTRAIN_OK);
    backend->ops->release(backend, task);
    backend->ops->destroy(backend, 1);
}

static void test_shm_backend_with_an_arena_beyond_the_heap_is_not_made(void **state)
{
    (void)state;
    dt_shm_node_t *node;
    dt_backend_t *backend = NULL;
    dt_shm_tuning_t tuning = {.chunk_bytes = SHM_WORLD_HEAP};
    assert_int_equal(dt_shm_local_group(1, SHM_WORLD_HEAP, &node), DTRAIN_OK);
    assert_int_equal(dt_shm_create(node, &tuning, &backend), DTRAIN_ERR_OUT_OF_MEMORY);
    assert_null(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_allreduce_of_any_size_equals_the_reduction),
        cmocka_unit_test(test_shm_allreduce_of_any_type_and_op_equals_the_reduction),
        cmocka_unit_test(test_shm_allreduce_with_scales_equals_the_reduction),
        cmocka_unit_test(test_shm_allreduce_of_many_pieces_equals_the_reduction),
        cmocka_unit_test(test_shm_allreduce_of_more_pieces_than_can_be_posted_equals_the_reduction),
        cmocka_unit_test(test_shm_allreduce_cut_in_any_way_gives_the_same_bits),
        cmocka_unit_test(test_shm_allreduce_longer_than_a_step_equals_the_reduction),
        cmocka_unit_test(test_shm_broadcast_from_any_root_arrives_everywhere),
        cmocka_unit_test(test_shm_broadcast_longer_than_a_step_arrives_everywhere),
        cmocka_unit_test(test_shm_tasks_in_flight_in_any_order_of_calls_are_all_right),
        cmocka_unit_test(test_shm_start_of_what_is_no_collective_is_refused),
        cmocka_unit_test(test_shm_backend_with_an_arena_beyond_the_heap_is_not_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
