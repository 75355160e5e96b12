/* What a world of several nodes computes, whatever the sizes, the memory and the order of calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "hier_world.h"
#include "samples.h"
#include "test_random.h"

/* Chunks that are short enough for many of them, and messages of a few segments. */
static hier_world_t world_of(int num_nodes, int local_size, uint64_t seed)
{
    return (hier_world_t){.num_nodes = num_nodes,
                          .local_size = local_size,
                          .seed = seed,
                          .tuning = {.chunk_bytes = 512, .slots = 3},
                          .ring = {.segment_bytes = 128, .direct_bytes = 128},
                          .flat_bytes = 256};
}

static void run(hier_world_t *world, const shm_task_t *tasks, int num_tasks)
{
    if (hier_world_run(world, tasks, num_tasks) != 0)
        fail_msg("%d nodes of %d: %s", world->num_nodes, world->local_size, world->why);
    for (int rank = 0; rank < world->num_nodes * world->local_size; rank++) {
        assert_int_equal(world->reports[rank].num_overlaps, 0);
        assert_int_equal(world->reports[rank].num_scribbles, 0);
        assert_int_equal(world->reports[rank].num_left, 0);
    }
}

/* The worlds that most tests go through. */
static const int shapes[][2] = {{2, 2}, {3, 2}, {2, 3}, {3, 3}, {2, 4}, {3, 4}, {5, 2}, {2, 1}};

#define NUM_SHAPES (sizeof shapes / sizeof shapes[0])

static void test_hier_allreduce_of_any_size_has_the_promised_bits(void **state)
{
    static const int64_t counts[] = {0, 1, 16, 17, 63, 64, 65, 129, 256, 300, 1000, 4099};
    (void)state;
    uint64_t seed = 1;
    for (size_t shape = 0; shape < NUM_SHAPES; shape++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            for (int place = SHM_PRIVATE; place <= SHM_ONE_PRIVATE; place++, seed++) {
                hier_world_t world = world_of(shapes[shape][0], shapes[shape][1], seed);
                shm_task_t task = {.count = counts[i], .dtype = DTRAIN_DTYPE_F32};
                task.place = (shm_place_t)place;
                task.buffers = (shm_buffers_t)(seed % 2);
                run(&world, &task, 1);
            }
        }
    }
}

static void test_hier_allreduce_of_any_type_and_op_has_the_promised_bits(void **state)
{
    dt_reduction_t reductions[SAMPLE_REDUCTIONS_MAX];
    int num_reductions = sample_reductions(reductions);
    (void)state;
    uint64_t seed = 1000;
    for (int k = 0; k < num_reductions; k++) {
        for (int place = SHM_PRIVATE; place <= SHM_LIBRARY; place++, seed++) {
            const int *shape = shapes[seed % NUM_SHAPES];
            hier_world_t world = world_of(shape[0], shape[1], seed);
            shm_task_t task = {.count = 1009, .num_pieces = 3, .op = reductions[k].op};
            task.dtype = reductions[k].dtype;
            task.place = (shm_place_t)place;
            task.buffers = SHM_ANY_BUFFERS;
            run(&world, &task, 1);
        }
    }
}

static void test_hier_allreduce_with_scales_has_the_promised_bits(void **state)
{
    static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F64, DTRAIN_DTYPE_BF16,
                                            DTRAIN_DTYPE_F16, DTRAIN_DTYPE_I32};
    (void)state;
    uint64_t seed = 2000;
    for (size_t shape = 0; shape < NUM_SHAPES; shape++) {
        for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
            for (int place = SHM_PRIVATE; place <= SHM_LIBRARY; place++, seed++) {
                hier_world_t world = world_of(shapes[shape][0], shapes[shape][1], seed);
                shm_task_t task = {.count = 801, .num_pieces = 2, .dtype = dtypes[i]};
                task.op = seed % 3 ? DTRAIN_OP_AVERAGE : DTRAIN_OP_MAX;
                task.prescale = 0.375;
                task.postscale = seed % 2 ? 1.7 : 1;
                task.place = (shm_place_t)place;
                run(&world, &task, 1);
            }
        }
    }
}

/* The seed decides the inputs too, so equal results mean equal bits under every cut. */
static void test_hier_allreduce_cut_in_any_way_gives_the_same_bits(void **state)
{
    static const dt_shm_tuning_t cuts[] = {
        {.slots = 0},
        {.chunk_bytes = 128, .slots = 1},
        {.chunk_bytes = 128, .slots = 2},
        {.chunk_bytes = 4096, .slots = 64},
        {.tiny_bytes = 1 << 20, .small_bytes = 1 << 20, .chunk_bytes = 1000, .slots = 5},
    };
    (void)state;
    for (size_t shape = 0; shape < NUM_SHAPES; shape++) {
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            for (int is_flat = 0; is_flat < 2; is_flat++) {
                hier_world_t world = world_of(shapes[shape][0], shapes[shape][1], 4000);
                shm_task_t task = {.count = 5003, .dtype = DTRAIN_DTYPE_F32};
                world.tuning = cuts[i];
                world.flat_bytes = is_flat ? 1 << 20 : -1;
                task.place = SHM_ANY_PLACE;
                run(&world, &task, 1);
            }
        }
    }
}

static void test_hier_allreduce_of_ranks_dealt_out_to_nodes_goes_by_node_at_any_size(void **state)
{
    static const int64_t counts[] = {1, 20, 64, 65, 700, 5003};
    (void)state;
    uint64_t seed = 4500;
    for (size_t shape = 0; shape < NUM_SHAPES; shape++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++, seed++) {
            hier_world_t world = world_of(shapes[shape][0], shapes[shape][1], seed);
            shm_task_t task = {.count = counts[i], .dtype = DTRAIN_DTYPE_F32};
            world.is_scattered = 1;
            task.place = SHM_ANY_PLACE;
            task.dtype = i % 2 ? DTRAIN_DTYPE_F64 : DTRAIN_DTYPE_F32;
            run(&world, &task, 1);
        }
    }
}

static void test_hier_allreduce_of_many_pieces_has_the_promised_bits(void **state)
{
    static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_BF16};
    (void)state;
    uint64_t seed = 5000;
    for (size_t i = 0; i < 2; i++) {
        for (int place = SHM_PRIVATE; place <= SHM_ANY_PLACE; place++, seed++) {
            hier_world_t world = world_of(2, 2, seed);
            shm_task_t tasks[3];
            for (int t = 0; t < 3; t++) {
                tasks[t] = (shm_task_t){.count = 20011 + t, .num_pieces = 300, .dtype = dtypes[i]};
                tasks[t].place = (shm_place_t)place;
                tasks[t].buffers = SHM_ANY_BUFFERS;
            }
            run(&world, tasks, 3);
        }
    }
}

static void test_hier_broadcast_from_any_root_arrives_everywhere(void **state)
{
    static const int64_t counts[] = {0, 1, 16, 17, 64, 700, 5003};
    (void)state;
    uint64_t seed = 6000;
    for (size_t shape = 0; shape < NUM_SHAPES; shape++) {
        int size = shapes[shape][0] * shapes[shape][1];
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++, seed++) {
            hier_world_t world = world_of(shapes[shape][0], shapes[shape][1], seed);
            shm_task_t tasks[SHM_WORLD_MAX];
            world.is_scattered = (int)(seed % 2);
            for (int root = 0; root < size; root++) {
                tasks[root] = (shm_task_t){.kind = DT_BROADCAST, .count = counts[i], .root = root};
                tasks[root].dtype = DTRAIN_DTYPE_F32;
                tasks[root].place = (shm_place_t)((seed + (uint64_t)root / 2) % 4);
                tasks[root].num_pieces = 1 + (int)(seed % 3);
                tasks[root].buffers = (shm_buffers_t)((seed + (uint64_t)root) % 4);
            }
            run(&world, tasks, size);
        }
    }
}

static shm_task_t any_task(int size, uint64_t *random)
{
    static const int64_t limits[] = {20, 70, 300, 3000, 6000};
    static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F64,
                                            DTRAIN_DTYPE_F16};
    uint64_t choice = test_random(random);
    shm_task_t task = {.dtype = dtypes[(choice >> 48) % 4]};
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
static void test_hier_tasks_in_flight_in_any_order_of_calls_are_all_right(void **state)
{
    (void)state;
    for (uint64_t seed = 7000; seed < 7024; seed++) {
        const int *shape = shapes[seed % NUM_SHAPES];
        hier_world_t world = world_of(shape[0], shape[1], seed);
        shm_task_t tasks[24];
        uint64_t random = seed;
        world.tuning.slots = 1 + (int)(seed % 5);
        world.is_scattered = (int)(seed / NUM_SHAPES % 2);
        for (int i = 0; i < 24; i++)
            tasks[i] = any_task(shape[0] * shape[1], &random);
        run(&world, tasks, 24);
    }
}

static void test_hier_ranks_as_threads_at_the_usual_sizes_get_the_promised_bits(void **state)
{
    static const int64_t counts[] = {1, 2000, 3000, 20000, 60001};
    (void)state;
    for (size_t shape = 0; shape < 5; shape++) {
        hier_world_t world = {.num_nodes = shapes[shape][0], .local_size = shapes[shape][1]};
        int size = world.num_nodes * world.local_size;
        shm_task_t tasks[15];
        world.seed = 8000 + shape;
        world.driver = SHM_THREADS;
        for (int i = 0; i < 15; i++) {
            tasks[i] = (shm_task_t){.count = counts[i % 5] + i, .num_pieces = 1 + i % 3};
            tasks[i].dtype = i % 7 == 3 ? DTRAIN_DTYPE_BF16 : DTRAIN_DTYPE_F32;
            tasks[i].place = (shm_place_t)(i % 4);
            tasks[i].buffers = (shm_buffers_t)(i % 3);
            tasks[i].kind = i % 6 == 5 ? DT_BROADCAST : DT_ALLREDUCE;
            tasks[i].root = i % size;
        }
        run(&world, tasks, 15);
    }
}

/* Wherever it stands then; nothing is left, and nothing is touched after destroy. */
static void test_hier_messages_that_fail_end_the_task_with_their_error(void **state)
{
    (void)state;
    for (int64_t calls = 1; calls < 2000; calls = calls * 3 + 1) {
        hier_world_t world = world_of(2, 2, 9000 + (uint64_t)calls);
        shm_task_t tasks[4];
        world.fail_after = calls;
        for (int i = 0; i < 4; i++) {
            tasks[i] = (shm_task_t){.count = 100000 + i, .num_pieces = 2};
            tasks[i].dtype = i == 2 ? DTRAIN_DTYPE_F16 : DTRAIN_DTYPE_F32;
            tasks[i].place = (shm_place_t)(i % 2);
            tasks[i].kind = i == 3 ? DT_BROADCAST : DT_ALLREDUCE;
        }
        assert_int_equal(hier_world_run(&world, tasks, 4), -1);
        assert_non_null(strstr(world.why, "progress failed"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hier_allreduce_of_any_size_has_the_promised_bits),
        cmocka_unit_test(test_hier_allreduce_of_any_type_and_op_has_the_promised_bits),
        cmocka_unit_test(test_hier_allreduce_with_scales_has_the_promised_bits),
        cmocka_unit_test(test_hier_allreduce_cut_in_any_way_gives_the_same_bits),
        cmocka_unit_test(test_hier_allreduce_of_ranks_dealt_out_to_nodes_goes_by_node_at_any_size),
        cmocka_unit_test(test_hier_allreduce_of_many_pieces_has_the_promised_bits),
        cmocka_unit_test(test_hier_broadcast_from_any_root_arrives_everywhere),
        cmocka_unit_test(test_hier_tasks_in_flight_in_any_order_of_calls_are_all_right),
        cmocka_unit_test(test_hier_ranks_as_threads_at_the_usual_sizes_get_the_promised_bits),
        cmocka_unit_test(test_hier_messages_that_fail_end_the_task_with_their_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
